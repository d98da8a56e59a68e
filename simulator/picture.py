"""A day as one animated SVG: who was where, who could reach whom, and what went from hand to hand.

A map that steps through the day, and curves of the whole day below it with a line that follows.
Only text, with SVG's own animation: opens in any browser without anything else; a click stops it. A
viewer without animation shows one moment of the middle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from simulator.day import Snapshot

_WIDTH, _MARGIN, _HEAD = 960, 24, 74
_STEP = 0.25  # s that a moment is shown
_CURVE, _CURVES_GAP = 52, 30
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#56b4e9", "#cc79a7", "#d55e00", "#7a6a00", "#555555")
_MOVED, _SERVED, _LINK, _INK = "#d55e00", "#00804d", "#b9c3cf", "#222222"

Place = tuple[float, float]


class Sight(NamedTuple):
    """What does not change all day: each node's group, and who is with which node."""

    title: str
    groups: Sequence[str]
    people: Sequence[int]
    devices: Sequence[int]
    areas: Sequence[tuple[str, float, float, float, float]] = ()  # name, x, y, width, height


class Box(NamedTuple):
    """How places become points."""

    x: float
    y: float
    scale: float
    height: float

    def find(self, place: Place) -> Place:
        """Return the point of a place."""
        x = _MARGIN + 8 + (place[0] - self.x) * self.scale
        return round(x, 1), round(_HEAD + 8 + (place[1] - self.y) * self.scale, 1)


def draw_day(moments: Sequence[Snapshot], sight: Sight) -> str:
    """Return the picture; without places, nodes stand in a circle."""
    places = [moment.places or _stand_around(len(moment.held)) for moment in moments]
    corners = [(x + dx, y + dy) for _, x, y, w, h in sight.areas for dx, dy in ((0, 0), (w, h))]
    box = _find_box([*corners, *(place for each in places for place in each)])
    foot = _HEAD + box.height + _MARGIN
    height = round(foot + len(_CURVE_NAMES) * (_CURVE + _CURVES_GAP) + _MARGIN)
    film = _Film(len(moments))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="12"'
        ' onclick="this.animationsPaused()?this.unpauseAnimations():this.pauseAnimations()">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_MARGIN}" y="28" font-size="17" fill="{_INK}">{escape(sight.title)}</text>',
        *_draw_legend(sight),
        f'<rect x="{_MARGIN}" y="{_HEAD}" width="{_WIDTH - 2 * _MARGIN}"'
        f' height="{round(box.height, 1)}" fill="#f7f7f4" stroke="#d0d0cc"/>',
        *_draw_areas(sight, box),
        *_draw_links(moments, places, box, film),
        *_draw_nodes(moments, places, sight, box, film),
        *_draw_clock(moments, film),
        *_draw_curves(moments, foot, film),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Film:
    """How things change from moment to moment."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.middle = count // 2
        self.length = round(_STEP * max(1, count), 2)

    def change(self, name: str, values: Sequence[object]) -> str:
        """Return an animation that sets an attribute at each moment; "" if it never changes."""
        if len(set(values)) < 2:
            return ""
        said = ";".join(map(str, values))
        return (
            f'<animate attributeName="{name}" values="{said}" dur="{self.length}s"'
            ' calcMode="discrete" repeatCount="indefinite"/>'
        )

    def show(self, number: int, parts: Iterable[str]) -> list[str]:
        """Return a group that is seen at one moment alone."""
        inner = list(parts)
        if not inner:
            return []
        start, end = round(number / self.count, 5), round((number + 1) / self.count, 5)
        times, values = ["0"], ["hidden" if number else "visible"]
        if number:
            times.append(str(start))
            values.append("visible")
        if end < 1:
            times.append(str(end))
            values.append("hidden")
        state = "visible" if number == self.middle else "hidden"
        moving = ""
        if self.count > 1:
            moving = (
                f'<animate attributeName="visibility" values="{";".join(values)}"'
                f' keyTimes="{";".join(times)}" dur="{self.length}s" calcMode="discrete"'
                ' repeatCount="indefinite"/>'
            )
        return [f'<g visibility="{state}">{moving}', *inner, "</g>"]


def _draw_legend(sight: Sight) -> list[str]:
    parts, x, style = [], _MARGIN, f'font-size="11" fill="{_INK}"'
    names = list(dict.fromkeys(sight.groups))
    for number, name in enumerate(names):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<circle cx="{x + 5}" cy="50" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 13}" y="54" {style}>{escape(name)}</text>')
        x += 23 + round(5.9 * len(name))
    x += 8
    line = '<line x1="{1}" y1="50" x2="{2}" y2="50" stroke='
    ring = '<circle cx="{0}" cy="50" r="5" '
    shapes = (
        (f'{ring} fill="white" stroke="{_INK}" stroke-width="2"/>', "person"),
        ('<rect x="{1}" y="45" width="10" height="10" fill="#999999"/>', "watchdog"),
        (f'{line}"{_LINK}" stroke-width="2"/>', "contact"),
        (f'{line}"{_MOVED}" stroke-width="3"/>', "handed over"),
        (f'{ring} fill="none" stroke="{_SERVED}" stroke-width="3"/>', "delivered"),
    )
    for shape, name in shapes:
        parts.append(shape.format(x + 5, x, x + 12))
        parts.append(f'<text x="{x + 16}" y="54" {style}>{name}</text>')
        x += 26 + round(5.9 * len(name))
    return parts


def _draw_areas(sight: Sight, box: Box) -> list[str]:
    parts = []
    for name, x, y, width, height in sight.areas:
        left, top = box.find((x, y))
        size = f'width="{round(width * box.scale, 1)}" height="{round(height * box.scale, 1)}"'
        parts.append(f'<rect x="{left}" y="{top}" {size} fill="#ecebe4" stroke="#d9d7cc"/>')
        style = 'font-size="11" fill="#8a8778"'
        parts.append(f'<text x="{left + 3}" y="{top + 11}" {style}>{escape(name)}</text>')
    return parts


def _draw_links(
    moments: Sequence[Snapshot], places: Sequence[Sequence[Place]], box: Box, film: _Film
) -> list[str]:
    parts: list[str] = []
    for number, moment in enumerate(moments):
        points = [box.find(place) for place in places[number]]
        moved = {(min(pair), max(pair)) for pair in moment.moved}
        plain = [pair for pair in moment.links if pair not in moved]
        parts += film.show(
            number,
            [
                *_draw_lines(plain, points, f'stroke="{_LINK}"'),
                *_draw_lines(sorted(moved), points, f'stroke="{_MOVED}" stroke-width="2.5"'),
                *(
                    f'<circle cx="{points[node][0]}" cy="{points[node][1]}" r="10" fill="none"'
                    f' stroke="{_SERVED}" stroke-width="2.5"/>'
                    for node in moment.served
                ),
            ],
        )
    return parts


def _draw_lines(pairs: Sequence[tuple[int, int]], points: Sequence[Place], style: str) -> list[str]:
    """Return all lines of one kind as one path."""
    if not pairs:
        return []
    line = "".join(
        f"M{points[one][0]:g} {points[one][1]:g}L{points[other][0]:g} {points[other][1]:g}"
        for one, other in pairs
    )
    return [f'<path d="{line}" fill="none" {style}/>']


def _draw_nodes(
    moments: Sequence[Snapshot],
    places: Sequence[Sequence[Place]],
    sight: Sight,
    box: Box,
    film: _Film,
) -> list[str]:
    most = max((max(moment.held, default=0) for moment in moments), default=0) or 1
    names = list(dict.fromkeys(sight.groups)) or ["node"]
    people, devices = set(sight.people), set(sight.devices)
    parts = []
    for node in range(len(moments[0].held) if moments else 0):
        points = [box.find(each[node]) for each in places]
        sizes = [round(3 + 4 * math.sqrt(moment.held[node] / most), 1) for moment in moments]
        group = sight.groups[node] if node < len(sight.groups) else "node"
        colour = _COLOURS[names.index(group) % len(_COLOURS)]
        style = f'fill="{colour}"'
        if node in people:
            style = f'fill="white" stroke="{colour}" stroke-width="2.5"'
        title = f"<title>{escape(group)} {node}</title>"
        x, y = points[film.middle]
        size = sizes[film.middle]
        if node in devices:
            shape = f'<rect x="{-size:g}" y="{-size:g}" width="{2 * size:g}" height="{2 * size:g}"'
            inner = "".join(
                film.change(name, [f"{sign * each:g}" for each in sizes])
                for name, sign in (("x", -1), ("y", -1), ("width", 2), ("height", 2))
            )
            kind = "rect"
        else:
            shape, inner, kind = f'<circle r="{size:g}"', film.change("r", sizes), "circle"
        parts.append(f'<g transform="translate({x:g},{y:g})">{_move(points, film)}{title}')
        parts.append(f"{shape} {style}>{inner}</{kind}></g>")
    return parts


def _move(points: Sequence[Place], film: _Film) -> str:
    if len(set(points)) < 2:
        return ""
    values = ";".join(f"{x:g},{y:g}" for x, y in points)
    return (
        f'<animateTransform attributeName="transform" type="translate" values="{values}"'
        f' dur="{film.length}s" calcMode="discrete" repeatCount="indefinite"/>'
    )


def _draw_clock(moments: Sequence[Snapshot], film: _Film) -> list[str]:
    parts: list[str] = []
    for number, moment in enumerate(moments):
        hours, minutes = divmod(moment.time // 60_000, 60)
        told = (
            f"{hours}:{minutes:02d} h   {len(moment.links)} links   {moment.made} notifications"
            f"   {moment.delivered} delivered"
        )
        text = (
            f'<text x="{_WIDTH - _MARGIN}" y="28" font-size="15" text-anchor="end" fill="{_INK}"'
            f' xml:space="preserve">{told}</text>'
        )
        parts += film.show(number, [text])
    return parts


_CURVE_NAMES = ("links", "notifications handed over", "notifications delivered")


def _draw_curves(moments: Sequence[Snapshot], top: float, film: _Film) -> list[str]:
    """Return curves over the whole day, and the line that follows the time."""
    if len(moments) < 2:
        return []
    totals = [0, *(moment.delivered for moment in moments)]
    rows = (
        [len(moment.links) for moment in moments],
        [len(moment.moved) for moment in moments],
        [after - before for before, after in pairwise(totals)],
    )
    width = _WIDTH - 2 * _MARGIN
    parts = []
    for number, (name, values) in enumerate(zip(_CURVE_NAMES, rows, strict=True)):
        base = top + number * (_CURVE + _CURVES_GAP) + _CURVES_GAP / 2 + _CURVE
        most = max(values) or 1
        span = width / len(values)
        points = " ".join(
            f"{_MARGIN + span * (place + 0.5):.1f},{base - _CURVE * value / most:.1f}"
            for place, value in enumerate(values)
        )
        first, last = _MARGIN, _WIDTH - _MARGIN
        colour = (_LINK, _MOVED, _SERVED)[number]
        parts += [
            f'<polygon points="{first},{base:.1f} {points} {last},{base:.1f}" fill="{colour}"'
            ' fill-opacity="0.35"/>',
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
            f'<line x1="{first}" y1="{base:.1f}" x2="{last}" y2="{base:.1f}" stroke="#999999"/>',
            f'<text x="{first}" y="{base - _CURVE - 4:.1f}" fill="{_INK}">{name},'
            f" at most {most}</text>",
        ]
    span = width / len(moments)
    xs = [f"{_MARGIN + span * (number + 0.5):.1f}" for number in range(len(moments))]
    bottom = top + len(rows) * (_CURVE + _CURVES_GAP)
    parts.append(
        f'<line y1="{top:.1f}" y2="{bottom:.1f}" x1="{xs[film.middle]}" x2="{xs[film.middle]}"'
        f' stroke="{_INK}">{film.change("x1", xs)}{film.change("x2", xs)}</line>'
    )
    return parts


def _stand_around(count: int) -> list[Place]:
    turn = 2 * math.pi / max(1, count)
    return [(math.cos(turn * number), math.sin(turn * number)) for number in range(count)]


def _find_box(places: Sequence[Place]) -> Box:
    """Return where all places begin, the scale that makes them fit, and the height they take."""
    xs = [place[0] for place in places] or [0.0]
    ys = [place[1] for place in places] or [0.0]
    wide, high = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0
    scale = min((_WIDTH - 2 * _MARGIN - 16) / wide, 640 / high)
    return Box(min(xs), min(ys), scale, high * scale + 16)
