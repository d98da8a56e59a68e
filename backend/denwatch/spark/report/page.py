"""The report as one HTML file that needs nothing else: no script, no request, no font. Pure.

It follows the reader's light or dark setting, fits a telephone, and prints on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import pandas as pd
from denwatch.spark.report import pictures as draw
from denwatch.spark.report.svg import format_number, format_span, format_time

_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b2733;--soft:#5b6b7a;--rule:#d9e0e6;
--card:#f5f7f9;--main:#2f6db3;--good:#1d8a6b;--fair:#c98412;--bad:#c0392f;--odd:#7d4fa3;
--pale:#9db7d3}
@media (prefers-color-scheme:dark){:root{--paper:#12181f;--ink:#e4eaf0;--soft:#9aa8b5;
--rule:#2c3844;--card:#1a232c;--main:#6ea8e6;--good:#43bd98;--fair:#e6ae4c;--bad:#ec7468;
--odd:#b78be0;--pale:#48627d}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1100px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:1.6rem;margin:0 0 4px}h2{font-size:1.1rem;margin:0 0 6px}
p{margin:0 0 10px}.note{color:var(--soft);font-size:.9rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:18px 0}
.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 12px}
.card b{display:block;font-size:1.45rem;line-height:1.2}
.card span{color:var(--soft);font-size:.85rem}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:18px}
figure{margin:0;border:1px solid var(--rule);border-radius:8px;padding:14px;break-inside:avoid}
figcaption{margin-top:6px}svg{display:block;width:100%;height:auto}
.empty{color:var(--soft);padding:30px 0;text-align:center}
.advice{border-left:4px solid var(--good);background:var(--card);padding:10px 14px;margin:18px 0}
.warn{border-left-color:var(--fair)}
table{border-collapse:collapse;width:100%;font-size:.85rem}
th,td{text-align:right;padding:3px 8px;border-bottom:1px solid var(--rule)}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:600}
details{margin-top:8px}summary{cursor:pointer;color:var(--soft);font-size:.85rem}
.scroll{overflow-x:auto}section{margin-top:26px}
.label{font-size:11px;fill:var(--soft)}.title{font-size:11px;fill:var(--ink)}
.name{font-size:13px;fill:var(--ink);font-weight:600}
.grid-line,.grid line{stroke:var(--rule)}line.grid{stroke:var(--rule)}line.axis{stroke:var(--soft)}
line.link{stroke:var(--pale);stroke-linecap:round}
.fill-main{fill:var(--main)}.fill-good{fill:var(--good)}.fill-fair{fill:var(--fair)}
.fill-bad{fill:var(--bad)}.fill-odd{fill:var(--odd)}.fill-soft{fill:var(--pale)}
polyline{fill:none;stroke-width:2}.line-main{stroke:var(--main)}.line-good{stroke:var(--good)}
.line-soft{stroke:var(--pale)}
@media print{main{max-width:none;padding:0}details{display:none}figure,.card{border-color:#bbb}}
"""


class Picture(NamedTuple):
    """A picture, what it says, and the table behind it."""

    name: str
    heading: str
    svg: str  # "" if there is nothing to show
    caption: str
    empty: str  # what to say then
    table: str  # HTML
    file: str  # where the whole table is


class ReportPage(NamedTuple):
    """All of a report."""

    title: str
    about: str
    cards: Sequence[tuple[str, str]]  # a figure of the headline, and what it is
    advice: str
    warnings: Sequence[str]
    pictures: Sequence[Picture]
    tables: Sequence[tuple[str, str]]  # heading and HTML
    files: Sequence[tuple[str, str]]  # file and what it holds


def write_page(page: ReportPage) -> str:
    """Return the page."""
    cards = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(words)}</span></div>'
        for value, words in page.cards
    )
    warnings = "".join(f'<p class="advice warn">{escape(text)}</p>' for text in page.warnings)
    advice = f'<p class="advice"><b>Recommendation.</b> {escape(page.advice)}</p>'
    pictures = "".join(_write_picture(picture) for picture in page.pictures)
    tables = "".join(
        f'<section><h2>{escape(heading)}</h2><div class="scroll">{html}</div></section>'
        for heading, html in page.tables
    )
    files = "".join(
        f"<li><code>{escape(name)}</code>: {escape(words)}</li>" for name, words in page.files
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # Nothing may be asked for, whatever a log's text might say.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        '<link rel="icon" href="data:,">'
        f"<title>{escape(page.title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{escape(page.title)}</h1><p class="note">{escape(page.about)}</p>{warnings}'
        f'<div class="cards">{cards}</div>{advice}<div class="grid">{pictures}</div>{tables}'
        '<section><h2>The tables</h2><p class="note">Parquet, in <code>tables</code> beside '
        f"this page; those behind the pictures also as CSV.</p><ul>{files}</ul></section>"
        "</main></body></html>\n"
    )


def _write_picture(picture: Picture) -> str:
    shown = picture.svg or f'<p class="empty">{escape(picture.empty)}</p>'
    table = (
        f"<details><summary>the figures ({escape(picture.file)})</summary>"
        f'<div class="scroll">{picture.table}</div></details>'
    )
    return (
        f'<figure id="{escape(picture.name)}"><h2>{escape(picture.heading)}</h2>{shown}'
        f'<figcaption class="note">{escape(picture.caption)}</figcaption>{table}</figure>'
    )


def write_table(names: Sequence[str], rows: Sequence[Sequence[object]], left_out: int = 0) -> str:
    """Return rows as an HTML table; `left_out` says how many more there are."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_show(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    more = f'<p class="note">and {left_out:,} more rows in the file</p>' if left_out else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _show(value: object) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) or abs(value) >= 1_000 else f"{value:.3g}"
    return str(value)


# Contents of the report: figures, pictures, tables and their texts ----------------------

NOTHING = "\u2013"  # a dash, for a missing figure
_SHOWN = 40  # rows of a table in the page


class Figures(NamedTuple):
    """All results that the page shows."""

    tables: Mapping[str, pd.DataFrame]
    quarantine: pd.DataFrame
    step: int
    best: str
    used: str
    advice: str
    clocks: Mapping[tuple[str, int], int]
    late: int
    folders: Sequence[str]


def build_page(figures: Figures, words: Mapping[str, str]) -> ReportPage:
    """Return the page of a study; `words` describes each table."""
    runs = figures.tables["runs"]
    begin, end = int(runs["begins"].min()), int(runs["ends"].max())
    nodes = sorted(set(runs["node"]))
    about = (
        f"{len(nodes)} nodes, {int(runs['records'].sum()):,} records, "
        f"{format_time(begin)} to {format_time(end)} UTC ({format_span(end - begin)}); "
        f"from {', '.join(figures.folders)}"
    )
    return ReportPage(
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


def write_figure(value: Any, write: Callable[[float], str]) -> str:
    """Return a figure of a table as people read it; a dash if it is missing."""
    return NOTHING if value is None or value != value else write(float(value))


def write_share(value: float) -> str:
    """Return a share in per cent."""
    return f"{value:.1%}"


def _list_cards(figures: Figures) -> list[tuple[str, str]]:
    head = figures.tables["headline"].iloc[0]
    costs = figures.tables["costs"].iloc[0]
    saved = int(figures.tables["sources"]["bytes_saved"].sum())
    half, most, best_half, best_most = (
        write_figure(head[name], format_span)
        for name in ("p50_ms", "p95_ms", "best_p50_ms", "best_p95_ms")
    )
    return [
        (write_figure(head["delivery_ratio"], write_share), "of the expected were delivered"),
        (write_figure(head["quality"], write_share), "of the reachable were delivered"),
        (half, f"median latency; {best_half} was possible"),
        (most, f"95 % within; {best_most} was possible"),
        (write_figure(costs["copies_per_delivery"], "{:.2f}".format), "copies a delivery"),
        (format_number(int(head["missed"])), f"missed, {int(head['still_open'])} may still arrive"),
        (format_number(saved), "bytes saved at the source"),
        (format_number(len(figures.quarantine)), "parts of logs in quarantine"),
    ]


def _list_warnings(figures: Figures) -> list[str]:
    warnings = []
    bad = figures.quarantine
    if len(bad):
        kinds = bad.groupby("class").size()
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        lost = bad.loc[bad["class"] == "damage", "length"].dropna().sum()
        text = f"Parts of the logs could not be read ({told})"
        text += f"; {int(lost):,} records are known to be lost" if lost else ""
        warnings.append(text + ". See the quarantine below: this report lacks those records.")
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
            "Top-k, quiet, role and withdrawn are on purpose; replication means that another "
            "strategy would have delivered it.",
            "Everything was delivered in time.",
        ),
        (
            "links",
            "Contact graph",
            draw.draw_graph(tables["links"], weights),
            "The width of a line shows how long the link was up, the size of a node what it held.",
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
            "What devices sent, and what they did not send because nobody asked for it. For a "
            "device that does not count, the least that follows from the time between readings.",
            "No device sent anything.",
        ),
        (
            "terms",
            "Attributes and terms",
            draw.draw_terms(tables["terms"]),
            "What subscriptions ask for, by the number of subscriptions.",
            "There was no subscription.",
        ),
        (
            "regions",
            "Services by region",
            draw.draw_regions(tables["regions"]),
            "Subscriptions in force at the end, where their subscribers are: whether a device "
            "there senses all that they ask for, only one elsewhere, or none.",
            "There was neither a device nor a subscription at the end.",
        ),
    )
    return [
        Picture(name, heading, svg, caption, empty, show_table(tables[name]), f"tables/{name}.csv")
        for name, heading, svg, caption, empty in pictures
    ]


def show_table(table: pd.DataFrame, most: int = _SHOWN) -> str:
    """Return the first rows of a table as HTML."""
    rows = table.head(most).astype(object)
    rows = rows.where(rows.notna(), None).to_numpy().tolist()
    names = [str(name).replace("_", " ") for name in table.columns]
    return write_table(names, rows, max(0, len(table) - most))


def _list_tables(figures: Figures) -> list[tuple[str, str]]:
    listed = {
        "By subscriber": figures.tables["subscribers"],
        "By node that read": figures.tables["origins"],
        "How old notifications were when a node received them": figures.tables["staleness"],
        "Cost of replication": figures.tables["costs"],
        "What the minimal set of subscriptions saves for each device": figures.tables["savings"],
        "Refused": figures.tables["refusals"],
        "Quarantine": figures.quarantine,
    }
    return [(heading, show_table(table)) for heading, table in listed.items() if len(table)]
