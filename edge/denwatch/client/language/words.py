"""Words to syntax tree: `parse_words("patient_temperature is very high, at least 0.7")`.

The grammar is words.lark. This file turns its parse tree into `client.syntax` and decides what a
grammar cannot: which attribute a bare "or very high" is about, which numbers a unit written once is
meant for, and that an option stands only once. `words_printer.py` is the way back,
`parse_errors.py` explains what cannot be parsed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from denwatch.client import syntax
from denwatch.client.errors import LanguageError
from denwatch.client.language.grammar import load_parser
from denwatch.client.language.lexicon import (
    OWN_UNIT,
    OWN_WORD,
    complete_moment,
    find_aggregator,
    find_call,
    find_extension_by_word,
    share_unit,
)
from denwatch.client.language.parse_errors import check_brackets, explain_failure, find_slip
from denwatch.client.plugins import MembershipFunction, PluginRegistry, PredicateType, load_registry
from lark import Token, Tree
from lark.exceptions import UnexpectedInput

MAX_CHARACTERS = 8192
MAX_DEPTH = 48

_OPERATORS = {
    "EQUAL": syntax.Operator.EQUAL,
    "UNEQUAL": syntax.Operator.UNEQUAL,
    "LESS": syntax.Operator.LESS,
    "AT_MOST": syntax.Operator.AT_MOST,
    "GREATER": syntax.Operator.GREATER,
    "OVER": syntax.Operator.GREATER,
    "AT_LEAST": syntax.Operator.AT_LEAST,
}
_NUMBERS = {
    "POSSIBLE": "possible",
    "CERTAIN": "certain",
    "TOP": "top",
    "SCORE": "score",
    "RELATIVE_BAND": "relative_band",
    "HYSTERESIS": "hysteresis",
}
_DURATIONS = {
    "VALID_FOR": "valid_for",
    "EXPIRES_AFTER": "expiry",
    "HEARTBEAT": "heartbeat",
    "QUIET_FOR": "quiet",
}
_MANY = ("prefer", "dead_bands", "rules")


def parse_words(text: str, registry: PluginRegistry | None = None) -> syntax.SubscriptionTree:
    """Return the subscription that the words say; LanguageError points at what is wrong."""
    if len(text) > MAX_CHARACTERS:
        message = f"{len(text)} characters, {MAX_CHARACTERS} is the limit"
        raise LanguageError(message, MAX_CHARACTERS + 1)
    registry = registry or load_registry()
    check_brackets(text)
    try:
        tree = load_parser(registry).parse(text)
    except UnexpectedInput as error:
        raise explain_failure(error, text) from None
    return _TreeReader(text, registry).read(tree)


class _TreeReader:
    """Walks one parse tree, in the order of the text."""

    def __init__(self, text: str, registry: PluginRegistry) -> None:
        self.text = text
        self.registry = registry
        self.last: syntax.Name | None = None  # the attribute that a bare constraint is about

    def read(self, tree: Tree[Token]) -> syntax.SubscriptionTree:
        condition_tree, *option_trees = tree.children
        condition = self.read_condition(as_tree(condition_tree), 0)
        fields: dict[str, Any] = {}
        spans: dict[str, syntax.SourceSpan] = {}
        thresholds: list[syntax.Scalar] = []
        for child in option_trees:
            option = as_tree(child)
            field, value = self.read_option(option, condition)
            if field in _MANY:
                fields[field] = fields.get(field, ()) + value
            elif field in spans:
                raise LanguageError.at_span(f'"{_say(field)}" is given twice', find_span(option))
            elif field in ("threshold", "possible"):
                thresholds.append(value)  # both must hold, so the higher one does
                fields["possible"] = max(thresholds, key=lambda scalar: scalar.value)
            else:
                fields[field] = value
            if field not in _MANY:
                spans[field] = find_span(option)
        return syntax.SubscriptionTree(condition, **fields, span=find_span(tree))

    # Conditions ------------------------------------------------------------------------------

    def read_condition(self, tree: Tree[Token], depth: int) -> syntax.Condition:
        if depth > MAX_DEPTH:
            raise LanguageError.at_span(f"nested more than {MAX_DEPTH} deep", find_span(tree))
        span = find_span(tree)
        children = tree.children
        if tree.data in ("either", "both"):
            operands = tuple(self.read_condition(as_tree(child), depth + 1) for child in children)
            return (
                syntax.Or(operands, span=span)
                if tree.data == "either"
                else syntax.And(operands, span=span)
            )
        if tree.data == "group":
            return self.read_condition(as_tree(children[0]), depth + 1)
        if tree.data == "contrary":
            inner = as_tree(children[0])
            operand = self.read_condition(inner, depth + 1)
            if inner.data == "bare" and isinstance(operand, syntax.PredicateNode):
                return replace(operand, negated=True, span=span)
            return syntax.Not(operand, span=span)
        return self.read_predicate(tree)

    def read_predicate(self, tree: Tree[Token]) -> syntax.PredicateNode:
        children = [as_tree(child) for child in tree.children]
        if tree.data in ("affirmed", "denied"):
            self.last = read_name(children.pop(0))
        elif self.last is None:
            raise self.ask_attribute(tree)
        hedges = []
        while children[0].data == "hedge":
            hedges.append(_read_hedge(as_token(children.pop(0).children[0])))
        constraint = self.read_constraint(children.pop(0))
        limits: dict[str, syntax.Scalar] = {}
        for child in children:
            keyword = as_token(child.children[0]).type.lower()
            if keyword in limits:
                raise LanguageError.at_span(f'"{keyword}" is given twice', find_span(child))
            limits[keyword] = read_scalar(as_tree(child.children[1]))
        return syntax.PredicateNode(
            self.last,
            constraint,
            tree.data in ("denied", "bare_denied"),
            tuple(hedges),
            limits.get("possible"),
            limits.get("certain"),
            limits.get("weight"),
            span=find_span(tree),
        )

    def ask_attribute(self, tree: Tree[Token]) -> LanguageError:
        """Return the error of a constraint that no attribute stands before."""
        span = find_span(tree)
        slip = find_slip(self.text, span.end)
        if slip:
            place, word, meant = slip
            message = f'"{word}" is not understood here'
            return LanguageError(message, place + 1, len(word), suggestions=meant)
        return LanguageError.at_span(
            "which attribute?",
            span,
            'it stands first: "heart_rate is high", "heart_rate above 120"',
        )

    def read_constraint(self, tree: Tree[Token]) -> syntax.Constraint:
        span = find_span(tree)
        children = tree.children
        kind = tree.data
        if kind == "term":
            return syntax.NamedTerm(read_name(as_tree(children[0])), span=span)
        if kind == "equal":
            return syntax.CrispComparison(syntax.Operator.EQUAL, *read_values(children), span=span)
        if kind == "comparison":
            operator = _OPERATORS[as_token(children[0]).type]
            return syntax.CrispComparison(operator, *read_values(children[1:]), span=span)
        if kind == "range":
            low, high = read_values(children)
            return syntax.CrispRange(low, high, span=span)
        if kind == "about":
            value, *rest = read_values(children)
            spread = [width for width in rest if isinstance(width, syntax.Quantity)]
            return syntax.About(value, spread[0] if spread else None, span=span)
        if kind == "call":
            head = children[0]
            name = head.value if isinstance(head, Token) else read_name(head).text
            values = read_values(children[1:])
            shape, called = find_call(name, self.registry)
            return (syntax.Shape if shape else syntax.Extension)(called, tuple(values), span=span)
        return self.read_extension(tree)

    def read_extension(self, tree: Tree[Token]) -> syntax.Shape | syntax.Extension:
        """Read a plug-in's constraint: its words, then arguments after their words."""
        head, *arguments = tree.children
        shape, extension = find_extension_by_word(as_token(head), self.registry)
        values = self.read_arguments(extension, [as_tree(child) for child in arguments])
        kind = syntax.Shape if shape else syntax.Extension
        return kind(extension.name, tuple(values), span=find_span(tree))

    def read_arguments(
        self, extension: PredicateType | MembershipFunction, trees: list[Tree[Token]]
    ) -> list[syntax.Value]:
        for place, tree in enumerate(trees):
            declared = extension.parameters[place] if place < len(extension.parameters) else None
            said = as_tree(tree.children[0]) if len(tree.children) == 2 else None
            word = fold_token(as_token(said.children[0])) if said else ""
            if declared is None or word != declared.word.casefold():
                wanted = f'"{declared.word}"' if declared and declared.word else "no word"
                hint = (
                    f"{wanted} is expected before this argument"
                    if declared
                    else "one argument too many"
                )
                raise LanguageError.at_span(
                    f'"{extension.name}" does not accept this argument', find_span(tree), hint
                )
        return read_values([tree.children[-1] for tree in trees])

    # Options ---------------------------------------------------------------------------------

    def read_option(self, tree: Tree[Token], condition: syntax.Condition) -> tuple[str, Any]:
        """Return the field of the subscription that an option sets, and its value."""
        span = find_span(tree)
        children = tree.children
        kind = tree.data
        if kind == "threshold":
            return "threshold", read_scalar(as_tree(children[1]))
        if kind == "number":
            return _NUMBERS[as_token(children[0]).type], read_scalar(as_tree(children[1]))
        if kind == "duration":
            return _DURATIONS[as_token(children[0]).type], read_quantity(as_tree(children[1]))
        if kind == "aggregator":
            return "aggregator", self.read_aggregator(tree)
        if kind == "prefer":
            names = [read_name(child) for child in children if isinstance(child, Tree)]
            pairs = pairwise(names)
            return "prefer", tuple(
                syntax.Prefer(better, worse, span=span) for better, worse in pairs
            )
        if kind == "dead_band":
            width = read_quantity(as_tree(children[0]))
            named = len(children) > 1
            of = read_name(as_tree(children[2])) if named else _find_only(condition, tree)
            return "dead_bands", (syntax.DeadBand(of, width, span=span),)
        if kind == "persistence":
            hits, window = (read_number(as_token(child)) for child in (children[0], children[2]))
            return "persistence", syntax.Persistence(hits, window, span=span)
        if kind == "rule":
            return "rules", (_read_rule(tree),)
        if kind == "why":
            return "why", True
        if kind == "naming":
            field = "event" if as_token(children[0]).type == "EVENT" else "name"
            return field, read_name(as_tree(children[1]))
        return "recent", self.read_recency(tree)

    def read_recency(self, tree: Tree[Token]) -> syntax.Recent:
        span = find_span(tree)
        children = tree.children
        if tree.data == "phrase":
            phrase = unquote(as_token(children[1])) if len(children) > 1 else "recent"
            return syntax.Recent(phrase, span=span)
        if tree.data == "few":
            return syntax.Recent(f"few {fold_token(as_token(children[0]))}", span=span)
        durations = [read_quantity(as_tree(child)) for child in children]
        return syntax.Recent(None, *durations, span=span)

    def read_aggregator(self, tree: Tree[Token]) -> syntax.Aggregator:
        name = as_tree(tree.children[1])
        quoted = as_token(name.children[0]).type == "STRING"
        said = read_name(name)
        arguments = [
            read_quantity(child)
            for child in tree.children[2:]
            if isinstance(child, Tree) and child.data == "quantity"
        ]
        found = said.text if quoted else find_aggregator(said.text, self.registry)
        return syntax.Aggregator(found, tuple(arguments), span=find_span(tree))


def _read_rule(tree: Tree[Token]) -> syntax.SugenoRule:
    tokens = [child for child in tree.children if isinstance(child, Token)]
    places = [read_number(token) for token in tokens]
    for place in places:
        if place.value != int(place.value) or place.value < 1:
            raise LanguageError.at_node("predicates are counted from 1", place)
    numbers = [
        read_number(as_token(child.children[0]))
        for child in tree.children
        if isinstance(child, Tree)
    ]
    constant, *slopes = numbers
    pair = (slopes[0], slopes[1]) if slopes else None
    first, second = (int(place.value) for place in places)
    return syntax.SugenoRule(first, second, constant, pair, span=find_span(tree))


def _find_only(condition: syntax.Condition, tree: Tree[Token]) -> syntax.Name:
    """Return the one attribute that a condition is about, or ask which is meant."""
    names = {p.attribute.text.casefold(): p.attribute for p in syntax.iterate_predicates(condition)}
    if len(names) > 1:
        choices = [name.text for name in names.values()]
        raise LanguageError.at_span(
            "the dead band of which attribute?", find_span(tree), f'add "of {choices[0]}"', choices
        )
    return next(iter(names.values()))


def _read_hedge(token: Token) -> syntax.Hedge:
    return syntax.Hedge[token.type]


def _say(field: str) -> str:
    return {"threshold": "at least"}.get(field, field.replace("_", " "))


# The small parts of the words' parse tree: names, values and numbers, with their places.
#
# What a token of the grammar means is decided here and nowhere else.


def read_name(tree: Tree[Token]) -> syntax.Name:
    """Read a name: words, joined by single blanks, or quotes."""
    tokens = [as_token(child) for child in tree.children]
    if tokens[0].type == "STRING":
        return syntax.Name(unquote(tokens[0]), span=find_span(tree))
    return syntax.Name(" ".join(tokens), span=find_span(tree))


def read_values(trees: Iterable[object]) -> list[syntax.Value]:
    """Read the values of one constraint; a unit written once is meant for all of them."""
    values = [read_value(tree) for tree in trees if isinstance(tree, Tree)]
    return share_unit(values)


def read_value(tree: Tree[Token]) -> syntax.Value:
    """Read a number with its unit, a moment or a text."""
    if tree.data == "quantity":
        return read_quantity(tree, own=True)
    if tree.data == "moment":
        return syntax.Moment(complete_moment(as_token(tree.children[0])), span=find_span(tree))
    name = read_name(as_tree(tree.children[0]))
    return syntax.Text(name.text, span=find_span(tree))


def read_quantity(tree: Tree[Token], own: bool = False) -> syntax.Quantity:
    """Read a number with its unit; with `own`, OWN_UNIT is left for `share_unit`."""
    value = read_number(as_token(tree.children[0])).value
    unit = None
    if len(tree.children) > 1:
        token = as_token(as_tree(tree.children[1]).children[0])
        unit = unquote(token) if token.type == "STRING" else str(token)
        if token.type == "UNIT" and unit == OWN_WORD:
            unit = OWN_UNIT if own else None
    return syntax.Quantity(value, unit, span=find_span(tree))


def read_scalar(tree: Tree[Token]) -> syntax.Scalar:
    """Read a plain number or a percentage."""
    scalar = read_number(as_token(tree.children[0]))
    if len(tree.children) > 1:
        return syntax.Scalar(scalar.value / 100, span=find_span(tree))
    return scalar


def fold_token(token: Token) -> str:
    """Return a keyword as it is compared."""
    return " ".join(token.casefold().split())


def read_number(token: Token) -> syntax.Scalar:
    """Read one number."""
    number = float(token)
    if math.isinf(number):
        raise LanguageError.at_span("this number is too large", find_span(token))
    return syntax.Scalar(number, span=find_span(token))


def unquote(token: Token) -> str:
    """Return what stands in double quotes, with JSON's escapes."""
    try:
        text: str = json.JSONDecoder(strict=False).decode(token)
    except json.JSONDecodeError as error:
        raise LanguageError.at_span(f"in quotes: {error.msg}", find_span(token)) from None
    return text


def find_span(item: Token | Tree[Token]) -> syntax.SourceSpan:
    """Return where a token or a tree stands."""
    if isinstance(item, Token):
        assert item.start_pos is not None
        assert item.end_pos is not None
        return syntax.SourceSpan(item.start_pos, item.end_pos)
    meta = item.meta
    return syntax.SourceSpan(meta.start_pos, meta.end_pos)


def as_tree(item: object) -> Tree[Token]:
    """Return a child that the grammar makes a tree."""
    assert isinstance(item, Tree)
    return item


def as_token(item: object) -> Token:
    """Return a child that the grammar makes a token."""
    assert isinstance(item, Token)
    return item
