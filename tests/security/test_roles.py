"""Roles against a plain oracle, and the words of refusals."""

from __future__ import annotations

import pytest
from denwatch.node.security.access import Role, RoleTable
from denwatch.node.security.credentials import SecurityError
from hypothesis import given
from hypothesis import strategies as st

from tests.security.oracle import may_see

_EVENTS = ("patient", "patent", "fire")
_NAMES = ("heart_rate", "age", "east")
_event_patterns = st.sampled_from(["patient", "pat*", "*", "*t", "fire", "p*t", "x"])
_paths = st.sampled_from(
    ["patient.*", "patient.age", "*.age", "*.*", "pat*.heart_*", "fire.*", "*t.e*", "*ire.east"]
)


@given(
    st.lists(_event_patterns, max_size=3),
    st.lists(_paths | st.just("*"), max_size=3),
    st.lists(_paths | _event_patterns, max_size=3),
)
def test_roles_decide_like_the_oracle(
    events: list[str], attributes: list[str], deny: list[str]
) -> None:
    roles = RoleTable({"medic": Role(tuple(events), tuple(attributes), tuple(deny))})
    for event in _EVENTS:
        seen = [name for name in _NAMES if may_see(events, attributes, deny, event, name)]
        assert roles.keep_visible("medic", event, _NAMES) == seen
        for name in _NAMES:
            assert (roles.check("medic", event, [name]) is None) == (name in seen)
        assert (roles.check("medic", event, _NAMES) is None) == (len(seen) == len(_NAMES))


def test_refusals_say_what_may_not_be_seen() -> None:
    roles = RoleTable(
        {
            "observer": Role(("fire", "patient"), ("*",), ("patient.heart_rate",)),
            "nobody": Role(),
        }
    )
    refusal = roles.check("observer", "patient", ["age", "heart_rate"])
    assert str(refusal) == "role observer may not see patient.heart_rate"
    assert str(roles.check("observer", "gas", [])) == "role observer may not see gas"
    assert str(roles.check("nobody", "fire", [])) == "role nobody may not see fire"
    assert "not known here" in str(roles.check("ghost", "fire", []))
    assert roles.check("observer", "Patient", ["Age"]) is None
    assert roles.keep_visible("ghost", "fire", ["smoke"]) == []


def test_the_stricter_of_two_tables_wins() -> None:
    taken = RoleTable({"medic": Role(("*",), ("*",), ())})
    carrier = RoleTable({"medic": Role(("*",), ("*",), ("patient.born",))})
    assert taken.check("medic", "patient", ["born"]) is None
    assert carrier.check("medic", "patient", ["born"]) is not None
    assert carrier.keep_visible("medic", "patient", ["born", "age"]) == ["age"]


@pytest.mark.parametrize(
    ("role", "words"),
    [
        (Role(events=("patient.age",)), r"roles.x.events: .* is not an event"),
        (Role(attributes=("patient",)), r"roles.x.attributes: .*event.attribute"),
        (Role(attributes=("a.b.c",)), r"roles.x.attributes: .* not a name"),
        (Role(deny=("",)), r"roles.x.deny: .* not a name"),
        (Role(events=("[a-z]",)), r"roles.x.events: .* not a name"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(role: Role, words: str) -> None:
    with pytest.raises(SecurityError, match=words):
        RoleTable({"x": role})
