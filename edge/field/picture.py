"""A day as one SVG: some moments side by side, with nodes, links and what each node carries.

Only text; opens in any browser without anything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from edge.field.day import Snapshot

_SIDE = 300  # of one panel, at most
_GAP = 16
_COLUMNS = 3
_HEAD = 40


class Box(NamedTuple):
    """How places become points of a panel."""

    x: float
    y: float
    scale: float
    height: int


def draw_day(snapshots: Sequence[Snapshot], groups: Sequence[str], title: str) -> str:
    """Return the picture; without places, nodes stand in a circle."""
    places = [snapshot.places or _stand_around(len(snapshot.held)) for snapshot in snapshots]
    box = _find_box([place for each in places for place in each])
    rows = -(-len(snapshots) // _COLUMNS)
    width = _COLUMNS * (_SIDE + _GAP) + _GAP
    height = rows * (box.height + _GAP + 20) + _HEAD + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_GAP}" y="24" font-size="15">{escape(title)}</text>',
    ]
    most = max((max(snapshot.held, default=0) for snapshot in snapshots), default=0)
    for number, snapshot in enumerate(snapshots):
        x = _GAP + number % _COLUMNS * (_SIDE + _GAP)
        y = _HEAD + number // _COLUMNS * (box.height + _GAP + 20)
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _draw_panel(snapshot, places[number], groups, box, most)
        parts.append("</g>")
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _draw_panel(
    snapshot: Snapshot,
    places: Sequence[tuple[float, float]],
    groups: Sequence[str],
    box: Box,
    most: int,
) -> list[str]:
    def find(number: int) -> tuple[float, float]:
        x, y = places[number]
        return round(10 + (x - box.x) * box.scale, 1), round(10 + (y - box.y) * box.scale, 1)

    hours, minutes = divmod(snapshot.time // 60_000, 60)
    parts = [f'<rect width="{_SIDE}" height="{box.height}" fill="#f6f6f4" stroke="#cccccc"/>']
    for first, second in snapshot.links:
        (x1, y1), (x2, y2) = find(first), find(second)
        parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#7a9cc6"/>')
    for number, held in enumerate(snapshot.held):
        x, y = find(number)
        share = held / most if most else 0.0
        radius = round(2.5 + 4 * share, 1)
        red = f"rgb({round(90 + 130 * share)},{round(110 - 60 * share)},{round(110 - 60 * share)})"
        name = groups[number] if number < len(groups) else "node"
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{red}">'
            f"<title>{escape(name)} {number}: {held} notifications</title></circle>"
        )
    told = f"{hours}:{minutes:02d} h, {len(snapshot.links)} links, {snapshot.delivered} delivered"
    parts.append(f'<text x="2" y="{box.height + 14}" font-size="11">{told}</text>')
    return parts


def _stand_around(count: int) -> list[tuple[float, float]]:
    turn = 2 * math.pi / max(1, count)
    return [(math.cos(turn * number), math.sin(turn * number)) for number in range(count)]


def _find_box(places: Sequence[tuple[float, float]]) -> Box:
    """Return where all places begin, the scale that makes them fit a panel, and its height."""
    xs = [place[0] for place in places] or [0.0]
    ys = [place[1] for place in places] or [0.0]
    extent = max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0
    scale = (_SIDE - 20) / extent
    return Box(min(xs), min(ys), scale, round((max(ys) - min(ys)) * scale) + 20)
