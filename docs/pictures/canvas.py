"""Boxes, arrows and bytes as SVG, readable on a light and on a dark page. No I/O.

A picture has its own background and takes the reader's colour scheme, so it stays readable where
the page around it has the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Point = tuple[float, float]

# Colours are written out in every rule: many programs that show SVG know no CSS variables, and
# then fill everything with black.
_LIGHT = {
    "card": "#ffffff",
    "edge": "#d0d7de",
    "ink": "#1f2328",
    "soft": "#57606a",
    "wire": "#6e7781",
    "bad": "#cf222e",
    "app": "#0969da",
    "app-tint": "#eaf5ff",
    "node": "#1a7f37",
    "node-tint": "#e9f9ee",
    "device": "#b35900",
    "device-tint": "#fff4e5",
    "spark": "#8250df",
    "spark-tint": "#f6efff",
    "disk": "#57606a",
    "disk-tint": "#f3f5f7",
}
_DARK = {
    "card": "#0d1117",
    "edge": "#3d444d",
    "ink": "#e6edf3",
    "soft": "#9ba5b0",
    "wire": "#9198a1",
    "bad": "#ff7b72",
    "app": "#58a6ff",
    "app-tint": "#0f2740",
    "node": "#3fb950",
    "node-tint": "#0f2a18",
    "device": "#e3a34f",
    "device-tint": "#33230c",
    "spark": "#b98cf7",
    "spark-tint": "#26193d",
    "disk": "#9198a1",
    "disk-tint": "#1a2028",
}
_SHAPES = """
    svg { font-family: system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
      font-size: 13px; }
    .soft { font-size: 12px; } .head { font-weight: 600; font-size: 14px; }
    .title { font-weight: 600; font-size: 16px; } .number { font-weight: 700; font-size: 12px; }
    .mono { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
      font-size: 12px; }
    .line { fill: none; stroke-width: 1.6; } .dashed { stroke-dasharray: 5 4; }
    .axis { fill: none; stroke-width: 1; }"""
ROLES = ("app", "node", "device", "spark", "disk")


def _paint(colours: dict[str, str]) -> str:
    """Return the rules that give every kind of element its colours."""
    rules = [
        ("text", "fill", "ink"),
        (".soft", "fill", "soft"),
        (".bad", "fill", "bad"),
        (".number", "fill", "card"),
        (".line", "stroke", "wire"),
        (".axis", "stroke", "wire"),
        (".tip", "fill", "wire"),
        (".dot", "fill", "wire"),
    ]
    lines = [f".card {{ fill: {colours['card']}; stroke: {colours['edge']}; }}"]
    lines += [f"{name} {{ {what}: {colours[colour]}; }}" for name, what, colour in rules]
    for role in ROLES:
        ink = colours[role]
        lines += [
            f".{role} {{ fill: {colours[role + '-tint']}; stroke: {ink}; stroke-width: 1.4; }}",
            f".{role}-ink {{ fill: {ink}; }} .{role}-line {{ fill: none; stroke: {ink}; }}",
        ]
    return "".join(f"\n    {line}" for line in lines)


_STYLE = (
    f"{_SHAPES}{_paint(_LIGHT)}\n    @media (prefers-color-scheme: dark) {{{_paint(_DARK)}\n    }}"
)
_TIP = (
    '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="tip" d="M0 0 10 5 0 10z"/></marker>'
)


class Canvas:
    """A picture under construction."""

    def __init__(self, width: int, height: int, title: str, summary: str) -> None:
        self.width, self.height = width, height
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-labelledby="title summary">\n'
            f'  <title id="title">{escape(title)}</title>\n'
            f'  <desc id="summary">{escape(summary)}</desc>\n'
            f"  <style>{_STYLE}\n  </style>\n  <defs>{_TIP}</defs>\n"
            f'  <rect class="card" x="0.5" y="0.5" rx="12" width="{width - 1}" '
            f'height="{height - 1}"/>'
        )
        self._parts: list[str] = []

    def add(self, part: str) -> None:
        """Add an element as it is."""
        self._parts.append(part)

    def text(self, at: Point, words: str, style: str = "", anchor: str = "start") -> None:
        """Write a line; its baseline is at `at`."""
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        look = f' class="{style}"' if style else ""
        self.add(f'<text x="{at[0]:g}" y="{at[1]:g}"{look}{place}>{escape(words)}</text>')

    def box(
        self, at: Point, size: Point, role: str, head: str, lines: Sequence[str], where: str = ""
    ) -> None:
        """Draw a part of the system: what it is called, what it does, where its code is."""
        (x, y), (width, height) = at, size
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.add(f'<rect class="{role}" {place} rx="8"/>')
        self.text((x + 12, y + 22), head, f"head {role}-ink")
        for row, line in enumerate(lines):
            self.text((x + 12, y + 42 + 17 * row), line)
        if where:
            self.text((x + 12, y + height - 10), where, "soft mono")

    def arrow(
        self,
        points: Sequence[Point],
        label: str = "",
        label_at: Point | None = None,
        dashed: bool = False,
        both: bool = False,
        anchor: str = "middle",
    ) -> None:
        """Draw a way from the first point to the last, with words beside it."""
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        style = "line dashed" if dashed else "line"
        start = ' marker-start="url(#tip)"' if both else ""
        self.add(f'<path class="{style}" d="{path}" marker-end="url(#tip)"{start}/>')
        if label:
            (x1, y1), (x2, y2) = points[0], points[-1]
            at = label_at or ((x1 + x2) / 2, (y1 + y2) / 2 - 7)
            for place, words in enumerate(label.split("\n")):
                self.text((at[0], at[1] + 15 * place), words, "soft", anchor)

    def step(self, at: Point, number: int, role: str) -> None:
        """Draw the number of a step."""
        self.add(f'<circle class="{role}-ink" cx="{at[0]:g}" cy="{at[1]:g}" r="10"/>')
        self.text((at[0], at[1] + 4.5), str(number), "number", "middle")

    def bytes(self, at: Point, groups: Sequence[tuple[str, str, str]]) -> float:
        """Draw bytes in groups: their digits, what they are, whose colour; return where it ends."""
        x, y = at
        for digits, meaning, role in groups:
            longest = max(map(len, meaning.split("\n")))
            width = max(7.3 * len(digits) + 14, 6.9 * longest)
            self.add(
                f'<rect class="{role}" x="{x:g}" y="{y:g}" width="{width:g}" height="24" rx="4"/>'
            )
            self.text((x + width / 2, y + 16), digits, "mono", "middle")
            for place, words in enumerate(meaning.split("\n")):
                self.text((x + width / 2, y + 40 + 14 * place), words, "soft", "middle")
            x += width + 6
        return x

    def finish(self) -> str:
        """Return the picture."""
        body = "\n".join(f"  {part}" for part in self._parts)
        return f"{self._head}\n{body}\n</svg>\n"
