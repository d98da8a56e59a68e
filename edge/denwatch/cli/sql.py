"""`denwatch sql`: questions about the logs in SQL, over a handful of views."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from denwatch.cli.common import build_parser
from denwatch.cli.failures import WRONG_USAGE, CommandError
from denwatch.cli.spark_common import (
    add_master,
    explain_failure,
    find_folders,
    open_session,
    require_shared,
)
from denwatch.node.log.kinds import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = "log_"  # + kind: the records as they were written
_QUERY = re.compile(r"\s*(select|with|values|from|describe|desc|explain|show)\b", re.IGNORECASE)
_DESCRIPTION = """
Views are the tables of `denwatch analyze` (outcomes, causes, links, strategies …), log_KIND for the
records of each kind in one timeline (log_note, log_contact_end …), and quarantine. Ids are
hexadecimal in the tables; times are milliseconds: timestamp_millis(at) shows them. Only what a
query names is worked out. Without a query the views are listed."""
_EXAMPLES = """
denwatch sql logs
denwatch sql logs "select outcome, cause, pairs from causes"
denwatch sql logs "select owner, latency from outcomes where outcome = 'late'" --format csv
denwatch sql north south --query "select what, why, count(*) from log_refuse group by all\""""


def run(argv: list[str]) -> int:
    """Answer one query."""
    parser = build_parser("sql", "Ask the logs in SQL.", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("logs", nargs="+", metavar="LOGS", help="folders; a query may stand last")
    parser.add_argument("--query", metavar="SQL", help="the query")
    parser.add_argument(
        "--format", choices=("table", "csv", "json"), default="table", help="of the rows (table)"
    )
    parser.add_argument("--limit", type=int, default=1_000, metavar="ROWS", help="at most (1000)")
    add_master(parser)
    arguments = parser.parse_args(argv)
    logs, query = list(arguments.logs), arguments.query
    if query is None and len(logs) > 1 and _QUERY.match(logs[-1]):
        query = logs.pop()
    if query is not None and not _QUERY.match(query):
        raise CommandError("only queries: select …, with …, describe …, explain …", WRONG_USAGE)
    if arguments.limit < 1:
        raise CommandError("--limit: 1 or more", WRONG_USAGE)
    folders = find_folders(logs)
    with open_session(
        arguments.master, "denwatch sql", arguments.archive, arguments.conf
    ) as session:
        require_shared(session, folders)
        from pyspark.errors import AnalysisException, ParseException

        views = build_views(session, [str(folder) for folder in folders])
        if query is None:
            _print_views(views)
            return 0
        try:
            answer = ask(session, views, query)
            rows = [row.asDict(True) for row in answer.limit(arguments.limit).collect()]
        except (AnalysisException, ParseException) as error:
            raise CommandError(explain_failure(error)) from None
        print_rows(answer.columns, rows, arguments.format)
    return 0


def build_views(
    session: SparkSession, folders: list[str]
) -> dict[str, tuple[str, Callable[[], DataFrame]]]:
    """Return all views: what each says, and how to make it."""
    from denwatch.spark.analytics.study import Study
    from denwatch.spark.analytics.timeline import Logs
    from denwatch.spark.report.analysis import name_ids
    from denwatch.spark.source import QUARANTINE, read_kind

    logs = Logs(lambda kind: read_kind(session, folders, kind))
    study = Study(logs)

    def name(make: Callable[[], DataFrame]) -> Callable[[], DataFrame]:
        return lambda: name_ids(make())

    views = {key: (words, name(make)) for key, (words, make) in study.list_tables().items()}
    for kind in KINDS.values():
        views[RECORDS + kind.name] = (kind.meaning, partial(logs.get, kind.name))
    bad = "what could not be read, and why"
    views[QUARANTINE] = (bad, lambda: read_kind(session, folders, QUARANTINE))
    return views


def ask(
    session: SparkSession, views: dict[str, tuple[str, Callable[[], DataFrame]]], query: str
) -> DataFrame:
    """Return the answer; views that the query does not name are not made."""
    said = set(re.findall(r"\w+", query.lower()))
    for name in sorted(views.keys() & said):
        views[name][1]().createOrReplaceTempView(name)
    return session.sql(query)


def _print_views(views: dict[str, tuple[str, Callable[[], DataFrame]]]) -> None:
    width = max(map(len, views))
    for name, (words, _) in views.items():
        print(f"{name:<{width}}  {words}")


def print_rows(names: list[str], rows: list[dict[str, Any]], form: str) -> None:
    """Print an answer."""
    if form == "json":
        for row in rows:
            print(json.dumps(row, ensure_ascii=False, default=_write_other))
        return
    texts = [[_write_text(row[name]) for name in names] for row in rows]
    if form == "csv":
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(texts)
        sys.stdout.write(stream.getvalue())
        return
    widths = [max([len(name), *(len(row[i]) for row in texts)]) for i, name in enumerate(names)]
    for line in [list(names), ["-" * width for width in widths], *texts]:
        print(
            "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        )


def _write_text(value: object) -> str:
    if value is None:
        return ""
    return str(_write_other(value)) if isinstance(value, bytes | bytearray) else str(value)


def _write_other(value: object) -> object:
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value)
