"""Drawing: axes, bars, lines and text as SVG, in the colours of the page around them. Pure.

Pictures have no script and no outside reference. What carries data has the class `mark` and a
`title`, which browsers show as a tip; colours are classes, so that the page decides light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 26, 34
_SPANS = (  # ms that read well
    *(10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000),
)


class AxisScale(NamedTuple):
    """From values to places on the page."""

    low: float
    high: float
    start: float
    stop: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """Return where a value is."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, self.low))
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.stop - self.start), 1)


def make_scales(
    xs: tuple[float, float], ys: tuple[float, float], *, height: int = HEIGHT, is_log: bool = False
) -> tuple[AxisScale, AxisScale]:
    """Return the scales of a picture with axes; y grows upwards."""
    x = AxisScale(xs[0], xs[1], LEFT, WIDTH - RIGHT, is_log)
    return x, AxisScale(ys[0], ys[1], height - BOTTOM, TOP)


def choose_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round values between two."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def choose_spans(low: float, high: float) -> list[float]:
    """Return lengths of time between two, for a logarithmic axis."""
    return [span for span in _SPANS if low <= span <= high]


def choose_times(begin: float, end: float, step: int) -> list[float]:
    """Return moments between two at multiples of a step, as a clock has them."""
    first = math.ceil(begin / step)
    return [float(n * step) for n in range(first, math.floor(end / step) + 1)]


def format_number(value: float) -> str:
    """Return a number as short as it can be read."""
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:.3g} M"
    if abs(value) >= 10_000:
        return f"{value / 1_000:.3g} k"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def format_span(ms: float) -> str:
    """Return a length of time."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if abs(ms) >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.0f} ms"


def format_time(ms: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a moment, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)


def tag(name: str, content: str = "", **attributes: object) -> str:
    """Return an element; a trailing underscore of a name is left out, others become hyphens."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def write_text(x: float, y: float, words: str, anchor: str = "middle", kind: str = "label") -> str:
    """Return text at a place."""
    return tag("text", escape(words), x=x, y=y, text_anchor=anchor, class_=kind)


class Axis(NamedTuple):
    """What stands on an axis."""

    scale: AxisScale
    ticks: Iterable[float]
    title: str
    write: Callable[[float], str] = format_number


def draw_axes(across: Axis, up: Axis) -> str:
    """Return grid, ticks and titles."""
    parts = []
    x, y = across.scale, up.scale
    for value in up.ticks:
        place = y(value)
        parts.append(tag("line", x1=x.start, x2=x.stop, y1=place, y2=place, class_="grid"))
        parts.append(write_text(x.start - 6, place + 4, up.write(value), "end"))
    for value in across.ticks:
        place = x(value)
        parts.append(tag("line", x1=place, x2=place, y1=y.start, y2=y.start + 4, class_="axis"))
        parts.append(write_text(place, y.start + 16, across.write(value)))
    parts.append(tag("line", x1=x.start, x2=x.stop, y1=y.start, y2=y.start, class_="axis"))
    parts.append(write_text((x.start + x.stop) / 2, y.start + 31, across.title, kind="title"))
    middle = (y.start + y.stop) / 2
    turned = f'<g transform="rotate(-90 12 {middle:.0f})">'
    return "".join([*parts, turned, write_text(12, middle, up.title, kind="title"), "</g>"])


def draw_mark(name: str, tip: str, kind: str, **attributes: object) -> str:
    """Return an element that carries data, with its tip."""
    return tag(name, tag("title", escape(tip)), **attributes, class_=f"mark {kind}")


def draw_bar(x: float, y: float, width: float, height: float, colour: str, tip: str) -> str:
    """Return a bar."""
    size = {"width": max(round(width, 1), 0.5), "height": max(round(height, 1), 0.5)}
    return draw_mark("rect", tip, f"fill-{colour}", x=round(x, 1), y=round(y, 1), **size)


def draw_line(points: Sequence[tuple[float, float]], colour: str, tip: str) -> str:
    """Return a line through points."""
    path = " ".join(f"{x},{y}" for x, y in points)
    return draw_mark("polyline", tip, f"line-{colour}", points=path)


def draw_dot(x: float, y: float, radius: float, colour: str, tip: str) -> str:
    """Return a dot."""
    return draw_mark("circle", tip, f"fill-{colour}", cx=x, cy=y, r=round(radius, 1))


def draw_key(entries: Sequence[tuple[str, str]], x: float = LEFT, y: float = 8) -> str:
    """Return a legend: colours and what they are."""
    parts = []
    for colour, words in entries:
        parts.append(tag("rect", x=x, y=y - 8, width=10, height=10, class_=f"fill-{colour}"))
        parts.append(write_text(x + 14, y + 1, words, "start"))
        x += 26 + 6.6 * len(words)
    return "".join(parts)


def frame(content: str, label: str, height: int = HEIGHT) -> str:
    """Return a whole picture."""
    size = {"viewBox": f"0 0 {WIDTH} {height}", "xmlns": "http://www.w3.org/2000/svg"}
    return tag("svg", content, **size, role="img", aria_label=label)
