"""The Subsumption paper's experiment: Tables 1 and 2 and Fig. 10 to 15, beside its numbers.

10,000 subscriptions in 2 to 5 dimensions over [0, 1000], Zipf lower ends, sizes uniform in what is
left. Beyond the paper: exact in 4 and 5 dimensions, merging, unsubscription, other Zipf orders.

    python -m papers.evaluations.subsumption [--json] [--quick] [--save]
"""

from __future__ import annotations

import argparse
import math
import os
from typing import Any

from denwatch.node.covering import Policy

from benchmarks.common import (
    describe_machine,
    format_table,
    new_figure,
    run,
    save_figure,
    save_text,
    say,
)
from papers.evaluations.subsumption_runs import (
    CHURNS,
    DYNAMIC,
    EXACT,
    MERGED,
    METRICS,
    OURS,
    PAIRS,
    PAPER,
    WORKLOADS,
    K,
    Plan,
    Results,
    Workload,
    churn,
    list_jobs,
    play_all,
)

FIFTHS = (2, 4, 6, 8, 10)  # of ten parts: 2,000, 4,000, ... subscriptions
TABLE_1: dict[int, tuple[object, ...]] = {
    2: (181, 118, 81, 73, 66),
    3: (15983, 20154, 19667, 20756, 22230),
    4: (364740, 665000, "memory full", "memory full", "memory full"),
}
TABLE_2: dict[int, tuple[object, ...]] = {
    2: (367, 405, 430, 438, 443),
    3: (27928, 30221, 31755, 33071, 34079),
    4: (13455, 23414, 32148, 39969, 47064),
}

WHERE = """\
On a node, `edge/denwatch/node/covering/` decides which subscriptions a kind of device gets, in
its approximate form with k = 50; `denwatch subscribe --why NAME` and the status say what is
passive. It does not merge rectangles: with 2,000 random ones on a node's domain merging installs
0, 1 and 4 % fewer in 2, 3 and 4 dimensions, for 0.8, 1.2 and 1.7 times the processor time
(medians of two seeds, `Approximate(merging=True)` against the default)."""


def write_report(results: Results) -> str:
    """Return the whole report in Markdown."""
    plan = results.plan
    parts = [
        "# Subsumption: negative space, exact and approximate",
        f"{plan.count:,} subscriptions, domain [0, 1000] in each dimension; medians over "
        f"{len(plan.seeds)} seed(s). Times are processor time of one core. {describe_machine()}. "
        "Plots: `papers-subsumption.svg`.",
        WHERE,
        "## Table 1: negative rectangles, exact",
        _write_counts(results, TABLE_1, [("exact", EXACT), ("exact, merging", MERGED)]),
        "## Table 2: negative rectangles, approximate, k = 50",
        _write_counts(results, TABLE_2, [("as printed", PAPER), ("pairs first", OURS)]),
        "## Fig. 10 and 11: subscriptions found redundant",
        _write_detections(results),
        "The paper gives these as plots; in words: always more by subsumption than by pairs, "
        "fewer with each dimension, more than 95 % subsumed in 2-D.",
        "## Fig. 12 to 15: k and the selection, 3-D",
        _write_choices(results),
        "Pair-wise covered ones are found first here, in all rows. "
        "In the paper k = 50 finds considerably more than 10 and hardly less than 100, "
        "benefit/cost finds most with fewest rectangles, benefit alone comes before cost alone.",
        "## How far the exact form gets",
        _write_reach(results),
        "The paper's run in 4-D ended after 4,000 subscriptions with 1 GB; it shows none in 5-D. "
        f"A 5-D run of ours is stopped at 4 GiB or after {plan.seconds_5d:.0f} s.",
        f"## Unsubscription: {plan.cancelled} random active ones cancelled, 3-D",
        _write_churn(results),
        "The paper measures none. As printed, the approximate form gives back all that the "
        "cancelled subscription was first to cover, also where others cover it too; with handover "
        "those keep it. A rebuild places the widest first.",
        "## The workload that the paper does not name",
        "It says that lower ends are Zipf-distributed, but neither the exponent nor which values "
        "are popular. We tried 18 combinations of order, exponent and grid, five seeds each, and "
        "chose for all tables above the one whose Table 1 was nearest (each dimension weighing the "
        "same): the first row. So Table 1 is fitted, the rest is not. With the one seed of this "
        "table, and each count weighing the same, other rows are nearer.",
        _write_workloads(results),
    ]
    if plan.count == 10_000:  # what a taste shows says nothing about where we differ
        parts += ["## Where we differ", DIFFERENCES]
    return "\n\n".join(parts)


def _write_counts(
    results: Results, paper: dict[int, tuple[object, ...]], ours: list[tuple[str, Policy]]
) -> str:
    header = ["", *(f"{results.plan.count * tenth // 10:,}" for tenth in FIFTHS)]
    rows: list[list[object]] = []
    for dimensions, printed in paper.items():
        rows.append([f"{dimensions}-D paper, 2,000 to 10,000", *printed])
        for name, policy in ours:
            counts = [results.middle(dimensions, policy, "rectangles", t) for t in FIFTHS]
            rows.append([f"{dimensions}-D {name}", *counts])
    return format_table(header, rows)


def _write_detections(results: Results) -> str:
    rows: list[list[object]] = []
    for d in (2, 3, 4):
        found = [results.middle(d, p, "passive") for p in (PAIRS, EXACT, PAPER, OURS)]
        ratios = [results.share(d, EXACT, PAIRS)]
        ratios += [results.share(d, policy, EXACT) for policy in (PAPER, OURS)]
        rows.append([f"{d}-D", *found, *(f"{ratio:.3f}" for ratio in ratios)])
    header = ["", "pair-wise", "exact", "approximate", "approximate, pairs first"]
    header += ["exact / pair-wise", "approximate / exact", "pairs first / exact"]
    return format_table(header, rows)


def _list_choices() -> list[tuple[str, Policy]]:
    choices: list[tuple[str, Policy]] = [(f"k = {k}", policy) for k, policy in K.items()]
    choices += [(f"k = 50, {metric.value}", policy) for metric, policy in METRICS.items()]
    choices += [("k = 50, dynamic", DYNAMIC)]
    return choices


def _write_choices(results: Results) -> str:
    rows = [
        [name, results.middle(3, policy, "union"), results.middle(3, policy, "rectangles")]
        for name, policy in _list_choices()
    ]
    exact = results.middle(3, EXACT, "rectangles")
    found = results.middle(3, EXACT, "passive")
    rows.append([f"exact ({found} redundant in all)", "", exact])
    return format_table(["", "subsumed beyond pair-wise covered", "negative rectangles"], rows)


def _write_reach(results: Results) -> str:
    rows: list[list[object]] = []
    for dimensions, name, policy in (
        (4, "exact", EXACT),
        (4, "exact, merging", MERGED),
        (4, "approximate", OURS),
        (5, "exact", EXACT),
        (5, "exact, merging", MERGED),
        (5, "approximate", OURS),
    ):
        trace = results.first(dimensions, policy)
        covered = results.first(dimensions, PAIRS)
        pairs = covered.passive[-1] if trace.done == covered.done else ""
        rows.append(
            [
                f"{dimensions}-D {name}",
                f"{trace.done:,}",
                f"{trace.rectangles[-1]:,}",
                f"{trace.peak_mib:,.0f}",
                f"{trace.seconds:.1f}",
                trace.passive[-1],
                pairs,
            ]
        )
    header = ["", "subscriptions", "rectangles", "peak MiB", "s", "passive", "pair-wise"]
    return format_table(header, rows)


def _write_churn(results: Results) -> str:
    rows = [
        [
            name,
            f"{c.active_before} / {c.active_after} / {c.active_rebuilt}",
            f"{c.rectangles_before} / {c.rectangles_after} / {c.rectangles_rebuilt}",
            c.brought_back,
            f"{c.mean_ms:.2f}",
            f"{c.rebuild_s:.2f}",
        ]
        for name, c in results.churns.items()
    ]
    header = ["", "active before / after / rebuilt", "rectangles before / after / rebuilt"]
    header += ["brought back", "ms an unsubscription", "s a rebuild"]
    return format_table(header, rows)


def _write_workloads(results: Results) -> str:
    rows: list[list[object]] = []
    for workload in WORKLOADS:
        row: list[object] = [f"{workload.order}, {workload.exponent}"]
        row.append(f"{_measure_distance(results, workload):.2f}")
        row += [results.first(d, EXACT, workload).rectangles[-1] for d in (2, 3, 4)]
        exact, pairs = (results.first(4, p, workload).passive[-1] for p in (EXACT, PAIRS))
        row.append(f"{exact / pairs:.2f}")
        three = [results.first(3, p, workload).passive[-1] for p in (PAPER, EXACT)]
        row.append(f"{three[0] / three[1]:.3f}")
        rows.append(row)
    header = ["popular lower ends, exponent", "off Table 1 by a factor of"]
    header += ["2-D exact", "3-D exact", "4-D exact"]
    header += ["exact / pair-wise 4-D", "approximate / exact 3-D"]
    return format_table(header, rows)


def _measure_distance(results: Results, workload: Workload) -> float:
    """Return by which factor, on geometric average, counts are off Table 1's."""
    logs = [
        abs(math.log(max(1, results.first(d, EXACT, workload).rectangles[tenth - 1]) / printed))
        for d, counts in TABLE_1.items()
        for tenth, printed in zip(FIFTHS, counts, strict=True)
        if isinstance(printed, int)
    ]
    return math.exp(sum(logs) / len(logs))


DIFFERENCES = """\
- Table 1: the workload is a guess (see above). 2-D falls as the paper's does and 4-D is near it; \
3-D ends with less than half of the paper's rectangles under every order of popularity there.
- Table 2: the paper has more rectangles in the approximate than in the exact form in 2-D and 3-D. \
Fig. 8 does not give us that: in 2-D no subscription ever needs more than k pieces, so both \
forms are the same, and in 3-D ours has fewer. In 4-D ours keeps about twice the paper's number.
- Our budget is strict: a cut whose pieces do not fit is passed over for one whose pieces do. \
The paper's loop ends only after k has been passed.
- Fig. 14: benefit/cost and benefit alone find equally many here; benefit/cost needs fewer \
rectangles, and cost alone is worst in both, as in the paper.
- Fig. 11: in 4-D, k = 50 misses more than a quarter of what the exact form finds, and in 5-D \
nearly all beyond the pairs. There the exact form with merging is affordable, and the \
approximate one bounds what a node can be made to spend."""


def draw_figures(results: Results) -> Any:
    """Return Fig. 10 to 15 as six panels."""
    figure, axes = new_figure(3, 2, width=4.6, height=3.4)
    at = [results.plan.count * tenth // 10 for tenth in range(1, 11)]

    def draw(axis: Any, dimensions: int, policy: Policy, what: str, name: str, style: str) -> Any:
        values = [results.middle(dimensions, policy, what, tenth) for tenth in range(1, 11)]
        return axis.plot(at, values, style, label=name, markersize=3)

    for axis, policy, title in (
        (axes[0][0], EXACT, "Fig. 10: exact, against pair-wise"),
        (axes[0][1], PAPER, "Fig. 11: approximate (k = 50)"),
    ):
        for dimensions in (2, 3, 4):
            line = draw(axis, dimensions, policy, "passive", f"{dimensions}-D subsumed", "o-")
            draw(axis, dimensions, PAIRS, "passive", f"{dimensions}-D pair-wise", "--")[
                0
            ].set_color(line[0].get_color())
        axis.set(title=title, ylabel="redundant subscriptions")
    for column, choices, what in (
        (1, K, "k"),
        (2, METRICS, "selection"),
    ):
        top = axes[0][2] if column == 1 else axes[1][1]
        bottom = axes[1][0] if column == 1 else axes[1][2]
        number = 12 if column == 1 else 14
        for key, policy in choices.items():
            name = f"k = {key}" if column == 1 else str(getattr(key, "value", key))
            draw(top, 3, policy, "union", name, "o-")
            draw(bottom, 3, policy, "rectangles", name, "o-")
        top.set(title=f"Fig. {number}: {what}, 3-D", ylabel="subsumed beyond covered")
        bottom.set(title=f"Fig. {number + 1}: {what}, 3-D", ylabel="negative rectangles")
    for axis in figure.axes:
        axis.set_xlabel("subscriptions")
        axis.legend(fontsize=7)
    return figure


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything, report it, and return the headline numbers."""
    plan = Plan(10_000, tuple(options.seed + i for i in range(3)), 600.0, 300)
    if options.quick:
        plan = Plan(1_000, (options.seed,), 5.0, 50)
    results = collect(plan)
    report = write_report(results)
    print(report)
    if options.save:
        save_text("papers-subsumption.md", report)
        save_figure(draw_figures(results), "papers-subsumption.svg")
    return summarise(results)


def collect(plan: Plan) -> Results:
    """Run everything."""
    results = Results(plan)
    jobs = list_jobs(results)
    say(f"{len(set(jobs))} runs of up to {plan.count} subscriptions")
    results.traces = play_all(jobs, max(1, min(4, os.cpu_count() or 1)))
    for name, policy in CHURNS.items():
        say(f"unsubscription: {name}")
        results.churns[name] = churn(results.job(3, policy, plan.seeds[0]), plan.cancelled)
    return results


def summarise(results: Results) -> dict[str, Any]:
    """Return the headline numbers."""
    four, five = results.first(4, EXACT), results.first(5, EXACT)
    merged_five = results.first(5, MERGED)
    merged = results.middle(4, MERGED, "rectangles") / results.middle(4, EXACT, "rectangles")
    return {
        "exact_4d_done": four.done,
        "exact_4d_peak_mib": round(four.peak_mib, 1),
        "exact_4d_seconds": round(four.seconds, 2),
        "exact_4d_rectangles": four.rectangles[-1],
        "subsumed_over_covered_4d": round(results.share(4, EXACT, PAIRS), 4),
        "approx_over_exact_3d": round(results.share(3, PAPER, EXACT), 4),
        "approx_over_exact_4d": round(results.share(4, PAPER, EXACT), 4),
        "approx_with_pairs_over_exact_4d": round(results.share(4, OURS, EXACT), 4),
        "merged_over_exact_rectangles_4d": round(merged, 4),
        "exact_5d_done": five.done,
        "exact_5d_rectangles": five.rectangles[-1],
        "exact_5d_peak_mib": round(five.peak_mib, 1),
        "merged_5d_done": merged_five.done,
        "merged_5d_rectangles": merged_five.rectangles[-1],
        "merged_5d_peak_mib": round(merged_five.peak_mib, 1),
    }


def main() -> None:
    """Run from the command line."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
