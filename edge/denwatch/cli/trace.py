"""`denwatch trace`: the way of one notification through all nodes, from their logs."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

from denwatch.cli.common import add_option, build_parser, format_table
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError
from denwatch.cli.spark import add_master, find_folders, open_session, require_shared

_DESCRIPTION = """
Shows what happened to one notification: where it entered, which subscriptions it matched, over
which nodes it went, where it waited and for what, and who got it when. LOGS are folders of nodes'
logs, or the report of `denwatch analyze`, which is faster. The id is the `id` of a notification, or
the `note_id` of a table. Without an id the latest notifications are listed."""
_EXAMPLES = """
denwatch trace report
denwatch trace report 5d1c0f4be2a79310
denwatch trace north/data/log south/data/log 5d1c0f4be2a79310 --format otlp > trace.json"""
_ID = re.compile(r"[0-9a-fA-F]{16}")


def run(argv: list[str]) -> int:
    """Trace one notification."""
    parser = build_parser(
        "trace", "Follow one notification through all nodes.", _DESCRIPTION, _EXAMPLES
    )
    parser.add_argument(
        "logs", nargs="+", metavar="LOGS", help="folders of logs, or a report; then an id"
    )
    add_option(
        parser,
        "--format",
        "output format (text); otlp is OpenTelemetry's, which Jaeger reads",
        choices=("text", "json", "otlp"),
        default="text",
    )
    add_master(parser)
    arguments = parser.parse_args(argv)
    names = list(arguments.logs)
    text = names.pop() if _ID.fullmatch(names[-1]) and not Path(names[-1]).exists() else ""
    if not names:
        raise CommandError(f"{text}: in which logs? denwatch trace LOGS {text}", WRONG_USAGE)
    folders = find_folders(names)
    with open_session(arguments, "trace") as session:
        require_shared(session, folders)
        from denwatch.spark.analytics import trace
        from denwatch.spark.analytics.timeline import Logs
        from denwatch.spark.report.analysis import is_report
        from denwatch.spark.source import read_kind
        from denwatch.spark.tables import RecordTables

        if len(folders) == 1 and is_report(folders[0]):
            logs = Logs(partial(RecordTables(folders[0] / "records").read, session))
        else:
            logs = Logs(lambda kind: read_kind(session, folders, kind))
        if not text:
            rows = [
                (trace.write_id(row["item"]), row["device"], row["event"] or "", str(row["nodes"]))
                for row in trace.list_latest(logs).collect()
            ]
            print(*format_table([("note", "device", "event", "nodes"), *rows]), sep="\n")
            return 0
        note = trace.read_id(text)
        steps = trace.trace_notification(logs, note)
    if not steps:
        raise CommandError(f"{text}: no notification of this id in these logs", MISSING)
    if arguments.format == "otlp":
        print(json.dumps(trace.build_otlp(note, steps)))
    elif arguments.format == "json":
        for step in steps:
            waits = [wait._asdict() for wait in step.waits]
            print(json.dumps(step._asdict() | {"waits": waits}, ensure_ascii=False))
    else:
        print(*trace.describe_trace(note, steps), sep="\n")
    return 0
