"""The pictures of the report: from a table to SVG, one function each. Pure.

A picture that has nothing to show is "", and the page says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from denwatch.spark.analytics.outcomes import choose_step
from denwatch.spark.report import svg
from denwatch.spark.report.svg import HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, AxisScale

OUTCOMES = {"hit": "good", "late": "fair", "missed": "bad", "withheld": "soft", "wrong": "odd"}
_ROW = 22  # height of a bar that lies
_MOST_ROWS = 16
_MOST_DOTS = 15  # nodes in a circle; more are a matrix
_MOST_CELLS, _NAMED_CELLS = 120, 50  # nodes of a matrix, and of one with names
_LEAST_MS = 10.0


def _make_time_axis(x: AxisScale, title: str) -> Axis:
    """Return an axis of moments; the longer it is, the less of them is written."""
    form = "%H:%M"
    if x.high - x.low > 86_400_000:
        form = "%m-%d %H:%M"
    elif x.high - x.low < 7_200_000:
        form = "%H:%M:%S"
    ticks = svg.choose_times(x.low, x.high, choose_step(int(x.low), int(x.high), 6))
    return Axis(x, ticks, title, lambda ms: svg.format_time(ms, form))


def draw_delivery(table: pd.DataFrame, step: int) -> str:
    """Return outcomes over time, stacked."""
    if table.empty:
        return ""
    begin, end = float(table["time"].min()), float(table["time"].max()) + step
    totals = table[list(OUTCOMES)].sum(axis=1)
    x, y = svg.make_scales((begin, end), (0, float(totals.max())))
    ticks = svg.choose_ticks(0, float(totals.max()), 5)
    across = _make_time_axis(x, "time of reading (UTC)")
    parts = [svg.draw_axes(across, Axis(y, ticks, "matches of subscribers"))]
    width = max(1.0, x(begin + step) - x(begin) - 1)
    for row in table.to_dict("records"):
        base = 0.0
        for name, colour in OUTCOMES.items():
            if not row[name]:
                continue
            low, high = y(base), y(base + row[name])
            tip = f"{across.write(row['time'])}: {name} {row[name]}"
            parts.append(svg.draw_bar(x(row["time"]), high, width, low - high, colour, tip))
            base += row[name]
    parts.append(svg.draw_key([(colour, name) for name, colour in OUTCOMES.items()]))
    return svg.frame("".join(parts), "Outcomes over time")


def draw_latency(table: pd.DataFrame) -> str:
    """Return the distribution of latencies beside the best possible."""
    if table.empty:
        return ""
    highest = max(table["latency_ms"].max(), table["best_ms"].fillna(0).max(), 100.0)
    x, y = svg.make_scales((_LEAST_MS, float(highest) * 1.1), (0, 1), is_log=True)
    spans = svg.choose_spans(_LEAST_MS, float(highest) * 1.1)
    across = Axis(x, spans, "from reading to delivery, at most", svg.format_span)
    parts = [
        svg.draw_axes(across, Axis(y, [0, 0.25, 0.5, 0.75, 1], "of deliveries", "{:.0%}".format))
    ]
    for column, colour, name in (
        ("best_ms", "good", "best possible"),
        ("latency_ms", "main", "as it was"),
    ):
        kept = table.dropna(subset=[column])
        points = [
            (x(max(float(ms), _LEAST_MS)), y(float(share)))
            for ms, share in zip(kept[column], kept["share"], strict=True)
        ]
        if points:
            middle = kept[column].iloc[len(kept) // 2]
            parts.append(
                svg.draw_line(points, colour, f"{name}: half within {svg.format_span(middle)}")
            )
    parts.append(svg.draw_key([("main", "as it was"), ("good", "earliest possible")]))
    return svg.frame("".join(parts), "Latency of deliveries")


class BarRow(NamedTuple):
    """A bar that lies: its name, its parts one behind the other, and the words after them."""

    name: str
    parts: list[tuple[float, str, str]]  # value, colour, tip
    words: str


def draw_rows(
    rows: list[BarRow], label: str, key: Sequence[tuple[str, str]] = (), room: int = 74
) -> str:
    """Return bars that lie, the first on top, with a legend if there is a `key`."""
    rows = rows[:_MOST_ROWS]
    if not rows:
        return ""
    first = TOP + (10 if key else 0)
    start = 14 + 6.4 * min(34, max(len(row.name) for row in rows))
    longest = max(sum(value for value, _, _ in row.parts) for row in rows)
    x = AxisScale(0, max(longest, 1), start, WIDTH - room)
    parts = [svg.draw_key(key, start)]
    for number, row in enumerate(rows):
        top = first + _ROW * number
        shown = row.name if len(row.name) <= 34 else row.name[:33] + "…"
        parts.append(svg.write_text(start - 6, top + 14, shown, "end"))
        base = 0.0
        for value, colour, tip in row.parts:
            low, base = x(base), base + value
            if value:
                parts.append(svg.draw_bar(low, top + 3, x(base) - low, _ROW - 6, colour, tip))
        parts.append(svg.write_text(x(base) + 5, top + 14, row.words, "start"))
    return svg.frame("".join(parts), label, first + _ROW * len(rows) + 22)


def draw_causes(table: pd.DataFrame) -> str:
    """Return what was not delivered in time, or wrongly, by cause."""
    kept = table[table["outcome"] != "hit"].sort_values("pairs", ascending=False)
    rows = []
    for row in kept.to_dict("records"):
        tip = f"{row['outcome']}, {row['cause']}: {row['pairs']}"
        if row["outcome"] == "withheld":
            tip += ", as somebody asked"
        if row["still_open"]:
            tip += f", {row['still_open']} may still arrive"
        part = float(row["pairs"]), OUTCOMES[row["outcome"]], tip
        name = f"{row['outcome']}: {row['cause']}"
        rows.append(BarRow(name, [part], svg.format_number(part[0])))
    return draw_rows(rows, "Misses by cause")


def draw_matrix(links: pd.DataFrame, names: Sequence[str]) -> str:
    """Return the contact graph of many nodes: a cell for two of them, the darker the longer."""
    met = (
        links.groupby("first")["up_ms"]
        .sum()
        .add(links.groupby("second")["up_ms"].sum(), fill_value=0)
    )
    shown = sorted(sorted(names, key=lambda name: (-met.get(name, 0), name))[:_MOST_CELLS])
    places = {name: number for number, name in enumerate(shown)}
    side = 480.0 / len(shown)
    left, top = 110.0, 70.0 if len(shown) <= _NAMED_CELLS else 24.0
    longest = float(links["up_ms"].max()) if len(links) else 1.0
    parts = []
    for row in links.to_dict("records"):
        if row["first"] not in places or row["second"] not in places:
            continue
        tip = (
            f"{row['first']} and {row['second']}: {row['contacts']} contacts, "
            f"{svg.format_span(row['up_ms'])}, {row['notifications']} notifications"
        )
        shade = round(0.15 + 0.85 * math.sqrt(row["up_ms"] / longest), 2) if longest else 0.15
        for one, other in ((row["first"], row["second"]), (row["second"], row["first"])):
            place = {
                "x": round(left + side * places[one], 1),
                "y": round(top + side * places[other], 1),
            }
            size = {"width": round(side - 0.5, 1), "height": round(side - 0.5, 1)}
            parts.append(
                svg.draw_mark("rect", tip, "fill-main", **place, **size, fill_opacity=shade)
            )
    if len(shown) <= _NAMED_CELLS:
        for name, number in places.items():
            middle = side * (number + 0.5)
            parts.append(svg.write_text(left - 5, top + middle + 4, name, "end"))
            turned = f'<g transform="rotate(-60 {left + middle:.0f} {top - 6:.0f})">'
            words = svg.write_text(left + middle, top - 6, name, "start")
            parts.append(f"{turned}{words}</g>")
    elif len(shown) < len(names):
        words = f"{len(shown)} of {len(names)} nodes: those that were in contact longest"
        parts.append(svg.write_text(left, 14, words, "start"))
    return svg.frame("".join(parts), "Contacts of nodes", round(top + 490))


def draw_graph(links: pd.DataFrame, nodes: Mapping[str, float]) -> str:
    """Return the contact graph: nodes in a circle, links as wide as they were up."""
    if not nodes:
        return ""
    if len(nodes) > _MOST_DOTS:
        return draw_matrix(links, sorted(nodes))
    names = sorted(nodes)
    height = 330
    radius = 118.0
    centre = WIDTH / 2, height / 2
    places = {}
    for number, name in enumerate(names):
        angle = 2 * math.pi * number / len(names) - math.pi / 2
        places[name] = (
            round(centre[0] + 1.5 * radius * math.cos(angle), 1),
            round(centre[1] + radius * math.sin(angle), 1),
        )
    longest = float(links["up_ms"].max()) if len(links) else 1.0
    parts = []
    for row in links.to_dict("records"):
        if row["first"] not in places or row["second"] not in places:
            continue
        (x1, y1), (x2, y2) = places[row["first"]], places[row["second"]]
        tip = (
            f"{row['first']} and {row['second']}: {row['contacts']} contacts, "
            f"{svg.format_span(row['up_ms'])}, {svg.format_number(row['bytes'])} bytes, "
            f"{row['notifications']} notifications"
        )
        width = round(1 + 7 * math.sqrt(row["up_ms"] / longest), 1) if longest else 1
        ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        parts.append(svg.draw_mark("line", tip, "link", **ends, stroke_width=width))
        if len(names) <= 8:
            words = f"{row['contacts']} x {svg.format_span(row['up_ms'] / max(1, row['contacts']))}"
            parts.append(svg.write_text((x1 + x2) / 2, (y1 + y2) / 2 - 6, words))
    most = max(nodes.values()) or 1.0
    for name in names:
        x, y = places[name]
        tip = f"{name}: {svg.format_number(nodes[name])} notifications held in all"
        size = 5 + 11 * math.sqrt(nodes[name] / most) if len(names) <= 30 else 4
        parts.append(svg.draw_dot(x, y, size, "main", tip))
        if len(names) <= 60:
            side = 1 if x >= centre[0] else -1
            anchor = "start" if side > 0 else "end"
            parts.append(svg.write_text(x + side * (size + 5), y + 4, name, anchor, "name"))
    return svg.frame("".join(parts), "Contact graph", height)


def draw_replicas(table: pd.DataFrame, nodes: int) -> str:
    """Return how many copies a notification had, over time, and how many were held."""
    if table.empty or not table["copies"].sum():
        return ""
    begin, end = float(table["time"].min()), float(table["time"].max())
    highest = float(max(table["most"].max(), 1))
    x, y = svg.make_scales((begin, max(end, begin + 1)), (0, highest))
    up = Axis(y, svg.choose_ticks(0, highest, 4), f"copies, of {nodes} nodes")
    parts = [svg.draw_axes(_make_time_axis(x, "time (UTC)"), up)]
    for column, colour, name in (("most", "soft", "most"), ("mean", "main", "mean")):
        points = [(x(t), y(v)) for t, v in zip(table["time"], table[column], strict=True)]
        parts.append(svg.draw_line(points, colour, f"{name} copies of a notification"))
    parts.append(svg.draw_key([("main", "mean of a notification"), ("soft", "most")]))
    return svg.frame("".join(parts), "Replicas over time")


def draw_sources(table: pd.DataFrame) -> str:
    """Return bytes that devices sent, and bytes that filtering at the source saved."""
    rows = []
    for row in table.sort_values("bytes_saved", ascending=False).to_dict("records"):
        name, sent, saved = str(row["device"]), float(row["bytes_sent"]), float(row["bytes_saved"])
        if not sent + saved:
            continue
        about = "counted by the device" if row["is_counted"] else "at least"
        tip = f"{name}: {row['sent']} sent, {svg.format_number(sent)} bytes"
        more = f"{name}: {row['filtered']} not sent, {svg.format_number(saved)} bytes ({about})"
        parts = [(sent, "main", tip), (saved, "good", more)]
        rows.append(BarRow(name, parts, f"{saved / (sent + saved):.0%} saved"))
    key = [("main", "bytes sent"), ("good", "bytes saved, at least")]
    return draw_rows(rows, "Bytes saved at the source", key, 94)


def draw_strategies(table: pd.DataFrame, best: str, used: str) -> str:
    """Return strategies by what they cost and what they deliver."""
    kept = table.dropna(subset=["copies_per_delivery"])
    if kept.empty:
        return ""
    costs = kept["copies_per_delivery"].astype(float)
    highest = max(float(costs.max()) * 1.12, 0.1)
    ratios = kept["ratio"].astype(float)
    low = max(0.0, math.floor(float(ratios.min()) * 10 - 1) / 10)
    x, y = svg.make_scales((0, highest), (low, 1), height=HEIGHT + 40)
    across = Axis(x, svg.choose_ticks(0, highest), "copies handed over, a delivery")
    up = Axis(y, svg.choose_ticks(low, 1, 5), "delivered of wanted", "{:.0%}".format)
    parts = [svg.draw_axes(across, up)]
    for row in kept.to_dict("records"):
        name = row["strategy"]
        tip = (
            f"{name}: {row['ratio']:.1%}, {row['copies_per_delivery']:.2f} copies a delivery, "
            f"half within {svg.format_span(row['p50_ms'])}, "
            f"95 % within {svg.format_span(row['p95_ms'])}"
        )
        colour = "good" if name == best else "fair" if name == used else "main"
        size = 6 if name == best else 4.5
        place = x(row["copies_per_delivery"]), y(row["ratio"])
        parts.append(svg.draw_dot(*place, size, colour, tip))
    parts += _label_strategies(kept, x, y)
    key = [("good", "recommended")]
    if used:
        key.append(("fair", "in use"))
    parts.append(svg.draw_key(key, LEFT))
    return svg.frame("".join(parts), "Strategies", HEIGHT + 40)


def _label_strategies(table: pd.DataFrame, x: AxisScale, y: AxisScale) -> list[str]:
    """Return the names beside their dots; those of dots that are close stand together."""
    groups: list[tuple[float, float, list[str]]] = []
    for row in table.sort_values(["copies_per_delivery", "ratio", "strategy"]).to_dict("records"):
        px, py = x(row["copies_per_delivery"]), y(row["ratio"])
        for gx, gy, names in groups:
            if abs(gx - px) < 110 and abs(gy - py) < 14:
                names.append(row["strategy"])
                break
        else:
            groups.append((px, py, [row["strategy"]]))
    labels = []
    for px, py, names in groups:
        is_right = px > WIDTH - RIGHT - 100
        for line, name in enumerate(names):
            # Above the dots if there is room, so that no name covers one.
            up = py - 10 - 12 * (len(names) - 1 - line)
            place = up if py - 12 * len(names) > TOP else py + 18 + 12 * line
            anchor = "end" if is_right else "start"
            labels.append(svg.write_text(px + (4 if is_right else -4), place, name, anchor))
    return labels


def draw_terms(table: pd.DataFrame) -> str:
    """Return what was asked for most."""
    rows = []
    for row in table.to_dict("records"):
        name, many = f"{row['attribute']} {row['term']}".strip(), float(row["subscriptions"])
        tip = f"{name}: {row['subscriptions']} subscriptions, {row['matches']} matches"
        rows.append(BarRow(name, [(many, "main", tip)], svg.format_number(many)))
    return draw_rows(rows, "Attributes and terms")


_SERVED = (("served", "good"), ("elsewhere", "fair"), ("unserved", "bad"))


def draw_regions(table: pd.DataFrame) -> str:
    """Return how many requests of each region are served there, elsewhere, or nowhere."""
    kept = table.sort_values(["requests", "region"], ascending=[False, True])
    rows = [
        BarRow(
            str(row["region"]),
            [
                (row[what], colour, f"{row['region']}: {what} {row[what]}")
                for what, colour in _SERVED
            ],
            f"{row['requests']} requests, {row['services']} devices",
        )
        for row in kept.to_dict("records")
        if kept["requests"].sum() or kept["services"].sum()
    ]
    key = [(colour, name) for name, colour in _SERVED]
    return draw_rows(rows, "Services by region", key, 134)
