"""A day as one SVG: some moments side by side, with nodes, links and what each node carries.

Only text; opens in any browser without anything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from edge.field.day import Snapshot

_SIDE = 300  # of one panel
_GAP = 16
_COLUMNS = 3
_HEAD = 40


def draw_day(snapshots: Sequence[Snapshot], groups: Sequence[str], title: str) -> str:
    """Return the picture; without places, nodes stand in a circle."""
    rows = -(-len(snapshots) // _COLUMNS)
    width = _COLUMNS * (_SIDE + _GAP) + _GAP
    height = rows * (_SIDE + _GAP + 20) + _HEAD + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_GAP}" y="24" font-size="15">{escape(title)}</text>',
    ]
    places = [snapshot.places or _stand_around(len(snapshot.held)) for snapshot in snapshots]
    box = _find_box([place for each in places for place in each])
    most = max((max(snapshot.held, default=0) for snapshot in snapshots), default=0)
    for number, snapshot in enumerate(snapshots):
        x = _GAP + number % _COLUMNS * (_SIDE + _GAP)
        y = _HEAD + number // _COLUMNS * (_SIDE + _GAP + 20)
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _draw_panel(snapshot, places[number], groups, box, most)
        parts.append("</g>")
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _draw_panel(
    snapshot: Snapshot,
    places: Sequence[tuple[float, float]],
    groups: Sequence[str],
    box: tuple[float, float, float],
    most: int,
) -> list[str]:
    left, top, scale = box

    def find(number: int) -> tuple[float, float]:
        x, y = places[number]
        return round(10 + (x - left) * scale, 1), round(10 + (y - top) * scale, 1)

    hours, minutes = divmod(snapshot.time // 60_000, 60)
    parts = [f'<rect width="{_SIDE}" height="{_SIDE}" fill="#f6f6f4" stroke="#cccccc"/>']
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
    parts.append(f'<text x="2" y="{_SIDE + 14}" font-size="11">{told}</text>')
    return parts


def _stand_around(count: int) -> list[tuple[float, float]]:
    turn = 2 * math.pi / max(1, count)
    return [(math.cos(turn * number), math.sin(turn * number)) for number in range(count)]


def _find_box(places: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the left and upper end of all places, and the scale that makes them fit a panel."""
    if not places:
        return 0.0, 0.0, 1.0
    xs, ys = [place[0] for place in places], [place[1] for place in places]
    extent = max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0
    return min(xs), min(ys), (_SIDE - 20) / extent
