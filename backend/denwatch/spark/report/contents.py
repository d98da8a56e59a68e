"""What stands in the report: which figures, pictures and tables, in which words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pandas as pd
from denwatch.spark.report import pictures as draw
from denwatch.spark.report.page import Card, Page, Picture, write_table
from denwatch.spark.report.regions import draw_regions
from denwatch.spark.report.svg import format_number, format_span

NOTHING = "\u2013"  # a dash, for what there is no figure of
_SHOWN = 40  # rows of a table in the page


class Figures(NamedTuple):
    """All that was worked out, small enough for a page."""

    tables: Mapping[str, pd.DataFrame]
    quarantine: pd.DataFrame
    step: int
    best: str
    used: str
    advice: str
    clocks: Mapping[tuple[str, int], int]
    late: int
    folders: Sequence[str]


def build_page(figures: Figures, words: Mapping[str, str]) -> Page:
    """Return the page of a study; `words` says what each table holds."""
    runs = figures.tables["runs"]
    begin, end = int(runs["begins"].min()), int(runs["ends"].max())
    nodes = sorted(set(runs["node"]))
    about = (
        f"{len(nodes)} nodes, {int(runs['records'].sum()):,} records, "
        f"{_show_time(begin)} to {_show_time(end)} UTC ({format_span(end - begin)}); "
        f"from {', '.join(figures.folders)}"
    )
    return Page(
        "What was delivered, and what could have been",
        about,
        _list_cards(figures),
        figures.advice,
        _list_warnings(figures),
        _list_pictures(figures, nodes),
        _list_tables(figures),
        [(f"{name}.parquet", text) for name, text in [*words.items(), _QUARANTINE]],
    )


_QUARANTINE = ("quarantine", "what could not be read, and why")


def _show_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _share(value: object) -> str:
    return NOTHING if value is None or value != value else f"{float(value):.1%}"  # type: ignore[arg-type]


def _span(value: object) -> str:
    return NOTHING if value is None or value != value else format_span(float(value))  # type: ignore[arg-type]


def _list_cards(figures: Figures) -> list[Card]:
    head = figures.tables["headline"].iloc[0]
    costs = figures.tables["costs"].iloc[0]
    saved = int(figures.tables["sources"]["bytes_saved"].sum())
    copies = costs["copies_per_delivery"]
    return [
        Card(_share(head["delivery_ratio"]), "delivered of what nobody held back"),
        Card(_share(head["quality"]), "delivered of what contacts made possible"),
        Card(_span(head["p50_ms"]), f"median latency; {_span(head['best_p50_ms'])} was possible"),
        Card(_span(head["p95_ms"]), f"95 % within; {_span(head['best_p95_ms'])} was possible"),
        Card(
            NOTHING if copies != copies or copies is None else f"{copies:.2f}", "copies a delivery"
        ),
        Card(
            format_number(int(head["missed"])), f"missed, {int(head['still_open'])} may still come"
        ),
        Card(format_number(saved), "bytes saved at the source"),
        Card(format_number(len(figures.quarantine)), "log parts in quarantine"),
    ]


def _list_warnings(figures: Figures) -> list[str]:
    warnings = []
    bad = figures.quarantine
    if len(bad):
        kinds = bad.groupby("class").size()
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        lost = bad.loc[bad["class"] == "damage", "length"].dropna().sum()
        text = f"Some of the logs could not be used ({told})"
        text += f"; {int(lost):,} records are known to be lost" if lost else ""
        warnings.append(text + ". See the quarantine below: what is missing there is missing here.")
    for (node, _), offset in sorted(figures.clocks.items()):
        warnings.append(
            f"The clock of {node} was {offset / 1000:+,.1f} s off; its times are corrected."
        )
    head = figures.tables["headline"].iloc[0]
    if int(head["wrong"]):
        text = f"Deliveries that match no subscription in force: {int(head['wrong'])}."
        warnings.append(text + " See the causes.")
    return warnings


def _list_pictures(figures: Figures, nodes: Sequence[str]) -> list[Picture]:
    tables = figures.tables
    held = tables["staleness"].groupby("node")["notes"].sum().to_dict()
    weights = {node: float(held.get(node, 0)) for node in nodes}
    late = format_span(figures.late)
    pictures = (
        (
            "delivery",
            "Delivery over time",
            draw.draw_delivery(tables["delivery"], figures.step),
            f"Each match of a notification for a subscriber, by the time of the reading. Late is "
            f"more than {late} after it.",
            "No notification matched a subscription.",
        ),
        (
            "latency",
            "Latency",
            draw.draw_latency(tables["latency"]),
            "From the reading to the subscriber's acknowledgement, beside the earliest that the "
            "contacts of nodes and people allowed.",
            "Nothing was delivered.",
        ),
        (
            "causes",
            "Misses by cause",
            draw.draw_causes(tables["causes"]),
            "Top-k, quiet, role and withdrawn are as somebody wished; replication is what another "
            "strategy would have brought.",
            "Everything was delivered in time.",
        ),
        (
            "links",
            "Contact graph",
            draw.draw_graph(tables["links"], weights),
            "Links are as wide as they were up; nodes as large as what they held.",
            "There is no node.",
        ),
        (
            "replicas",
            "Replicas",
            draw.draw_replicas(tables["replicas"], len(nodes)),
            "Copies of each notification that is held anywhere.",
            "No notification was held.",
        ),
        (
            "strategies",
            "Strategies compared",
            draw.draw_strategies(tables["strategies"], figures.best, figures.used),
            "The same notifications replayed over the same contacts, with unlimited bandwidth.",
            "No strategy could have delivered anything.",
        ),
        (
            "sources",
            "Bytes saved at the source",
            draw.draw_sources(tables["sources"]),
            "What devices sent, and what nobody asked for and stayed there. Where a device does "
            "not count, the least that follows from the distance of its closest readings.",
            "No device sent anything.",
        ),
        (
            "terms",
            "Attributes and terms",
            draw.draw_terms(tables["terms"]),
            "What subscriptions ask for, by how many.",
            "There was no subscription.",
        ),
        (
            "regions",
            "Services by region",
            draw_regions(tables["regions"]),
            "Subscriptions in force at the end, where their owners are: whether a device there "
            "senses all that they ask for, only one elsewhere, or none.",
            "There was neither a device nor a subscription at the end.",
        ),
    )
    return [
        Picture(name, heading, svg, caption, empty, _show(tables[name]), f"tables/{name}.csv")
        for name, heading, svg, caption, empty in pictures
    ]


def _show(table: pd.DataFrame) -> str:
    rows = table.head(_SHOWN).astype(object).where(table.head(_SHOWN).notna(), None)
    return write_table(
        [str(name).replace("_", " ") for name in table.columns],
        rows.to_numpy().tolist(),
        max(0, len(table) - _SHOWN),
    )


def _list_tables(figures: Figures) -> list[tuple[str, str]]:
    listed = [
        ("By subscriber", "subscribers"),
        ("By node that read", "origins"),
        ("How old news is when a node learns it", "staleness"),
        ("What it cost", "costs"),
        ("What the minimal set of subscriptions saves, a device", "savings"),
        ("Turned away", "refusals"),
    ]
    shown = [
        (heading, _show(figures.tables[name]))
        for heading, name in listed
        if len(figures.tables[name])
    ]
    if len(figures.quarantine):
        shown.append(("Quarantine", _show(figures.quarantine)))
    return shown
