"""The live summary: `summary.json` for programs, `live.html` for people, lines for the terminal.

Both files are replaced as a whole and name their version. The page reloads itself every few seconds
and loads nothing else. Pure except for `save_summary`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from denwatch.spark.analytics.outcomes import OUTCOMES
from denwatch.spark.record_tables import replace_file
from denwatch.spark.report import page as layout
from denwatch.spark.report import pictures as draw
from denwatch.spark.report.page import Picture, ReportPage
from denwatch.spark.report.svg import format_number, format_span, format_time
from denwatch.spark.source import QUARANTINE
from denwatch.spark.stream.versions import Manifest

SUMMARY, PAGE = "summary.json", "live.html"
_SHOWN = 12  # rows of a table


@dataclass
class Judged:
    """The outcomes of a version, as far as the page and the operator need them."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    used: str = ""  # the strategy of all nodes, if they use the same
    best: str = ""  # the recommended strategy; "" before there is one
    advice: str = ""
    end: int = 0  # of the logs, ms
    step: int = 1  # of `delivery`, ms


def pick(table: pd.DataFrame) -> dict[str, Any]:
    """Return the only row of a table, without missing values."""
    if table.empty:
        return {}
    row: dict[str, Any] = table.iloc[0].to_dict()
    return {name: value for name, value in row.items() if value is not None and value == value}


def summarise(manifest: Manifest, judged: Judged, loop: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary; `loop` describes what was sent to nodes."""
    head = pick(judged.tables["headline"]) if "headline" in judged.tables else {}
    causes = judged.tables["causes"].to_dict("records") if "causes" in judged.tables else []
    return {
        "version": manifest.number,
        "batch": manifest.batch,
        "judged_batch": manifest.judged,
        "newest_reading_ms": manifest.newest,
        "last_record_ms": judged.end,
        "records": dict(sorted(manifest.counts.items())),
        "matches": manifest.matches,
        "clocks_off_ms": {
            f"{node}/{run}": ahead for node, run, ahead, _ in manifest.clocks if ahead
        },
        "headline": {name: _plain(value) for name, value in head.items()},
        "causes": [{name: _plain(value) for name, value in row.items()} for row in causes],
        "strategy": {"used": judged.used, "best": judged.best, "advice": judged.advice},
        "loop": dict(loop),
    }


def _plain(value: Any) -> Any:
    """Return a value of a table as JSON has it."""
    if hasattr(value, "item"):
        value = value.item()
    return None if value != value else value


def build_page(
    summary: Mapping[str, Any], judged: Judged, folders: Sequence[str], every: int
) -> str:
    """Return the page; it reloads itself every so many seconds."""
    tables = judged.tables
    last = summary["last_record_ms"]
    about = (
        f"version {summary['version']}, {sum(summary['records'].values()):,} records"
        f"{', the last of ' + format_time(last) + ' UTC' if last else ''}; "
        f"from {', '.join(folders)}"
    )
    drawn = {}
    if "delivery" in tables:
        drawn = {
            "delivery": ("Delivery over time", draw.draw_delivery(tables["delivery"], judged.step)),
            "causes": ("Late and missed, by cause", draw.draw_causes(tables["causes"])),
        }
    pictures = [
        Picture(name, heading, svg, "", "Nothing yet.", _show(tables[name]), f"tables/{name}.csv")
        for name, (heading, svg) in drawn.items()
    ]
    page = ReportPage(
        "The operation now",
        about,
        _list_cards(summary),
        judged.advice or "There is nothing yet to compare strategies by.",
        _list_warnings(summary, judged),
        pictures,
        _list_tables(judged),
        [],
    )
    reload = f'<meta http-equiv="refresh" content="{max(1, every)}">'
    return layout.write_page(page).replace("<meta charset", f"{reload}<meta charset", 1)


def _list_cards(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    head = summary["headline"]

    def show(name: str, write: Callable[[float], str] = format_number) -> str:
        return layout.write_figure(head.get(name), write)

    return [
        (show("delivery_ratio", layout.write_share), "of the expected were delivered"),
        (show("p50_ms", format_span), "median latency"),
        (format_number(summary["matches"]), "matches"),
        (show("late"), "late"),
        (
            show("missed"),
            f"missed of {show('expected')} expected; {show('still_open')} may still arrive",
        ),
        (show("withheld"), "withheld, as somebody asked"),
        (show("wrong"), "wrong"),
        (format_number(summary["loop"].get("handed", 0)), "items sent to nodes"),
        (format_number(summary["records"].get(QUARANTINE, 0)), "parts of logs in quarantine"),
    ]


def _list_warnings(summary: Mapping[str, Any], judged: Judged) -> list[str]:
    warnings = []
    if summary["judged_batch"] < summary["batch"]:
        behind = summary["batch"] - summary["judged_batch"]
        warnings.append(f"Outcomes are {behind} batches behind the records and matches.")
    bad = judged.tables.get(QUARANTINE)
    if bad is not None and len(bad):
        warnings.append(f"{len(bad)} parts of the logs could not be used: see the quarantine.")
    for clock, offset in summary["clocks_off_ms"].items():
        warnings.append(f"The clock of {clock} is {offset / 1000:+,.1f} s off; it is corrected.")
    warnings += [f"{name}: {why}" for name, why in summary["loop"].get("troubles", {}).items()]
    return warnings


def _list_tables(judged: Judged) -> list[tuple[str, str]]:
    headings = {"subscribers": "By subscriber", "origins": "By node that read"}
    headings[QUARANTINE] = "Quarantine"
    found = {name: judged.tables.get(name) for name in headings}
    return [
        (headings[name], _show(table))
        for name, table in found.items()
        if table is not None and len(table)
    ]


def _show(table: pd.DataFrame) -> str:
    return layout.show_table(table, _SHOWN)


def describe_line(summary: Mapping[str, Any]) -> str:
    """Return the summary in one line."""
    head = summary["headline"]
    words = [
        f"batch {summary['batch']}",
        f"{sum(summary['records'].values()):,} records",
        f"{summary['matches']:,} matches",
    ]
    if head:
        words += [f"{int(head.get(name, 0))} {name}" for name in OUTCOMES]
        if summary["judged_batch"] < summary["batch"]:
            words.append(f"(outcomes as of batch {summary['judged_batch']})")
    return ", ".join(words)


def save_summary(folder: Path, summary: Mapping[str, Any], page: str) -> None:
    """Replace both files."""
    text = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
    replace_file(folder / SUMMARY, text.encode())
    replace_file(folder / PAGE, page.encode())
