"""What it costs two nodes to find out what the other lacks: real frames of real node cores.

Headline: `no_change_bytes`, a contact without news, and `d200_bytes`, a contact of two nodes that
met before and differ in about 200 of 2,000 items of 50 origins; both ways, all frames with heads
and tags, apart from the frames that carry the items themselves.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.common import format_table, median, new_figure, run, save_figure, save_text, say
from benchmarks.reconcile_nodes import (
    Machine,
    build_pair,
    count_known,
    list_ids,
    make_items,
    meet,
)
from benchmarks.reconcile_others import (
    measure_bloom,
    measure_bound,
    measure_lists,
    measure_rateless,
)

MODEL = (943, 15_184, 2_372, 3_870)  # the design's own model, 206 differences
WAYS = ("ours", "id lists", "Bloom filters, 1 %", "rateless IBLT", "ideal sketch (bound)")
GROWTH = (  # origins, items, differences
    *((50, items, 200) for items in (500, 1_000, 2_000, 4_000, 8_000)),
    *((origins, 2_000, 200) for origins in (5, 20, 50, 100, 200)),
    *((origins, 4 * origins, 5) for origins in (100, 300, 1_000)),
    *((50, 2_000, differences) for differences in (2, 20, 50, 100, 200, 400, 800)),
)
QUICK = ((50, 1_000, 200), (100, 2_000, 200), (50, 2_000, 20))


def measure_case(origins: int, items: int, differences: int, seed: int) -> dict[str, Any]:
    """Return the bytes of each way for one pair of nodes, and what the contact after it costs."""
    one, two = build_pair(origins, items, differences, seed)
    left, right = list_ids(one), list_ids(two)
    bloom, missed = measure_bloom(left, right)
    found = {
        "ids": len(left ^ right),
        WAYS[1]: measure_lists(left, right),
        WAYS[2]: bloom,
        "missed": missed,
        WAYS[3]: measure_rateless(left, right),
        WAYS[4]: measure_bound(left, right),
    }
    sizes = meet(one, two)
    if one.item_store.context.runs != two.item_store.context.runs:
        raise RuntimeError("the two nodes did not converge")
    if any(
        one.item_store.count(kind) != two.item_store.count(kind) for kind in one.item_store.live
    ):
        raise RuntimeError("the two nodes hold different items")
    again = sum(meet(one, two).values())
    return (
        found
        | {WAYS[0]: count_known(sizes), "payload": sizes["items"], "again": again}
        | {f"frame {name}": size for name, size in sizes.items()}
    )


def measure_first(origins: int, items: int) -> dict[str, int]:
    """Return the bytes of a first contact: one node has everything, the other nothing."""
    one, two = Machine("alpha", "epidemic"), Machine("bravo", "epidemic")
    one.accept(make_items(origins, items))
    sizes = meet(one, two)
    return {"known": count_known(sizes), "items": sizes["items"]}


def _build_default(seed: int) -> tuple[Machine, Machine]:
    return build_pair(50, 2_000, 206, seed, strategy="utility")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, report, and save if asked."""
    seeds = range(options.seed, options.seed + (3 if options.quick else 10))
    say("the headline case …")
    cases = [measure_case(50, 2_000, 206, seed) for seed in seeds]
    growth = []
    for shape in QUICK if options.quick else GROWTH:
        say(f"{shape[0]} origins, {shape[1]} items, {shape[2]} differences …")
        growth.append((shape, measure_case(*shape, options.seed)))
    first = measure_first(50, 2_000)
    default = [count_known(meet(*_build_default(seed))) for seed in seeds]
    page = _write_page(cases, growth, first, max(default))
    print(page)
    if options.save:
        save_text("reconcile.md", page)
        _draw(growth)
    return {
        "no_change_bytes": max(case["again"] for case in cases),
        "d200_bytes": max(case[WAYS[0]] for case in cases),
        "d200_median_bytes": median([case[WAYS[0]] for case in cases]),
        "d200_differences": 206,
        "d200_utility_bytes": max(default),
        "first_contact_bytes": first["known"],
        **{
            f"{name}_bytes": median([case[way] for case in cases])
            for name, way in zip(("lists", "bloom", "rateless", "bound"), WAYS[1:], strict=True)
        },
    }


def _write_page(
    cases: list[dict[str, Any]],
    growth: list[tuple[tuple[int, int, int], dict[str, Any]]],
    first: dict[str, int],
    default: int,
) -> str:
    rows = [
        (way, round(median([case[way] for case in cases])), max(case[way] for case in cases), model)
        for way, model in zip(WAYS, (*MODEL, "-"), strict=True)
    ]
    head = cases[0]
    frames = [(name[6:], head[name]) for name in head if name.startswith("frame ")]
    growth = list(dict(growth).items())  # the plain case is in three of the series
    table = [(*shape, *(found[way] for way in WAYS), found["again"]) for shape, found in growth]
    wins = [shape for shape, found in growth if found[WAYS[3]] < found[WAYS[0]]]
    told = (
        "In this table it is smaller than ours at "
        + "; ".join(f"{shape[0]:,} origins, {shape[2]} differences" for shape in wins)
        + "."
        if wins
        else "In this table it is never smaller than ours."
    )
    again = max(case["again"] for case in cases)
    saved = max((found[WAYS[0]] - found[WAYS[3]] for _, found in growth), default=0)
    missed = median([case["missed"] for case in cases])
    return f"""# Reconciliation: what it costs to find out what the other lacks

Two real node cores that met before; since then each learnt things that the other did not, anywhere
in each origin's sequence, and one difference in ten is a subscription that only one of them knows
to be removed. Bytes are of real frames, both ways, heads and tags included, apart from the frames
that carry the items (which cost the same in every way). {len(cases)} pairs.

A contact without news: **{again} bytes** (digest 41, equal 17; at most 64 wanted).

## 50 origins, 2,000 items, 206 differences

{format_table(("way", "median", "largest", "the design's model"), rows)}

Ours goes into the frames {", ".join(f"{name} {size}" for name, size in frames if name != "items")};
the items themselves are {head["payload"]:,} bytes in this case. A first contact, one side empty and
no run named before, costs {first["known"]:,} bytes for {first["items"]:,} bytes of items.

All this is with flooding; the utility strategy also asks the peer for its chances to meet
destinations, and needs at most {default} bytes for the same pairs.

Ours and the id lists find all differences; the Bloom filters miss {missed} items a contact. The
others are charged for items alone ({head["ids"]} of the differences); none of them can say that
something was removed. The model counted one Bloom filter where both sides need one, and no question
after the sketch: so our numbers for these two are higher than the model's.

## Growth

{format_table(("origins", "items", "differences", *WAYS, "again"), table)}

Ours grows with the origins that changed and, slowly, with the differences; it hardly grows
with the items. With 64 changed runs or more, groups of runs are compared by hash first, and only
those that differ are spoken of. A sketch grows with the differences alone. {told}
A sketch is left out: where it wins, it saves at most {saved:,} bytes here, at contacts where many
origins changed and hardly anything differs; it would still need the ranges to say what was removed,
and it decodes only with a certain chance.
"""


def _draw(growth: list[tuple[tuple[int, int, int], dict[str, Any]]]) -> None:
    figure, axes = new_figure(columns=3, width=4.2)
    panels = (
        (1, "items", lambda shape: shape[0] == 50 and shape[2] == 200),
        (0, "origins", lambda shape: shape[1] == 2_000 and shape[2] == 200),
        (2, "differences", lambda shape: shape[0] == 50 and shape[1] == 2_000),
    )
    for axis, (at, label, fits) in zip(axes, panels, strict=True):
        points = {shape[at]: found for shape, found in growth if fits(shape)}
        for way in WAYS:
            style = "k--" if way == WAYS[4] else "o-"
            axis.plot(
                sorted(points), [points[x][way] for x in sorted(points)], style, label=way, ms=4
            )
        axis.set_xscale("log")
        axis.set_xticks(sorted(points), [f"{x:,}" for x in sorted(points)], fontsize=7)
        axis.minorticks_off()
        axis.set_yscale("log")
        axis.set_xlabel(label)
    axes[0].set_ylabel("bytes both ways, payload apart")
    axes[0].legend(fontsize=7)
    save_figure(figure, "reconcile.svg")


def main() -> None:
    """Run it."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
