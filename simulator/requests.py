"""Subscriptions drawn from the grammar, as people write them: words, typed content, synonyms, and
the language of a plug-in.

A number is one subscription, the same for ever; `docs/language.md` has the grammar. Most are right,
a few are not (an empty set, thresholds that contradict each other), and a node refuses those. Only
attributes that devices of a campaign measure are asked for.
"""

from __future__ import annotations

import re
from functools import lru_cache
from random import Random
from typing import Any

from denwatch.client.vocabulary import Attribute, ValueKind, Vocabulary
from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.languages import load_languages

from examples.where_language.denwatch_where import LANGUAGE

POOL = 600  # subscriptions that there are: each is compiled once in a process
TOPICS, TOPIC = 24, 8  # topics, subscriptions of each
# Some stand here twice or thrice: they are asked for as often.
_PATIENT = "patient_temperature patient_temperature heart_rate heart_rate heart_rate triage"
_EVENTS = {
    "patient": (*_PATIENT.split(), "consciousness", "east", "measured_at"),
    "fire": ("fire_temperature", "smoke"),
    "road": ("access",),
}
_HEDGES = ("very", "extremely", "more or less", "somewhat")
_BELOW, _ABOVE = ("below", "less than", "at most"), ("above", "over", "at least", "exceeds")
_AGGREGATORS = ("product", "arithmetic mean", "geometric mean", "harmonic mean")
_CONTENT = 0.15  # of the others are typed content
_WHERE = 13  # one in so many is in the plug-in's language
_TERM, _COMPARED = 0.45, 0.8  # of the predicates on numbers; the rest are ranges and abouts

load_languages().register(LANGUAGE)  # as an installed plug-in would be

_TOP = re.compile(r", top (\d+)")
_EXPIRY = re.compile(r", expires after (\d+) s")


def find_terms(request: dict[str, Any]) -> tuple[int, int]:
    """Return how many are shown at a time, and for how many ms each counts; 0 for no limit."""
    if "subscribe" not in request:
        return request.get("top", 0), int(1000 * request.get("expiry", 0))
    words = request["subscribe"]
    top, expiry = _TOP.search(words), _EXPIRY.search(words)
    return int(top[1]) if top else 0, 1000 * int(expiry[1]) if expiry else 0


@lru_cache(maxsize=POOL)
def draw_request(number: int) -> dict[str, Any]:
    """Return the request of a subscription, by its number.

    The first ones come in topics: what many ask for in nearly the same words, so that one often
    covers another. Any other is drawn from the grammar.
    """
    rng = Random(f"wish {number % POOL}")  # another word would change what every seed asks for
    dice = Random(f"restrictor {number % POOL}")  # so that the others stay as they were
    if number % POOL < TOPICS * TOPIC:
        words = _draw_usual(rng, Random(f"topic {number % POOL // TOPIC}"))
        if words.startswith("heart_rate above") and dice.random() < 0.5:
            pulse, *options = words.split(", ")
            earlier = f"({pulse} in the last {dice.choice((30, 60))} s)"
            words = ", ".join([f"patient_temperature above 27 and {earlier}", *options])
        return {"subscribe": words}
    if not number % POOL % _WHERE:
        return _draw_where(rng)
    vocabulary = load_shipped("rescue")
    event = "fire" if rng.random() < 0.2 else "patient"
    event = "road" if Random(f"road {number % POOL}").random() < 0.06 else event
    attributes = vocabulary.events[event].attributes
    names = _EVENTS[event]
    if rng.random() < _CONTENT:
        return _draw_content(rng, event, [attributes[rng.choice(names)] for _ in range(2)])
    chosen = [attributes[rng.choice(names)] for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
    leaves = [_draw_predicate(rng, each, vocabulary) for each in chosen]
    if len(leaves) > 1 and dice.random() < 0.4:
        leaves[-1] = f"({leaves[-1]} in the last {dice.choice((20, 40, 90))} s)"
    words = _join(rng, leaves)
    options = _draw_options(rng, chosen)
    if dice.random() < 0.05:
        options.append("whole reading")
    return {"subscribe": words + "".join(f", {each}" for each in options)}


def _draw_usual(rng: Random, topic: Random) -> str:
    """Return one of the subscriptions of a topic."""
    thresholds = ("", "", ", certain 0.9", ", certain 0.9", ", at least 0.95", ", at least 0.4")
    kind, limit = topic.choice(("pulse", "pulse", "fever", "best")), topic.randrange(-3, 4)
    if kind == "best":
        least, most = 40 + 10 * limit, 220 - 10 * rng.randrange(3)
        expiry = rng.choice(("", "", ", expires after 90 s"))
        top = rng.randrange(1, 3)
        return f"heart_rate is rising({least}, {most}), at least 0.1, top {top}{expiry}"
    if kind == "pulse":
        words = f"heart_rate above {120 + 10 * limit + 4 * rng.randrange(4)}"
    else:
        words = f"patient_temperature above {round(37.6 + 0.4 * limit + 0.2 * rng.randrange(4), 1)}"
    return words + rng.choice(thresholds)


def drop_parts(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a subscription says with one of its options or constraints left out."""
    if "content" in request:
        triples = request["content"]
        fewer = [{**request, "content": triples[:n] + triples[n + 1 :]} for n in range(1, 3)]
        plain = [{k: v for k, v in request.items() if k != name} for name in ("top", "expiry")]
        return [each for each in (*fewer, *plain) if each != request]
    if "subscribe" not in request:
        return []
    condition, *options = request["subscribe"].split(", ")
    found = [options[:n] + options[n + 1 :] for n in range(len(options))]
    return [{**request, "subscribe": ", ".join([condition, *fewer])} for fewer in found]


def _draw_predicate(rng: Random, attribute: Attribute, vocabulary: Vocabulary) -> str:
    synonyms = [entry.word for entry in vocabulary.thesaurus.list_synonyms(attribute.path)]
    name = attribute.name
    if synonyms and rng.random() < 0.25:  # another organisation's word; some look like keywords
        name = f'"{rng.choice(sorted(synonyms))}"'
    if attribute.kind is ValueKind.TEXT:
        symbol = rng.choice(attribute.symbols)
        if attribute.is_graded and rng.random() < 0.6:
            return _draw_graded(rng, name, attribute, symbol)
        if attribute.ordered and rng.random() < 0.5:
            return f"{name} {rng.choice(('at most', 'at least'))} {symbol}"
        return f"{name} {rng.choice(('=', '!='))} {symbol}"
    if attribute.kind is ValueKind.TIME:
        hour = rng.randrange(24)
        return f"{name} {rng.choice(('after', 'before'))} {hour:02}:{rng.choice((0, 30)):02}"
    said = _draw_number(rng, name, attribute)
    if rng.random() < 0.15:
        said += f" possible 0.{rng.randrange(3, 8)}"
    if rng.random() < 0.15:
        said += f" certain 0.{rng.randrange(1, 8)}"
    return said


def _draw_graded(rng: Random, name: str, attribute: Attribute, symbol: str) -> str:
    """Return a predicate with degrees on a text."""
    if rng.random() < 0.3:
        return f"{name} is about {symbol}"
    negation, hedge = rng.choice(("", "", "not ")), rng.choice(("", "", "very ", "somewhat "))
    return f"{name} is {negation}{hedge}{rng.choice(sorted(attribute.terms))}"


def _draw_number(rng: Random, name: str, attribute: Attribute) -> str:
    choice = rng.random()
    if choice < _TERM and attribute.terms:
        hedges = " ".join(rng.choice(_HEDGES) for _ in range(rng.choice((0, 0, 0, 1, 2))))
        negation = "not " if rng.random() < 0.2 else ""
        term = rng.choice(sorted(attribute.terms)).replace("_", " ")
        return f"{name} is {negation}{hedges + ' ' if hedges else ''}{term}"
    low, high = sorted(_draw_value(rng, attribute) for _ in range(2))
    if choice < _COMPARED:
        return f"{name} {rng.choice((*_BELOW, *_ABOVE))} {low}"
    if choice < 0.9:
        return f"{name} between {low} and {high}"
    return f"{name} is about {low}"


def _draw_value(rng: Random, attribute: Attribute) -> float:
    """Return a value where things happen: half of all are in the middle third."""
    share = rng.random() if rng.random() < 0.5 else (1 + rng.random()) / 3
    code = int(share * attribute.last)
    return float(f"{attribute.to_value(code):.5g}")


def _join(rng: Random, leaves: list[str]) -> str:
    if len(leaves) == 1:
        return f"not ({leaves[0]})" if rng.random() < 0.08 else leaves[0]
    if len(leaves) == 2:
        joined = f" {rng.choice(('and', 'and', 'or'))} ".join(leaves)
        return f"not ({joined})" if rng.random() < 0.08 else joined
    first, *rest = leaves
    return f"{first} {rng.choice(('and', 'or'))} ({_join(rng, rest)})"


def _draw_options(rng: Random, chosen: list[Attribute]) -> list[str]:
    options = {
        f"at least 0.{rng.randrange(2, 10)}": 0.25,
        f"certain 0.{rng.randrange(1, 10)}": 0.2,
        f"by {rng.choice(_AGGREGATORS)}": 0.1 if len(chosen) > 1 else 0,
        f"top {rng.randrange(1, 4)}": 0.15,
        f"expires after {rng.choice((20, 30, 60, 90))} s": 0.15,
        f"score 0.{rng.randrange(1, 10)}": 0.1,
        f"quiet for {rng.choice((15, 30, 60))} s": 0.07,
        f"hysteresis 0.{rng.randrange(1, 4)}": 0.05,
        f"relative band {rng.randrange(2, 20)} %": 0.05,
        f"{rng.randrange(1, 3)} of {rng.randrange(2, 5)}": 0.05,
        f"heartbeat {rng.choice((1, 5))} min": 0.05,
        f"in the last {rng.choice((30, 60))} s": 0.05,
        f"valid for {rng.choice((2, 5, 60))} min": 0.08,
        "why": 0.1,
        f"event {chosen[0].event}": 1 if all(each.name == "east" for each in chosen) else 0.05,
    }
    numbers = [each for each in chosen if each.kind is ValueKind.NUMBER]
    if numbers:
        width = float(f"{numbers[0].step * rng.randrange(2, 20):.3g}")
        options[f"dead band {width} of {numbers[0].name}"] = 0.07
    return [words for words, chance in options.items() if rng.random() < chance]


def _draw_content(rng: Random, event: str, chosen: list[Attribute]) -> dict[str, Any]:
    """Return typed content (PrefSIENA), with limits that lie between two values of a sensor."""
    triples: list[list[object]] = [["event", "=", event]]
    for attribute in chosen[: rng.choice((1, 1, 2))]:
        if attribute.kind is ValueKind.TEXT:
            triples.append([attribute.name, rng.choice(("=", "!=")), rng.choice(attribute.symbols)])
        elif attribute.kind is ValueKind.NUMBER:
            limit = _draw_value(rng, attribute) + attribute.step / 2
            triples.append([attribute.name, rng.choice((">", ">=", "<", "<=")), round(limit, 4)])
    if rng.random() < 0.1:
        triples.append(["device", "=", f"dog-{rng.randrange(2)}"])
    request: dict[str, Any] = {"content": triples}
    if rng.random() < 0.2:
        request |= {"top": rng.randrange(1, 4), "expiry": rng.choice((30, 60))}
    return request


def _draw_where(rng: Random) -> dict[str, Any]:
    """Return a condition of the plug-in's language: one or two on each side of an OR."""
    attributes = load_shipped("rescue").events["patient"].attributes
    names = ("heart_rate", "heart_rate", "patient_temperature", "triage")
    sides = []
    for _ in range(rng.choice((1, 2, 2))):
        tests = []
        for attribute in [attributes[rng.choice(names)] for _ in range(rng.choice((1, 1, 2)))]:
            if attribute.kind is ValueKind.TEXT:
                test = f"{rng.choice(('=', '!='))} '{rng.choice(attribute.symbols)}'"
            else:
                limit = round(_draw_value(rng, attribute) + attribute.step / 2, 4)
                test = f"{rng.choice(('>', '>=', '<', '<='))} {limit}"
            tests.append(f"{attribute.name} {test}")
        sides.append(" AND ".join(tests))
    return {"where": "FROM patient WHERE " + " OR ".join(sides)}


def list_alternatives(request: dict[str, Any]) -> tuple[tuple[tuple[str, str, Any], ...], ...]:
    """Return the constraints of a subscription that is not in words; one side must be met."""
    if "where" not in request:
        return (tuple((*triple,) for triple in request.get("content", ())),)
    event, _, condition = request["where"].removeprefix("FROM ").partition(" WHERE ")
    sides = [side.split(" AND ") for side in condition.split(" OR ")]
    read = [[_read_test(test) for test in side] for side in sides]
    return tuple((("event", "=", event), *tests) for tests in read)


def _read_test(test: str) -> tuple[str, str, Any]:
    name, sign, value = test.split(" ")
    return name, sign, value.strip("'") if value.startswith("'") else float(value)
