"""The commands on Spark, `denwatch analyze`, `stream` and `sql`: they read the logs of all nodes.

pyspark is imported only when a session is opened, so that `--help` works without it.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denwatch.cli.common import build_parser
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError
from denwatch.node.log.kinds import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
if TYPE_CHECKING:
    from denwatch.spark.stream.operator_link import OperatorLink
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Add the options for the folders of logs and for the cluster."""
    parser.add_argument(
        "logs", nargs="+", metavar="LOGS", help="a folder with nodes' logs, at any depth"
    )
    add_master(parser)


def add_master(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cluster."""
    parser.add_argument(
        "--master", metavar="URL", help="spark://…, yarn, k8s://… (this machine: local[*])"
    )
    parser.add_argument(
        "--archive",
        metavar="FILE",
        help="a Python environment for executors, made with venv-pack (theirs)",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a Spark setting; may be repeated",
    )


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
    master: str | None, name: str, archive: str | None = None, conf: Iterable[str] = ()
) -> Iterator[SparkSession]:
    """Yield a Spark session that ends with the command."""
    options = read_conf(conf)
    try:
        import pyspark  # noqa: F401 — missing without the extra
        from denwatch.spark.cluster_bundle import ArchiveError
        from denwatch.spark.session import build_session
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[spark]'"
        raise CommandError(message, MISSING) from None
    try:
        session = build_session(master, name=name, options=options, archive=archive)
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
each subscriber what was delivered, late, missed or wrong, with the cause; how close replication
came to the best that the contacts allowed; and which strategy would do better. Writes to DIR:
report.html, which opens offline, the tables behind its pictures (tables/) and the logs' records as
Parquet (records/), to which the next run only adds."""
_ANALYZE_EXAMPLES = """
denwatch analyze north/data/log middle/data/log --out report
denwatch analyze logs --out report --late 300
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
    add_logs(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the report")
    parser.add_argument(
        "--late",
        type=float,
        default=60,
        metavar="SECONDS",
        help="a delivery is late after this time (60)",
    )
    parser.add_argument(
        "--strategies", metavar="LIST", help="to compare: direct,spray:8,utility:11,epidemic …"
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    arguments = parser.parse_args(argv)
    folders = find_folders(arguments.logs)
    out = make_folder(Path(arguments.out))
    if not arguments.late > 0:
        raise CommandError(f"--late {arguments.late}: must be above 0 seconds", 2)
    tell = make_progress_printer(arguments.quiet)
    tell("starting Spark")
    with open_session(
        arguments.master, "denwatch analyze", arguments.archive, arguments.conf
    ) as session:
        from denwatch.spark.analytics.what_if import STRATEGIES
        from denwatch.spark.report import EmptyLogsError, analyze

        strategies = read_strategies(arguments.strategies) or STRATEGIES
        require_shared(session, [*folders, out])
        try:
            report = analyze(
                session,
                folders,
                out,
                late=int(arguments.late * 1000),
                strategies=strategies,
                tell=tell,
            )
        except EmptyLogsError as error:
            raise CommandError(str(error)) from None
    head = report.headline
    print(
        f"{int(head['wished'])} expected, {int(head['possible'])} reachable, "
        f"{int(head['delivered'])} delivered, {int(head['missed'])} missed, "
        f"{int(head['wrong'])} wrong"
    )
    if report.quarantined:
        print(f"{report.quarantine}; all in {report.tables / 'quarantine.csv'}")
    print(report.advice)
    print(report.page)
    return 0


def make_folder(path: Path) -> Path:
    """Make a folder, and return its full path."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    return path.resolve()


def read_strategies(text: str | None) -> tuple[str, ...]:
    """Return the strategies of a comma-separated list, checked."""
    if not text:
        return ()
    from denwatch.spark.analytics.what_if import make_strategy

    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        try:
            make_strategy(name)
        except ValueError as error:
            raise CommandError(f"--strategies: {error}", 2) from None
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
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def run_stream(argv: list[str]) -> int:
    """Follow logs until the command is stopped."""
    arguments = _parse_stream(argv)
    folders = find_folders(arguments.logs)
    if not arguments.late > 0:
        raise CommandError(f"--late {arguments.late}: must be above 0 seconds", 2)
    if arguments.max_records < 1:
        raise CommandError(f"--max-records {arguments.max_records}: 1 or more", 2)
    every = read_span(arguments.every)
    strategies = read_strategies(arguments.strategies)
    operator = _make_operator(arguments)
    out = make_folder(Path(arguments.out))
    tell = make_progress_printer(arguments.quiet)
    tell("starting Spark")
    with open_session(
        arguments.master, "denwatch stream", arguments.archive, arguments.conf
    ) as session:
        from denwatch.spark.stream.engine import StreamEngine, StreamSettings
        from denwatch.spark.stream.versions import VersionError

        require_shared(session, [*folders, out])
        settings = StreamSettings(
            every=every, late=int(arguments.late * 1000), max_records=arguments.max_records
        )
        if strategies:
            settings = StreamSettings(**{**vars(settings), "strategies": strategies})
        try:
            engine = StreamEngine(session, folders, out, settings, tell=tell, loop=operator)
        except VersionError as error:
            raise CommandError(str(error)) from None
        signal.signal(signal.SIGTERM, lambda *_: engine.stop())
        tell(f"following {', '.join(map(str, folders))}; {out / 'live.html'} shows it")
        try:
            summary = engine.run(once=arguments.once)
        except VersionError as error:
            raise CommandError(str(error)) from None
        finally:
            engine.close()
    print(
        f"{sum(summary['records'].values())} records, {summary['matches']} matches in"
        f" {out / 'tables'}"
    )
    return 0


def _parse_stream(argv: list[str]) -> argparse.Namespace:
    parser = build_parser(
        "stream", "Keep tables of all nodes' logs current.", _STREAM_DESCRIPTION, _STREAM_EXAMPLES
    )
    add_logs(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the tables")
    parser.add_argument(
        "--once", action="store_true", help="exit when all present logs are in the tables"
    )
    parser.add_argument("--every", default="5s", metavar="TIME", help="time between batches (5s)")
    parser.add_argument(
        "--late",
        type=float,
        default=60,
        metavar="SECONDS",
        help="a delivery is late after this time (60)",
    )
    parser.add_argument(
        "--strategies", metavar="LIST", help="to compare: direct,spray:8,utility:11,epidemic …"
    )
    parser.add_argument(
        "--max-records",
        type=int,
        default=500_000,
        metavar="N",
        help="records in one batch; limits a worker's memory (500000)",
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    back = parser.add_argument_group("back to the nodes")
    back.add_argument(
        "--mqtt", action="append", metavar="URL", help="a node, mqtt://… or mqtts://…; repeatable"
    )
    back.add_argument("--name", default="operator", help="name to log in with (operator)")
    back.add_argument(
        "--password-file", metavar="FILE", help="file with the password (or DENWATCH_PASSWORD)"
    )
    back.add_argument("--ca", metavar="FILE", help="authority to trust (the system's)")
    back.add_argument(
        "--insecure", action="store_true", help="allow the password in the clear to another machine"
    )
    return parser.parse_args(argv)


def read_span(text: str) -> float:
    """Return the seconds of a time such as 500ms, 5s or 1m."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text.strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if seconds <= 0:
        raise CommandError(f"--every {text}: a time such as 500ms, 5s or 1m", 2)
    return seconds


def _make_operator(arguments: argparse.Namespace) -> OperatorLink | None:
    if not arguments.mqtt:
        return None
    try:
        from denwatch.cli.subscribe import read_password
        from denwatch.client.subscriber.messages import SubscriberError
        from denwatch.spark.stream.operator_link import OperatorLink
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[spark,client]'"
        raise CommandError(message, MISSING) from None
    password = read_password(arguments)
    try:
        return OperatorLink(
            arguments.mqtt,
            arguments.name,
            password,
            Path(arguments.out) / "handed.json",
            ca=arguments.ca,
            is_insecure=arguments.insecure,
        )
    except SubscriberError as error:
        raise CommandError(f"--mqtt: {error}", 2) from None


# `denwatch sql` ------------------------------------------------------------------------------

RECORDS = "log_"  # + kind: the records as they were written
_QUERY = re.compile(r"\s*(select|with|values|from|describe|desc|explain|show)\b", re.IGNORECASE)
_SQL_DESCRIPTION = """
Views are the tables of `denwatch analyze` (outcomes, causes, links, strategies …), log_KIND for the
records of each kind in one timeline (log_note, log_contact_end …), and quarantine. Ids are
hexadecimal in the tables; times are milliseconds: timestamp_millis(at) shows them. Only the views
that a query names are computed. Without a query the views are listed."""
_SQL_EXAMPLES = """
denwatch sql logs
denwatch sql logs "select outcome, cause, pairs from causes"
denwatch sql logs "select owner, latency from outcomes where outcome = 'late'" --format csv
denwatch sql north south --query "select what, why, count(*) from log_refuse group by all\""""


def run_sql(argv: list[str]) -> int:
    """Answer one query."""
    parser = build_parser("sql", "Query the logs in SQL.", _SQL_DESCRIPTION, _SQL_EXAMPLES)
    parser.add_argument(
        "logs", nargs="+", metavar="LOGS", help="folders; the last argument may be a query"
    )
    parser.add_argument("--query", metavar="SQL", help="the query")
    parser.add_argument(
        "--format", choices=("table", "csv", "json"), default="table", help="output format (table)"
    )
    parser.add_argument(
        "--limit", type=int, default=1_000, metavar="ROWS", help="print at most so many rows (1000)"
    )
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
    """Return all views: what each contains, and how to build it."""
    from denwatch.spark.analytics.study import open_study
    from denwatch.spark.report.analysis import name_ids
    from denwatch.spark.source import QUARANTINE, read_kind

    study = open_study(session, folders)

    def name(make: Callable[[], DataFrame]) -> Callable[[], DataFrame]:
        return lambda: name_ids(make())

    views = {key: (words, name(make)) for key, (words, make) in study.list_tables().items()}
    for kind in KINDS.values():
        views[RECORDS + kind.name] = (kind.meaning, partial(study.logs.get, kind.name))
    bad = "what could not be read, and why"
    views[QUARANTINE] = (bad, lambda: read_kind(session, folders, QUARANTINE))
    return views


def ask(
    session: SparkSession, views: dict[str, tuple[str, Callable[[], DataFrame]]], query: str
) -> DataFrame:
    """Return the answer; only views that the query names are built."""
    words = set(re.findall(r"\w+", query.lower()))
    for name in sorted(views.keys() & words):
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
