"""The commands on Spark: `denwatch analyze`, `stream`, `sql` and `trace` read all nodes' logs.

pyspark is imported only when a session is opened, so that `--help` works without it.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denwatch.cli.common import (
    add_option,
    build_parser,
    format_table,
    make_folder,
    need_extra,
    refuse,
)
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError
from denwatch.cli.subscribe import add_login, read_password

if TYPE_CHECKING:
    from denwatch.spark.report import Tables
    from denwatch.spark.stream.operator_link import OperatorLink
    from pyspark.sql import DataFrame, SparkSession


def add_logs(parser: argparse.ArgumentParser, words: str) -> None:
    """Add the options of `analyze` and `stream`; `words` say what the folder DIR is for."""
    parser.add_argument(
        "logs", nargs="+", metavar="LOGS", help="folder with nodes' logs, at any depth; or a URI"
    )
    add_master(parser)
    add_option(parser, "--out DIR", words, required=True)
    add_option(
        parser, "--late SECONDS", "a delivery is late after this time (60)", type=float, default=60
    )
    add_option(parser, "--strategies LIST", "to compare: direct,spray:8,utility:11,epidemic …")
    add_option(parser, "--quiet", "print no progress")


def _check_late(arguments: argparse.Namespace) -> None:
    if not arguments.late > 0:
        raise CommandError(f"--late {arguments.late}: must be above 0 seconds", WRONG_USAGE)


def add_master(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cluster."""
    add_option(parser, "--master URL", "spark://…, yarn, k8s://… (this machine: local[*])")
    add_option(
        parser, "--archive FILE", "a Python environment for executors, made with venv-pack (theirs)"
    )
    add_option(parser, "--conf KEY=VALUE ...", "a Spark setting; may be repeated")
    add_option(parser, "--ui", "show Spark's own page while it works (http://localhost:4040)")
    add_option(parser, "--events DIR", "keep Spark's event log, for its history server")


def read_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the Spark settings of the options for the cluster."""
    settings = read_conf(arguments.conf)
    if arguments.ui:
        settings.setdefault("spark.ui.enabled", "true")
    if arguments.events:
        folder = make_folder(Path(arguments.events)).resolve()
        settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder.as_uri()}
    return settings


def read_conf(pairs: Iterable[str]) -> dict[str, str]:
    """Return settings that were given as KEY=VALUE."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise CommandError(f"--conf {pair}: spark.KEY=VALUE", WRONG_USAGE)
        settings[key] = value
    return settings


def find_folders(names: list[str]) -> list[Path]:
    """Return folders that exist."""
    folders = [Path(name) for name in names]
    for folder in folders:
        if not folder.exists():
            raise CommandError(f"{folder}: no such folder", MISSING)
        if not folder.is_dir():
            raise CommandError(f"{folder}: not a folder; name the folder with the logs")
    return folders


@contextmanager
def open_session(
    arguments: argparse.Namespace, command: str, folders: list[Path] | None = None
) -> Iterator[SparkSession]:
    """Yield a Spark session that ends with the command; `folders` are all that it reads."""
    options = read_settings(arguments)
    with need_extra("spark"):
        import pyspark  # noqa: F401 — missing without the extra
        from denwatch.spark.cluster_bundle import ArchiveError
        from denwatch.spark.session import build_session, is_little
    try:
        session = build_session(
            arguments.master,
            name=f"denwatch {command}",
            options=options,
            archive=arguments.archive,
            is_brief=folders is not None and is_little(folders),
        )
    except ArchiveError as error:
        raise CommandError(f"--archive {error}", WRONG_USAGE) from None
    except Exception as error:  # noqa: BLE001 — Java and the network fail in many ways
        raise CommandError(
            f"Spark does not start: {explain_failure(error)} (Java 17 or later is needed)", MISSING
        ) from None
    try:
        yield session
    finally:
        session.stop()


def make_progress_printer(is_quiet: bool) -> Callable[[str], None]:
    """Return a function that prints progress, with the seconds since the start."""
    began = time.monotonic()

    def tell(words: str) -> None:
        if not is_quiet:
            print(f"[{time.monotonic() - began:6.1f} s] {words}", file=sys.stderr, flush=True)

    return tell


def explain_failure(error: Exception) -> str:
    """Return the line of a Spark error that contains the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if not lines[0].endswith("Traceback (most recent call last):"):
        return lines[0]
    # A worker's error: its last line is the cause, before what Java adds.
    end = next((n for n, line in enumerate(lines) if line.startswith("SQLSTATE")), len(lines))
    named = [line for line in lines[1:end] if line[:1].isupper() and not line.startswith("File ")]
    return named[-1] if named else lines[0]


def require_shared(session: SparkSession, folders: Iterable[Path]) -> None:
    """Raise an error if the machines of a cluster do not have the same folders as this one."""
    from denwatch.spark.cluster_bundle import find_unseen
    from denwatch.spark.session import is_local

    if is_local(str(session.sparkContext.master)):
        return
    unseen = find_unseen(session, folders)
    if unseen:
        host, path = unseen[0]
        others = f" (and {len(unseen) - 1} more such)" if len(unseen) > 1 else ""
        raise CommandError(
            f"{path}: {host} of the cluster does not have this folder{others};"
            " logs and report must be at the same path on all machines"
        )


# `denwatch analyze` --------------------------------------------------------------------------

_ANALYZE_DESCRIPTION = """
Reads the logs of all nodes, matches every notification against every subscription, and reports for
each subscriber what was delivered, late, missed, withheld or wrong, with the cause; how close
replication came to the best that the contacts allowed; and which strategy would do better. Writes
to DIR: report.html, which opens offline, the tables behind its pictures (tables/) and the logs'
records as Parquet (records/), to which the next run only adds. LOGS may also be URIs of any
storage that Hadoop knows (hdfs, s3a, abfs …): new segments are copied to DIR/logs first."""
_ANALYZE_EXAMPLES = """
denwatch analyze north/data/log middle/data/log --out report
denwatch analyze logs --out report --late 300
denwatch analyze hdfs://head/logs --out report
denwatch analyze /mnt/logs --out /mnt/report --master spark://head:7077
denwatch analyze /mnt/logs --out /mnt/report --master yarn --archive env.tar.gz"""


def run_analyze(argv: list[str]) -> int:
    """Analyse logs and write the report."""
    parser = build_parser(
        "analyze",
        "Analyse the deliveries in all nodes' logs.",
        _ANALYZE_DESCRIPTION,
        _ANALYZE_EXAMPLES,
    )
    add_logs(parser, "folder for the report")
    arguments = parser.parse_args(argv)
    uris = [name for name in arguments.logs if _URI.match(name)]
    folders = find_folders([name for name in arguments.logs if name not in uris])
    _check_late(arguments)
    out = make_folder(Path(arguments.out)).resolve()
    tell = make_progress_printer(arguments.quiet)
    tell("starting Spark")
    with open_session(arguments, "analyze", None if uris else folders) as session:
        from denwatch.spark.analytics.what_if import STRATEGIES
        from denwatch.spark.report import EmptyLogsError, analyze
        from denwatch.spark.source.storage import StorageError, fetch_logs

        with refuse(StorageError, status=MISSING):
            fetched, copied = fetch_logs(session, uris, out / "logs")
        folders += fetched
        if uris:
            tell(f"{copied} new or changed files copied from {', '.join(uris)}")

        strategies = read_strategies(arguments.strategies) or STRATEGIES
        require_shared(session, [*folders, out])
        late = int(arguments.late * 1000)
        with refuse(EmptyLogsError):
            report = analyze(session, folders, out, late=late, strategies=strategies, tell=tell)
    head = report.headline
    print(
        f"{int(head['expected'])} expected, {int(head['possible'])} reachable, "
        f"{int(head['delivered'])} delivered, {int(head['missed'])} missed; "
        f"{int(head['withheld'])} withheld, {int(head['wrong'])} wrong"
    )
    if report.quarantined:
        print(f"{report.quarantine}; all in {report.tables / 'quarantine.csv'}")
    print(report.advice)
    print(report.page)
    return 0


def read_strategies(text: str | None) -> tuple[str, ...]:
    """Return the strategies of a comma-separated list, checked."""
    if not text:
        return ()
    from denwatch.spark.analytics.what_if import make_strategy

    names = tuple(name.strip() for name in text.split(",") if name.strip())
    with refuse(ValueError, before="--strategies: ", status=WRONG_USAGE):
        for name in names:
            make_strategy(name)
    return names


# `denwatch stream`: the tables of `analyze`, kept current while logs arrive -------------------

_STREAM_DESCRIPTION = """
Follows the logs of all nodes below LOGS, as they are written or copied there, in any order, and
keeps in DIR: records/ (Parquet by kind and day), tables/ (matches, decisions, outcomes, causes …),
summary.json and live.html, a page that refreshes itself. A notification is also matched with
subscriptions whose records arrive days later: once all logs are there, the tables equal those of
`denwatch analyze`.

For every program that reads DIR, a batch is visible completely or not at all, and it is in the
tables exactly once, even if this command is killed; the next run continues where it stopped. A
program that reads several files for a long time should resolve the link DIR/current first; its
target stays for two minutes after it was replaced. On a cluster, all workers must have DIR.

With --mqtt, results are sent to the nodes that can be reached: a notification that a subscriber
should have received, and its subscription, go to the node where the subscriber was last, as signed
by their origins; the node verifies them and delivers once. Each node also receives the replication
strategy that would have done best (dens/1/plan/NODE, retained). NAME is a subscriber with the role
`operator`: denwatch keys add subscriber NAME --role operator."""
_STREAM_EXAMPLES = """
denwatch stream /srv/logs --out /srv/live
denwatch stream /srv/logs --out /srv/live --once
denwatch stream north/data/log south/data/log --out live --every 2s
denwatch stream logs --out live --mqtt mqtts://north:8883 --mqtt mqtts://south:8883 \\
    --name operator --password-file operator.password --ca ca.pem
denwatch stream /mnt/logs --out /mnt/live --master spark://head:7077"""
_URI = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def run_stream(argv: list[str]) -> int:
    """Follow logs until the command is stopped."""
    arguments = _parse_stream(argv)
    folders = find_folders(arguments.logs)
    _check_late(arguments)
    if arguments.max_records < 1:
        raise CommandError(f"--max-records {arguments.max_records}: 1 or more", WRONG_USAGE)
    every = read_span(arguments.every)
    strategies = read_strategies(arguments.strategies)
    operator = _make_operator(arguments)
    out = make_folder(Path(arguments.out)).resolve()
    tell = make_progress_printer(arguments.quiet)
    tell("starting Spark")
    with open_session(arguments, "stream") as session:
        from denwatch.spark.analytics.what_if import STRATEGIES
        from denwatch.spark.stream.engine import StreamEngine, StreamSettings
        from denwatch.spark.stream.versions import VersionError

        require_shared(session, [*folders, out])
        settings = StreamSettings(
            every=every,
            late=int(arguments.late * 1000),
            strategies=strategies or STRATEGIES,
            max_records=arguments.max_records,
        )
        with (
            refuse(VersionError),
            closing(
                StreamEngine(session, folders, out, settings, tell=tell, loop=operator)
            ) as engine,
        ):
            signal.signal(signal.SIGTERM, lambda *_: engine.stop())
            tell(f"following {', '.join(map(str, folders))}; {out / 'live.html'} shows it")
            summary = engine.run(once=arguments.once)
    print(
        f"{sum(summary['records'].values())} records, {summary['matches']} matches in"
        f" {out / 'tables'}"
    )
    return 0


def _parse_stream(argv: list[str]) -> argparse.Namespace:
    parser = build_parser(
        "stream", "Keep tables of all nodes' logs current.", _STREAM_DESCRIPTION, _STREAM_EXAMPLES
    )
    add_logs(parser, "folder for the tables")
    add_option(parser, "--once", "exit when all present logs are in the tables")
    add_option(parser, "--every TIME", "time between batches (5s)", default="5s")
    words = "records in one batch; limits a worker's memory (500000)"
    add_option(parser, "--max-records N", words, type=int, default=500_000)
    back = parser.add_argument_group("back to the nodes")
    add_option(back, "--mqtt URL ...", "a node, mqtt://… or mqtts://…; repeatable")
    add_option(back, "--name NAME", "name to log in with (operator)", default="operator")
    add_login(back)
    return parser.parse_args(argv)


def read_span(text: str) -> float:
    """Return the seconds of a time such as 500ms, 5s or 1m."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text.strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if seconds <= 0:
        raise CommandError(f"--every {text}: a time such as 500ms, 5s or 1m", WRONG_USAGE)
    return seconds


def _make_operator(arguments: argparse.Namespace) -> OperatorLink | None:
    if not arguments.mqtt:
        return None
    with need_extra("spark"):
        from denwatch.client.subscriber.messages import SubscriberError
        from denwatch.spark.stream.operator_link import OperatorLink
    memory, is_insecure = Path(arguments.out) / "handed.json", arguments.insecure
    user = arguments.name, read_password(arguments)
    with refuse(SubscriberError, before="--mqtt: ", status=WRONG_USAGE):
        return OperatorLink(arguments.mqtt, *user, memory, ca=arguments.ca, is_insecure=is_insecure)


# `denwatch sql` ------------------------------------------------------------------------------

_QUERY = re.compile(r"\s*(select|with|values|from|describe|desc|explain|show)\b", re.IGNORECASE)
_SQL_DESCRIPTION = """
Views are the tables of `denwatch analyze` (outcomes, causes, links, strategies …), log_KIND for the
records of each kind in one timeline (log_note, log_contact_end …), and quarantine. Ids are
hexadecimal; times are milliseconds: timestamp_millis(at) shows them. Of a report, the folder that
`analyze --out` wrote, the tables are there already; of logs, the views that a query names are
computed. Without a query the views are listed, and in a terminal queries can be typed, each up to a
semicolon."""
_SQL_EXAMPLES = """
denwatch sql report
denwatch sql report "select cause, pairs from causes where outcome = 'missed'"
denwatch sql logs
denwatch sql logs "select outcome, cause, pairs from causes"
denwatch sql logs "select subscriber, latency from outcomes where outcome = 'late'" --format csv
denwatch sql north south --query "select what, why, count(*) from log_refuse group by all\""""


def run_sql(argv: list[str]) -> int:
    """Answer one query."""
    parser = build_parser("sql", "Query the logs in SQL.", _SQL_DESCRIPTION, _SQL_EXAMPLES)
    parser.add_argument(
        "logs",
        nargs="+",
        metavar="LOGS",
        help="folders of logs, or a report; the last argument may be a query",
    )
    add_option(parser, "--query SQL", "the query")
    add_option(
        parser,
        "--format",
        "output format (table)",
        choices=("table", "csv", "json"),
        default="table",
    )
    add_option(parser, "--limit ROWS", "print at most so many rows (1000)", type=int, default=1_000)
    add_master(parser)
    arguments = parser.parse_args(argv)
    logs, query = list(arguments.logs), arguments.query
    if query is None and len(logs) > 1 and _QUERY.match(logs[-1]):
        query = logs.pop()
    if query is not None:
        check_query(query)
    if arguments.limit < 1:
        raise CommandError("--limit: 1 or more", WRONG_USAGE)
    folders = find_folders(logs)
    with open_session(arguments, "sql", folders) as session:
        require_shared(session, folders)
        from denwatch.spark.report import tables

        views = tables(session, folders)

        def answer(text: str) -> None:
            frame, rows = ask(session, views, text, arguments.limit)
            print_rows(frame.columns, rows, arguments.format)

        if query is not None:
            answer(query)
            return 0
        print(*format_table([*views.describe().items()]), sep="\n")
        if sys.stdin.isatty():
            prompt(answer)
    return 0


def prompt(answer: Callable[[str], None]) -> None:
    """Answer queries as they are typed, each up to a semicolon, until the input ends."""
    with suppress(ImportError):
        import readline  # noqa: F401 — arrow keys and earlier lines, where Python has it
    print("a query ends with a semicolon; exit or Ctrl-D ends", file=sys.stderr)
    typed = ""
    while True:
        try:
            line = input("...> " if typed else "sql> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            typed = ""
            continue
        if not typed and line.strip().rstrip(";").lower() in ("exit", "quit"):
            return
        typed = f"{typed}\n{line}".strip()
        if not typed.endswith(";"):
            continue
        query, typed = typed.rstrip("; \n"), ""
        try:
            if query:
                answer(query)
        except CommandError as error:
            print(error, file=sys.stderr)


def check_query(query: str) -> None:
    """Refuse what changes something."""
    if not _QUERY.match(query):
        raise CommandError("only queries: select …, with …, describe …, explain …", WRONG_USAGE)


def ask(
    session: SparkSession, views: Tables, query: str, limit: int
) -> tuple[DataFrame, list[dict[str, Any]]]:
    """Return the answer, and its rows; only views that the query names are built."""
    from pyspark.errors import AnalysisException, ParseException

    check_query(query)
    words = set(re.findall(r"\w+", query.lower()))
    try:
        for name in sorted(views.keys() & words):
            views[name].createOrReplaceTempView(name)
        frame = session.sql(query)
        return frame, [row.asDict(True) for row in frame.limit(limit).collect()]
    except (AnalysisException, ParseException) as error:
        raise CommandError(explain_failure(error)) from None


def print_rows(names: list[str], rows: list[dict[str, Any]], form: str) -> None:
    """Print an answer."""
    if form == "json":
        for row in rows:
            print(json.dumps(row, ensure_ascii=False, default=_write_other))
        return
    texts = [[_write_text(row[name]) for name in names] for row in rows]
    if form == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows([names, *texts])
        return
    widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
    print(*format_table([names, ["-" * width for width in widths], *texts]), sep="\n")


def _write_text(value: object) -> str:
    if value is None:
        return ""
    return str(_write_other(value)) if isinstance(value, bytes | bytearray) else str(value)


def _write_other(value: object) -> object:
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value)


# `denwatch trace` ----------------------------------------------------------------------------

_TRACE_DESCRIPTION = """
Shows what happened to one notification: where it entered, which subscriptions it matched, over
which nodes it went, where it waited and for what, and who got it when. LOGS are folders of nodes'
logs, or the report of `denwatch analyze`, which is faster. The id is the `id` of a notification, or
the `notification_id` of a table. Without an id the latest notifications are listed."""
_TRACE_EXAMPLES = """
denwatch trace report
denwatch trace report 5d1c0f4be2a79310
denwatch trace north/data/log south/data/log 5d1c0f4be2a79310 --format otlp > trace.json"""
_ID = re.compile(r"[0-9a-fA-F]{16}")


def run_trace(argv: list[str]) -> int:
    """Trace one notification."""
    parser = build_parser(
        "trace", "Follow one notification through all nodes.", _TRACE_DESCRIPTION, _TRACE_EXAMPLES
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
    with open_session(arguments, "trace", folders) as session:
        require_shared(session, folders)
        from denwatch.spark.analytics import trace
        from denwatch.spark.analytics.timeline import Logs
        from denwatch.spark.record_tables import RecordTables
        from denwatch.spark.report.analysis import is_report
        from denwatch.spark.source import read_kind

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
