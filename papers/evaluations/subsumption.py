"""The Subsumption paper's experiment: Tables 1 and 2 and Fig. 10 to 15, beside its numbers.

10,000 subscriptions in 2 to 5 dimensions over [0, 1000], Zipf lower ends, sizes uniform in what is
left. Beyond the paper: exact in 4 and 5 dimensions, merging, unsubscription, other Zipf orders.

    python -m papers.evaluations.subsumption [--json] [--quick] [--save]
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from benchmarks.common import run, save_figure, save_text, say
from papers.evaluations.subsumption_plan import (
    CHURNS,
    EXACT,
    MERGED,
    OURS,
    PAIRS,
    PAPER,
    Plan,
    Results,
    list_jobs,
)
from papers.evaluations.subsumption_report import draw_figures, write_report
from papers.evaluations.subsumption_runs import churn, play_all


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
