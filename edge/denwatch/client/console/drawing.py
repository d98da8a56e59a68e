"""SVG pictures: membership functions and the map of nodes. Pure.

Colours and fonts belong to the page: elements have classes, not styles. In a graph the filled area
is the quantised function of the vector, and the line the ideal function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from denwatch.client.vocabulary import Attribute, ValueKind, format_moment
from denwatch.client.vocabulary.fitting import find_width
from denwatch.protocol.degrees import fuzzify, hedge
from denwatch.protocol.vectors import Predicate

if TYPE_CHECKING:
    from denwatch.client.console.preview import PredicateMeaning
    from denwatch.client.console.status_monitor import LinkView, NetworkView, NodeView


@dataclass(frozen=True)
class PlanPicture:
    """A picture of the place: its file, its type, and the metres that it covers."""

    path: Path
    kind: str
    area: tuple[float, float, float, float]  # west, south, east, north


GRAPH_WIDTH, GRAPH_HEIGHT = 320, 92
_TOP, _BOTTOM = 8, 74  # of degrees 1 and 0
_LEFT, _RIGHT = 6, 314
_SAMPLES = 154
_TINY = 1e-9  # of a degree
_NARROW = 0.4  # of the domain: what is narrower is drawn larger


@dataclass(frozen=True)
class MembershipGraph:
    """One attribute: its picture, and the values that match, in words."""

    attribute: str
    words: str
    counts: str
    svg: str


def draw_graph(
    attribute: Attribute,
    meanings: Sequence[PredicateMeaning],
    predicates: Sequence[Predicate],
    evaluate: Callable[[int], float],
    threshold: float,
) -> MembershipGraph:
    """Return the picture of all predicates on one attribute; `evaluate` is the degree of a code.

    `predicates` are those of the vector, for the range to show; degrees and threshold are 0..1.
    """
    words = " · ".join(meaning.words for meaning in meanings)
    window = _find_window(attribute, predicates)
    counts = describe_cut(attribute, evaluate, threshold, window)
    label = f"{attribute.name.replace('_', ' ')}: matches {counts}"
    if attribute.kind is ValueKind.TEXT:
        inner = _draw_symbols(attribute, evaluate)
    else:
        inner = _draw_area(attribute, evaluate, meanings, window)
    line = _find_y(threshold)
    svg = (
        f'<svg class="graph" viewBox="0 0 {GRAPH_WIDTH} {GRAPH_HEIGHT}" role="img"'
        f' aria-label="{escape(label)}">'
        f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{_BOTTOM}" y2="{_BOTTOM}"/>{inner}'
        f'<line class="cut" x1="{_LEFT}" x2="{_RIGHT}" y1="{line:.1f}" y2="{line:.1f}"/></svg>'
    )
    return MembershipGraph(attribute.name, words, counts, svg)


def make_device(p: Predicate) -> Callable[[int], float]:
    """Return what a device makes of a predicate: its degree of a code, by integers."""

    def evaluate(code: int) -> float:
        degree = hedge(fuzzify(code, p.low, p.high, p.left, p.right, p.wide), p.hedge)
        return (255 - degree if p.negated else degree) / 255

    return evaluate


def _find_window(attribute: Attribute, predicates: Sequence[Predicate]) -> tuple[int, int]:
    """Return the codes to draw: all, or those around what matters if that is little."""
    is_open = any(p.negated or p.low <= 0 or p.high >= attribute.last for p in predicates)
    if is_open or not predicates:
        return 0, attribute.last
    lows = [p.low - find_width(p.left, p.wide) for p in predicates]
    highs = [p.high + find_width(p.right, p.wide) for p in predicates]
    low, high = max(0.0, min(lows)), min(float(attribute.last), max(highs))
    if high - low > _NARROW * attribute.last:
        return 0, attribute.last
    margin = max(8.0, 0.6 * (high - low))
    return max(0, int(low - margin)), min(attribute.last, int(high + margin) + 1)


def _find_y(degree: float) -> float:
    return _BOTTOM - degree * (_BOTTOM - _TOP)


def _draw_area(
    attribute: Attribute,
    evaluate: Callable[[int], float],
    meanings: Sequence[PredicateMeaning],
    window: tuple[int, int],
) -> str:
    low, high = window
    span = max(1, high - low)

    def place(code: float) -> float:
        return _LEFT + (code - low) / span * (_RIGHT - _LEFT)

    steps = min(span, _SAMPLES)
    codes = [low + round(span * step / steps) for step in range(steps + 1)]
    top = " ".join(f"{place(c):.1f},{_find_y(evaluate(c)):.1f}" for c in codes)
    parts = [
        f'<polygon class="area" points="{_LEFT},{_BOTTOM} {top} {_RIGHT},{_BOTTOM}"/>',
        f'<polyline class="edge" points="{top}"/>',
    ]
    for meaning in meanings:
        line = " ".join(f"{place(c):.1f},{_find_y(meaning.evaluate(c)):.1f}" for c in codes)
        parts.append(f'<polyline class="ideal" points="{line}"/>')
    for anchor, code in (("start", low), ("middle", (low + high) / 2), ("end", high)):
        text = escape(_format_value(attribute, code, anchor == "end"))
        parts.append(f'<text x="{place(code):.0f}" y="88" text-anchor="{anchor}">{text}</text>')
    return "".join(parts)


def _draw_symbols(attribute: Attribute, evaluate: Callable[[int], float]) -> str:
    count = len(attribute.symbols)
    room = (_RIGHT - _LEFT) / count
    parts = []
    for place, symbol in enumerate(attribute.symbols):
        top = _find_y(evaluate(attribute.symbol_codes[place]))
        x = _LEFT + room * place
        parts.append(
            f'<rect class="area" x="{x + room * 0.2:.1f}" y="{top:.1f}" width="{room * 0.6:.1f}"'
            f' height="{_BOTTOM - top:.1f}"/>'
            f'<text x="{x + room / 2:.0f}" y="88" text-anchor="middle">'
            f"{escape(symbol[: max(4, 44 // count)])}</text>"
        )
    return "".join(parts)


# In words -----------------------------------------------------------------------------------


def describe_cut(
    attribute: Attribute,
    evaluate: Callable[[int], float],
    threshold: float,
    window: tuple[int, int],
) -> str:
    """Return the values whose degree is at least a threshold: "from 38.9 °C", "up to 60 bpm"."""
    if attribute.kind is ValueKind.TEXT:
        symbols = zip(attribute.symbol_codes, attribute.symbols, strict=True)
        names = [symbol for code, symbol in symbols if evaluate(code) >= threshold - _TINY]
        return " or ".join(names) or "for no value"
    runs = _find_runs(evaluate, threshold, window)
    if not runs:
        return "for no value"
    return " or ".join(_describe_run(attribute, low, high, window) for low, high in runs)


def _find_runs(
    evaluate: Callable[[int], float], threshold: float, window: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return the first and last codes of what counts; of many codes some are tried, ends sought."""
    step = max(1, (window[1] - window[0]) // 1024)
    codes = [*range(window[0], window[1], step), window[1]]
    counts = [evaluate(code) >= threshold - _TINY for code in codes]

    def seek(outside: int, inside: int) -> int:
        while abs(inside - outside) > 1:
            middle = (inside + outside) // 2
            if evaluate(middle) >= threshold - _TINY:
                inside = middle
            else:
                outside = middle
        return inside

    runs: list[tuple[int, int]] = []
    start = 0
    for place, is_in in enumerate(counts):
        if is_in and (place == 0 or not counts[place - 1]):
            start = codes[place] if place == 0 else seek(codes[place - 1], codes[place])
        if is_in and place + 1 == len(codes):
            runs.append((start, codes[place]))
        elif is_in and not counts[place + 1]:
            runs.append((start, seek(codes[place + 1], codes[place])))
    return runs


def _describe_run(attribute: Attribute, low: int, high: int, window: tuple[int, int]) -> str:
    first, last = low == window[0] == 0, high == window[1] == attribute.last
    if first and last:
        return "for every value"
    if first:
        return f"up to {_format_value(attribute, high)}"
    if last:
        return f"from {_format_value(attribute, low)}"
    if low == high:
        return f"at {_format_value(attribute, low)}"
    return f"from {_format_value(attribute, low, False)} to {_format_value(attribute, high)}"


def _format_value(attribute: Attribute, code: float, has_unit: bool = True) -> str:
    value = attribute.to_value(code)
    if attribute.kind is not ValueKind.NUMBER:
        return format_moment(min(max(value, attribute.low), attribute.high), attribute.kind)
    unit = attribute.suffix if has_unit else ""
    return f"{value:.4g}{unit}" if abs(value) < 10_000 else f"{value:.0f}{unit}"


# The map of nodes: a state shows in shape as well as in colour. A node that is up is filled, one
# that is silent is hollow and dashed; a link that is down is dashed and crossed out.

MAP_WIDTH = 340
_MARGIN = 44  # above and below, for names
_RADIUS = 112.0
_SIZE = 13
_LONGEST_NAME = 14

Point = tuple[float, float]


def place_nodes(names: list[str]) -> tuple[dict[str, Point], int]:
    """Return the positions of nodes, on an ellipse in the order of their names, and the height."""
    rise = 0.0 if len(names) < 3 else 66.0
    height = round(2 * (rise + _MARGIN))
    middle = MAP_WIDTH / 2, height / 2 - 10
    if len(names) == 1:
        return {names[0]: middle}, height
    places = {}
    for number, name in enumerate(names):
        angle = math.pi + 2 * math.pi * number / len(names)
        angle += math.pi / 6 if len(names) == 3 else 0.0  # one on top, two below
        x, y = _RADIUS * math.cos(angle), rise * math.sin(angle)
        places[name] = (middle[0] + x, middle[1] + y)
    return places, height


def draw_map(view: NetworkView) -> str:
    """Return the picture; "" if there is nothing to draw."""
    if not view.nodes:
        return ""
    places, height = place_nodes([node.name for node in view.nodes])
    parts = [_draw_link(link, places) for link in view.links]
    parts += [_draw_node(node, places[node.name]) for node in view.nodes]
    return (
        f'<svg class="map" viewBox="0 0 {MAP_WIDTH} {height}" role="img"'
        f' aria-label="{escape(view.describe())}">{"".join(parts)}</svg>'
    )


def _draw_link(link: LinkView, places: dict[str, Point]) -> str:
    (x1, y1), (x2, y2) = places[link.first], places[link.second]
    state = "up" if link.is_up else "down"
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    line = f'<line class="link {state}" {ends}/>'
    if link.is_up:
        return line
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    return (
        f'{line}<circle class="cross-ground" cx="{x:.1f}" cy="{y:.1f}" r="9"/>'
        f'<path class="cross" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
    )


def _draw_node(node: NodeView, place: Point) -> str:
    x, y = place
    name = node.name
    if len(name) > _LONGEST_NAME:
        name = name[: _LONGEST_NAME - 1] + "…"
    ring = (
        f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="{_SIZE + 5}"/>' if node.is_ours else ""
    )
    said = {"up": node.lag or "alone", "silent": "silent", "stopped": "stopped"}
    label = "you are here" if node.is_ours and node.state == "up" else said.get(node.state, "")
    return (
        f'<g class="node {node.state}">{ring}'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{_SIZE}"/>'
        f'<text class="count" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">'
        f"{node.devices if node.state == 'up' else ''}</text>"
        f'<text class="name" x="{x:.1f}" y="{y + _SIZE + 17:.1f}" text-anchor="middle">'
        f"{escape(name)}</text>"
        f'<text class="lag" x="{x:.1f}" y="{y + _SIZE + 30:.1f}" text-anchor="middle">'
        f"{escape(label)}</text></g>"
    )
