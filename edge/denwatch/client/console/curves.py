"""Membership functions as small SVG pictures, and in words where they count. Pure.

The filled area is what the vector's integers make of it, the line what was meant. Colours and
fonts are the page's: elements have classes, not styles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from denwatch.client.console.meanings import Meaning
from denwatch.client.vocabulary import Attribute, ValueKind, format_moment
from denwatch.client.vocabulary.fitting import find_width
from denwatch.protocol.degrees import fuzzify, hedge
from denwatch.protocol.vectors import Predicate

WIDTH, HEIGHT = 320, 92
_TOP, _BOTTOM = 8, 74  # of degrees 1 and 0
_LEFT, _RIGHT = 6, 314
_SAMPLES = 154
_TINY = 1e-9  # of a degree
_NARROW = 0.4  # of the domain: what is narrower is drawn larger


@dataclass(frozen=True)
class Graph:
    """One attribute: its picture, and the values that count, in words."""

    attribute: str
    words: str
    counts: str
    svg: str


def draw_graph(
    attribute: Attribute,
    meanings: Sequence[Meaning],
    predicates: Sequence[Predicate],
    evaluate: Callable[[int], float],
    threshold: float,
) -> Graph:
    """Return the picture of all that is asked of one attribute: `evaluate` says it of a code.

    `predicates` are the wire's, for what is to be seen; degrees and the threshold are 0..1.
    """
    words = " · ".join(meaning.words for meaning in meanings)
    window = _find_window(attribute, predicates)
    counts = describe_cut(attribute, evaluate, threshold, window)
    label = f"{attribute.name.replace('_', ' ')}: counts {counts}"
    if attribute.kind is ValueKind.TEXT:
        inner = _draw_symbols(attribute, evaluate)
    else:
        inner = _draw_area(attribute, evaluate, meanings, window)
    line = _place(threshold)
    svg = (
        f'<svg class="graph" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(label)}">'
        f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{_BOTTOM}" y2="{_BOTTOM}"/>{inner}'
        f'<line class="cut" x1="{_LEFT}" x2="{_RIGHT}" y1="{line:.1f}" y2="{line:.1f}"/></svg>'
    )
    return Graph(attribute.name, words, counts, svg)


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


def _place(degree: float) -> float:
    return _BOTTOM - degree * (_BOTTOM - _TOP)


def _draw_area(
    attribute: Attribute,
    evaluate: Callable[[int], float],
    meanings: Sequence[Meaning],
    window: tuple[int, int],
) -> str:
    low, high = window
    span = max(1, high - low)

    def place(code: float) -> float:
        return _LEFT + (code - low) / span * (_RIGHT - _LEFT)

    steps = min(span, _SAMPLES)
    codes = [low + round(span * step / steps) for step in range(steps + 1)]
    top = " ".join(f"{place(c):.1f},{_place(evaluate(c)):.1f}" for c in codes)
    parts = [
        f'<polygon class="area" points="{_LEFT},{_BOTTOM} {top} {_RIGHT},{_BOTTOM}"/>',
        f'<polyline class="edge" points="{top}"/>',
    ]
    for meaning in meanings:
        line = " ".join(f"{place(c):.1f},{_place(meaning.evaluate(c)):.1f}" for c in codes)
        parts.append(f'<polyline class="ideal" points="{line}"/>')
    for anchor, code in (("start", low), ("middle", (low + high) / 2), ("end", high)):
        text = escape(_say(attribute, code, anchor == "end"))
        parts.append(f'<text x="{place(code):.0f}" y="88" text-anchor="{anchor}">{text}</text>')
    return "".join(parts)


def _draw_symbols(attribute: Attribute, evaluate: Callable[[int], float]) -> str:
    count = len(attribute.symbols)
    room = (_RIGHT - _LEFT) / count
    parts = []
    for code, symbol in enumerate(attribute.symbols):
        top = _place(evaluate(code))
        x = _LEFT + room * code
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
        symbols = enumerate(attribute.symbols)
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
        return f"up to {_say(attribute, high)}"
    if last:
        return f"from {_say(attribute, low)}"
    if low == high:
        return f"at {_say(attribute, low)}"
    return f"from {_say(attribute, low, False)} to {_say(attribute, high)}"


def _say(attribute: Attribute, code: float, has_unit: bool = True) -> str:
    value = attribute.to_value(code)
    if attribute.kind is not ValueKind.NUMBER:
        return format_moment(min(max(value, attribute.low), attribute.high), attribute.kind)
    unit = f" {attribute.unit}" if attribute.unit and has_unit else ""
    return f"{value:.4g}{unit}" if abs(value) < 10_000 else f"{value:.0f}{unit}"
