"""What a text would mean if it were sent now: its problem, or its pictures and its bytes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from denwatch.client.compiler import CompiledSubscription, compile_subscription
from denwatch.client.console.curves import Graph, draw_graph, make_device
from denwatch.client.console.meanings import Meaning, list_meanings
from denwatch.client.errors import LanguageError
from denwatch.client.language import detect_surface, parse
from denwatch.client.language.words_printer import print_words
from denwatch.client.syntax import (
    And,
    Condition,
    Not,
    Or,
    PredicateNode,
    Scalar,
    SubscriptionTree,
    iterate_predicates,
)
from denwatch.client.vector_dump import describe_bytes
from denwatch.client.vocabulary import PublisherDirectory, Vocabulary

MOST_CHARACTERS = 4_000


@dataclass(frozen=True)
class Problem:
    """What is wrong with text[start:end], and what may have been meant.

    `is_unfinished`: nothing is wrong yet, the words only end too early.
    """

    message: str
    start: int
    end: int
    hint: str = ""
    suggestions: tuple[str, ...] = ()
    is_unfinished: bool = False


@dataclass(frozen=True)
class Byte:
    """One field of the vector: its bytes in hexadecimal, its name, what it says."""

    hex: str
    field: str
    meaning: str


@dataclass(frozen=True)
class Preview:
    """A text, understood or not."""

    problem: Problem | None = None
    words: str = ""
    event: str = ""
    name: str = ""
    size: int = 0
    fields: tuple[Byte, ...] = ()
    graphs: tuple[Graph, ...] = ()
    remarks: tuple[str, ...] = ()  # what is only approximated
    answered_by: tuple[str, ...] = ()  # devices that sense all of it
    is_known: bool = field(default=False)  # whether any device is known at all

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self)


def preview(
    text: str,
    vocabulary: Vocabulary,
    organisation: str | None = None,
    directory: PublisherDirectory | None = None,
) -> Preview:
    """Return what a text means."""
    if not text.strip():
        return Preview()
    try:
        if len(text) > MOST_CHARACTERS:
            raise LanguageError(
                f"too long: {MOST_CHARACTERS} characters at most", MOST_CHARACTERS + 1
            )
        tree = parse(text)
        compiled = compile_subscription(tree, vocabulary, organisation=organisation)
        graphs = _draw(tree, compiled, vocabulary, organisation)
        words = print_words(tree)
    except LanguageError as error:
        return Preview(find_problem(error, text))
    except RecursionError:
        return Preview(find_problem(LanguageError("this is nested too deeply"), text))
    publishers = list(directory.iterate_publications()) if directory is not None else []
    answering = directory.find_publishers(compiled.vector) if directory is not None else []
    return Preview(
        None,
        words,
        compiled.event.name,
        compiled.options.name or "",
        len(compiled.data),
        tuple(
            Byte(row.data.hex(), row.field, row.meaning)
            for row in describe_bytes(compiled.data, vocabulary)
            if row.data
        ),
        tuple(graphs),
        tuple(_describe_reports(compiled)),
        tuple(sorted(set(answering))),
        bool(publishers),
    )


def find_problem(error: LanguageError, text: str) -> Problem:
    """Return an error as the place of the text to point at."""
    end = len(text.rstrip())
    at = end if error.at is None else error.at - 1
    start = max(0, min(at, max(0, end - 1)))
    stop = max(start + 1, min(at + error.length, max(end, 1)))
    if error.at is None:
        start, stop = 0, max(1, end)
    is_unfinished = error.at is not None and at >= end and detect_surface(text) == "words"
    return Problem(error.message, start, stop, error.hint, tuple(error.suggestions), is_unfinished)


def _draw(
    tree: SubscriptionTree,
    compiled: CompiledSubscription,
    vocabulary: Vocabulary,
    organisation: str | None,
) -> list[Graph]:
    event, meanings = list_meanings(tree, vocabulary, organisation)
    vector = compiled.vector
    threshold = max(vector.threshold, vector.certain) / 255
    graphs = []
    for bit in dict.fromkeys(meaning.attribute.bit for meaning in meanings):
        attribute = event.find_bit(bit)
        assert attribute is not None, "a predicate is about an attribute of its event"
        own = [meaning for meaning in meanings if meaning.attribute.bit == bit]
        predicates = [p for p in vector.predicates if p.attribute == bit]
        evaluate = make_device(predicates[0]) if len(own) == len(predicates) == 1 else None
        if evaluate is None:
            evaluate = _combine(tree.condition, meanings, bit)
        graphs.append(draw_graph(attribute, own, predicates, evaluate, threshold))
    return graphs


Degree = Callable[[float], float]


def _combine(condition: Condition, meanings: list[Meaning], bit: int) -> Degree:
    """Return what all predicates on one attribute say together."""
    own = [meaning.evaluate for meaning in meanings if meaning.attribute.bit == bit]
    if sum(1 for _ in iterate_predicates(condition)) != len(meanings):
        # A plug-in made several of one: what it joins, it joins by "or".
        return lambda code: max(evaluate(code) for evaluate in own)
    joined = _join(condition, iter(meanings), bit)
    assert joined is not None, "an attribute that is drawn has a predicate"
    return lambda code: round(255 * joined(code)) / 255  # degrees are whole numbers on the wire


def _join(condition: Condition, meanings: Iterator[Meaning], bit: int) -> Degree | None:
    """Return what several predicates on one attribute say together; None for one without any.

    `meanings` are those of the condition's predicates, in the order in which they were written.
    """
    match condition:
        case PredicateNode():
            meaning = next(meanings)
            return meaning.evaluate if meaning.attribute.bit == bit else None
        case Not(operand=operand):
            inner = _join(operand, meanings, bit)
            return None if inner is None else lambda code: 1 - inner(code)
        case And(operands=operands) | Or(operands=operands):
            found = [_join(operand, meanings, bit) for operand in operands]
            own = [function for function in found if function is not None]
            choose = min if isinstance(condition, And) else max
            return (lambda code: choose(f(code) for f in own)) if own else None


def _describe_reports(compiled: CompiledSubscription) -> Iterable[str]:
    for entry in compiled.report:
        yield str(entry)


# Changing what was asked ---------------------------------------------------------------------


@lru_cache(maxsize=512)
def find_name(text: str) -> str | None:
    """Return the name that a subscription gives itself; None if it has none, or is wrong."""
    try:
        tree = parse(text)
    except LanguageError:
        return None
    return tree.name.text if tree.name is not None else None


@lru_cache(maxsize=512)
def find_top(text: str) -> int | None:
    """Return how many a subscription wants at most; None for all."""
    try:
        tree = parse(text)
    except LanguageError:
        return None
    return int(tree.top.value) if tree.top is not None else None


def set_top(text: str, top: int | None) -> str:
    """Return a subscription, in words, that wants so many at most; None for all."""
    if top is not None and not 1 <= top <= 1_000:
        raise LanguageError(f"top {top}: a count from 1 to 1000 is expected")
    tree = parse(text)
    return print_words(replace(tree, top=None if top is None else Scalar(float(top))))


@lru_cache(maxsize=512)
def strip_name(text: str) -> str:
    """Return a subscription in words without the name that it gives itself."""
    try:
        return print_words(replace(parse(text), name=None))
    except LanguageError:
        return text


@lru_cache(maxsize=512)
def shorten(text: str, limit: int = 60) -> str:
    """Return what a subscription is about: its condition without options, cut if it is long."""
    try:
        tree = parse(text)
        words = print_words(SubscriptionTree(tree.condition))
    except LanguageError:
        words = " ".join(text.split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"
