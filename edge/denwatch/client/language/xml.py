"""XML to syntax tree, in the DENS paper's shape; `xml_printer.py` is the way back.

subscription.xsd says which elements stand where; this file gives them their meaning. A subscription
may define fuzzy sets of its own, as the paper's do: a term that is defined in the document becomes
the shape itself, any other is the vocabulary's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from denwatch.client import syntax
from denwatch.client.errors import LanguageError
from denwatch.client.language.lexicon import (
    LASTLY,
    LIMITS,
    fold,
    read_hedge,
    read_quantity,
    read_scalar,
    read_text,
    read_value,
    share_unit,
)
from denwatch.client.language.xml_source import Element, list_tags, parse_source, validate
from denwatch.client.plugins import (
    AggregatorType,
    MembershipFunction,
    Named,
    PluginRegistry,
    PredicateType,
    load_registry,
)


def parse_xml(text: str, registry: PluginRegistry | None = None) -> syntax.SubscriptionTree:
    """Return the subscription of an XML text; LanguageError points at what is wrong."""
    registry = registry or load_registry()
    root = parse_source(text, list_tags(registry))
    validate(root, registry)
    return _XmlReader(registry, root).read()


class _XmlReader:
    def __init__(self, registry: PluginRegistry, root: Element) -> None:
        self.registry = registry
        self.root = root
        self.recent: syntax.Recent | None = None
        self.sets = FuzzySets()
        predicates = {extension.tag: extension for extension in registry.predicates.values()}
        shapes = {extension.tag: extension for extension in registry.shapes.values()}
        self.predicates: dict[str, PredicateType] = predicates
        self.shapes: dict[str, MembershipFunction] = shapes
        self.aggregators: dict[str, AggregatorType] = {
            extension.tag: extension for extension in registry.aggregators.values()
        }

    def read(self) -> syntax.SubscriptionTree:
        root = self.root
        found = [child for child in root.children if child.tag.endswith("-Predicate")]
        for element in found:
            attribute = element.children[0]
            self.sets.add(self.read_name(attribute), attribute)
        predicates = [self.read_predicate(element) for element in found]
        fields: dict[str, Any] = {}
        seen: set[str] = set()
        pattern: Element | None = None
        for element in root.children[len(found) :]:
            if element.tag in seen:
                raise LanguageError.at_span(f"<{element.tag}> appears twice", element.start)
            seen.add(element.tag)
            if element.tag == "Predicate-pattern":
                pattern = element
            else:
                read = getattr(self, f"read_{element.tag.replace('-', '_').lower()}")
                fields |= read(element)
        if self.recent is not None:
            if "recent" in fields:
                raise LanguageError.at_node("two temporal restrictors", self.recent)
            fields["recent"] = self.recent
        for key in ("event", "name"):
            if key in root.attributes:
                span = root.find_attribute(key)
                fields[key] = syntax.Name(read_text(root.attributes[key], span), span=span)
        return syntax.SubscriptionTree(self.join(predicates, pattern), **fields, span=root.start)

    def join(
        self, predicates: Sequence[syntax.PredicateNode], pattern: Element | None
    ) -> syntax.Condition:
        if pattern is not None:
            return read_pattern(pattern.text, predicates, pattern.text_span)
        if len(predicates) == 1:
            return predicates[0]
        return syntax.And(tuple(predicates), span=self.root.start)

    # Predicates ------------------------------------------------------------------------------

    def read_name(self, element: Element) -> syntax.Name:
        if not element.text:
            raise LanguageError.at_span(f"<{element.tag}> has no name", element.start)
        return syntax.Name(read_text(element.text, element.text_span), span=element.text_span)

    def read_predicate(self, element: Element) -> syntax.PredicateNode:
        attribute = self.read_name(element.children[0])
        operator = element.find("Relational-operator")
        negated, hedges = self.read_operator(operator) if operator else (False, ())
        hedges += tuple(read_hedge(h.text, h.text_span) for h in element.find_all("Hedge"))
        constraint, own = self.read_constraint(element.children[-1], attribute)
        limits = {
            key: self.read_scalar(element, key) for key in LIMITS if key in element.attributes
        }
        return syntax.PredicateNode(
            attribute, constraint, negated, hedges + own, **limits, span=element.start
        )

    def read_operator(self, element: Element) -> tuple[bool, tuple[syntax.Hedge, ...]]:
        """Read "is", "is not", and the paper's "is" with a hedge or with a time."""
        words = fold(element.text).split()
        if words[:1] == ["is"]:
            del words[0]
        negated = words[:1] == ["not"]
        rest = " ".join(words[1:] if negated else words)
        lastly = LASTLY.fullmatch(rest)
        if lastly:
            recent = syntax.Recent(lastly[1], span=element.text_span)
            if self.recent not in (None, recent):
                raise LanguageError.at_node("two temporal restrictors", recent)
            self.recent = recent
            return negated, ()
        return negated, (read_hedge(rest, element.text_span),) if rest else ()

    def read_constraint(
        self, element: Element, attribute: syntax.Name
    ) -> tuple[syntax.Constraint, tuple[syntax.Hedge, ...]]:
        """Return the constraint, and the hedges of a term that the document defines by them."""
        span = element.start
        tag = element.tag
        if tag == "term":
            name = self.read_name(element)
            defined = self.sets.find(attribute, name)
            return defined or (syntax.NamedTerm(name, span=element.text_span), ())
        if tag == "Fuzzifier":
            return read_fuzzifier(element), ()
        if tag == "About":
            spread = self.read_quantity(element, "spread") if element.attributes else None
            return syntax.About(self.read_value(element), spread, span=span), ()
        if tag == "Comparison":
            operator = syntax.Operator(element.attributes["operator"].strip())
            return syntax.CrispComparison(operator, self.read_value(element), span=span), ()
        if tag == "Range":
            low, high = map(self.read_value, element.children)
            return syntax.CrispRange(low, high, span=span), ()
        if tag == "Extension":
            called = read_text(element.attributes["name"], span)
            return syntax.Extension(
                called, tuple(map(self.read_value, element.children)), span=span
            ), ()
        if tag in self.shapes:
            shape = self.shapes[tag]
            return syntax.Shape(
                shape.name, tuple(self.read_arguments(element, shape)), span=span
            ), ()
        plugin = self.predicates[tag]
        return syntax.Extension(
            plugin.name, tuple(self.read_arguments(element, plugin)), span=span
        ), ()

    def read_arguments(self, element: Element, extension: Named) -> list[syntax.Value]:
        """Read the arguments of a plug-in, by the names of its parameters."""
        arguments: list[syntax.Value] = []
        for place, parameter in enumerate(extension.parameters):
            if parameter.name not in element.attributes:
                continue
            if len(arguments) < place:
                missing = extension.parameters[len(arguments)].name
                raise LanguageError.at_span(f'"{missing}" is missing', element.start)
            text = element.attributes[parameter.name]
            arguments.append(read_value(text, element.find_attribute(parameter.name)))
        return arguments

    # Options: each returns the fields of the subscription that an element sets ---------------

    def read_aggregating_function(self, element: Element) -> dict[str, Any]:
        plugins = [child for child in element.children if child.tag != "argument"]
        if plugins:
            if len(element.children) > 1 or element.text:
                raise LanguageError.at_span("one aggregating function is expected", element.start)
            plugin = self.aggregators[plugins[0].tag]
            arguments = self.read_arguments(plugins[0], plugin)
            return {"aggregator": _aggregate(plugin.name, arguments, element)}
        if not element.text:
            raise LanguageError.at_span("an aggregating function is expected", element.start)
        name = read_text(element.text, element.text_span)
        return {
            "aggregator": _aggregate(name, list(map(self.read_value, element.children)), element)
        }

    def read_threshold(self, element: Element) -> dict[str, Any]:
        return {key: self.read_scalar(element, key) for key in element.attributes}

    def read_temporal_restrictor(self, element: Element) -> dict[str, Any]:
        span = element.start
        if not element.attributes:
            phrase = read_text(element.text, element.text_span)
            lastly = LASTLY.fullmatch(fold(element.text))
            return {
                "recent": syntax.Recent(lastly[1] if lastly else phrase, span=element.text_span)
            }
        if element.text or "within" not in element.attributes:
            raise LanguageError.at_span('a phrase or "within" is expected', span)
        gone = self.read_quantity(element, "gone") if "gone" in element.attributes else None
        return {
            "recent": syntax.Recent(None, self.read_quantity(element, "within"), gone, span=span)
        }

    def read_local_linear_model(self, element: Element) -> dict[str, Any]:
        return {"rules": tuple(map(self.read_rule, element.children))}

    def read_rule(self, element: Element) -> syntax.SugenoRule:
        slopes = [
            self.read_scalar(element, key)
            for key in ("slope-first", "slope-second")
            if key in element.attributes
        ]
        if len(slopes) == 1:
            raise LanguageError.at_span("give both slopes or none", element.start)
        return syntax.SugenoRule(
            int(element.attributes["first"]),
            int(element.attributes["second"]),
            self.read_scalar(element, "constant"),
            (slopes[0], slopes[1]) if slopes else None,
            span=element.start,
        )

    def read_preference(self, element: Element) -> dict[str, Any]:
        fields: dict[str, Any] = {key: self.read_scalar(element, key) for key in element.attributes}
        pairs = []
        for child in element.children:
            names = []
            for key in ("better", "worse"):
                span = child.find_attribute(key)
                names.append(syntax.Name(read_text(child.attributes[key], span), span=span))
            pairs.append(syntax.Prefer(names[0], names[1], span=child.start))
        return fields | ({"prefer": tuple(pairs)} if pairs else {})

    def read_lifetime(self, element: Element) -> dict[str, Any]:
        return {
            key.replace("-", "_"): self.read_quantity(element, key) for key in element.attributes
        }

    def read_significance(self, element: Element) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key in ("relative-band", "hysteresis"):
            if key in element.attributes:
                fields[key.replace("-", "_")] = self.read_scalar(element, key)
        for key in ("heartbeat", "quiet"):
            if key in element.attributes:
                fields[key] = self.read_quantity(element, key)
        counts = [
            self.read_scalar(element, k) for k in ("hits", "window") if k in element.attributes
        ]
        if len(counts) == 1:
            raise LanguageError.at_span('"hits" and "window" must be given together', element.start)
        if counts:
            fields["persistence"] = syntax.Persistence(counts[0], counts[1], span=element.start)
        bands = []
        for child in element.children:
            span = child.find_attribute("attribute")
            name = syntax.Name(read_text(child.attributes["attribute"], span), span=span)
            bands.append(
                syntax.DeadBand(name, read_quantity(child.text, child.text_span), span=child.start)
            )
        return fields | ({"dead_bands": tuple(bands)} if bands else {})

    def read_why(self, _: Element) -> dict[str, Any]:
        return {"why": True}

    # Values ----------------------------------------------------------------------------------

    def read_value(self, element: Element) -> syntax.Value:
        return read_value(element.text, element.text_span)

    def read_scalar(self, element: Element, key: str) -> syntax.Scalar:
        return read_scalar(element.attributes[key], element.find_attribute(key))

    def read_quantity(self, element: Element, key: str) -> syntax.Quantity:
        return read_quantity(element.attributes[key], element.find_attribute(key))


def _aggregate(name: str, arguments: Sequence[syntax.Value], element: Element) -> syntax.Aggregator:
    quantities = []
    for argument in arguments:
        if not isinstance(argument, syntax.Quantity):
            raise LanguageError.at_node("an aggregator's argument is a number", argument)
        quantities.append(replace(argument))
    return syntax.Aggregator(name, tuple(quantities), span=element.text_span)


# Fuzzifiers and the fuzzy sets that an XML subscription defines itself.
#
# The paper's fuzzifiers are given by their width: `trapezoidal(width, left, right)` is 1 from left
# to right and 0 at `width` beyond either, `triangular(width, center)` is 1 at the center. The
# core's own kinds are given by their points: `trapezoid(a, b, c, d)`, `rising(a, b)` and so on.

_CALL = re.compile(r"\s*([\w-]+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r'(?:"(?:\\.|[^"\\])*"|[^,"])+')
# The paper's kinds: how many numbers they take, and the core's points that they stand for.
_WIDTHS = {"trapezoidal": 3, "triangular": 2}


def read_fuzzifier(element: Element) -> syntax.Shape:
    """Return the shape of `kind(value, ...)`, or of kind and <point>s."""
    span = element.text_span
    if "kind" in element.attributes:
        if element.text:
            raise LanguageError.at_span("<Fuzzifier> has a kind or a text, not both", element.start)
        kind = read_text(element.attributes["kind"], element.find_attribute("kind"))
        points = [read_value(point.text, point.text_span) for point in element.children]
        return syntax.Shape(kind, tuple(points), span=element.start)
    call = _CALL.fullmatch(element.text)
    if call is None or element.children:
        raise LanguageError.at_span(
            "a fuzzifier is written kind(value, ...)", span, 'as in "trapezoid(36, 37, 38, 39 °C)"'
        )
    kind = call[1]
    points = share_unit([read_value(text, span) for text in _ARGUMENT.findall(call[2])])
    if kind.casefold() in _WIDTHS:
        return _convert_widths(kind.casefold(), points, element)
    return syntax.Shape(kind, tuple(points), span=span)


def _convert_widths(kind: str, points: list[syntax.Value], element: Element) -> syntax.Shape:
    """Return the core's shape of one of the paper's fuzzifiers."""
    span = element.text_span
    wanted = "width, left, right" if kind == "trapezoidal" else "width, center"
    numbers = [point for point in points if isinstance(point, syntax.Quantity)]
    if len(points) != _WIDTHS[kind] or len(numbers) != len(points):
        raise LanguageError.at_span(f"{kind} needs the numbers ({wanted})", span)
    if len({number.unit for number in numbers}) > 1:
        raise LanguageError.at_span(f"{kind} takes one unit", span)
    width, left, right = numbers[0], numbers[1], numbers[-1]
    if width.value < 0 or right.value < left.value:
        raise LanguageError.at_span(f"{kind}: an empty set", span)
    foot = replace(left, value=left.value - width.value)
    end = replace(right, value=right.value + width.value)
    if kind == "triangular":
        return syntax.Shape("triangle", (foot, left, end), span=span)
    return syntax.Shape("trapezoid", (foot, left, right, end), span=span)


@dataclass(frozen=True)
class _Derived:
    """A set that is another one under hedges."""

    hedges: tuple[syntax.Hedge, ...]
    base: syntax.Name


class FuzzySets:
    """The fuzzy sets that a document defines, by attribute and term."""

    def __init__(self) -> None:
        self._sets: dict[tuple[str, str], syntax.Shape | _Derived] = {}

    def add(self, attribute: syntax.Name, element: Element) -> None:
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
        self, attribute: syntax.Name, term: syntax.Name
    ) -> tuple[syntax.Shape | syntax.NamedTerm, tuple[syntax.Hedge, ...]] | None:
        """Return what a term means in this document, and its hedges; None if it is not defined."""
        key = fold(attribute.text), fold(term.text)
        found = self._sets.get(key)
        hedges: tuple[syntax.Hedge, ...] = ()
        seen = {key}
        while isinstance(found, _Derived):
            hedges += found.hedges
            key = key[0], fold(found.base.text)
            base = self._sets.get(key)
            if base is None:
                return syntax.NamedTerm(found.base, span=term.span), hedges
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
        if isinstance(low, syntax.Text) or type(low) is not type(high):
            raise LanguageError.at_node("the ends of a domain are two numbers or two moments", high)
        if isinstance(low, syntax.Quantity) and isinstance(high, syntax.Quantity):
            if low.unit is not None and high.unit is not None and low.unit != high.unit:
                raise LanguageError.at_node("the ends of a domain have one unit", high)
            if low.value >= high.value:
                raise LanguageError.at_node("the domain is empty: its ends must rise", high)


def _read_set(element: Element) -> syntax.Shape | _Derived:
    last = element.children[-1]
    if last.tag == "Fuzzifier":
        return read_fuzzifier(last)
    hedges = tuple(read_hedge(h.text, h.text_span) for h in element.find_all("Hedge"))
    return _Derived(hedges, syntax.Name(read_text(last.text, last.text_span), span=last.text_span))


# Predicate patterns of the XML surface: how numbered predicates are joined.
#
# Either an expression, "p1 and (p2 or not p3)", or a code of the DENS paper, "d2c1": letter and
# count of each group, c for conjunction and d for disjunction. The two groups are joined by the
# other operator, so d2c1 is (p1 or p2) and p3. Predicates are counted from 1 in document order.

MAX_DEPTH = 48

_TOKEN = re.compile(r"\s*(?:(and|or|not)\b|([()])|p(\d{1,3})\b)", re.IGNORECASE)
_CODE = re.compile(r"([cd])(\d{1,2})([cd])(\d{1,2})", re.IGNORECASE)


def read_pattern(
    text: str, predicates: Sequence[syntax.Condition], span: syntax.SourceSpan
) -> syntax.Condition:
    """Return the condition that a pattern makes of the predicates; each must take part."""
    code = _CODE.fullmatch(text.strip())
    if code:
        return _read_code(code, predicates, span)
    return _PatternParser(text, predicates, span).parse()


def _read_code(
    code: re.Match[str], predicates: Sequence[syntax.Condition], span: syntax.SourceSpan
) -> syntax.Condition:
    letters = code[1].lower(), code[3].lower()
    counts = int(code[2]), int(code[4])
    inner = {letter for letter, count in zip(letters, counts, strict=True) if count > 1}
    if len(inner) != 1 or not all(counts):
        raise LanguageError.at_span(
            f'the pattern "{code[0]}" is not one of the kind c1d2, c2d1, c2c2, d3c1', span
        )
    if sum(counts) != len(predicates):
        raise LanguageError.at_span(
            f'the pattern "{code[0]}" joins {sum(counts)} predicates, there are {len(predicates)}',
            span,
        )
    join, outer = (syntax.And, syntax.Or) if inner == {"c"} else (syntax.Or, syntax.And)
    groups = predicates[: counts[0]], predicates[counts[0] :]
    parts = [group[0] if len(group) == 1 else join(tuple(group), span=span) for group in groups]
    return outer(tuple(parts), span=span)


class _PatternParser:
    """Recursive descent over a handful of tokens."""

    def __init__(
        self, text: str, predicates: Sequence[syntax.Condition], span: syntax.SourceSpan
    ) -> None:
        self.predicates = predicates
        self.span = span
        self.unused = set(range(1, len(predicates) + 1))
        self.tokens: list[tuple[str, syntax.SourceSpan]] = []
        self.at = 0
        place = 0
        text = text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            start = place + len(text[place:]) - len(text[place:].lstrip())
            if match is None:
                raise self.refuse(
                    f'"{text[start : start + 1]}" means nothing',
                    syntax.SourceSpan(start, start + 1),
                )
            self.tokens.append(
                (match.group().strip().lower(), syntax.SourceSpan(start, match.end()))
            )
            place = match.end()

    def refuse(self, message: str, local: syntax.SourceSpan | None) -> LanguageError:
        end = self.tokens[-1][1].end if self.tokens else 0
        place = local or syntax.SourceSpan(end, end)
        start = self.span.start + place.start
        return LanguageError.at_span(
            f"in the pattern: {message}",
            syntax.SourceSpan(start, start + max(1, place.end - place.start)),
            'as in "p1 and (p2 or not p3)"',
        )

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def place(self) -> syntax.SourceSpan | None:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def parse(self) -> syntax.Condition:
        condition = self.parse_joined(("or", "and"), 0)
        if self.peek():
            raise self.refuse(f'"{self.peek()}" is not expected', self.place())
        if self.unused:
            missing = ", ".join(f"p{number}" for number in sorted(self.unused))
            raise self.refuse(f"{missing} is missing", None)
        return condition

    def parse_joined(self, joints: tuple[str, ...], depth: int) -> syntax.Condition:
        """Parse operands of the first joint, whose operands are joined by the next ones."""
        if depth > MAX_DEPTH:
            raise self.refuse(f"nested more than {MAX_DEPTH} deep", self.place())
        if not joints:
            return self.parse_operand(depth)
        operands = [self.parse_joined(joints[1:], depth)]
        while self.peek() == joints[0]:
            self.at += 1
            operands.append(self.parse_joined(joints[1:], depth))
        if len(operands) == 1:
            return operands[0]
        return (syntax.Or if joints[0] == "or" else syntax.And)(tuple(operands), span=self.span)

    def parse_operand(self, depth: int) -> syntax.Condition:
        token, place = self.peek(), self.place()
        self.at += 1
        if token == "not":
            return syntax.Not(self.parse_joined((), depth + 1), span=self.span)
        if token == "(":
            condition = self.parse_joined(("or", "and"), depth + 1)
            if self.peek() != ")":
                raise self.refuse('this "(" is never closed', place)
            self.at += 1
            return condition
        if not token.startswith("p"):
            raise self.refuse(f'"{token or "the end"}" is not expected', place)
        number = int(token[1:])
        if not 1 <= number <= len(self.predicates):
            raise self.refuse(f"there is no {token}, only {len(self.predicates)} predicates", place)
        self.unused.discard(number)
        return replace(self.predicates[number - 1])
