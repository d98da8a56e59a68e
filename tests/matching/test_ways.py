"""Every way of matching that a node has gives one answer: the definition's.

Plain Python (few subscriptions), columns (many), the compiled index, and the moment in which
subscriptions move from one to the other.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from denwatch.node.matching import columns, compiling, matcher
from denwatch.node.matching.columns import ColumnIndex, bound_reading, bound_reading_at_all
from denwatch.node.matching.evaluation import cut_level
from denwatch.node.matching.hulls import find_hull
from denwatch.node.matching.index import FuzzyIndex, warm_up
from denwatch.node.matching.matcher import FuzzyMatcher
from denwatch.node.matching.search import bound_reading as bound_compiled
from denwatch.node.matching.search import pack_notifications
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from papers.baselines import PlainMatcher
from tests.matching.samples import (
    make_notification,
    make_subscription,
    notifications,
    subscriptions,
)


class MovingMatcher(FuzzyMatcher):
    """The node's matcher, which moves a few on before each answer."""

    def match(self, notification: NotificationVector, age: int = 0) -> list[Any]:
        self.go_on()
        return super().match(notification, age)


WAYS: dict[str, Callable[[], Any]] = {
    "plain": ColumnIndex,
    "columns": ColumnIndex,
    "compiled": FuzzyIndex,
    "node": FuzzyMatcher,
    "moving": MovingMatcher,
}


@pytest.fixture(params=WAYS)
def make_way(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """A way to make an engine; the process is as that way needs it."""
    way: str = request.param
    was_ready = compiling.is_ready()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "FEW", {"plain": 1 << 30, "columns": 0}.get(way, columns.FEW))
        patch.setattr(columns, "_AT_ONCE", {"columns": 0}.get(way, columns._AT_ONCE))
        patch.setattr(matcher, "WORTH_COMPILING", 1)
        patch.setattr(matcher, "STEP", 3)
        compiling.declare_ready(way == "moving")
        yield WAYS[way]
    compiling.declare_ready(was_ready)


def assert_same(engine: Any, plain: PlainMatcher, n: NotificationVector, age: int = 0) -> None:
    assert len(engine) == len(plain)
    assert engine.match(n, age) == plain.match(n, age)


@given(
    subs=st.lists(subscriptions(), min_size=1, max_size=12),
    notes=st.lists(notifications(), min_size=1, max_size=4),
    age=st.integers(0, 9000),
)
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_subscription_and_any_notification(
    make_way: Callable[[], Any],
    subs: list[SubscriptionVector],
    notes: list[NotificationVector],
    age: int,
) -> None:
    engine, plain = make_way(), PlainMatcher()
    for id, s in enumerate(subs):
        engine.add(id, s)
        plain.add(id, s)
    for n in notes:
        assert_same(engine, plain, n, age)


def test_what_comes_and_goes_in_any_order(make_way: Callable[[], Any]) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        engine, plain = make_way(), PlainMatcher()
        known: set[int] = set()
        for _ in range(rng.choice((20, 150))):
            id = rng.choice((rng.randint(0, 60), (1 << 64) - 1 - rng.randint(0, 9)))
            s = make_subscription(rng)
            engine.add(id, s)
            plain.add(id, s)
            known.add(id)
            if rng.random() < 0.4:
                gone = rng.choice(sorted(known))
                known.remove(gone)
                engine.remove(gone)
                plain.remove(gone)
                assert gone not in engine
            assert_same(engine, plain, make_notification(rng), rng.randint(0, 900))
        for id in sorted(known):
            assert id in engine
            engine.remove(id)
        assert len(engine) == 0
        assert engine.match(make_notification(rng)) == []
        with pytest.raises(KeyError):
            engine.remove(7)


def test_a_thousand_subscriptions_at_once(make_way: Callable[[], Any]) -> None:
    rng = random.Random(5)
    engine, plain = make_way(), PlainMatcher()
    for id in range(1000):
        s = make_subscription(rng, 2, 3)
        engine.add(id, s)
        plain.add(id, s)
    for _ in range(40):
        assert_same(engine, plain, make_notification(rng, 2, 3), 30)


@pytest.mark.parametrize("id", [-1, 1 << 64])
def test_an_id_that_is_none_is_refused(make_way: Callable[[], Any], id: int) -> None:
    engine = make_way()
    with pytest.raises(ValueError, match="not in 0"):
        engine.add(id, SubscriptionVector(0, [Predicate(0, 1, 2)]))
    assert len(engine) == 0


def test_a_notification_without_readings_matches_nothing(make_way: Callable[[], Any]) -> None:
    engine = make_way()
    engine.add(1, SubscriptionVector(0, [Predicate(0, 0, 255)], threshold=0))
    assert engine.match(NotificationVector(0, [], faults=1)) == []
    with pytest.raises(ProtocolError):
        NotificationVector(0, [])


# The move from columns to the compiled index --------------------------------------------------


@pytest.mark.parametrize("make_way", ["moving"], indirect=True)
def test_the_move_is_in_steps_and_ends(make_way: Callable[[], Any]) -> None:
    assert make_way is MovingMatcher
    rng = random.Random(9)
    engine, plain = FuzzyMatcher(), PlainMatcher()
    for id in range(20):
        s = make_subscription(rng)
        engine.add(id, s)
        plain.add(id, s)
    moved = [engine.compiled]
    while engine.compiled < 20:
        engine.go_on()
        moved.append(engine.compiled)
        n = make_notification(rng)
        assert engine.match_many([n, n], [0, 0])[0] == engine.match_many([n], [0])[0]
        assert_same(engine, plain, n)
    assert moved == [0, 3, 6, 9, 12, 15, 18, 20]
    engine.add(99, s)  # what comes now goes to the compiled one
    assert engine.compiled == 21


def test_few_subscriptions_stay_where_they_are() -> None:
    was_ready = compiling.is_ready()
    compiling.declare_ready()
    engine = FuzzyMatcher()
    for id in range(50):
        engine.add(id, SubscriptionVector(0, [Predicate(0, id, id + 9)]))
    engine.go_on()
    compiling.declare_ready(was_ready)
    assert engine.compiled == 0


def test_after_warming_up_nothing_is_compiled() -> None:
    from denwatch.node.covering import Approximate, Covering, kernels
    from denwatch.node.covering.boxes import box_vector

    was_ready = compiling.is_ready()
    warm_up()
    assert compiling.is_ready()
    every = [kernels.store_items, kernels.find_first, kernels.find_all, kernels.cut_positions,
             kernels.insert_items, kernels.find_containing, kernels.choose_within,
             kernels.take_sections, kernels.measure_cuts]  # fmt: skip
    counts = [len(kernel.signatures) for kernel in every]  # type: ignore[attr-defined]
    rng = random.Random(1)
    table: Covering[int] = Covering(policy=Approximate(k=3))
    for number in range(300):
        table.subscribe(number, box_vector(make_subscription(rng, 1, 3, wide=False)))
    for number in range(0, 300, 3):
        table.unsubscribe(number)
    table.rebuild()
    compiling.declare_ready(was_ready)
    assert [len(kernel.signatures) for kernel in every] == counts  # type: ignore[attr-defined]


# Bounds ---------------------------------------------------------------------------------------


def test_readings_are_bounded_as_the_compiled_search_bounds_them() -> None:
    rng = random.Random(3)
    for _ in range(300):
        wide = rng.random() < 0.5
        points = sorted(rng.randint(0, 65535 if wide else 255) for _ in range(4))
        reading = Reading(0, (points[0], points[1], points[2], points[3]), wide)
        batch = pack_notifications([NotificationVector(0, [reading])], [0])
        first, last = bound_reading_at_all(reading)
        for t in (1, 2, 100, 128, 254, 255):
            expected = bound_compiled(batch.points, batch.wides, 0, t)
            assert bound_reading(reading, t) == expected
            assert (first[t], last[t]) == expected


def test_the_hull_of_a_fuzzy_set_is_its_cut() -> None:
    p = Predicate(3, 100, 140, 120, 90)
    hull = find_hull(SubscriptionVector(0, [p]))
    assert hull.level == 128
    assert hull.bounds == {3: cut_level(100, 140, 120, 90, 0, 128)}


def test_what_no_reading_can_match_has_no_hull() -> None:
    s = SubscriptionVector(0, [Predicate(0, 0, 255, negated=True)], threshold=1)
    assert find_hull(s).bounds is None
    index = ColumnIndex()
    index.add(1, s)
    assert index.match(NotificationVector(0, [Reading(0, (9, 9, 9, 9))])) == []


# The compiler is not in the way ---------------------------------------------------------------

_NODE = """
import sys
from denwatch.node.runtime import process
from denwatch.client.compiler.stories import SEQUENCE, Story
from denwatch.node.core.languages import STORY, load_languages
from denwatch.node.covering import Covering, Approximate
from denwatch.node.covering.boxes import box_vector
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
s = SubscriptionVector(0, [Predicate(0, 10, 20, 100)])
matcher = load_languages().find(0).make_matcher()
for id in range(200):
    matcher.add(id, s)
reading = NotificationVector(0, [Reading(0, (5, 12, 12, 15))])
assert len(matcher.match(reading)) == 200
parts = load_languages().find(STORY).make_matcher()
parts.add(7, Story(SEQUENCE, (encode(s), encode(s)), ((5_000, 7_500),)))
assert [(story, part) for story, _, _, part in parts.match_parts([reading])[0]] == [(7, 0), (7, 1)]
table = Covering(policy=Approximate())
assert table.subscribe(1, box_vector(s)).active and not table.subscribe(2, box_vector(s)).active
found = {"numba", "llvmlite"} & set(sys.modules)
assert not found, found
"""
_WITHOUT = """
import sys
sys.modules["numba"] = None  # as if it were not installed
"""


@pytest.mark.parametrize("before", ["", _WITHOUT], ids=["installed", "missing"])
def test_a_node_matches_and_covers_without_numba(before: str) -> None:
    code = _NODE if not before else before + _NODE.replace('{"numba", "llvmlite"}', '{"llvmlite"}')
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_kernel_without_the_extra_says_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from denwatch.node.matching import compiling\n"
        "from denwatch.node.matching.index import FuzzyIndex\n"
        "try:\n    FuzzyIndex()\n"
        "except compiling.NotInstalled as error:\n    print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.startswith("compiled matching needs denwatch[fast]")


def test_columns_find_ids_near_and_far_from_each_other() -> None:
    """Ids that follow each other are kept otherwise than those that do not, and may become so."""
    rng = random.Random(3)
    vector = SubscriptionVector(1, [Predicate(0, 0, 255)])
    index, known = ColumnIndex(), set()
    for _ in range(2_000):
        id = rng.choice((rng.randrange(50), rng.randrange(5_000), rng.randrange(1 << 64)))
        if rng.random() < 0.3 and known:
            id = rng.choice(sorted(known))
            index.remove(id)
            known.remove(id)
        else:
            index.add(id, vector)
            known.add(id)
        assert len(index) == len(known)
        assert (id in index) == (id in known)
    found = index.match(NotificationVector(1, [Reading(0, (7, 7, 7, 7))]))
    assert [row.id for row in found] == sorted(known)
    with pytest.raises(KeyError):
        index.remove((1 << 64) - 1)
