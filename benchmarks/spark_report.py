"""The committed results of the Spark benchmark: a table for each workload, and one plot."""

from __future__ import annotations

from typing import Any

from benchmarks.common import (
    describe_machine,
    format_table,
    new_figure,
    save_figure,
    save_text,
)

NAMES = {
    "job": "our Spark job",
    "worker": "what its workers do, without Spark, 2 threads",
    "matcher": "the node's index alone, 2 threads",
    "duckdb": "DuckDB, stab join",
    "spark_sql": "Spark SQL, stab join, tuned",
}


def save_report(rounds: list[Any], result: dict[str, Any]) -> None:
    """Write spark.md and spark.svg."""
    parts = [
        "# Global matching on Spark",
        "",
        "Every notification against every subscription in force at its time. All read the same"
        " Parquet files and find the same matches (counts and sums are compared); all are timed"
        f" after an eighth of the work, on two cores ({describe_machine()}). The machine was"
        " shared with other work: read ratios, not seconds.",
    ]
    for done in rounds:
        work = done.work
        matches = done.timings["job"].check[0]
        rows = [
            (NAMES[name], timing.seconds, work.pairs / timing.seconds, done.over(name))
            for name, timing in done.timings.items()
        ]
        parts += [
            "",
            f"## {work.shape.name.capitalize()}: {work.subscriptions:,} subscriptions,"
            f" {work.notes:,} notifications, {matches:,} matches",
            "",
            format_table(("who", "s", "pairs/s", "times our job"), rows),
        ]
    parts += ["", "## Figures", "", format_table(("figure", "measured"), list(result.items()))]
    parts += ["", *_explain(result)]
    save_text("spark.md", "\n".join(parts))
    _draw(rounds)


def _explain(result: dict[str, Any]) -> list[str]:
    few = result["few_over_matcher_alone"]
    return [
        "The goals are at most 1.35 times the matcher alone, at least 8 times the best Spark SQL"
        " and 4 times the best DuckDB form. The headline is many small masks. There the job files"
        " subscriptions under values before it begins, which a node cannot do, and so can be faster"
        " than the node's index; `over_worker_alone` is what Spark adds to the same work.",
        "",
        f"With few large masks the index takes so little time (our job takes {few:g} times as long)"
        " that reading Parquet, crossing to Python and back, and handing out one row a match are"
        " most of it.",
    ]


def _draw(rounds: list[Any]) -> None:
    figure, axes = new_figure(2)
    for axis, done in zip(axes, rounds[:2], strict=True):
        names = [name for name in NAMES if name in done.timings]
        seconds = [done.timings[name].seconds for name in names]
        axis.barh([NAMES[name] for name in names], seconds, color="#4477aa")
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.set_xlabel("seconds (log)")
        axis.set_title(f"{done.work.shape.name}: {done.work.pairs:.0e} pairs", fontsize=10)
    save_figure(figure, "spark.svg")
