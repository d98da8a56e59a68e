"""The map of nodes as an SVG picture. Pure: the same network gives the same picture.

What a state is shows in shape as well as in colour: a node that is heard is filled, one that is not
is hollow and dashed; a link that is cut is dashed and crossed out.
"""

from __future__ import annotations

import math
from html import escape

from denwatch.client.console.network import LinkView, NetworkView, NodeView

WIDTH = 340
_MARGIN = 44  # above and below, for names
_RADIUS = 112.0
_SIZE = 13
_LONGEST_NAME = 14

Point = tuple[float, float]


def place_nodes(names: list[str]) -> tuple[dict[str, Point], int]:
    """Return where nodes stand, on an ellipse in the order of their names, and the height."""
    rise = 0.0 if len(names) < 3 else 66.0
    height = round(2 * (rise + _MARGIN))
    middle = WIDTH / 2, height / 2 - 10
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
        f'<svg class="map" viewBox="0 0 {WIDTH} {height}" role="img"'
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
        f'<g class="node {node.state}">{ring if node.is_ours else ""}'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{_SIZE}"/>'
        f'<text class="count" x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">'
        f"{node.devices if node.state == 'up' else ''}</text>"
        f'<text class="name" x="{x:.1f}" y="{y + _SIZE + 17:.1f}" text-anchor="middle">'
        f"{escape(name)}</text>"
        f'<text class="lag" x="{x:.1f}" y="{y + _SIZE + 30:.1f}" text-anchor="middle">'
        f"{escape(label)}</text></g>"
    )
