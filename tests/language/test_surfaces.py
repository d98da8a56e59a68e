"""Four surfaces, one tree, the same bytes; and words that come back from a device as words."""

from __future__ import annotations

import re
from random import Random

import pytest
from denwatch.client.compiler import compile_subscription, decompile
from denwatch.client.errors import LanguageError
from denwatch.client.language import detect_surface, parse, print_as
from denwatch.client.language.words import parse_words
from denwatch.client.language.words_printer import print_words
from denwatch.client.language.xml import parse_xml
from denwatch.client.language.xml_printer import print_xml
from denwatch.client.syntax import SubscriptionTree
from denwatch.client.vocabulary import load_shipped
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.language import wild
from tests.language.strategies import compile_or_reject, subscriptions

RESCUE = load_shipped("rescue")
WEATHER = load_shipped("weather")
SURFACES = ("words", "xml", "json")
# No shrinking: through the compiler it takes minutes, and a failing tree in words says enough.
RELAXED = settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@RELAXED
@given(st.data())
def test_all_four_surfaces_compile_to_the_same_bytes(data: st.DataObject) -> None:
    vocabulary = data.draw(st.sampled_from([RESCUE, WEATHER]))
    tree = data.draw(subscriptions(vocabulary))
    compiled = compile_or_reject(tree, vocabulary)
    trees = {surface: parse(print_as(surface, tree)) for surface in SURFACES}
    trees["builder"] = wild.build(tree)
    for surface, read in trees.items():
        assert read == tree, surface
        again = compile_subscription(read, vocabulary)
        assert again.data == compiled.data, surface
        assert again.options == compiled.options, surface


@RELAXED
@given(st.data())
def test_words_to_vector_to_words_is_a_fixed_point(data: st.DataObject) -> None:
    vocabulary = data.draw(st.sampled_from([RESCUE, WEATHER]))
    tree = data.draw(subscriptions(vocabulary))
    first = compile_or_reject(parse_words(print_words(tree)), vocabulary)
    words = print_words(decompile(first.data, vocabulary, first.options))
    second = compile_subscription(parse_words(words), vocabulary)
    assert second.data == first.data
    assert second.options == first.options
    assert print_words(decompile(second.data, vocabulary, second.options)) == words


@RELAXED
@given(wild.subscriptions, st.sampled_from(SURFACES))
def test_whatever_a_tree_says_is_printed_and_parsed_back(
    tree: SubscriptionTree, surface: str
) -> None:
    assert parse(print_as(surface, tree)) == tree


@RELAXED
@given(wild.subscriptions)
def test_the_builder_makes_every_tree(tree: SubscriptionTree) -> None:
    assert wild.build(tree) == tree


@RELAXED
@given(st.data())
def test_a_self_contained_document_compiles_to_the_same_bytes(data: st.DataObject) -> None:
    vocabulary = data.draw(st.sampled_from([RESCUE, WEATHER]))
    tree = data.draw(subscriptions(vocabulary))
    compiled = compile_or_reject(tree, vocabulary)
    text = print_xml(tree, vocabulary=vocabulary)
    again = compile_subscription(parse_xml(text), vocabulary)
    assert again.data == compiled.data


FULL = parse(
    "(T° is not very high possible 0.6 certain 0.2 or T° above 104 °F) and not (pain is 3 to 5) "
    "and glucose is about 5 within 1 mmol/L and w near 350 ° within 20 and pain is rising(6, 8) "
    "and triage is red weight 2 and age is old in the last 30 s and sex is male in the last 5 s, "
    "event patient, named fever, by owa(0.5), at least 0.7, "
    "certain 0.1, recent, score 0.8, top 5, prefer a over b, valid for 2 days, "
    "dead band 0.5 °C of T°, 3 of 5, heartbeat 10 min, why, whole reading, "
    "rule 1 with 2 gives 0.5 slopes 0.1 and -0.2"
)
DOCUMENTS = {surface: re.findall(r"\w+|\s+|.", print_as(surface, FULL)) for surface in SURFACES}
ODD = [
    "\x00",
    "\n",
    '"',
    "'",
    "<",
    ">",
    "&",
    "\\",
    "\ufeff",
    "\ud800",
    "😀",
    "(",
    ")",
    ",",
    "1e999",
]


@settings(RELAXED, max_examples=400)
@given(st.sampled_from(SURFACES), st.randoms(use_true_random=False))
def test_a_damaged_document_is_understood_or_refused_with_its_place(
    surface: str, random: Random
) -> None:
    pieces = list(DOCUMENTS[surface])
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(pieces))
        others = random.choice([DOCUMENTS[random.choice(SURFACES)], ODD])
        change = random.choice(
            [[], [random.choice(others)], [random.choice(others), pieces[place]]]
        )
        pieces[place : place + 1] = change
    text = "".join(pieces)
    found = understand(text)
    if isinstance(found, LanguageError):
        assert found.at is not None
        assert 1 <= found.at <= len(text) + 1
        assert found.describe() in found.point(text)
    else:
        for other in SURFACES:
            assert parse(print_as(other, found)) == found


def understand(text: str) -> SubscriptionTree | LanguageError:
    """Return what a text says, or why it was refused; nothing else may happen."""
    try:
        return parse(text)
    except LanguageError as error:
        return error


@pytest.mark.parametrize(
    ("text", "surface"),
    [
        ("heart_rate is high", "words"),
        ("  <Subscription/>", "xml"),
        ("\ufeff<Subscription/>", "xml"),
        ("\n{}", "json"),
        ("", "words"),
    ],
)
def test_the_first_character_tells_the_surface(text: str, surface: str) -> None:
    assert detect_surface(text) == surface


@pytest.mark.parametrize("surface", SURFACES)
def test_a_byte_order_mark_means_nothing(surface: str) -> None:
    tree = parse("heart_rate is high")
    assert parse("\ufeff" + print_as(surface, tree)) == tree


def test_an_unknown_surface_is_refused() -> None:
    with pytest.raises(ValueError, match='unknown surface "yaml"'):
        print_as("yaml", parse("heart_rate is high"))
