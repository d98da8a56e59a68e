"""What hypothesis tries to break: round trips, cuts of any nesting, CBOR against cbor2."""
# cpython only: hypothesis and cbor2 exist there

from __future__ import annotations

import cbor2
import pytest
from denwatch.protocol import cbor, notification, subscription
from denwatch.protocol.cuts import cut
from denwatch.protocol.degrees import MIN
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import AND, NOT, OR, Predicate, SubscriptionVector
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.evaluator import SCRATCH, evaluate
from tests.protocol.samples import Dice, draw_notification, draw_subscription

bytes8 = st.integers(0, 255)
seeds = st.integers(0, 2**31 - 1)


@st.composite
def predicates(draw: st.DrawFn, attribute: int) -> Predicate:
    low, high = sorted((draw(bytes8), draw(bytes8)))
    return Predicate(
        attribute,
        low,
        high,
        draw(bytes8),
        draw(bytes8),
        draw(st.booleans()),
        draw(st.sampled_from([0, 1, 2, 3, 5, 13, 15])),
    )


# What a leaf must lie in: to reach t, and to stay at or below 255 - t.
Cuts = tuple[list[tuple[int, int]], list[tuple[int, int]]]

# A formula is an index of a predicate, ("not", formula) or ("and" | "or", formulas).
formulas = st.recursive(
    st.integers(0, 3),
    lambda inner: (
        st.tuples(st.just("not"), inner)
        | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=8,
)


def to_postfix(formula: object) -> bytes:
    match formula:
        case int():
            return bytes([formula])
        case ("not", inner):
            return to_postfix(inner) + bytes([NOT])
        case (word, inner):
            op = AND if word == "and" else OR
            return b"".join(map(to_postfix, inner)) + bytes([op | len(inner)])
    raise AssertionError(formula)


def holds(formula: object, inside: list[Cuts], values: list[int], up: bool) -> bool:
    """Evaluate the formula over intervals: degree >= t if up, else degree <= 255 - t."""
    match formula:
        case int():
            reach, low = inside[formula]
            intervals = reach if up else low
            return any(a <= values[formula] <= b for a, b in intervals)
        case ("not", inner):
            return holds(inner, inside, values, not up)
        case (word, inner):
            answers = [holds(item, inside, values, up) for item in inner]
            return all(answers) if (word == "and") == up else any(answers)
    raise AssertionError(formula)


@given(st.tuples(*(predicates(i) for i in range(4))), formulas, bytes8, seeds)
def test_degree_reaches_t_exactly_where_the_interval_formula_holds(
    four: tuple[Predicate, ...], formula: object, t: int, seed: int
) -> None:
    pattern = to_postfix(("and", [formula, ("or", [0, 1, 2, 3, ("not", 0)])]))
    whole = ("and", [formula, ("or", [0, 1, 2, 3, ("not", 0)])])
    s = SubscriptionVector(1, list(four), MIN, t, pattern=pattern)
    # A leaf under an odd number of negations must stay at or below 255 - t: the complement of
    # its cut at 256 - t, which is the cut at t of the negated predicate.
    inside = []
    for p in four:
        opposite = Predicate(*p.fields())
        opposite.negated = not p.negated
        inside.append((cut(p, t), cut(opposite, t)))
    frame = subscription.encode(s)
    scratch = bytearray(SCRATCH)
    dice = Dice(seed)
    for x in range(256):
        values = [x, dice.byte(), dice.byte(), dice.byte()]
        values = values[x % 4 :] + values[: x % 4]
        degree = evaluate(frame, 0, 15, values, scratch)
        assert (degree >= 0) == holds(whole, inside, values, True)


@given(seeds)
def test_every_subscription_survives(seed: int) -> None:
    s = draw_subscription(Dice(seed))
    frame = subscription.encode(s)
    assert subscription.decode(frame) == s
    assert len(frame) <= 255


@given(seeds)
def test_every_notification_survives(seed: int) -> None:
    n = draw_notification(Dice(seed))
    assert notification.decode(notification.encode(n)) == n


@given(seeds, st.integers(0, 7), st.data())
def test_every_flipped_bit_of_a_vector_is_refused_or_means_something_else(
    seed: int, bit: int, data: st.DataObject
) -> None:
    s = draw_subscription(Dice(seed))
    frame = bytearray(subscription.encode(s))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << bit
    error = None
    try:
        assert subscription.decode(bytes(frame)) != s
    except ProtocolError as refusal:
        error = refusal
    assert error is None or 0 <= error.at <= len(frame)


uint64 = st.integers(-(2**64), 2**64 - 1)
leaves = st.none() | st.booleans() | uint64 | st.binary(max_size=40) | st.text(max_size=40)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=30) | st.dictionaries(uint64 | st.text(max_size=30), inner)
    ),
    max_leaves=20,
)


def depth_of(value: object) -> int:
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 0


@given(values.filter(lambda value: depth_of(value) <= cbor.MAX_DEPTH))
def test_cbor_is_byte_equal_with_cbor2_both_ways(value: object) -> None:
    frame = cbor2.dumps(value, canonical=True)
    assert cbor.encode_portable(value) == frame
    assert cbor.encode(value) == frame
    for decoded in (cbor.decode_portable(frame), cbor.decode(frame), cbor2.loads(frame)):
        assert decoded == value
        assert cbor2.dumps(decoded, canonical=True) == frame  # True is not 1 here


@given(st.binary(max_size=60))
def test_both_cbor_decoders_refuse_and_accept_the_same(frame: bytes) -> None:
    answers = []
    for decode in (cbor.decode, cbor.decode_portable):
        try:
            answers.append((True, decode(frame)))
        except ProtocolError as error:
            answers.append((False, str(error)))
    assert repr(answers[0]) == repr(answers[1])


@given(st.binary(max_size=12))
def test_utf8_is_what_cpython_takes(raw: bytes) -> None:
    try:
        raw.decode()
    except UnicodeDecodeError:
        assert not cbor.is_utf8(raw)
    else:
        assert cbor.is_utf8(raw)


def test_text_with_half_a_character_is_refused() -> None:
    for encode in (cbor.encode, cbor.encode_portable):
        with pytest.raises(ProtocolError, match="half a character"):
            encode("\ud800")
