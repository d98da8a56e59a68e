"""The pictures of the report: from a table to SVG, one function each. Pure.

A picture that has nothing to show is "", and the page says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

import pandas as pd
from denwatch.spark.analytics.outcomes import choose_step
from denwatch.spark.report.svg import (
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    AxisScale,
    choose_spans,
    choose_ticks,
    choose_times,
    draw_axes,
    draw_bar,
    draw_dot,
    draw_key,
    draw_line,
    format_number,
    format_span,
    frame,
    make_scales,
    tag,
    write_text,
)

OUTCOMES = {"hit": "good", "late": "fair", "missed": "bad", "wrong": "odd"}
_ROW = 22  # height of a bar that lies
_MOST_ROWS = 16
_LEAST_MS = 10.0


def _write_time(begin: float, end: float) -> str:
    return (
        "%m-%d %H:%M"
        if end - begin > 86_400_000
        else "%H:%M:%S"
        if end - begin < 7_200_000
        else "%H:%M"
    )


def _show_time(ms: float, form: str) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)


def draw_delivery(table: pd.DataFrame, step: int) -> str:
    """Return outcomes over time, stacked."""
    if table.empty:
        return ""
    begin, end = float(table["time"].min()), float(table["time"].max()) + step
    totals = table[list(OUTCOMES)].sum(axis=1)
    x, y = make_scales((begin, end), (0, float(totals.max())))
    form = _write_time(begin, end)
    parts = [
        draw_axes(
            x,
            y,
            choose_times(begin, end, choose_step(int(begin), int(end), 6)),
            choose_ticks(0, float(totals.max()), 5),
            lambda ms: _show_time(ms, form),
            titles=("time of reading (UTC)", "matches of subscribers"),
        )
    ]
    width = max(1.0, x(begin + step) - x(begin) - 1)
    for row in table.to_dict("records"):
        base = 0.0
        for name, colour in OUTCOMES.items():
            if not row[name]:
                continue
            low, high = y(base), y(base + row[name])
            tip = f"{_show_time(row['time'], form)}: {name} {row[name]}"
            parts.append(draw_bar(x(row["time"]), high, width, low - high, colour, tip))
            base += row[name]
    parts.append(draw_key([(colour, name) for name, colour in OUTCOMES.items()]))
    return frame("".join(parts), "Outcomes over time")


def draw_latency(table: pd.DataFrame) -> str:
    """Return the distribution of latencies beside the best possible."""
    if table.empty:
        return ""
    highest = max(table["latency_ms"].max(), table["best_ms"].fillna(0).max(), 100.0)
    x, y = make_scales((_LEAST_MS, float(highest) * 1.1), (0, 1), is_log=True)
    parts = [
        draw_axes(
            x,
            y,
            choose_spans(_LEAST_MS, float(highest) * 1.1),
            [0, 0.25, 0.5, 0.75, 1],
            format_span,
            lambda share: f"{share:.0%}",
            titles=("from reading to delivery, at most", "of deliveries"),
        )
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
            parts.append(draw_line(points, colour, f"{name}: half within {format_span(middle)}"))
    parts.append(draw_key([("main", "as it was"), ("good", "earliest possible")]))
    return frame("".join(parts), "Latency of deliveries")


def draw_bars(rows: list[tuple[str, float, str, str]], label: str, unit: str = "") -> str:
    """Return bars that lie, the first on top: (name, value, colour, tip)."""
    rows = [row for row in rows if row[1] > 0][:_MOST_ROWS]
    if not rows:
        return ""
    height = TOP + _ROW * len(rows) + 22
    start = 14 + 6.4 * min(34, max(len(row[0]) for row in rows))
    x = AxisScale(0, max(row[1] for row in rows), start, WIDTH - 74)
    parts = []
    for number, (name, value, colour, tip) in enumerate(rows):
        top = TOP + _ROW * number
        shown = name if len(name) <= 34 else name[:33] + "…"
        parts.append(write_text(start - 6, top + 14, shown, "end"))
        parts.append(draw_bar(start, top + 3, x(value) - start, _ROW - 6, colour, tip))
        words = f"{format_number(value)}{unit}"
        parts.append(write_text(x(value) + 5, top + 14, words, "start"))
    return frame("".join(parts), label, height)


def draw_causes(table: pd.DataFrame) -> str:
    """Return what was not delivered in time, or wrongly, by cause."""
    kept = table[table["outcome"] != "hit"].sort_values("pairs", ascending=False)
    rows = []
    for row in kept.to_dict("records"):
        tip = f"{row['outcome']}, {row['cause']}: {row['pairs']}"
        if row["is_deliberate"]:
            tip += ", as somebody wished"
        if row["still_open"]:
            tip += f", {row['still_open']} may still arrive"
        rows.append(
            (
                f"{row['outcome']}: {row['cause']}",
                float(row["pairs"]),
                OUTCOMES[row["outcome"]],
                tip,
            )
        )
    return draw_bars(rows, "Misses by cause")


def draw_graph(links: pd.DataFrame, nodes: Mapping[str, float]) -> str:
    """Return the contact graph: nodes in a circle, links as wide as they were up."""
    if not nodes:
        return ""
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
            f"{format_span(row['up_ms'])}, {format_number(row['bytes'])} bytes, "
            f"{row['notes']} notifications"
        )
        width = round(1 + 7 * math.sqrt(row["up_ms"] / longest), 1) if longest else 1
        parts.append(
            tag(
                "line",
                tag("title", tip),
                x1=x1,
                y1=y1,
                x2=x2,
                y2=y2,
                stroke_width=width,
                class_="mark link",
            )
        )
        if len(names) <= 8:
            words = f"{row['contacts']} x {format_span(row['up_ms'] / max(1, row['contacts']))}"
            parts.append(write_text((x1 + x2) / 2, (y1 + y2) / 2 - 6, words))
    most = max(nodes.values()) or 1.0
    for name in names:
        x, y = places[name]
        tip = f"{name}: {format_number(nodes[name])} notifications held in all"
        size = 5 + 11 * math.sqrt(nodes[name] / most) if len(names) <= 30 else 4
        parts.append(draw_dot(x, y, size, "main", tip))
        if len(names) <= 60:
            side = 1 if x >= centre[0] else -1
            anchor = "start" if side > 0 else "end"
            parts.append(write_text(x + side * (size + 5), y + 4, name, anchor, "name"))
    return frame("".join(parts), "Contact graph", height)


def draw_replicas(table: pd.DataFrame, nodes: int) -> str:
    """Return how many copies a notification had, over time, and how many were held."""
    if table.empty or not table["copies"].sum():
        return ""
    begin, end = float(table["time"].min()), float(table["time"].max())
    highest = float(max(table["most"].max(), 1))
    x, y = make_scales((begin, max(end, begin + 1)), (0, highest))
    form = _write_time(begin, end)
    ticks = choose_times(begin, end, choose_step(int(begin), int(end), 6))
    parts = [
        draw_axes(
            x,
            y,
            ticks,
            choose_ticks(0, highest, 4),
            lambda ms: _show_time(ms, form),
            titles=("time (UTC)", f"copies, of {nodes} nodes"),
        )
    ]
    for column, colour, name in (("most", "soft", "most"), ("mean", "main", "mean")):
        points = [(x(t), y(v)) for t, v in zip(table["time"], table[column], strict=True)]
        parts.append(draw_line(points, colour, f"{name} copies of a notification"))
    parts.append(draw_key([("main", "mean of a notification"), ("soft", "most")]))
    return frame("".join(parts), "Replicas over time")


def draw_sources(table: pd.DataFrame) -> str:
    """Return bytes that devices sent, and bytes that filtering at the source saved."""
    kept = table[(table["bytes_sent"] > 0) | (table["bytes_saved"] > 0)]
    kept = kept.sort_values("bytes_saved", ascending=False)[:_MOST_ROWS]
    if kept.empty:
        return ""
    height = TOP + 14 + _ROW * len(kept) + 22
    start = 14 + 6.4 * min(34, max(len(str(name)) for name in kept["device"]))
    total = kept["bytes_sent"] + kept["bytes_saved"]
    x = AxisScale(0, float(total.max()), start, WIDTH - 94)
    parts = [draw_key([("main", "bytes sent"), ("good", "bytes saved, at least")], start)]
    for number, row in enumerate(kept.to_dict("records")):
        top = TOP + 10 + _ROW * number
        sent, saved = float(row["bytes_sent"]), float(row["bytes_saved"])
        about = "counted by the device" if row["is_counted"] else "at least"
        parts.append(write_text(start - 6, top + 14, str(row["device"]), "end"))
        tip = f"{row['device']}: {row['sent']} sent, {format_number(sent)} bytes"
        parts.append(draw_bar(start, top + 3, x(sent) - start, _ROW - 6, "main", tip))
        if saved:
            tip = f"{row['device']}: {row['filtered']} not sent, "
            tip += f"{format_number(saved)} bytes ({about})"
            parts.append(
                draw_bar(x(sent), top + 3, x(sent + saved) - x(sent), _ROW - 6, "good", tip)
            )
        words = f"{saved / (sent + saved):.0%} saved"
        parts.append(write_text(x(sent + saved) + 5, top + 14, words, "start"))
    return frame("".join(parts), "Bytes saved at the source", height)


def draw_strategies(table: pd.DataFrame, best: str, used: str) -> str:
    """Return strategies by what they cost and what they deliver."""
    kept = table.dropna(subset=["copies_per_delivery"])
    if kept.empty:
        return ""
    costs = kept["copies_per_delivery"].astype(float)
    highest = max(float(costs.max()) * 1.12, 0.1)
    ratios = kept["ratio"].astype(float)
    low = max(0.0, math.floor(float(ratios.min()) * 10 - 1) / 10)
    x, y = make_scales((0, highest), (low, 1), height=HEIGHT + 40)
    parts = [
        draw_axes(
            x,
            y,
            choose_ticks(0, highest),
            choose_ticks(low, 1, 5),
            write_y=lambda share: f"{share:.0%}",
            titles=("copies handed over, a delivery", "delivered of wanted"),
        )
    ]
    for row in kept.to_dict("records"):
        name = row["strategy"]
        tip = (
            f"{name}: {row['ratio']:.1%}, {row['copies_per_delivery']:.2f} copies a delivery, "
            f"half within {format_span(row['p50_ms'])}, 95 % within {format_span(row['p95_ms'])}"
        )
        colour = "good" if name == best else "fair" if name == used else "main"
        size = 6 if name == best else 4.5
        place = x(row["copies_per_delivery"]), y(row["ratio"])
        parts.append(draw_dot(*place, size, colour, tip))
    parts += _label_strategies(kept, x, y)
    key = [("good", "recommended")]
    if used:
        key.append(("fair", "in use"))
    parts.append(draw_key(key, LEFT))
    return frame("".join(parts), "Strategies", HEIGHT + 40)


def _label_strategies(table: pd.DataFrame, x: AxisScale, y: AxisScale) -> list[str]:
    """Return the names beside their dots; those of dots that are close stand together."""
    groups: list[tuple[float, float, list[str]]] = []
    for row in table.sort_values(["copies_per_delivery", "ratio", "strategy"]).to_dict("records"):
        px, py = x(row["copies_per_delivery"]), y(row["ratio"])
        for gx, gy, names in groups:
            if abs(gx - px) < 70 and abs(gy - py) < 14:
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
            labels.append(write_text(px + (4 if is_right else -4), place, name, anchor))
    return labels


def draw_terms(table: pd.DataFrame) -> str:
    """Return what was asked for most."""
    rows = []
    for row in table.to_dict("records"):
        name = f"{row['attribute']} {row['term']}".strip()
        tip = f"{name}: {row['subscriptions']} subscriptions, {row['matches']} matches"
        rows.append((name, float(row["subscriptions"]), "main", tip))
    return draw_bars(rows, "Attributes and terms")


_SERVED = (("served", "good"), ("elsewhere", "fair"), ("unserved", "bad"))


def draw_regions(table: pd.DataFrame) -> str:
    """Return how many wishes of each region are served there, elsewhere, or nowhere."""
    kept = table.sort_values(["wishes", "region"], ascending=[False, True])[:_MOST_ROWS]
    if kept.empty or not (kept["wishes"].sum() or kept["services"].sum()):
        return ""
    height = TOP + 14 + _ROW * len(kept) + 22
    start = 14 + 6.4 * min(34, max(len(str(name)) for name in kept["region"]))
    x = AxisScale(0, float(max(kept["wishes"].max(), 1)), start, WIDTH - 134)
    parts = [draw_key([(colour, name) for name, colour in _SERVED], start)]
    for number, row in enumerate(kept.to_dict("records")):
        top = TOP + 10 + _ROW * number
        parts.append(write_text(start - 6, top + 14, str(row["region"]), "end"))
        base = 0.0
        for name, colour in _SERVED:
            if row[name]:
                low, high = x(base), x(base + row[name])
                tip = f"{row['region']}: {name} {row[name]}"
                parts.append(draw_bar(low, top + 3, high - low, _ROW - 6, colour, tip))
                base += row[name]
        words = f"{row['wishes']} wishes, {row['services']} devices"
        parts.append(write_text(x(base) + 5, top + 14, words, "start"))
    return frame("".join(parts), "Services by region", height)
