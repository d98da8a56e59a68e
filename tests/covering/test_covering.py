"""The table against the model of the world, step by step, under every policy."""

from __future__ import annotations

import pytest
from denwatch.node.covering import (
    Approximate,
    BoxedSubscription,
    Covering,
    Domains,
    Exact,
    Metric,
    PairWise,
    Placement,
    Policy,
    covers,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.covering import checks
from tests.covering.oracle import Model
from tests.covering.strategies import Story, make_subscription, stories

EXACT = [Exact(), Exact(merging=True), Exact(pairs=False)]
APPROXIMATE = [
    Approximate(k=0),
    Approximate(k=3),
    Approximate(k=3, pairs=False),
    Approximate(k=3, pairs=False, handover=False),
    Approximate(k=4, metric=Metric.BENEFIT, pairs=False),
    Approximate(k=4, metric=Metric.COST, pairs=False),
    Approximate(k=2, dynamic=True, pairs=False),
    Approximate(k=3, merging=True),
]


@settings(max_examples=150, deadline=None)
@given(stories(), st.sampled_from(EXACT))
def test_exact_form_equals_the_definition_at_every_step(story: Story, policy: Policy) -> None:
    table: Covering[int] = Covering(story.domains, policy)
    model = Model(story.world)
    for number, step in enumerate(story.steps):
        if step.plain is not None:
            expected = model.subscribe(number, step.plain)
            assert table.subscribe(number, make_subscription(step.plain)).active == expected
        elif model.plain:
            ids = list(model.plain)
            target = ids[step.pick % len(ids)]
            assert list(table.unsubscribe(target)) == model.unsubscribe(target)
        assert set(table.active()) == model.active
        checks.check_every_id_is_kept(table, model)
        checks.check_passive_is_covered(table, model)
        checks.check_rectangles_are_disjoint(table, model)
        checks.check_rectangles_are_the_complement(table, model)


@settings(max_examples=150, deadline=None)
@given(stories(), st.sampled_from(APPROXIMATE))
def test_approximate_form_may_only_miss(story: Story, policy: Policy) -> None:
    for table, model in checks.tell(story, policy):
        checks.check_every_id_is_kept(table, model)
        checks.check_passive_is_covered(table, model)
        checks.check_rectangles_are_disjoint(table, model)
        checks.check_rectangles_hold_the_complement(table, model)


@settings(max_examples=80, deadline=None)
@given(stories())
def test_pairwise_form_finds_exactly_the_covered_pairs(story: Story) -> None:
    table = Covering[int](story.domains, PairWise())
    active: dict[int, BoxedSubscription] = {}
    for number, step in enumerate(story.steps):
        if step.plain is None:
            continue
        new = make_subscription(step.plain)
        alone = [i for i, other in active.items() if covers(other, new, story.domains)]
        empty = not story.world.match(step.plain, outer=True)
        placement = table.subscribe(number, new)
        assert placement.active == (not alone and not empty)
        if not empty:
            assert placement.by == (alone[0] if alone else None)
        if placement.active:
            active[number] = new


@settings(max_examples=60, deadline=None)
@given(stories())
def test_pairwise_form_stays_sound_when_coverers_leave(story: Story) -> None:
    for table, model in checks.tell(story, PairWise()):
        checks.check_every_id_is_kept(table, model)
        checks.check_passive_is_covered(table, model)


@settings(max_examples=80, deadline=None)
@given(stories(), st.sampled_from([*EXACT, *APPROXIMATE, PairWise()]))
def test_explanations_cover_what_they_explain(story: Story, policy: Policy) -> None:
    *_, (table, model) = checks.tell(story, policy)
    for i in table.passive():
        by = set(table.explain(i))
        assert by <= set(table.active())
        assert not model.possible[i] & ~model.cover(by)
    assert all(table.explain(i) == () for i in table.active())


@settings(max_examples=80, deadline=None)
@given(stories(), st.sampled_from([*EXACT, *APPROXIMATE, PairWise()]))
def test_rebuild_is_sound_and_says_what_moved(story: Story, policy: Policy) -> None:
    *_, (table, model) = checks.tell(story, policy)
    before = set(table.active())
    change = table.rebuild()
    after = set(table.active())
    assert set(change.activated) == after - before
    assert set(change.silenced) == before - after
    model.active = after
    checks.check_every_id_is_kept(table, model)
    checks.check_passive_is_covered(table, model)
    if isinstance(policy, Exact):
        model.rebuild()
        assert after == model.active
        checks.check_rectangles_are_the_complement(table, model)
    assert table.rebuild().activated == table.rebuild().silenced == ()


@settings(max_examples=40, deadline=None)
@given(stories(), st.sampled_from([*EXACT, *APPROXIMATE]))
def test_same_calls_give_the_same_table(story: Story, policy: Policy) -> None:
    *_, (first, model) = checks.tell(story, policy)
    *_, (second, _) = checks.tell(story, policy)
    assert first.active() == second.active()
    for mask in {plain[0] for plain in model.plain.values()}:
        assert first.rectangles(mask).tolist() == second.rectangles(mask).tolist()


def test_approximate_unsubscription_releases_only_its_own_sections() -> None:
    """Two overlapping subscriptions: the later one's overlap is not given back with it."""
    table = Covering[str](Domains((0, 9)), Approximate(pairs=False, handover=False))
    table.subscribe("a", BoxedSubscription(1, ({0: (0, 5)},)))
    table.subscribe("b", BoxedSubscription(1, ({0: (4, 7)},)))
    table.subscribe("c", BoxedSubscription(1, ({0: (9, 9)},)))
    table.unsubscribe("b")
    assert sorted(table.rectangles(1).tolist()) == [[6, 7], [8, 8]]
    table.unsubscribe("a")
    assert sorted(table.rectangles(1).tolist()) == [[0, 5], [6, 7], [8, 8]]


def test_approximate_unsubscription_loses_what_rebuild_regains() -> None:
    """What the first comer took is given back though the second covers it too."""
    table = Covering[str](Domains((0, 9)), Approximate(pairs=False, handover=False))
    table.subscribe("a", BoxedSubscription(1, ({0: (0, 5)},)))
    table.subscribe("b", BoxedSubscription(1, ({0: (2, 7)},)))
    table.unsubscribe("a")
    assert table.subscribe("c", BoxedSubscription(1, ({0: (3, 5)},))).active  # a miss, not an error
    assert table.rebuild().silenced == ("c",)


def test_handover_forgets_nothing_that_others_cover() -> None:
    table = Covering[str](Domains((0, 9)), Approximate(pairs=False))
    table.subscribe("a", BoxedSubscription(1, ({0: (0, 5)},)))
    table.subscribe("b", BoxedSubscription(1, ({0: (2, 7)},)))
    assert table.unsubscribe("a") == ()
    assert sorted(table.rectangles(1).tolist()) == [[0, 1], [8, 9]]
    assert not table.subscribe("c", BoxedSubscription(1, ({0: (3, 5)},))).active
    assert table.unsubscribe("b") == ("c",)  # the heir's sections are its own to give back


def test_dynamic_budget_keeps_its_bound() -> None:
    k = 3
    table = Covering[int](Domains((0, 30)), Approximate(k=k, dynamic=True, pairs=False))
    for i in range(60):
        box = {b: ((7 * i * (b + 1)) % 25, (7 * i * (b + 1)) % 25 + 1 + i % 5) for b in range(3)}
        table.subscribe(i, BoxedSubscription(7, (box,)))
        assert table.count_rectangles() <= max(1, k * len(table.active()))


def test_projection_between_masks() -> None:
    """Who asks for less of the features serves who asks for more, and never the reverse."""
    table = Covering[str](Domains(), Exact())
    assert table.subscribe("t", BoxedSubscription(0b11, ({0: (10, 20)},))).active
    assert table.subscribe("s", BoxedSubscription(0b01, ({0: (0, 50)},))).active
    assert table.subscribe("u", BoxedSubscription(0b11, ({0: (5, 40), 1: (1, 2)},))) == Placement(
        False, "s"
    )
    assert table.subscribe("everything", BoxedSubscription(0, ({},))).active
    assert not table.subscribe("late", BoxedSubscription(0b1000, ({},))).active
    assert table.rebuild().silenced == ("t", "s")
    assert table.unsubscribe("everything") == ("late", "s")


def test_asking_about_an_unused_mask_leaves_nothing_behind() -> None:
    table = Covering[int](Domains((0, 9)), Exact())
    table.subscribe(1, BoxedSubscription(1, ({0: (0, 4)},)))
    before = table.count_rectangles()
    assert table.rectangles(0b101).tolist() == [[5, 9, 0, 9]]
    assert table.count_rectangles() == before
    assert Covering[int](Domains((0, 9)), PairWise()).rectangles(0b101).shape == (0, 4)


def test_inexact_subscriptions_cover_with_less_than_they_ask() -> None:
    """It asks for 0..9 at most and serves 3..6 for sure: not even its own double is covered."""
    vague = BoxedSubscription(1, ({0: (3, 6)},), ({0: (0, 9)},))
    table = Covering[str](Domains(), Exact())
    assert table.subscribe("first", vague).active
    assert table.subscribe("second", vague).active
    assert table.subscribe("inside", BoxedSubscription(1, ({0: (4, 5)},))).by == "first"
    assert table.subscribe("beside", BoxedSubscription(1, ({0: (5, 7)},))).active
    assert table.subscribe("unsure", BoxedSubscription(1, (), ({},))).active
    assert table.subscribe("wide", BoxedSubscription(1, ({},))).active
    assert table.rebuild().silenced == ("first", "second", "beside", "unsure")
    assert table.explain("first") == ("wide",)


def test_wrong_ids_are_refused_and_change_nothing() -> None:
    table = Covering[int]()
    table.subscribe(1, BoxedSubscription(1, ({0: (0, 9)},)))
    with pytest.raises(ValueError, match="1 is in the table already"):
        table.subscribe(1, BoxedSubscription(1, ({},)))
    for call in (table.unsubscribe, table.explain, table.is_active):
        with pytest.raises(KeyError, match="2 is not in the table"):
            call(2)
    assert table.active() == (1,)
    assert 1 in table
    assert 2 not in table
