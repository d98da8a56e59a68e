"""What a text would mean as a subscription: its error, or its pictures and its bytes. Pure.

`PredicateMeaning` is one predicate as a function of a value, for pictures and for reasons. It is
the predicate as it was written, before it is fitted to the vector: that is what people meant, and
the vector differs by two hundredths at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from denwatch.client import syntax
from denwatch.client.compiler import CompiledSubscription, compile_subscription
from denwatch.client.compiler.compiler import Lowerer, lower_aggregator, resolve_event
from denwatch.client.compiler.constraints import ConstraintReader, FuzzySet
from denwatch.client.compiler.fit import Draft
from denwatch.client.console.drawing import MembershipGraph, draw_graph, make_device
from denwatch.client.errors import LanguageError
from denwatch.client.language import detect_surface, parse
from denwatch.client.language.stories import StoryTree, is_story, parse_story, print_story
from denwatch.client.language.understanding import understand, understand_story
from denwatch.client.language.words_printer import print_condition, print_words
from denwatch.client.plugins import load_registry
from denwatch.client.vector_dump import describe_bytes
from denwatch.client.vocabulary import Attribute, EventType, ValueKind, Vocabulary
from denwatch.client.vocabulary.attributes import parse_moment
from denwatch.client.vocabulary.fitting import find_power
from denwatch.protocol.degrees import fuzzify, hedge

if TYPE_CHECKING:
    from denwatch.client.console.status_monitor import Announcement


@dataclass(frozen=True)
class PredicateMeaning:
    """One predicate: its attribute, its words, and the degree (0..1) of a code."""

    attribute: Attribute
    words: str
    evaluate: Callable[[float], float]


def list_meanings(
    tree: syntax.SubscriptionTree, vocabulary: Vocabulary
) -> tuple[EventType, list[PredicateMeaning]]:
    """Return the event of a subscription and its predicates; LanguageError if it is wrong."""
    registry = load_registry()
    event = resolve_event(tree, vocabulary)
    lowerer = Lowerer(ConstraintReader(vocabulary, registry), event)
    lowerer.lower(lower_aggregator(tree, registry).condition)
    return event, [_build(draft) for draft in lowerer.drafts]


def _build(draft: Draft) -> PredicateMeaning:
    attribute, meaning = draft.attribute, draft.meaning
    if isinstance(meaning, FuzzySet):
        membership = meaning.membership.hedged(draft.extra_power * find_power(draft.hedge))

        def measure(code: float) -> float:
            return membership.evaluate(attribute.to_value(code))
    else:
        t = meaning.triple

        def measure(code: float) -> float:
            degree = fuzzify(round(code), t.low, t.high, t.left, t.right, attribute.wide)
            return hedge(degree, draft.hedge) / 255

    evaluate = (lambda code: 1 - measure(code)) if draft.negated else measure
    return PredicateMeaning(attribute, print_condition(draft.source), evaluate)


@dataclass(frozen=True)
class Codes:
    """The values that a reading may have, as codes: from `low` to `high`, most likely `peak`."""

    low: float
    peak: float
    high: float


def read_codes(attribute: Attribute, value: object) -> Codes | None:
    """Return a delivered value as codes; None if it is not a value."""
    if not isinstance(value, Mapping):
        return None
    if attribute.kind is ValueKind.TEXT:
        among = value.get("among") or [value.get("value")]
        known = dict(zip(attribute.symbols, attribute.symbol_codes, strict=True))
        codes = [known[symbol] for symbol in among if symbol in known]
        return Codes(min(codes), codes[0], max(codes)) if codes else None
    numbers = []
    for key in ("low", "value", "high"):
        number = _read_number(attribute, value.get(key, value.get("value")))
        if number is None:
            return None
        numbers.append(min(max(attribute.to_position(number), 0.0), float(attribute.last)))
    return Codes(*numbers)


def _read_number(attribute: Attribute, value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return parse_moment(value, attribute.kind)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None


def find_range(meaning: PredicateMeaning, codes: Codes) -> tuple[float, float]:
    """Return how certainly and how possibly a value matches, 0..1: necessity and possibility.

    As the node computes it, but for a triangle: a reading in doubt is delivered as one.
    """
    if codes.high <= codes.low:
        degree = meaning.evaluate(codes.peak)
        return degree, degree
    steps = 64
    points = [codes.low + (codes.high - codes.low) * step / steps for step in range(steps + 1)]
    possible = certain = meaning.evaluate(codes.peak)
    for code in points:
        degree, likely = meaning.evaluate(code), _find_likelihood(codes, code)
        possible = max(possible, min(degree, likely))
        certain = min(certain, max(degree, 1 - likely))
    return certain, possible


def _find_likelihood(codes: Codes, code: float) -> float:
    end = codes.low if code < codes.peak else codes.high
    return 1.0 if end == codes.peak else max(0.0, (code - end) / (codes.peak - end))


# The preview ---------------------------------------------------------------------------------

MOST_CHARACTERS = 4_000


@dataclass(frozen=True)
class TextProblem:
    """An error at text[start:end], and what may have been meant.

    `is_unfinished`: nothing is wrong yet, the text only ends too early.
    """

    message: str
    start: int
    end: int
    hint: str = ""
    suggestions: tuple[str, ...] = ()
    is_unfinished: bool = False
    hints: tuple[str, ...] = ()  # whole sentences that compile
    is_question: bool = False  # several meanings fit


@dataclass(frozen=True)
class ByteField:
    """One field of the vector: its bytes in hexadecimal, its name, its meaning."""

    hex: str
    field: str
    meaning: str


@dataclass(frozen=True)
class Preview:
    """A text as a subscription, valid or not."""

    problem: TextProblem | None = None
    words: str = ""
    event: str = ""
    name: str = ""
    size: int = 0
    fields: tuple[ByteField, ...] = ()
    graphs: tuple[MembershipGraph, ...] = ()
    remarks: tuple[str, ...] = ()  # what words were taken for, what the vector only approximates
    answered_by: tuple[str, ...] = ()  # devices that sense all its attributes
    is_known: bool = False  # whether any device is known at all
    is_narrowed: bool = False  # by what devices sense, where words mean several things


def preview(
    text: str,
    vocabulary: Vocabulary,
    announcements: Iterable[Announcement] = (),
    language: str | None = None,
) -> Preview:
    """Return what a text means, and which of the announced devices can answer it.

    `language` is the human language that is tried first, and that replies are in. Where words mean
    several things, those that known devices sense are meant, as at a node.
    """
    if not text.strip():
        return Preview()
    announcements = tuple(announcements)
    found = _look(text, vocabulary, announcements, language)
    sensed = frozenset(f"{one.event}.{name}" for one in announcements for name in one.attributes)
    if found.problem is None or not found.problem.is_question or not sensed:
        return found
    near = _look(text, vocabulary.surround(sensed), announcements, language)
    return found if near.problem is not None else replace(near, is_narrowed=True)


def _look(
    text: str,
    vocabulary: Vocabulary,
    announcements: tuple[Announcement, ...],
    language: str | None,
) -> Preview:
    try:
        if len(text) > MOST_CHARACTERS:
            raise LanguageError(
                f"too long: {MOST_CHARACTERS} characters at most", MOST_CHARACTERS + 1
            )
        if is_story(text):
            return _preview_story(text, vocabulary, announcements, language)
        found = understand(text, vocabulary, language=language)
        tree, compiled = found.tree, found.compiled
        graphs = _draw(tree, compiled, vocabulary)
        words = print_words(tree)
    except LanguageError as error:
        return Preview(find_problem(error, text))
    except RecursionError:
        return Preview(find_problem(LanguageError("this is nested too deeply"), text))
    needed = {compiled.event.by_bit[p.attribute].name for p in compiled.vector.predicates}
    present = _list_present(announcements, vocabulary)
    return Preview(
        None,
        words,
        compiled.event.name,
        compiled.options.name or "",
        len(compiled.data),
        tuple(
            ByteField(row.data.hex(), row.field, row.meaning)
            for row in describe_bytes(compiled.data, vocabulary)
            if row.data
        ),
        tuple(graphs),
        (*found.notes, *map(str, compiled.report)),
        tuple(sorted(_list_able(present, compiled.event.name, needed))),
        bool(present),
    )


def _list_present(
    announcements: Iterable[Announcement], vocabulary: Vocabulary
) -> list[Announcement]:
    return [one for one in announcements if one.is_present and one.event in vocabulary.events]


def _list_able(present: list[Announcement], event: str, needed: set[str]) -> set[str]:
    """Return the devices that sense some attributes of an event."""
    own = (one for one in present if one.event == event)
    return {one.device for one in own if needed <= set(one.attributes)}


def _preview_story(
    text: str,
    vocabulary: Vocabulary,
    announcements: tuple[Announcement, ...],
    language: str | None,
) -> Preview:
    """Return what a story means: each part as what sensors get for it."""
    found = understand_story(text, vocabulary, language=language)
    story, tree = found.compiled.story, found.tree
    present = _list_present(announcements, vocabulary)
    graphs: list[MembershipGraph] = []
    fields: list[ByteField] = []
    able: set[str] = set()
    for place, (part, data) in enumerate(zip(tree.parts, story.parts, strict=True), 1):
        compiled = compile_subscription(part, vocabulary)
        graphs += _draw(part, compiled, vocabulary)
        fields.append(ByteField(data.hex(), f"part {place}", print_words(part)))
    for event, names in found.compiled.asks:
        able |= _list_able(present, event.name, set(names))
    return Preview(
        None,
        found.words,
        found.compiled.asks[0][0].name,
        tree.name.text if tree.name is not None else "",
        sum(map(len, story.parts)),
        tuple(fields),
        tuple(graphs),
        (*found.notes, *found.compiled.notes),
        tuple(sorted(able)),
        bool(present),
    )


def find_problem(error: LanguageError, text: str) -> TextProblem:
    """Return an error with the part of the text to underline."""
    end = len(text.rstrip())
    at = end if error.at is None else error.at - 1
    start = max(0, min(at, max(0, end - 1)))
    stop = max(start + 1, min(at + error.length, max(end, 1)))
    if error.at is None:
        start, stop = 0, max(1, end)
    is_unfinished = error.at is not None and at >= end and detect_surface(text) == "words"
    return TextProblem(
        error.message,
        start,
        stop,
        error.hint,
        tuple(error.suggestions),
        is_unfinished,
        error.hints,
        error.is_question,
    )


def _draw(
    tree: syntax.SubscriptionTree, compiled: CompiledSubscription, vocabulary: Vocabulary
) -> list[MembershipGraph]:
    event, meanings = list_meanings(tree, vocabulary)
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


def _combine(condition: syntax.Condition, meanings: list[PredicateMeaning], bit: int) -> Degree:
    """Return the degree of all predicates on one attribute together."""
    own = [meaning.evaluate for meaning in meanings if meaning.attribute.bit == bit]
    if sum(1 for _ in syntax.iterate_predicates(condition)) != len(meanings):
        # A plug-in made several of one: what it joins, it joins by "or".
        return lambda code: max(evaluate(code) for evaluate in own)
    joined = _join(condition, iter(meanings), bit)
    assert joined is not None, "an attribute that is drawn has a predicate"
    return lambda code: round(255 * joined(code)) / 255  # degrees are whole numbers on the wire


def _join(
    condition: syntax.Condition, meanings: Iterator[PredicateMeaning], bit: int
) -> Degree | None:
    """Return the degree of several predicates on one attribute together; None without any.

    `meanings` are those of the condition's predicates, in the order in which they were written.
    """
    match condition:
        case syntax.PredicateNode():
            meaning = next(meanings)
            return meaning.evaluate if meaning.attribute.bit == bit else None
        case syntax.Not(operand=operand):
            inner = _join(operand, meanings, bit)
            return None if inner is None else lambda code: 1 - inner(code)
        case syntax.And(operands=operands) | syntax.Or(operands=operands):
            found = [_join(operand, meanings, bit) for operand in operands]
            own = [function for function in found if function is not None]
            choose = min if isinstance(condition, syntax.And) else max
            return (lambda code: choose(f(code) for f in own)) if own else None


# Reading and changing subscriptions ----------------------------------------------------------


@lru_cache(maxsize=512)
def _parse(text: str) -> syntax.SubscriptionTree | StoryTree | None:
    """Return a subscription or a story; None if its text is not valid."""
    try:
        return parse_story(text) if is_story(text) else parse(text)
    except LanguageError:
        return None


def _print(tree: syntax.SubscriptionTree | StoryTree) -> str:
    return print_story(tree) if isinstance(tree, StoryTree) else print_words(tree)


def find_name(text: str) -> str | None:
    """Return the name in a subscription's text; None if it has none, or is not valid."""
    tree = _parse(text)
    return tree.name.text if tree is not None and tree.name is not None else None


def find_top(text: str) -> int | None:
    """Return the top k of a subscription's text; None for all."""
    tree = _parse(text)
    return int(tree.top.value) if tree is not None and tree.top is not None else None


def set_top(text: str, top: int | None) -> str:
    """Return a subscription, in words, with another top k; None for all."""
    if top is not None and not 1 <= top <= 1_000:
        raise LanguageError(f"top {top}: a count from 1 to 1000 is expected")
    tree = parse_story(text) if is_story(text) else parse(text)
    return _print(replace(tree, top=None if top is None else syntax.Scalar(float(top))))


def strip_name(text: str) -> str:
    """Return a subscription in words without its name."""
    tree = _parse(text)
    return text if tree is None else _print(replace(tree, name=None))


def shorten(text: str, limit: int = 60) -> str:
    """Return a subscription's condition without options, cut if it is long."""
    tree = _parse(text)
    if isinstance(tree, StoryTree):
        words = print_story(StoryTree(tree.kind, tree.parts, tree.windows, count=tree.count))
    else:
        words = " ".join(text.split()) if tree is None else print_condition(tree.condition)
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"
