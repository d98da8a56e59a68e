"""A language is found by one id, and its three parts work; one from outside is as good as ours."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import Attribute, ValueKind, load_shipped
from denwatch.node.core.languages import (
    CONTENT_LANGUAGE,
    FUZZY_LANGUAGE,
    Languages,
    SubscriptionLanguage,
    load_languages,
)
from denwatch.node.core.notifications import Notification, describe_content_values
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.node.ranking.content import ContentFilter
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import CONTENT, FUZZY
from denwatch.protocol.matching import match
from denwatch.protocol.subscription import decode
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from denwatch.watchdog.fuzzy import Fuzzy

from examples.where_language.denwatch_where import LANGUAGE, Query
from tests.covering.doubt import find_possibility

RESCUE = load_shipped("rescue")
PATIENT = RESCUE.events["patient"]


def test_one_id_on_the_node_and_on_the_device() -> None:
    assert load_languages().find(Fuzzy.number) is FUZZY_LANGUAGE
    assert Fuzzy.number == FUZZY


def test_both_languages_behind_one_interface() -> None:
    languages = load_languages()
    assert [languages.find(id).name for id in (FUZZY, CONTENT)] == ["fuzzy", "content"]
    fuzzy, content = (languages.find(id).make_matcher() for id in (FUZZY, CONTENT))
    fuzzy.add(4, SubscriptionVector(2, [Predicate(3, 100, 200)]))
    content.add(4, ContentFilter.of(("length", ">", 120)))
    assert fuzzy.match(NotificationVector(2, [Reading(3, (150,) * 4)])) == [
        SubscriptionMatch(4, 255, 255, 3)
    ]
    assert content.match({"length": 121}) == [SubscriptionMatch(4, 255, 255, -1)]
    for matcher in (fuzzy, content):
        matcher.remove(4)
        assert len(matcher) == 0
        with pytest.raises(KeyError):
            matcher.remove(4)
    assert languages.find(FUZZY).make_matcher() is not fuzzy


def make_language(**changed: Any) -> SubscriptionLanguage:
    parts = {"id": 7, "name": "own", "key": "own", "openings": (), **changed}
    return type("OwnLanguage", (type(CONTENT_LANGUAGE),), parts)()


def test_a_site_adds_its_own_language() -> None:
    languages = Languages([FUZZY_LANGUAGE, CONTENT_LANGUAGE, LANGUAGE])
    own = make_language()
    languages.register(own)
    languages.register(own)
    assert languages.find(7) is own
    for wrong in (
        {},
        {"id": 8},
        {"name": "new", "key": "new"},
        {"id": 9, "name": "new", "key": "content"},
        {"id": 9, "name": "new", "key": "new", "openings": ("where",)},
    ):
        with pytest.raises(ValueError, match="already registered"):
            languages.register(make_language(**wrong))
    with pytest.raises(ValueError, match=r"256 is not in 0\.\.255"):
        languages.register(make_language(id=256))
    with pytest.raises(KeyError, match="language id 9"):
        languages.find(9)


# The example ---------------------------------------------------------------------------------


def look_up(text: str) -> Query:
    found = LANGUAGE.look_up(text, RESCUE)
    query = LANGUAGE.decode(found.data)
    assert str(query) == found.words, "what an item carries says the same"
    assert found.attributes == LANGUAGE.list_attributes(found.data)
    return query


@pytest.mark.parametrize(
    ("text", "understood"),
    [
        ("where heart_rate > 100", "FROM patient WHERE heart_rate > 100"),
        ("SELECT * FROM patient WHERE pulse > 100.5", "FROM patient WHERE heart_rate > 100.5"),
        (
            "heart_rate between 40 and 60 or not (triage = 'red' and device <> 'bed-1')",
            "FROM patient WHERE ((heart_rate >= 40 AND heart_rate <= 60)"
            " OR (triage != 'red' OR device = 'bed-1'))",
        ),
        (
            "FROM patient WHERE triage NOT LIKE 're%' AND NOT triage IN ('green', 'black')",
            "FROM patient WHERE (NOT triage LIKE 're%' AND (triage != 'green'"
            " AND triage != 'black'))",
        ),
        ("where triage like '%e%' or triage like '%k'", None),
        ("where triage like 'it''s%'", None),
    ],
)
def test_what_is_understood(text: str, understood: str | None) -> None:
    query = look_up(text)
    assert understood is None or str(query) == understood


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("where heart_rat > 100", 7, 'unknown attribute "heart_rat"'),
        ("from patent where heart_rate > 1", 6, "unknown event"),
        ("where heart_rate", 17, "missing at the end"),
        ("where heart_rate > many", 20, "a number is expected, or a text in quotes"),
        ("where heart_rate is high", 18, '"is" is not understood here'),
        ("where heart_rate > 1 smoke", 22, "AND or OR"),
        ("where heart_rate ? 1", 18, '"?" is not understood here'),
        ("where triage like 'a%b'", 19, "LIKE takes"),
        ("where (heart_rate > 1", 22, '")" is expected'),
        ("from patient heart_rate > 1", 14, '"WHERE" is expected'),
        ("where heart_rate > 1 or smoke = 'dense'", 25, "belongs to event"),
        ("where device = 'bed-1'", 1, "FROM and an event are expected"),
        ("where " + " and ".join(["heart_rate > 1"] * 17), None, "more than 16 comparisons"),
        ("where " + "not " * 900 + "heart_rate > 1", None, "nested too deeply"),
    ],
)
def test_mistakes_have_their_column(text: str, at: int | None, why: str) -> None:
    with pytest.raises(LanguageError) as caught:
        LANGUAGE.look_up(text, RESCUE)
    assert why in str(caught.value)
    assert at is None or caught.value.at == at


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"WHERE heart_rate > 1", b"FROM patient", b"NOT " * 999]
)
def test_bytes_that_are_no_query(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        LANGUAGE.decode(data)


def test_possible_and_certain_are_exact() -> None:
    pulse = PATIENT.attributes["heart_rate"]
    code = pulse.to_code(100)
    n = NotificationVector(PATIENT.number, [Reading(pulse.bit, (code - 5, code, code, code + 5))])
    matcher = LANGUAGE.make_matcher()
    whole, above = "heart_rate <= 100 or heart_rate > 100", "heart_rate > 100"
    for id, text in enumerate((whole, above, f"not ({whole})", f"({whole}) and triage = 'red'")):
        matcher.add(id, look_up(text))
    assert matcher.match(read_content(n)) == [
        SubscriptionMatch(0, 255, 255, -1),
        SubscriptionMatch(1, 204, 0, -1),
    ]


def read_content(vector: NotificationVector, device: str = "dog-1") -> dict[str, object]:
    notification = Notification.__new__(Notification)
    notification.vector, notification.device = vector, device
    notification.event = RESCUE.find_number(vector.event)
    return describe_content_values(notification)


def draw_test(rng: Random, attribute: Attribute) -> tuple[str, Any]:
    """Return a test as text, and as a function of a value."""
    name = attribute.name
    if attribute.kind is ValueKind.TEXT:
        word = rng.choice(attribute.symbols)
        part = word[: rng.randrange(1, len(word) + 1)]
        return rng.choice(
            [
                (f"{name} = '{word}'", lambda value: value == word),
                (f"{name} not like '{part}%'", lambda value: not value.startswith(part)),
                (f"{name} in ('{word}', '{part}')", lambda value: value in (word, part)),
            ]
        )
    low, high = sorted(attribute.to_value(rng.randrange(attribute.last + 1)) for _ in range(2))
    low, high = round(low, 3), round(high, 3)
    if attribute.kind is not ValueKind.NUMBER:
        return f"{name} != 'never'", lambda value: value != "never"
    return rng.choice(
        [
            (f"{name} > {low}", lambda value: value > low),
            (f"{name} <= {high}", lambda value: value <= high),
            (f"{name} not between {low} and {high}", lambda value: not low <= value <= high),
        ]
    )


@pytest.mark.parametrize("seed", range(4))
def test_whatever_can_match_is_sent(seed: int) -> None:
    """Match and filter parts against the definition, over all combinations of values."""
    rng = Random(seed)
    wanted = refused = 0
    narrow = [a for a in PATIENT.attributes.values() if not a.wide]
    for _ in range(40):
        chosen = [rng.choice(narrow) for _ in range(3)]
        tests = [draw_test(rng, attribute) for attribute in chosen]
        join, turn = rng.choice(("and", "or")), rng.choice(("", "not "))
        words = f"{tests[0][0]} {join} {turn}({tests[1][0]} or {tests[2][0]})"
        found = LANGUAGE.look_up(f"from patient where {words}", RESCUE)
        query = LANGUAGE.decode(found.data)
        vector = LANGUAGE.lower(found.data, RESCUE)
        matcher = LANGUAGE.make_matcher()
        matcher.add(0, query)
        for _ in range(12):
            points = {}
            for attribute in chosen:
                a = rng.randrange(attribute.last + 1)
                points[attribute.name] = tuple(
                    min(attribute.last, a + step)
                    for step in rng.choice(((0, 0, 0, 0), (0, 2, 3, 5)))
                )
            readings = [
                Reading(attribute.bit, points[attribute.name])
                for _, attribute in sorted({one.bit: one for one in chosen}.items())
            ]
            n = NotificationVector(PATIENT.number, readings)
            possible = 0
            codes = [range(points[a.name][0], points[a.name][3] + 1) for a in chosen]
            for choice in product(*codes):
                by_name = dict(zip((a.name for a in chosen), choice, strict=True))
                if any(by_name[a.name] != code for a, code in zip(chosen, choice, strict=True)):
                    continue  # one attribute twice has one value
                values = [name_exact(a, by_name[a.name]) for a in chosen]
                one, two, three = (
                    test(value) for (_, test), value in zip(tests, values, strict=True)
                )
                inner = (two or three) is not bool(turn)
                if (one and inner) if join == "and" else (one or inner):
                    degrees = [find_possibility(by_name[a.name], points[a.name]) for a in chosen]
                    possible = max(possible, min(degrees))
            found_here = matcher.match(read_content(n))
            assert [row.possible for row in found_here] == ([possible] if possible >= 128 else [])
            rated = None if vector is None else match(decode(vector), n)
            is_sent = rated is not None and rated.matched
            assert is_sent or possible < 128, words
            wanted += possible >= 128
            refused += not is_sent
    assert wanted > 100
    assert refused > 30


def name_exact(attribute: Attribute, code: int) -> Any:
    n = NotificationVector(PATIENT.number, [Reading(attribute.bit, (code,) * 4)])
    return read_content(n)[attribute.name]
