"""The report as one HTML file that needs nothing else: no request, no font, no library. Pure.

It follows the reader's light or dark setting, fits a telephone, and prints on paper. Its one script
filters the list of failed deliveries, fills in the filter from a row of another table, and widens a
picture; the page's policy allows the script by its hash, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import pandas as pd
from denwatch.spark.analytics.fleet import describe_bottleneck
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
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:12px;margin:18px 0}
.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 12px}
.card b{display:block;font-size:1.45rem;line-height:1.2}
.card span{color:var(--soft);font-size:.85rem}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:18px;
align-items:start}
figure{margin:0;border:1px solid var(--rule);border-radius:8px;padding:14px;break-inside:avoid}
figcaption{margin-top:6px}svg{display:block;width:100%;height:auto}
.empty{color:var(--soft);padding:30px 0;text-align:center}
.advice{border-left:4px solid var(--good);background:var(--card);padding:10px 14px;margin:18px 0}
.warn{border-left-color:var(--fair)}
table{border-collapse:collapse;width:100%;font-size:.85rem}
th,td{text-align:left;padding:3px 8px;border-bottom:1px solid var(--rule)}
td{white-space:nowrap}th{color:var(--soft);font-weight:600}.figure{text-align:right}
details{margin-top:8px}summary{cursor:pointer;color:var(--soft);font-size:.85rem}
.scroll{overflow-x:auto}section{margin-top:26px}
.label{font-size:11px;fill:var(--soft);paint-order:stroke;stroke:var(--paper);stroke-width:3px}
.title{font-size:11px;fill:var(--ink)}
.name{font-size:13px;fill:var(--ink);font-weight:600}
.grid-line,.grid line{stroke:var(--rule)}line.grid{stroke:var(--rule)}line.axis{stroke:var(--soft)}
line.link{stroke:var(--pale);stroke-linecap:round}
.fill-main{fill:var(--main)}.fill-good{fill:var(--good)}.fill-fair{fill:var(--fair)}
.fill-bad{fill:var(--bad)}.fill-odd{fill:var(--odd)}.fill-soft{fill:var(--pale)}
polyline{fill:none;stroke-width:2}.line-main{stroke:var(--main)}.line-good{stroke:var(--good)}
.line-soft{stroke:var(--pale)}
tr[data-filter]{cursor:pointer}tr[data-filter]:hover{background:var(--card)}
figure h2{cursor:zoom-in}figure.wide{grid-column:1/-1}figure.wide h2{cursor:zoom-out}
input{font:inherit;width:100%;padding:6px 10px;border:1px solid var(--rule);border-radius:6px;
background:var(--paper);color:var(--ink)}.tall{max-height:26rem;overflow:auto}
@media print{main{max-width:none;padding:0}details,input{display:none}.tall{max-height:none}
figure,.card{border-color:#bbb}}
"""
_SCRIPT = """
const box=document.getElementById("filter"),told=document.getElementById("told");
const rows=[...document.querySelectorAll("#failures tbody tr")];
function show(){const words=box.value.toLowerCase().split(/\\s+/).filter(Boolean);let shown=0;
for(const row of rows){const text=row.textContent.toLowerCase();
row.hidden=!words.every(word=>text.includes(word));shown+=!row.hidden}
told.textContent=shown+" of "+rows.length}
if(box){box.addEventListener("input",show);show()}
document.addEventListener("click",event=>{const head=event.target.closest("figure h2");
if(head)head.parentElement.classList.toggle("wide");
const row=event.target.closest("tr[data-filter]");
if(row&&box){box.value=row.dataset.filter;show();box.scrollIntoView({block:"center"})}});
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
    failures: str = ""  # HTML: deliveries that failed, to be filtered


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
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{_hash_script()}'\">"
        '<link rel="icon" href="data:,">'
        f"<title>{escape(page.title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{escape(page.title)}</h1><p class="note">{escape(page.about)}</p>{warnings}'
        f'<div class="cards">{cards}</div>{advice}<div class="grid">{pictures}</div>'
        f"{_write_failures(page.failures)}{tables}"
        '<section><h2>The tables</h2><p class="note">Parquet, in <code>tables</code> beside '
        f"this page; those behind the pictures also as CSV.</p><ul>{files}</ul></section>"
        f"</main><script>{_SCRIPT}</script></body></html>\n"
    )


def _hash_script() -> str:
    return base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()


def _write_failures(html: str) -> str:
    if not html:
        return ""
    return (
        '<section id="failures"><h2>Late, missed, withheld and wrong</h2><p class="note">The newest'
        ' of them: <span id="told"></span>. A click on a row of the tables of causes, subscribers'
        " and nodes shows those behind it; <code>denwatch trace REPORT ID</code> follows one.</p>"
        '<p><input id="filter" type="search" placeholder="words of a row, such as: missed partition'
        f' north" aria-label="filter"></p><div class="scroll tall">{html}</div></section>'
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


def write_table(
    names: Sequence[str], rows: Sequence[Sequence[object]], left_out: int = 0, keys: int = 0
) -> str:
    """Return rows as an HTML table; `left_out` says how many more there are.

    The first `keys` cells of a row are the filter for the failures behind it.
    """
    shown = [[_show(value) for value in row] for row in rows]
    marks = [
        ' class="figure"' if all(map(_FIGURE.fullmatch, cells)) else ""
        for cells in (zip(*shown, strict=True) if shown else [()] * len(names))
    ]
    head = "".join(f"<th{m}>{escape(name)}</th>" for m, name in zip(marks, names, strict=True))
    body = "".join(
        f"<tr{_write_filter(cells[:keys])}>"
        + "".join(f"<td{m}>{escape(cell)}</td>" for m, cell in zip(marks, cells, strict=True))
        + "</tr>"
        for cells in shown
    )
    more = f'<p class="note">and {left_out:,} more rows in the file</p>' if left_out else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


_FIGURE = re.compile(r"([-+]?[\d.,]+(e[-+]\d+)?( ?(ms|s|min|h|d|%))?|\u2013|)")


def _write_filter(cells: Sequence[str]) -> str:
    words = " ".join(filter(None, cells))
    return f' data-filter="{escape(words, quote=True)}"' if words else ""


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
_SHOWN, _FAILURES = 40, 500  # rows of a table in the page
_MOMENTS = ("at", "last_heard", "period", "time")
_SPANS = ("latency", "best_latency")  # and what ends in _ms
_SHARES = ("share", "share_before", "change", "ratio")
_KEYS = {"causes": 2, "subscribers": 1, "origins": 1, "fleet": 1, "bottlenecks": 2}  # see `keys`


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
    records: int


def build_page(figures: Figures, words: Mapping[str, str]) -> ReportPage:
    """Return the page of a study; `words` describes each table."""
    runs = figures.tables["runs"]
    begin, end = int(runs["begins"].min()), int(runs["ends"].max())
    nodes = sorted(set(runs["node"]))
    about = (
        f"{len(nodes)} nodes, {figures.records:,} records, "
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
        show_table(figures.tables["failures"], _FAILURES),
    )


def _write_units(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with times, spans and shares as people write them."""
    columns = {}
    for name in map(str, table.columns):
        write: Callable[[float], str] | None = None
        if name in _MOMENTS:
            write = format_time
        elif name in _SPANS or name.endswith("_ms"):
            write = format_span
        elif name in _SHARES:
            write = write_share
        values = [v if write is None else _write_cell(v, write) for v in table[name]]
        columns[name.removesuffix("_ms")] = pd.Series(values, dtype=object)
    return pd.DataFrame(columns)


def _write_cell(value: Any, write: Callable[[float], str]) -> str:
    return "" if value is None or value != value else write(float(value))


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
        (
            format_number(int(head["missed"])),
            f"missed of {int(head['expected']):,} expected; {int(head['still_open']):,} may still "
            f"arrive. {int(head['withheld']):,} more were withheld, as somebody asked",
        ),
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
    missing = figures.tables["fleet"]
    missing = missing.loc[missing["is_log_missing"].astype(bool), "node"]
    if len(missing):
        named = ", ".join(missing)
        warnings.append(f"No log of {named}: what was missed there is uncertain.")
    head = figures.tables["headline"].iloc[0]
    courier = describe_bottleneck(figures.tables["bottlenecks"], int(head["missed"]))
    if courier:
        warnings.append(courier)
    if int(head["wrong"]):
        text = f"Deliveries that match no subscription in force: {int(head['wrong'])}."
        warnings.append(text + " See the causes.")
    return warnings


def _list_pictures(figures: Figures, nodes: Sequence[str]) -> list[Picture]:
    tables = figures.tables
    held = tables["staleness"].groupby("node")["notifications"].sum().to_dict()
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
            "Withheld is as somebody asked: top-k, a quiet time, a role. Replication means that "
            "another strategy would have delivered it.",
            "Everything was delivered in time.",
        ),
        (
            "links",
            "Contact graph",
            draw.draw_graph(tables["links"], weights),
            "The width of a line shows how long the link was up, the size of a node what it held. "
            "More than 15 nodes are a matrix: the darker, the longer.",
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
        Picture(
            *(name, heading, svg, caption, empty),
            show_table(tables[name], keys=_KEYS.get(name, 0)),
            f"tables/{name}.csv",
        )
        for name, heading, svg, caption, empty in pictures
    ]


def show_table(table: pd.DataFrame, most: int = _SHOWN, *, keys: int = 0) -> str:
    """Return the first rows of a table as HTML; see `write_table`."""
    shown = _write_units(table.head(most).astype(object).reset_index(drop=True))
    rows = shown.where(shown.notna(), None).to_numpy().tolist()
    names = [str(name).replace("_", " ") for name in shown.columns]
    return write_table(names, rows, max(0, len(table) - most), keys)


def _list_tables(figures: Figures) -> list[tuple[str, str]]:
    listed = {
        "fleet": "Health of the nodes",
        "bottlenecks": "Missing ways: what a courier every 20 minutes would have delivered",
        "slos": "In time, by role, event and period",
        "subscribers": "By subscriber",
        "origins": "By node that read",
        "near": "Almost matched: a threshold of `nearest` would have matched at least one more",
        "traffic": "Transfers between nodes: needed for a delivery, or not",
        "staleness": "How old notifications were when a node received them",
        "costs": "Cost of replication",
        "savings": "What the minimal set of subscriptions saves for each device",
        "refusals": "Refused",
        "quarantine": "Quarantine",
    }
    tables = {**figures.tables, "quarantine": figures.quarantine}
    return [
        (heading, show_table(tables[name], keys=_KEYS.get(name, 0)))
        for name, heading in listed.items()
        if name in tables and len(tables[name])
    ]
