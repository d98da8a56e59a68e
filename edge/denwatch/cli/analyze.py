"""`denwatch analyze`: what was delivered, what could have been, and what to do better."""

from __future__ import annotations

from pathlib import Path

from denwatch.cli.common import build_parser
from denwatch.cli.failures import CommandError
from denwatch.cli.spark_common import (
    add_logs,
    find_folders,
    make_teller,
    open_session,
    require_shared,
)

_DESCRIPTION = """
Reads the logs of all nodes together, matches every notification against every subscription, and
says for each subscriber what was delivered, late, missed or wrong, with the cause; how near
replication came to the best that contacts allowed; and which strategy would do better. DIR gets
report.html, which opens offline, the tables behind its pictures (tables/) and the logs' records as
Parquet (records/), to which the next run only adds."""
_EXAMPLES = """
denwatch analyze north/data/log middle/data/log --out report
denwatch analyze logs --out report --late 300
denwatch analyze /mnt/logs --out /mnt/report --master spark://head:7077
denwatch analyze /mnt/logs --out /mnt/report --master yarn --archive env.tar.gz"""


def run(argv: list[str]) -> int:
    """Analyse logs and write the report."""
    parser = build_parser(
        "analyze", "Judge deliveries over all nodes' logs.", _DESCRIPTION, _EXAMPLES
    )
    add_logs(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="where the report goes")
    parser.add_argument(
        "--late", type=float, default=60, metavar="SECONDS", help="a delivery is late after (60)"
    )
    parser.add_argument(
        "--strategies", metavar="LIST", help="to compare: direct,spray:8,utility:11,epidemic …"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    arguments = parser.parse_args(argv)
    folders = find_folders(arguments.logs)
    out = make_folder(Path(arguments.out))
    if not arguments.late > 0:
        raise CommandError(f"--late {arguments.late}: seconds, above 0", 2)
    tell = make_teller(arguments.quiet)
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
        f"delivered {int(head['delivered'])} of {int(head['wished'])} that nobody held back, "
        f"{int(head['possible'])} were possible; missed {int(head['missed'])}, "
        f"wrong {int(head['wrong'])}"
    )
    if report.quarantined:
        print(f"{report.quarantine}; all in {report.tables / 'quarantine.csv'}")
    print(report.advice)
    print(report.page)
    return 0


def make_folder(path: Path) -> Path:
    """Return a folder that is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    return path.resolve()


def read_strategies(text: str | None) -> tuple[str, ...]:
    """Return the strategies of a list, checked; none if there is none."""
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
