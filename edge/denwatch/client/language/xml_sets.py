"""Fuzzifiers and the fuzzy sets that an XML subscription defines itself.

The paper's fuzzifiers count by width: `trapezoidal(width, left, right)` is full from left to right
and nothing at `width` beyond either, `triangular(width, center)` is full at the center. The core's
own kinds are written with their points: `trapezoid(a, b, c, d)`, `rising(a, b)` and so on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from denwatch.client.errors import LanguageError
from denwatch.client.language.lexicon import fold, share_unit
from denwatch.client.language.values import read_hedge, read_text, read_value
from denwatch.client.language.xml_source import Element
from denwatch.client.syntax import Hedge, Name, NamedTerm, Quantity, Shape, Text, Value

_CALL = re.compile(r"\s*([\w-]+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r'(?:"(?:\\.|[^"\\])*"|[^,"])+')
# The paper's kinds: how many numbers they take, and the core's points that they stand for.
_WIDTHS = {"trapezoidal": 3, "triangular": 2}


def read_fuzzifier(element: Element) -> Shape:
    """Return the shape of `kind(value, ...)`, or of kind and <point>s."""
    span = element.text_span
    if "kind" in element.attributes:
        if element.text:
            raise LanguageError.at_span("<Fuzzifier> has a kind or a text, not both", element.start)
        kind = read_text(element.attributes["kind"], element.find_attribute("kind"))
        points = [read_value(point.text, point.text_span) for point in element.children]
        return Shape(kind, tuple(points), span=element.start)
    call = _CALL.fullmatch(element.text)
    if call is None or element.children:
        raise LanguageError.at_span(
            "a fuzzifier is written kind(value, ...)", span, 'as in "trapezoid(36, 37, 38, 39 °C)"'
        )
    kind = call[1]
    points = share_unit([read_value(text, span) for text in _ARGUMENT.findall(call[2])])
    if kind.casefold() in _WIDTHS:
        return _convert_widths(kind.casefold(), points, element)
    return Shape(kind, tuple(points), span=span)


def _convert_widths(kind: str, points: list[Value], element: Element) -> Shape:
    """Return the core's shape of one of the paper's fuzzifiers."""
    span = element.text_span
    wanted = "width, left, right" if kind == "trapezoidal" else "width, center"
    numbers = [point for point in points if isinstance(point, Quantity)]
    if len(points) != _WIDTHS[kind] or len(numbers) != len(points):
        raise LanguageError.at_span(f"{kind} takes the numbers ({wanted})", span)
    if len({number.unit for number in numbers}) > 1:
        raise LanguageError.at_span(f"{kind} takes one unit", span)
    width, left, right = numbers[0], numbers[1], numbers[-1]
    if width.value < 0 or right.value < left.value:
        raise LanguageError.at_span(f"{kind}: an empty set", span)
    foot = replace(left, value=left.value - width.value)
    end = replace(right, value=right.value + width.value)
    if kind == "triangular":
        return Shape("triangle", (foot, left, end), span=span)
    return Shape("trapezoid", (foot, left, right, end), span=span)


@dataclass(frozen=True)
class _Derived:
    """A set that is another one under hedges."""

    hedges: tuple[Hedge, ...]
    base: Name


class FuzzySets:
    """The fuzzy sets that a document defines, by attribute and term."""

    def __init__(self) -> None:
        self._sets: dict[tuple[str, str], Shape | _Derived] = {}

    def add(self, attribute: Name, element: Element) -> None:
        """Add what an <Attribute> defines; the same set may be written again, another may not."""
        self._check_domain(element)
        listed = element.find("Fuzzy-Terms")
        names = None if listed is None else {fold(name) for name in listed.text.split(",")}
        for child in element.find_all("Fuzzy-Set"):
            head = child.children[0]
            term = read_text(head.text, head.text_span)
            if names is not None and fold(term) not in names:
                raise LanguageError.at_span(f'<Fuzzy-Terms> does not list "{term}"', head.text_span)
            key = fold(attribute.text), fold(term)
            defined = _read_set(child)
            if self._sets.setdefault(key, defined) != defined:
                raise LanguageError.at_span(f'"{term}" is defined twice', head.text_span)

    def find(
        self, attribute: Name, term: Name
    ) -> tuple[Shape | NamedTerm, tuple[Hedge, ...]] | None:
        """Return what a term means in this document, and its hedges; None if it is not defined."""
        key = fold(attribute.text), fold(term.text)
        found = self._sets.get(key)
        hedges: tuple[Hedge, ...] = ()
        seen = {key}
        while isinstance(found, _Derived):
            hedges += found.hedges
            key = key[0], fold(found.base.text)
            base = self._sets.get(key)
            if base is None:
                return NamedTerm(found.base, span=term.span), hedges
            if key in seen:
                raise LanguageError.at_node(f'"{term.text}" is defined by itself', term)
            seen.add(key)
            found = base
        return None if found is None else (replace(found, span=term.span), hedges)

    def _check_domain(self, element: Element) -> None:
        ends = [element.find("Domain_min"), element.find("Domain_max")]
        if None in ends:
            return
        low, high = (read_value(end.text, end.text_span) for end in ends if end is not None)
        if isinstance(low, Text) or type(low) is not type(high):
            raise LanguageError.at_node("the ends of a domain are two numbers or two moments", high)
        if isinstance(low, Quantity) and isinstance(high, Quantity):
            if low.unit is not None and high.unit is not None and low.unit != high.unit:
                raise LanguageError.at_node("the ends of a domain have one unit", high)
            if low.value >= high.value:
                raise LanguageError.at_node("the domain is empty: its ends must rise", high)


def _read_set(element: Element) -> Shape | _Derived:
    last = element.children[-1]
    if last.tag == "Fuzzifier":
        return read_fuzzifier(last)
    hedges = tuple(read_hedge(h.text, h.text_span) for h in element.find_all("Hedge"))
    return _Derived(hedges, Name(read_text(last.text, last.text_span), span=last.text_span))
