"""`FROM patient WHERE heart_rate > 100 AND triage = 'red'`: a subscription language as a plug-in.

THEORY. A condition is a tree: "and", "or", "not" over constraints on one value each
(`denwatch.node.ranking.content` says what a constraint means). Items carry it as text, with names
as the vocabulary has them, and a matcher parses that again.

MATCH      an uncertain value may satisfy some constraints and not others. Its values fall into
           classes that satisfy the same ones; of each class only the most possible value counts.
           All combinations of classes are tried: the best that satisfies the tree is how possible
           it is, and the best that does not says how certain. Exact, since attributes do not
           interact. A reading that lacks an attribute which is named does not match.
FILTER     for each attribute the range of codes outside which the tree is false: "and" cuts ranges,
           "or" takes the span of both. Every attribute that is named is in the vector.
EXAMPLE    heart_rate > 100 OR heart_rate < 40, at 101±20: values up to 100 satisfy none, above the
           first; possible 1.0, certain 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from denwatch.client.errors import LanguageError
from denwatch.client.syntax import Name, SourceSpan
from denwatch.client.vocabulary import EventType, Vocabulary
from denwatch.node.core.languages import (
    LookedUp,
    SubscriptionLanguage,
    build_box,
    find_range,
    span_codes,
)
from denwatch.node.matching.plugins import Matcher, SubscriptionMatch
from denwatch.node.ranking.content import (
    POSSIBLE,
    Constraint,
    Content,
    ContentError,
    Op,
    PossibleValues,
)
from denwatch.protocol.errors import ProtocolError

MAX_CONSTRAINTS = 16
_OPPOSITE = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}
_TOKEN = re.compile(r"\s*(?:'(?:[^']|'')*'|-?\d+(?:\.\d+)?|[^\W\d][\w.]*|<>|[<>!]=|[<>=(),*])")
_WORDS = ("select", "from", "where", "and", "or", "not", "between", "in", "like")


@dataclass(frozen=True)
class Atom:
    """One constraint, or its opposite."""

    constraint: Constraint
    is_negated: bool = False

    def accepts(self, value: object) -> bool:
        """Return whether a value satisfies it."""
        return self.constraint.accepts(value) is not self.is_negated


@dataclass(frozen=True)
class Junction:
    """Several conditions of which all must hold, or one."""

    needs_all: bool
    parts: tuple[Atom | Junction, ...]


Condition = Atom | Junction


@dataclass(frozen=True)
class Query:
    """A subscription: a condition on one event, and the text that says the same."""

    event: str
    condition: Condition

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes that are named, `device` among them."""
        return tuple(sorted({test.constraint.name for test in list_tests(self.condition)}))

    def __str__(self) -> str:
        return f"FROM {self.event} WHERE {_write(self.condition)}"


def list_tests(condition: Condition) -> Iterator[Atom]:
    """Yield all tests of a condition."""
    if isinstance(condition, Atom):
        yield condition
    else:
        for part in condition.parts:
            yield from list_tests(part)


def _negate(condition: Condition) -> Condition:
    if isinstance(condition, Junction):
        return Junction(not condition.needs_all, tuple(map(_negate, condition.parts)))
    c = condition.constraint
    if c.op in _OPPOSITE:
        return Atom(Constraint(c.name, _OPPOSITE[c.op], c.value))
    return Atom(c, not condition.is_negated)


def _write(condition: Condition) -> str:
    if isinstance(condition, Junction):
        joined = (" AND " if condition.needs_all else " OR ").join(map(_write, condition.parts))
        return f"({joined})"
    c = condition.constraint
    word = f"NOT {c.name}" if condition.is_negated else c.name
    if c.op in _OPPOSITE:
        return f"{word} {c.op} {_quote(c.value)}"
    before, after = c.op in (Op.SUFFIX, Op.SUBSTRING), c.op in (Op.PREFIX, Op.SUBSTRING)
    return f"{word} LIKE {_quote('%' * before + str(c.value) + '%' * after)}"


def _quote(value: object) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


# Reading ---------------------------------------------------------------------------------------


class _Parser:
    """Recursive descent over the tokens of a text; every error has its column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, SourceSpan]] = []
        self.at = 0
        self.tests = 0
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                place += len(text[place:]) - len(text[place:].lstrip())
                raise LanguageError(f'"{text[place]}" is not understood here', place + 1)
            word = found[0].lstrip()
            place = found.end()
            self.tokens.append((word, SourceSpan(place - len(word), place)))

    @property
    def span(self) -> SourceSpan:
        """Where the next token stands."""
        end = len(self.text)
        return self.tokens[self.at][1] if self.at < len(self.tokens) else SourceSpan(end, end + 1)

    def peek(self) -> str:
        """Return the next token; nothing at the end."""
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        """Return the next token and go on."""
        token = self.peek()
        if not token:
            raise self.refuse("something is missing at the end")
        self.at += 1
        return token

    def skip(self, word: str) -> bool:
        """Go over a keyword or a sign, if it comes next."""
        is_next = self.peek().casefold() == word
        self.at += is_next
        return is_next

    def expect(self, word: str) -> None:
        """Go over what must come next."""
        if not self.skip(word):
            raise self.refuse(f'"{word.upper()}" is expected')

    def refuse(self, why: str) -> LanguageError:
        """Return an error at the next token."""
        return LanguageError.at_span(why, self.span)

    def take_name(self) -> Name:
        """Return a name."""
        span = self.span
        word = self.take()
        if not (word[0].isalpha() or word[0] == "_") or word.casefold() in _WORDS:
            self.at -= 1
            raise self.refuse("a name is expected")
        return Name(word, span=span)

    def take_value(self) -> float | str:
        """Return a number, or a text in quotes."""
        word = self.take()
        if word.startswith("'"):
            return word[1:-1].replace("''", "'")
        try:
            return float(word) if "." in word else int(word)
        except ValueError:
            self.at -= 1
            raise self.refuse("a number is expected, or a text in quotes") from None

    def take_condition(self, depth: int = 0) -> Condition:
        """Return alternatives, each of them several conditions."""
        parts = [self._take_all(depth)]
        while self.skip("or"):
            parts.append(self._take_all(depth))
        return parts[0] if len(parts) == 1 else Junction(False, tuple(parts))

    def _take_all(self, depth: int) -> Condition:
        parts = [self._take_one(depth)]
        while self.skip("and"):
            parts.append(self._take_one(depth))
        return parts[0] if len(parts) == 1 else Junction(True, tuple(parts))

    def _take_one(self, depth: int) -> Condition:
        if depth > MAX_CONSTRAINTS:
            raise self.refuse("this is nested too deeply")
        if self.skip("not"):
            return _negate(self._take_one(depth + 1))
        if self.skip("("):
            inner = self.take_condition(depth + 1)
            self.expect(")")
            return inner
        name = self.take_name()
        is_negated = self.skip("not")
        tests = self._take_test(name)
        return _negate(tests) if is_negated else tests

    def _take_test(self, name: Name) -> Condition:
        if self.skip("between"):
            low = self.take_value()
            self.expect("and")
            limits = [(Op.GE, low), (Op.LE, self.take_value())]
            return Junction(True, tuple(self._make(name, *limit) for limit in limits))
        if self.skip("in"):
            self.expect("(")
            values = [self.take_value()]
            while self.skip(","):
                values.append(self.take_value())
            self.expect(")")
            return Junction(False, tuple(self._make(name, Op.EQ, value) for value in values))
        if self.skip("like"):
            return self._take_pattern(name)
        span, sign = self.span, self.take()
        try:
            op = Op("!=" if sign == "<>" else sign)
        except ValueError:
            raise LanguageError.at_span(
                f'"{sign}" is not understood here: a comparison, BETWEEN, IN or LIKE', span
            ) from None
        return self._make(name, op, self.take_value())

    def _take_pattern(self, name: Name) -> Condition:
        span, pattern = self.span, self.take_value()
        text = str(pattern)
        inner = text.strip("%")
        if not isinstance(pattern, str) or "%" in inner or "_" in inner or not inner:
            raise LanguageError.at_span("LIKE takes 'x%', '%x' or '%x%'", span)
        starts, ends = text.startswith("%"), text.endswith("%")
        op = Op.SUBSTRING if starts and ends else Op.SUFFIX if starts else Op.PREFIX
        return self._make(name, op if starts or ends else Op.EQ, inner)

    def _make(self, name: Name, op: Op, value: float | str) -> Atom:
        self.tests += 1
        if self.tests > MAX_CONSTRAINTS:
            raise LanguageError.at_span(f"more than {MAX_CONSTRAINTS} comparisons", name.span)
        try:
            return Atom(Constraint(name.text, op, value))
        except ContentError as error:
            raise LanguageError.at_span(str(error), name.span) from None


def parse_query(text: str) -> tuple[Name | None, Condition, dict[str, SourceSpan]]:
    """Return event and condition of a text as they are written, and where each name stands."""
    parser = _Parser(text)
    if parser.skip("select"):
        parser.expect("*")
    event = parser.take_name() if parser.skip("from") else None
    if not parser.skip("where") and (event is not None or parser.at):
        raise parser.refuse('"WHERE" is expected')
    condition = parser.take_condition()
    if parser.peek():
        raise parser.refuse(f'"{parser.peek()}" is not understood here: AND or OR')
    places: dict[str, SourceSpan] = {}
    for word, span in parser.tokens:
        places.setdefault(word, span)
    return event, condition, places


def _rename(condition: Condition, names: dict[str, str]) -> Condition:
    if isinstance(condition, Junction):
        return Junction(
            condition.needs_all, tuple(_rename(part, names) for part in condition.parts)
        )
    c = condition.constraint
    return Atom(Constraint(names[c.name], c.op, c.value), condition.is_negated)


# Matching --------------------------------------------------------------------------------------


def rate_query(query: Query, content: Content) -> tuple[int, int]:
    """Return how possible and how certain it is that a notification fits (0..255)."""
    if content.get("event") != query.event:
        return 0, 0
    tests = list(list_tests(query.condition))
    classes = []  # for each name: [(which tests hold, how possible that is)]
    for name in query.names:
        if name not in content:
            return 0, 0
        value = content[name]
        degrees = value.degrees if isinstance(value, PossibleValues) else ((value, 255),)
        asked = [test for test in tests if test.constraint.name == name]
        best: dict[tuple[bool, ...], int] = {}
        for one, degree in degrees:
            held = tuple(test.accepts(one) for test in asked)
            best[held] = max(best.get(held, 0), degree)
        classes.append([(dict(zip(asked, held, strict=True)), pi) for held, pi in best.items()])
    best_of = {True: 0, False: 0}
    for choice in product(*classes):
        truth = {test: is_held for held, _ in choice for test, is_held in held.items()}
        is_met = _holds(query.condition, truth)
        best_of[is_met] = max(best_of[is_met], min(pi for _, pi in choice))
    return best_of[True], 255 - best_of[False]


def _holds(condition: Condition, truth: dict[Atom, bool]) -> bool:
    if isinstance(condition, Atom):
        return truth[condition]
    parts = (_holds(part, truth) for part in condition.parts)
    return all(parts) if condition.needs_all else any(parts)


class WhereMatcher:
    """All queries, asked one by one; `ContentIndex` shows how to be faster."""

    def __init__(self) -> None:
        self._queries: dict[int, Query] = {}

    def __len__(self) -> int:
        return len(self._queries)

    def add(self, id: int, subscription: Query) -> None:
        """Add a query, or replace the one with this id."""
        self._queries[id] = subscription

    def remove(self, id: int) -> None:
        """Remove a query; KeyError if there is none with this id."""
        del self._queries[id]

    def match(self, notification: Content, age: int = 0) -> list[SubscriptionMatch]:  # noqa: ARG002
        """Return the matches by rising id; a query ignores how old a notification is."""
        rated = [(id, *rate_query(query, notification)) for id, query in self._queries.items()]
        return sorted(SubscriptionMatch(*row, -1) for row in rated if row[1] >= POSSIBLE)


# Filtering at the source -----------------------------------------------------------------------

Ranges = dict[str, tuple[int, int]]


def find_ranges(query: Query, event: EventType) -> Ranges:
    """Return, for each attribute that is named, the codes outside which the condition is false."""
    whole = {name: (0, event.attributes[name].last) for name in query.names if name != "device"}
    found = _span(query.condition, event, whole)
    return whole | dict.fromkeys(whole, (1, 0)) if found is None else found


def _span(condition: Condition, event: EventType, whole: Ranges) -> Ranges | None:
    """Return the ranges of a condition; None: nothing satisfies it."""
    if isinstance(condition, Junction):
        spans = [_span(part, event, whole) for part in condition.parts]
        kept = [each for each in spans if each is not None]
        if not kept or (condition.needs_all and len(kept) < len(spans)):
            return None
        low, high = (max, min) if condition.needs_all else (min, max)
        joined = {
            name: (low(each[name][0] for each in kept), high(each[name][1] for each in kept))
            for name in whole
        }
        return None if any(first > last for first, last in joined.values()) else joined
    name = condition.constraint.name
    if name == "device":
        return whole
    attribute = event.attributes[name]
    if condition.is_negated:
        is_listed = not attribute.wide
        first, last = span_codes(attribute, condition.accepts) if is_listed else whole[name]
    else:
        first, last = find_range(attribute, [condition.constraint])
    return None if first > last else whole | {name: (first, last)}


# The plug-in -----------------------------------------------------------------------------------


class WhereLanguage(SubscriptionLanguage):
    """Conditions as in a database's WHERE."""

    id, name, key = 128, "where", "where"
    openings = ("select", "from", "where")

    def look_up(self, source: Any, vocabulary: Vocabulary) -> LookedUp:
        """Find event and attributes, by any synonym."""
        if not isinstance(source, str):
            raise LanguageError('"where" takes a text')
        said, condition, places = parse_query(source)
        words = {test.constraint.name for test in list_tests(condition)} - {"device"}
        names = [Name(word, span=places[word]) for word in sorted(words)]
        if said is not None:
            event = vocabulary.find_event(said)
        elif names:
            event = vocabulary.find_common_event(names, "write FROM and one of")
        else:
            raise LanguageError("FROM and an event are expected", 1)
        known = {name.text: vocabulary.find_attributes(name, event)[0].name for name in names}
        query = Query(event.name, _rename(condition, known | {"device": "device"}))
        return LookedUp(event, tuple(sorted(known.values())), str(query).encode(), str(query))

    def lower(self, data: bytes, vocabulary: Vocabulary) -> bytes | None:
        """Return the box around all values that can match."""
        query = self.decode(data)
        event = vocabulary.events.get(query.event)
        if event is None or set(query.names) - {*event.attributes, "device"}:
            return None
        return build_box(event, find_ranges(query, event))

    def make_matcher(self) -> Matcher[Any, Any]:
        """Return an empty matcher."""
        return WhereMatcher()

    def decode(self, data: bytes) -> Query:
        """Parse the text that an item carries."""
        try:
            event, condition, _ = parse_query(data.decode())
        except (LanguageError, UnicodeDecodeError) as error:
            raise ProtocolError(f"no query: {error}") from None
        if event is None:
            raise ProtocolError("no query: it has no event")
        return Query(event.text, condition)

    def list_attributes(self, data: bytes) -> tuple[str, ...]:
        """Return the attributes that a query names."""
        return tuple(name for name in self.decode(data).names if name != "device")


LANGUAGE = WhereLanguage()
