"""`python -m simulator`: a day of moving nodes, people and devices in a sparse network."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from denwatch.cli.common import build_parser
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError

_SUMMARY = "An emulated day in the field."
_DESCRIPTION = """
Real node and watchdog cores, simulated time and links. One seed gives one day, byte for byte. The
logs are those that real nodes write; `denwatch analyze` reads them."""
_EXAMPLES = """
python -m simulator --nodes 50 --hours 6 --strategy spray:8 --seed 7 --map out.svg
python -m simulator --nodes 20 --hours 1 --mobility waypoint --logs day
python -m simulator --contacts trace.txt.xz --hours 2 --strategy epidemic"""
_BAR = 40
_MOMENTS, _DRAWN = 180, 12_000  # of a picture, and nodes in all of them together, at most


def run(argv: list[str]) -> int:
    """Run one command line; return the exit status."""
    parser = build_parser("", _SUMMARY, _DESCRIPTION, _EXAMPLES)
    parser.prog = "python -m simulator"
    add_options(parser)
    options = parser.parse_args(argv)
    return run_day(options)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Name the options."""
    parser.add_argument("--nodes", type=int, default=50, metavar="N", help="how many nodes (50)")
    parser.add_argument(
        "--hours", type=float, default=6.0, metavar="H", help="how long the day is (6)"
    )
    parser.add_argument(
        "--strategy",
        default="utility",
        metavar="NAME[:L]",
        help="who gets a copy: epidemic, spray:L with L copies, utility[:L] (utility)",
    )
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="one seed is one day (7)")
    parser.add_argument(
        "--mobility",
        choices=("disaster", "waypoint"),
        default="disaster",
        help="how nodes move: between places of a disaster area, or at random (disaster)",
    )
    parser.add_argument(
        "--reach", type=float, default=60.0, metavar="M", help="of a radio, in metres (60)"
    )
    parser.add_argument(
        "--people", type=int, default=0, metavar="N", help="who ask (one in five nodes)"
    )
    parser.add_argument(
        "--devices", type=int, default=0, metavar="N", help="watchdogs (one in five nodes)"
    )
    parser.add_argument(
        "--period", type=float, default=180.0, metavar="S", help="between readings, in s (180)"
    )
    parser.add_argument("--contacts", metavar="FILE", help="contacts in the ONE's format instead")
    parser.add_argument("--write-contacts", metavar="FILE", help="write the contacts of the day")
    parser.add_argument("--map", metavar="FILE", help="write a picture of the day (SVG)")
    parser.add_argument("--logs", metavar="DIR", help="write the nodes' logs")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")


def run_day(options: argparse.Namespace) -> int:
    """Let the day pass and say what came of it."""
    from denwatch.node.replication.strategies import build_strategy

    from simulator.day import Day, Plan
    from simulator.link import Radio
    from simulator.mobility import list_areas
    from simulator.picture import Sight, draw_day
    from simulator.traces import (
        ContactEvent,
        TraceError,
        close_contacts,
        read_contacts,
        write_contacts,
    )

    duration = round(options.hours * 3_600_000)
    if options.nodes < 2 or duration < 60_000:
        raise CommandError("at least two nodes and a minute are needed", WRONG_USAGE)
    if min(options.people, options.devices) < 0 or options.period < 1:
        raise CommandError("people and devices cannot be fewer than none", WRONG_USAGE)
    contacts: tuple[ContactEvent, ...] = ()
    nodes = options.nodes
    try:
        build_strategy(options.strategy)
        if options.contacts:
            contacts = tuple(close_contacts(read_contacts(Path(options.contacts)), duration))
            nodes = 1 + max((max(event.first, event.second) for event in contacts), default=1)
    except (TraceError, ValueError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{options.contacts}: {error.strerror}", MISSING) from None
    if options.logs:
        Path(options.logs).mkdir(parents=True, exist_ok=True)
    plan = Plan(
        options.seed,
        nodes,
        duration,
        options.strategy,
        options.mobility,
        Radio(reach=options.reach),
        options.logs,
        contacts,
        min(options.people, nodes),
        min(options.devices, nodes),
        round(options.period * 1000),
    )
    day = Day(plan)
    if options.write_contacts:
        write_contacts(Path(options.write_contacts), day.contacts)
    moments = max(2, min(_MOMENTS, _DRAWN // nodes)) if options.map else 0
    day.run(show_progress, moments)
    figures = day.describe()
    if options.map:
        has_areas = options.mobility == "disaster" and not contacts
        sight = Sight(
            f"{nodes} nodes, {options.hours:g} hours, {options.strategy}, seed {options.seed}",
            [path.group for path in day.paths],
            day.people,
            day.devices,
            [(name, *area) for name, area in list_areas(nodes)] if has_areas else (),
        )
        Path(options.map).write_text(draw_day(day.snapshots, sight), encoding="utf-8")
    if options.json:
        print(json.dumps(figures))
    else:
        width = max(map(len, figures))
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):<{width}}  {value:g}")
    return 0


def show_progress(share: float) -> None:
    """Show how much of the day has passed, where somebody looks."""
    if not sys.stderr.isatty():
        return
    done = round(_BAR * share)
    end = "\n" if share >= 1 else ""
    bar = "#" * done + "." * (_BAR - done)
    print(f"\r[{bar}] {share:4.0%}", end=end, file=sys.stderr, flush=True)


def main() -> int:
    """Run the command line of this process; a refusal is one line."""
    try:
        return run(sys.argv[1:])
    except CommandError as error:
        print(f"simulator: {error}", file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
