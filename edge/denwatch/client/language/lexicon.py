"""What the words are called: aggregators, plug-ins, moments, and which unit a number is in.

Reading (`words.py`) and printing (`phrases.py`) must agree on these, so both directions stand here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from denwatch.client.plugins import MembershipFunction, PluginRegistry, PredicateType
from denwatch.client.syntax import AGGREGATORS, Quantity, Value

# The word for "the attribute's own unit" where another number of the constraint has a unit, and
# what stands for it between reading and `share_unit`, or `spread_unit` and printing.
OWN_WORD = "units"
OWN_UNIT = "\0own"

# How XML may say a phrase of time; folded.
LASTLY = re.compile(r"(?:in )?last (few \S+)")

SHAPES = ("trapezoid", "triangle", "falling", "rising", "bell", "gaussian")

_AGGREGATOR_WORDS = {
    "min": "minimum",
    "max": "maximum",
    "mean": "arithmetic_mean",
    "average": "arithmetic_mean",
    "arithmetic average": "arithmetic_mean",
    "weighted average": "weighted_mean",
} | {name.replace("_", " "): name for name in AGGREGATORS}

_TIME = r"\d\d?:\d\d(:\d\d(\.\d+)?)?"
_MOMENT = re.compile(rf"{_TIME}|\d{{4}}-\d\d-\d\d([T ]{_TIME}(Z|[+-]\d\d:\d\d)?)?", re.ASCII)


def fold(text: str) -> str:
    """Return a phrase as it is compared: small letters, single blanks, no underscores, no "the"."""
    words = text.replace("_", " ").casefold().split()
    return " ".join(word for word in words if word != "the")


def find_aggregator(said: str, registry: PluginRegistry) -> str:
    """Return the name of an aggregator as it is said, or what was said if nobody knows it."""
    folded = fold(said)
    if folded in _AGGREGATOR_WORDS:
        return _AGGREGATOR_WORDS[folded]
    for aggregator in registry.aggregators.values():
        if folded in (fold(aggregator.name), *map(fold, aggregator.words)):
            return aggregator.name
    return said


def say_aggregator(name: str, registry: PluginRegistry) -> str | None:
    """Return how an aggregator is said, or None if only quotes keep its name."""
    words = registry.aggregators[name].words if name in registry.aggregators else ()
    for said in (name.replace("_", " "), *words):
        if find_aggregator(said, registry) == name:
            return said
    return None


def find_extension_by_word(
    word: str, registry: PluginRegistry
) -> tuple[bool, PredicateType | MembershipFunction]:
    """Return whether a plug-in's word is a shape's, and what it stands for."""
    folded = fold(word)
    kinds: tuple[Mapping[str, PredicateType | MembershipFunction], ...] = (
        registry.predicates,
        registry.shapes,
    )
    for shape, known in enumerate(kinds):
        for extension in known.values():
            if folded in map(fold, extension.words):
                return bool(shape), extension
    raise KeyError(word)  # the lexer knows only words of the registry


def find_call(said: str, registry: PluginRegistry) -> tuple[bool, str]:
    """Return whether `said(...)` is a shape, and its name; a word of a plug-in may stand for it."""
    if said in registry.predicates:
        return False, said
    if said in registry.shapes or fold(said) in SHAPES:
        return True, said if said in registry.shapes else fold(said)
    try:
        shape, extension = find_extension_by_word(said, registry)
    except KeyError:
        return True, said  # the compiler will say that there is no such shape
    return shape, extension.name


def complete_moment(text: str) -> str:
    """Return a moment as ISO 8601 writes it: "9:30" is "09:30", a blank is a T."""
    return re.sub(r"(^|T)(\d:)", r"\g<1>0\2", text.replace(" ", "T"))


def is_moment(text: str) -> bool:
    """Return whether a text is a date, a time of day, or both, as ISO 8601 writes it."""
    return _MOMENT.fullmatch(text) is not None and complete_moment(text) == text


def share_unit(values: Sequence[Value]) -> list[Value]:
    """Return values as read: one without a unit takes that of the next one, else the last one.

    "Between 100 and 104 °F" means °F twice. OWN_UNIT says that the attribute's own is meant.
    """
    shared = list(values)
    units = [value.unit if isinstance(value, Quantity) else None for value in values]
    for place, value in enumerate(values):
        if not isinstance(value, Quantity):
            continue
        around = (value.unit, *units[place + 1 :], *reversed(units[:place]))
        unit = next((unit for unit in around if unit is not None), None)
        shared[place] = replace(value, unit=None if unit == OWN_UNIT else unit)
    return shared


def spread_unit(values: Sequence[Value]) -> list[Value]:
    """Return values as they are printed, so that `share_unit` reads them back.

    The same unit everywhere is written once, at the end.
    """
    places = [place for place, value in enumerate(values) if isinstance(value, Quantity)]
    units = {value.unit for value in values if isinstance(value, Quantity)}
    printed = list(values)
    for place in places:
        value = values[place]
        assert isinstance(value, Quantity)
        if len(units) == 1 and place != places[-1]:
            printed[place] = replace(value, unit=None)
        elif len(units) > 1 and value.unit is None:
            printed[place] = replace(value, unit=OWN_UNIT)
    return printed
