"""`denwatch stream`: the same tables as `analyze`, kept current while logs arrive."""

from __future__ import annotations

import argparse
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from denwatch.cli.analyze import make_folder, read_strategies
from denwatch.cli.common import build_parser
from denwatch.cli.failures import MISSING, CommandError
from denwatch.cli.spark_common import (
    add_logs,
    find_folders,
    make_teller,
    open_session,
    require_shared,
)

if TYPE_CHECKING:
    from denwatch.spark.stream.operator_link import OperatorLink

_DESCRIPTION = """
Follows the logs of all nodes below LOGS, as they are written, copied or carried there, in any
order, and keeps in DIR: records/ (Parquet by kind and day), tables/ (matches, decisions, outcomes,
causes …), summary.json and live.html, a page that renews itself. A notification is matched with
subscriptions whose records arrive days later, too: when all logs are there, the tables are those of
`denwatch analyze`.

Every batch is visible at once or not at all, for every program that reads DIR, and is in the tables
exactly once, whenever this command is killed; the next run goes on where it was. A program that
reads several files for long resolves the link DIR/current first; what it points to stays for two
minutes after it was replaced. DIR has to be a disk that the workers of a cluster see, too.

With --mqtt, results go back to the nodes that can be reached: a notification that a subscriber
should have got, and the subscription it is for, are handed to the node where the subscriber was
last, as their origins signed them; the node verifies them and delivers once. And each node is told
which replication strategy would have done best (dens/1/plan/NODE, retained). NAME is a subscriber
with the role `operator`: denwatch keys add subscriber NAME --role operator."""
_EXAMPLES = """
denwatch stream /srv/logs --out /srv/live
denwatch stream /srv/logs --out /srv/live --once
denwatch stream north/data/log south/data/log --out live --every 2s
denwatch stream logs --out live --mqtt mqtts://north:8883 --mqtt mqtts://south:8883 \\
    --name operator --password-file operator.password --ca ca.pem
denwatch stream /mnt/logs --out /mnt/live --master spark://head:7077"""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def run(argv: list[str]) -> int:
    """Follow logs until the command is stopped."""
    arguments = _parse(argv)
    folders = find_folders(arguments.logs)
    if not arguments.late > 0:
        raise CommandError(f"--late {arguments.late}: seconds, above 0", 2)
    if arguments.max_records < 1:
        raise CommandError(f"--max-records {arguments.max_records}: 1 or more", 2)
    every = read_span(arguments.every)
    strategies = read_strategies(arguments.strategies)
    operator = _make_operator(arguments)
    out = make_folder(Path(arguments.out))
    tell = make_teller(arguments.quiet)
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
            if operator is not None:
                operator.close()
    print(
        f"{sum(summary['records'].values())} records, {summary['matches']} matches in"
        f" {out / 'tables'}"
    )
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = build_parser(
        "stream", "Keep tables of all nodes' logs current.", _DESCRIPTION, _EXAMPLES
    )
    add_logs(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="where the tables go")
    parser.add_argument(
        "--once", action="store_true", help="end when all that is there now is in the tables"
    )
    parser.add_argument("--every", default="5s", metavar="TIME", help="between batches (5s)")
    parser.add_argument(
        "--late", type=float, default=60, metavar="SECONDS", help="a delivery is late after (60)"
    )
    parser.add_argument(
        "--strategies", metavar="LIST", help="to compare: direct,spray:8,utility:11,epidemic …"
    )
    parser.add_argument(
        "--max-records",
        type=int,
        default=500_000,
        metavar="N",
        help="of one batch: bounds the memory of a worker (500000)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    back = parser.add_argument_group("back to the nodes")
    back.add_argument(
        "--mqtt", action="append", metavar="URL", help="a node, mqtt://… or mqtts://…; repeatable"
    )
    back.add_argument("--name", default="operator", help="who this is for the nodes (operator)")
    back.add_argument(
        "--password-file", metavar="FILE", help="where the password stands (or DENWATCH_PASSWORD)"
    )
    back.add_argument("--ca", metavar="FILE", help="whose certificates to trust (the system's)")
    back.add_argument(
        "--insecure", action="store_true", help="send the password in the clear, off this machine"
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
        from denwatch.client.subscriber.errors import SubscriberError
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
