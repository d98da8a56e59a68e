"""The small parts of the words' parse tree: names, values and numbers, with their places.

Only `words.py` uses this; what a grammar's token means is decided here and nowhere else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from denwatch.client.errors import LanguageError
from denwatch.client.language.lexicon import OWN_UNIT, OWN_WORD, complete_moment, share_unit
from denwatch.client.syntax import Moment, Name, Quantity, Scalar, SourceSpan, Text, Value
from lark import Token, Tree


def read_name(tree: Tree[Token]) -> Name:
    """Read a name: words, joined by single blanks, or quotes."""
    tokens = [as_token(child) for child in tree.children]
    if tokens[0].type == "STRING":
        return Name(unquote(tokens[0]), span=find_span(tree))
    return Name(" ".join(tokens), span=find_span(tree))


def read_values(trees: Iterable[object]) -> list[Value]:
    """Read the values of one constraint; a unit written once is meant for all of them."""
    values = [read_value(tree) for tree in trees if isinstance(tree, Tree)]
    return share_unit(values)


def read_value(tree: Tree[Token]) -> Value:
    """Read a number with its unit, a moment or a text."""
    if tree.data == "quantity":
        return read_quantity(tree, own=True)
    if tree.data == "moment":
        return Moment(complete_moment(as_token(tree.children[0])), span=find_span(tree))
    name = read_name(as_tree(tree.children[0]))
    return Text(name.text, span=find_span(tree))


def read_quantity(tree: Tree[Token], own: bool = False) -> Quantity:
    """Read a number with its unit; with `own`, OWN_UNIT is left for `share_unit`."""
    value = read_number(as_token(tree.children[0])).value
    unit = None
    if len(tree.children) > 1:
        token = as_token(as_tree(tree.children[1]).children[0])
        unit = unquote(token) if token.type == "STRING" else str(token)
        if token.type == "UNIT" and unit == OWN_WORD:
            unit = OWN_UNIT if own else None
    return Quantity(value, unit, span=find_span(tree))


def read_scalar(tree: Tree[Token]) -> Scalar:
    """Read a plain number or a percentage."""
    scalar = read_number(as_token(tree.children[0]))
    if len(tree.children) > 1:
        return Scalar(scalar.value / 100, span=find_span(tree))
    return scalar


def fold_token(token: Token) -> str:
    """Return a keyword as it is compared."""
    return " ".join(token.casefold().split())


def read_number(token: Token) -> Scalar:
    """Read one number."""
    number = float(token)
    if math.isinf(number):
        raise LanguageError.at_span("this number is too large", find_span(token))
    return Scalar(number, span=find_span(token))


def unquote(token: Token) -> str:
    """Return what stands in double quotes, with JSON's escapes."""
    try:
        text: str = json.JSONDecoder(strict=False).decode(token)
    except json.JSONDecodeError as error:
        raise LanguageError.at_span(f"in quotes: {error.msg}", find_span(token)) from None
    return text


def find_span(item: Token | Tree[Token]) -> SourceSpan:
    """Return where a token or a tree stands."""
    if isinstance(item, Token):
        assert item.start_pos is not None
        assert item.end_pos is not None
        return SourceSpan(item.start_pos, item.end_pos)
    return SourceSpan(item.meta.start_pos, item.meta.end_pos)


def as_tree(item: object) -> Tree[Token]:
    """Return a child that the grammar makes a tree."""
    assert isinstance(item, Tree)
    return item


def as_token(item: object) -> Token:
    """Return a child that the grammar makes a token."""
    assert isinstance(item, Token)
    return item
