"""The recording in README.md: runs the demo, and writes what it printed as an animated SVG.

Lines appear as they did, in less time; long waits are cut. No CSS variables, no scripts, nothing
from elsewhere: where animations are unknown, the last screen is shown.

usage: python -m docs.pictures.recording [COMMAND ...]     (the demo)
"""

from __future__ import annotations

import subprocess
import sys
import time
from html import escape
from pathlib import Path

FILE = Path(__file__).with_name("demo.svg")
HERE = f"{Path(__file__).resolve().parents[2]}/"  # what the demo prints of it is left out
COMMAND = [sys.executable, "-m", "demo"]
SECONDS = 20.0  # of the recording
LONGEST = 1.2  # s that a wait may last in it
ROWS, COLUMNS = 30, 100
_LINE, _CHARACTER, _EDGE = 17, 7.8, 16


def record(command: list[str]) -> list[tuple[float, str]]:
    """Run a command; return its lines, each with the time at which it came."""
    began, lines = time.monotonic(), []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            text = line.rstrip("\n").replace(HERE, "")
            lines.append((time.monotonic() - began, text[:COLUMNS]))
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return lines


def shorten(lines: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the lines with long waits cut, fitted to the recording's time."""
    now, last, found = 0.0, 0.0, []
    for at, text in lines:
        now += min(at - last, LONGEST)
        last = at
        found.append((now, text))
    scale = SECONDS / max(now, 1.0)
    return [(at * scale, text) for at, text in found]


def draw(lines: list[tuple[float, str]], title: str) -> str:
    """Return the SVG: all lines below each other, moved up as they come."""
    width, height = COLUMNS * _CHARACTER + 2 * _EDGE, ROWS * _LINE + 2 * _EDGE
    total = SECONDS + 4.0  # the last screen stays
    rules, texts, moves = [], [], []
    for row, (at, text) in enumerate(lines):
        share = 100 * at / total
        rules.append(
            f"@keyframes l{row} {{ 0%, {share:.2f}% {{ opacity: 0 }}"
            f" {min(share + 0.1, 100):.2f}%, 100% {{ opacity: 1 }} }}"
        )
        y = (row + 1) * _LINE
        kind = "head" if text[:1].isdigit() or (text and not text.startswith(" ")) else "text"
        texts.append(
            f'<text class="{kind}" x="0" y="{y}" xml:space="preserve"'
            f' style="animation: l{row} {total:g}s linear infinite">{escape(text)}</text>'
        )
        up = max(0, row + 1 - ROWS) * _LINE
        moves.append(f"{share:.2f}% {{ transform: translateY({-up}px) }}")
    up = max(0, len(lines) - ROWS) * _LINE
    moves.append(f"100% {{ transform: translateY({-up}px) }}")
    steps = f"@keyframes up {{ 0% {{ transform: translateY(0) }} {' '.join(moves)} }}"
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">
<title>{escape(title)}</title>
<desc>A terminal in which the demo runs: words become bytes, sensors filter, links are cut and heal,
and everybody gets what they asked for, once.</desc>
<style>
.text {{ font: 13px monospace; fill: #d6d9de }}
.head {{ font: bold 13px monospace; fill: #ffffff }}
.screen {{ fill: #16181d }}
.paper {{ transform: translateY({-up}px); animation: up {total:g}s step-end infinite }}
{steps}
{chr(10).join(rules)}
</style>
<rect class="screen" width="{width:g}" height="{height:g}" rx="8"/>
<svg x="{_EDGE}" y="{_EDGE}" width="{width - 2 * _EDGE:g}" height="{ROWS * _LINE + 6}"
 viewBox="0 0 {width - 2 * _EDGE:g} {ROWS * _LINE + 6}">
<g class="paper">
{chr(10).join(texts)}
</g>
</svg>
</svg>
"""


def main(argv: list[str]) -> None:
    """Record, and write the picture."""
    lines = record(argv or COMMAND)
    FILE.write_text(draw(shorten(lines), "denwatch's demo, recorded"), encoding="utf-8")
    print(f"{FILE}: {len(lines)} lines")


if __name__ == "__main__":
    main(sys.argv[1:])
