"""Words to syntax tree: `parse_words("patient_temperature is very high, at least 0.7")`.

The grammar is words.lark. This file turns its parse tree into `client.syntax` and decides what a
grammar cannot: which attribute a bare "or very high" is about, which numbers a unit written once is
meant for, and that an option stands only once. `words_printer.py` is the way back,
`parse_errors.py` explains what cannot be parsed.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

from denwatch.client import syntax
from denwatch.client.errors import LanguageError
from denwatch.client.language import lexicon
from denwatch.client.language.grammar import load_parser
from denwatch.client.language.parse_errors import check_brackets, explain_failure, find_slip
from denwatch.client.plugins import PluginRegistry, load_registry
from denwatch.client.syntax import SourceSpan
from lark import Token, Tree
from lark.exceptions import UnexpectedInput

MAX_CHARACTERS = 8192
MAX_DEPTH = 48

_NESTING = ("start", "either", "both", "group", "contrary")
_MANY = ("prefer", "dead_bands", "rules")
# Fields of a subscription that are not called as the token that begins them.
_FIELDS = {"EXPIRES_AFTER": "expiry", "QUIET_FOR": "quiet", "NAMED": "name"}
_Option = tuple[str, Any, SourceSpan]  # the field of the subscription, its value, its place


def parse_words(text: str, registry: PluginRegistry | None = None) -> syntax.SubscriptionTree:
    """Return the subscription that the words say; LanguageError points at what is wrong."""
    lexicon.check_length(text, MAX_CHARACTERS)
    registry = registry or load_registry()
    check_brackets(text)
    try:
        tree = load_parser(registry).parse(text)
    except UnexpectedInput as error:
        raise explain_failure(error, text) from None
    found: syntax.SubscriptionTree = _TreeReader(text, registry).read(tree, -1)
    return found


class _TreeReader:
    """Reads a parse tree from the leaves up, in the order of the text.

    There is a method `read_…` for each rule of the grammar. It takes the place of the rule and what
    the parts of the rule were read as; tokens are left as they are.
    """

    def __init__(self, text: str, registry: PluginRegistry) -> None:
        self.text = text
        self.registry = registry
        self.last: syntax.Name | None = None  # the attribute that a bare constraint is about
        self.last_bare: syntax.PredicateNode | None = None
        self.names: dict[str, syntax.Name] = {}  # of all attributes
        self.restrictors: list[
            _Option
        ] = []  # of all predicates, and whether one ends the condition
        self.is_last = False

    def read(self, tree: Tree[Token], depth: int) -> Any:
        span = SourceSpan(tree.meta.start_pos, tree.meta.end_pos)
        if depth > MAX_DEPTH:
            raise LanguageError.at_span(f"nested more than {MAX_DEPTH} deep", span)
        depth += tree.data in _NESTING
        parts = [self.read(p, depth) if isinstance(p, Tree) else p for p in tree.children]
        return getattr(self, f"read_{tree.data}")(span, *parts)

    def read_start(
        self, span: SourceSpan, condition: syntax.Condition, *options: _Option
    ) -> syntax.SubscriptionTree:
        fields: dict[str, Any] = {}
        seen: set[str] = set()
        if self.is_last and len(self.restrictors) == 1:  # "a and b in the last minute": of both
            condition = _strip_last(condition)
            options = (self.restrictors[0], *options)
        for field, value, place in options:
            if field in _MANY:
                fields[field] = fields.get(field, ()) + value
                continue
            if field in seen:
                said = "at least" if field == "threshold" else field.replace("_", " ")
                raise LanguageError.at_span(f'"{said}" is given twice', place)
            seen.add(field)
            if field in ("threshold", "possible"):  # both must hold, so the higher one does
                both = (fields.get("possible", value), value)
                fields["possible"] = max(both, key=lambda scalar: scalar.value)
            else:
                fields[field] = value
        return syntax.SubscriptionTree(condition, **fields, span=span)

    # Conditions ------------------------------------------------------------------------------

    def read_either(self, span: SourceSpan, *operands: syntax.Condition) -> syntax.Or:
        return syntax.Or(operands, span=span)

    def read_both(self, span: SourceSpan, *operands: syntax.Condition) -> syntax.And:
        return syntax.And(operands, span=span)

    def read_group(self, _: SourceSpan, condition: syntax.Condition) -> syntax.Condition:
        self.last_bare = None
        self.is_last = False
        return condition

    def read_contrary(self, span: SourceSpan, operand: syntax.Condition) -> syntax.Condition:
        if isinstance(operand, syntax.PredicateNode) and operand is self.last_bare:
            return replace(operand, negated=True, span=span)
        return syntax.Not(operand, span=span)

    def read_affirmed(
        self, span: SourceSpan, name: syntax.Name, *parts: Any, negated: bool = False
    ) -> syntax.PredicateNode:
        self.last = self.names[name.text.casefold()] = name
        return self.read_predicate(span, parts, negated)

    def read_denied(self, span: SourceSpan, *parts: Any) -> syntax.PredicateNode:
        return self.read_affirmed(span, *parts, negated=True)

    def read_bare(self, span: SourceSpan, *parts: Any) -> syntax.PredicateNode:
        self.last_bare = self.read_predicate(span, parts, False)
        return self.last_bare

    def read_bare_denied(self, span: SourceSpan, *parts: Any) -> syntax.PredicateNode:
        return self.read_predicate(span, parts, True)

    def read_predicate(
        self, span: SourceSpan, parts: tuple[Any, ...], negated: bool
    ) -> syntax.PredicateNode:
        """Read hedges, a constraint and qualifiers; they are about the attribute named last."""
        if self.last is None:
            raise self.ask_attribute(span)
        hedges = tuple(part for part in parts if isinstance(part, syntax.Hedge))
        constraint, *qualifiers = parts[len(hedges) :]
        limits: dict[str, Any] = {}
        for keyword, value, place in qualifiers:
            if keyword in limits:
                raise LanguageError.at_span(f'"{keyword}" is given twice', place)
            limits[keyword] = value
        self.is_last = "recent" in limits
        self.restrictors += [one for one in qualifiers if one[0] == "recent"]
        return syntax.PredicateNode(self.last, constraint, negated, hedges, **limits, span=span)

    def ask_attribute(self, span: SourceSpan) -> LanguageError:
        """Return the error of a constraint that no attribute stands before."""
        slip = find_slip(self.text, span.end)
        return slip or LanguageError.at_span(
            "which attribute?",
            span,
            'it stands first: "heart_rate is high", "heart_rate above 120"',
        )

    def read_hedge(self, _: SourceSpan, word: Token) -> syntax.Hedge:
        return syntax.Hedge[word.type]

    def read_qualifier(self, span: SourceSpan, word: Token, scalar: syntax.Scalar) -> _Option:
        return word.type.lower(), scalar, span

    def read_restrictor(self, _: SourceSpan, restrictor: _Option) -> _Option:
        return restrictor

    # Constraints: a unit written once is meant for all values of one -------------------------

    def read_term(self, span: SourceSpan, name: syntax.Name) -> syntax.NamedTerm:
        return syntax.NamedTerm(name, span=span)

    def read_equal(self, span: SourceSpan, value: syntax.Value) -> syntax.CrispComparison:
        return syntax.CrispComparison(
            syntax.Operator.EQUAL, *lexicon.share_unit([value]), span=span
        )

    def read_comparison(
        self, span: SourceSpan, word: Token, value: syntax.Value
    ) -> syntax.CrispComparison:
        operator = syntax.Operator["GREATER" if word.type == "OVER" else word.type]
        return syntax.CrispComparison(operator, *lexicon.share_unit([value]), span=span)

    def read_range(self, span: SourceSpan, *parts: syntax.Value | Token) -> syntax.CrispRange:
        return syntax.CrispRange(*_take_values(parts), span=span)

    def read_about(self, span: SourceSpan, *parts: syntax.Value | Token) -> syntax.About:
        return syntax.About(*_take_values(parts), span=span)

    def read_call(
        self, span: SourceSpan, head: Token | syntax.Name, *values: syntax.Value
    ) -> syntax.Shape | syntax.Extension:
        said = head.text if isinstance(head, syntax.Name) else str(head)
        is_shape, called = lexicon.find_call(said, self.registry)
        kind = syntax.Shape if is_shape else syntax.Extension
        return kind(called, tuple(lexicon.share_unit(values)), span=span)

    def read_extension(
        self, span: SourceSpan, head: Token, *arguments: tuple[str, syntax.Value, SourceSpan]
    ) -> syntax.Shape | syntax.Extension:
        """Read a plug-in's constraint: its words, then arguments after their words."""
        is_shape, extension = lexicon.find_extension_by_word(head, self.registry)
        for place, (word, _, where) in enumerate(arguments):
            declared = extension.parameters[place] if place < len(extension.parameters) else None
            if declared is None or word != declared.word.casefold():
                hint = "one argument too many"
                if declared:
                    wanted = f'"{declared.word}"' if declared.word else "no word"
                    hint = f"{wanted} is expected before this argument"
                raise LanguageError.at_span(
                    f'"{extension.name}" does not accept this argument', where, hint
                )
        values = lexicon.share_unit([value for _, value, _ in arguments])
        kind = syntax.Shape if is_shape else syntax.Extension
        return kind(extension.name, tuple(values), span=span)

    def read_argument(self, span: SourceSpan, *parts: Any) -> tuple[str, syntax.Value, SourceSpan]:
        *words, value = parts
        return (words[0] if words else ""), value, span

    def read_parameter(self, _: SourceSpan, word: Token) -> str:
        return " ".join(word.casefold().split())

    # Options: each returns the field of the subscription that it sets, and its value ----------

    def read_threshold(self, span: SourceSpan, _: Token, scalar: syntax.Scalar) -> _Option:
        return "threshold", scalar, span

    def read_number(self, span: SourceSpan, word: Token, value: Any) -> _Option:
        return _FIELDS.get(word.type, word.type.lower()), value, span

    read_naming = read_number

    def read_duration(self, span: SourceSpan, word: Token, time: syntax.Quantity) -> _Option:
        return self.read_number(span, word, _settle_unit(time))

    def read_aggregator(self, span: SourceSpan, *parts: Any) -> _Option:
        _, said, *rest = parts
        quoted = self.text.startswith('"', said.span.start)
        name = said.text if quoted else lexicon.find_aggregator(said.text, self.registry)
        arguments = tuple(_settle_unit(part) for part in rest if not isinstance(part, str))
        return "aggregator", syntax.Aggregator(name, arguments, span=span), span

    def read_prefer(self, span: SourceSpan, *parts: Any) -> _Option:
        pairs = pairwise(part for part in parts if isinstance(part, syntax.Name))
        found = tuple(syntax.Prefer(better, worse, span=span) for better, worse in pairs)
        return "prefer", found, span

    def read_dead_band(self, span: SourceSpan, width: syntax.Quantity, *of: Any) -> _Option:
        if not of and len(self.names) > 1:
            names = [name.text for name in self.names.values()]
            raise LanguageError.at_span(
                "the dead band of which attribute?", span, f'add "of {names[0]}"', names
            )
        name = of[1] if of else next(iter(self.names.values()))
        return "dead_bands", (syntax.DeadBand(name, _settle_unit(width), span=span),), span

    def read_persistence(self, span: SourceSpan, hits: Token, _: Token, window: Token) -> _Option:
        pair = _read_number(hits), _read_number(window)
        return "persistence", syntax.Persistence(*pair, span=span), span

    def read_rule(
        self, span: SourceSpan, i: Token, j: Token, constant: syntax.Scalar, *slopes: syntax.Scalar
    ) -> _Option:
        places = [_read_number(token) for token in (i, j)]
        for place in places:
            if place.value != int(place.value) or place.value < 1:
                raise LanguageError.at_node("predicates are counted from 1", place)
        first, second = (int(place.value) for place in places)
        pair = (slopes[0], slopes[1]) if slopes else None
        return "rules", (syntax.SugenoRule(first, second, constant, pair, span=span),), span

    def read_why(self, span: SourceSpan) -> _Option:
        return "why", True, span

    def read_whole(self, span: SourceSpan) -> _Option:
        return "whole", True, span

    def read_phrase(self, span: SourceSpan, _: Token, *quoted: Token) -> _Option:
        phrase = _unquote(quoted[0]) if quoted else "recent"
        return "recent", syntax.Recent(phrase, span=span), span

    def read_few(self, span: SourceSpan, unit: Token) -> _Option:
        return "recent", syntax.Recent(f"few {unit.casefold()}", span=span), span

    def read_lately(self, span: SourceSpan, *durations: syntax.Quantity) -> _Option:
        return "recent", syntax.Recent(None, *map(_settle_unit, durations), span=span), span

    # Names and values ------------------------------------------------------------------------

    def read_name(self, span: SourceSpan, *words: Token) -> syntax.Name:
        quoted = words[0].type == "STRING"
        return syntax.Name(_unquote(words[0]) if quoted else " ".join(words), span=span)

    def read_text(self, span: SourceSpan, name: syntax.Name) -> syntax.Text:
        return syntax.Text(name.text, span=span)

    def read_moment(self, span: SourceSpan, moment: Token) -> syntax.Moment:
        return syntax.Moment(lexicon.complete_moment(moment), span=span)

    def read_quantity(
        self, span: SourceSpan, number: Token, unit: str | None = None
    ) -> syntax.Quantity:
        """Read a number with its unit; OWN_UNIT is left for `share_unit`."""
        return syntax.Quantity(_read_number(number).value, unit, span=span)

    def read_unit(self, _: SourceSpan, unit: Token) -> str:
        if unit.type == "STRING":
            return _unquote(unit)
        return lexicon.OWN_UNIT if unit == lexicon.OWN_WORD else str(unit)

    def read_scalar(self, span: SourceSpan, number: Token, *percent: Token) -> syntax.Scalar:
        scalar = _read_number(number)
        return syntax.Scalar(scalar.value / 100, span=span) if percent else scalar

    def read_signed(self, _: SourceSpan, number: Token) -> syntax.Scalar:
        return _read_number(number)


def _strip_last(condition: syntax.Condition) -> syntax.Condition:
    """Return a condition whose last predicate has no temporal restrictor."""
    match condition:
        case syntax.PredicateNode():
            return replace(condition, recent=None)
        case syntax.Not(operand=operand):
            return replace(condition, operand=_strip_last(operand))
        case syntax.And(operands=operands) | syntax.Or(operands=operands):
            return replace(condition, operands=(*operands[:-1], _strip_last(operands[-1])))


def _take_values(parts: tuple[syntax.Value | Token, ...]) -> list[Any]:
    """Return the values among the parts of a rule, with the unit that they share."""
    return lexicon.share_unit([part for part in parts if not isinstance(part, Token)])


def _settle_unit(quantity: syntax.Quantity) -> syntax.Quantity:
    """Return a quantity that shares its unit with no other."""
    return replace(quantity, unit=None) if quantity.unit == lexicon.OWN_UNIT else quantity


def _find_span(token: Token) -> SourceSpan:
    assert token.start_pos is not None
    assert token.end_pos is not None
    return SourceSpan(token.start_pos, token.end_pos)


def _read_number(token: Token) -> syntax.Scalar:
    number = float(token)
    if math.isinf(number):
        raise LanguageError.at_span("this number is too large", _find_span(token))
    return syntax.Scalar(number, span=_find_span(token))


def _unquote(token: Token) -> str:
    """Return what stands in double quotes, with JSON's escapes."""
    try:
        text: str = json.JSONDecoder(strict=False).decode(token)
    except json.JSONDecodeError as error:
        raise LanguageError.at_span(f"in quotes: {error.msg}", _find_span(token)) from None
    return text
