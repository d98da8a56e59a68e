"""`python -m tests.docs PAGE ...`: run the commands of pages as they stand, and say what differs.

For a fresh clone (scripts/fresh-clone.sh) and for whoever writes a page. Nothing is shortened;
`--without COMMAND` leaves a command out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.docs.pages import ROOT, File, list_steps, read_page
from tests.docs.session import Session, play

PATIENCE = 7200.0  # s: `make test` is a command, too


def main() -> int:
    """Run pages; return how many had something wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs", description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--without", action="append", default=[], metavar="COMMAND")
    parser.add_argument("--here", action="store_true", help="in this folder, not in an empty one")
    parser.add_argument("--show", action="store_true", help="show what is printed")
    options = parser.parse_args()
    return sum(run_page(path.resolve(), options) for path in options.pages)


def run_page(path: Path, options: argparse.Namespace) -> bool:
    """Run one page; return whether something was wrong."""
    steps = [
        step
        for step in list_steps(read_page(path))
        if isinstance(step, File) or step.command not in options.without
    ]
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = ROOT if options.here else folder / "page"
        place.mkdir(exist_ok=True)
        session = Session(folder, place, path.read_text(encoding="utf-8"), PATIENCE)
        try:
            for step in steps:
                if not isinstance(step, File):
                    print(f"$ {step.command}", flush=True)
                found = play(session, [step])
                if options.show:
                    print(session.read_output(), end="", flush=True)
                for words in found:
                    print(f"NOT AS SHOWN: {words}", flush=True)
                wrong += found
        finally:
            session.close()
    print(f"{path.name}: {len(steps)} steps, {len(wrong)} not as shown", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
