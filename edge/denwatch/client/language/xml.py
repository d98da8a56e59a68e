"""XML to syntax tree, in the DENS paper's shape; `xml_printer.py` is the way back.

subscription.xsd says which elements stand where; this file gives them their meaning. A subscription
may define fuzzy sets of its own, as the paper's do: a term that is defined in the document becomes
the shape itself, any other is the vocabulary's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from denwatch.client import syntax
from denwatch.client.errors import LanguageError
from denwatch.client.language import lexicon
from denwatch.client.language.xml_source import Element, list_tags, parse_source, validate
from denwatch.client.plugins import Named, PluginRegistry, load_registry, order_arguments


def parse_xml(text: str, registry: PluginRegistry | None = None) -> syntax.SubscriptionTree:
    """Return the subscription of an XML text; LanguageError points at what is wrong."""
    registry = registry or load_registry()
    return read_subscription(parse_source(text, list_tags(registry)), registry)


def read_subscription(root: Element, registry: PluginRegistry) -> syntax.SubscriptionTree:
    """Return the subscription of an element, which may stand inside another."""
    validate(root, registry)
    return _XmlReader(registry, root).read()


def read_name(element: Element) -> syntax.Name:
    """Return the name that is the text of an element."""
    if not element.text:
        raise LanguageError.at_span(f"<{element.tag}> has no name", element.start)
    return syntax.Name(lexicon.read_text(element.text, element.text_span), span=element.text_span)


def read_hedge(element: Element) -> syntax.Hedge:
    """Return the hedge that is the text of an element."""
    return lexicon.read_hedge(element.text, element.text_span)


class _XmlReader:
    def __init__(self, registry: PluginRegistry, root: Element) -> None:
        self.root = root
        self.recent: syntax.Recent | None = None
        self.sets = FuzzySets()
        self.predicates = {plugin.tag: plugin for plugin in registry.predicates.values()}
        self.shapes = {plugin.tag: plugin for plugin in registry.shapes.values()}
        self.aggregators = {plugin.tag: plugin for plugin in registry.aggregators.values()}

    def read(self) -> syntax.SubscriptionTree:
        root = self.root
        found = [child for child in root.children if child.tag.endswith("-Predicate")]
        for element in found:
            attribute = element.children[0]
            self.sets.add(read_name(attribute), attribute)
        predicates = [self.read_predicate(element) for element in found]
        fields: dict[str, Any] = {}
        condition: syntax.Condition = predicates[0]
        if len(predicates) > 1:
            condition = syntax.And(tuple(predicates), span=root.start)
        seen: set[str] = set()
        for element in root.children[len(found) :]:
            if element.tag in seen:
                raise LanguageError.at_span(f"<{element.tag}> appears twice", element.start)
            seen.add(element.tag)
            if element.tag == "Predicate-pattern":
                condition = read_pattern(element.text, predicates, element.text_span)
                continue
            fields |= self.read_fields(element)
            more = getattr(self, f"read_{element.tag.replace('-', '_').lower()}", None)
            if more is not None:
                fields |= more(element)
        if self.recent is not None:
            if "recent" in fields:
                raise LanguageError.at_node("two temporal restrictors", self.recent)
            fields["recent"] = self.recent
        fields |= {
            key: self.read_label(root, key) for key in ("event", "name") if key in root.attributes
        }
        return syntax.SubscriptionTree(condition, **fields, span=root.start)

    # Predicates ------------------------------------------------------------------------------

    def read_predicate(self, element: Element) -> syntax.PredicateNode:
        attribute, last = read_name(element.children[0]), element.children[-1]
        operator = element.find("Relational-operator")
        negated, hedges = self.read_operator(operator) if operator else (False, ())
        hedges += tuple(map(read_hedge, element.find_all("Hedge")))
        constraint: syntax.Constraint
        if last.tag == "term":
            constraint, own = self.sets.find(attribute, read_name(last))
            hedges += own
        else:
            constraint = self.read_constraint(last)
        limits = {
            key: self.read_scalar(element, key)
            for key in lexicon.LIMITS
            if key in element.attributes
        }
        restrictor = element.find("Temporal-restrictor")
        recent = self.read_temporal_restrictor(restrictor)["recent"] if restrictor else None
        return syntax.PredicateNode(
            attribute, constraint, negated, hedges, **limits, recent=recent, span=element.start
        )

    def read_operator(self, element: Element) -> tuple[bool, tuple[syntax.Hedge, ...]]:
        """Read "is", "is not", and the paper's "is" with a hedge or with a time."""
        words = lexicon.fold(element.text).split()
        if words[:1] == ["is"]:
            del words[0]
        negated = words[:1] == ["not"]
        rest = " ".join(words[1:] if negated else words)
        lastly = lexicon.LASTLY.fullmatch(rest)
        if lastly:
            recent = syntax.Recent(lastly[1], span=element.text_span)
            if self.recent not in (None, recent):
                raise LanguageError.at_node("two temporal restrictors", recent)
            self.recent = recent
            return negated, ()
        return negated, (lexicon.read_hedge(rest, element.text_span),) if rest else ()

    def read_constraint(self, element: Element) -> syntax.Constraint:
        span = element.start
        tag = element.tag
        if tag == "Fuzzifier":
            return read_fuzzifier(element)
        if tag == "About":
            spread = self.read_quantity(element, "spread") if element.attributes else None
            return syntax.About(self.read_value(element), spread, span=span)
        if tag == "Comparison":
            operator = syntax.Operator(element.attributes["operator"].strip())
            return syntax.CrispComparison(operator, self.read_value(element), span=span)
        if tag == "Range":
            low, high = map(self.read_value, element.children)
            return syntax.CrispRange(low, high, span=span)
        if tag == "Extension":
            called = lexicon.read_text(element.attributes["name"], span)
            return syntax.Extension(
                called, tuple(map(self.read_value, element.children)), span=span
            )
        if tag in self.shapes:
            arguments = self.read_arguments(element, self.shapes[tag])
            return syntax.Shape(self.shapes[tag].name, arguments, span=span)
        arguments = self.read_arguments(element, self.predicates[tag])
        return syntax.Extension(self.predicates[tag].name, arguments, span=span)

    def read_arguments(self, element: Element, plugin: Named) -> tuple[syntax.Value, ...]:
        """Read the arguments of a plug-in, by the names of its parameters."""
        given = order_arguments(plugin, element.attributes, element.start)
        return tuple(
            lexicon.read_value(element.attributes[key], element.find_attribute(key))
            for key in given
        )

    # Options: each returns the fields of the subscription that an element sets ---------------

    def read_fields(self, element: Element) -> dict[str, Any]:
        """Read the attributes that are fields themselves: "valid-for" is `valid_for`."""
        fields: dict[str, Any] = {}
        for key in element.attributes:
            field = key.replace("-", "_")
            if field in lexicon.SCALARS:
                fields[field] = self.read_scalar(element, key)
            elif field in lexicon.DURATIONS:
                fields[field] = self.read_quantity(element, key)
        return fields

    def read_aggregating_function(self, element: Element) -> dict[str, Any]:
        plugins = [child for child in element.children if child.tag != "argument"]
        arguments: Iterable[syntax.Value]
        if plugins:
            if len(element.children) > 1 or element.text:
                raise LanguageError.at_span("one aggregating function is expected", element.start)
            plugin = self.aggregators[plugins[0].tag]
            name, arguments = plugin.name, self.read_arguments(plugins[0], plugin)
        elif element.text:
            name = lexicon.read_text(element.text, element.text_span)
            arguments = map(self.read_value, element.children)
        else:
            raise LanguageError.at_span("an aggregating function is expected", element.start)
        numbers = []
        for argument in arguments:
            if not isinstance(argument, syntax.Quantity):
                raise LanguageError.at_node("an aggregator's argument is a number", argument)
            numbers.append(argument)
        return {"aggregator": syntax.Aggregator(name, tuple(numbers), span=element.text_span)}

    def read_temporal_restrictor(self, element: Element) -> dict[str, Any]:
        span = element.start
        if not element.attributes:
            phrase = lexicon.read_text(element.text, element.text_span)
            lastly = lexicon.LASTLY.fullmatch(lexicon.fold(element.text))
            return {
                "recent": syntax.Recent(lastly[1] if lastly else phrase, span=element.text_span)
            }
        if element.text or "within" not in element.attributes:
            raise LanguageError.at_span('a phrase or "within" is expected', span)
        gone = self.read_quantity(element, "gone") if "gone" in element.attributes else None
        within = self.read_quantity(element, "within")
        return {"recent": syntax.Recent(None, within, gone, span=span)}

    def read_local_linear_model(self, element: Element) -> dict[str, Any]:
        return {"rules": tuple(map(self.read_rule, element.children))}

    def read_rule(self, element: Element) -> syntax.SugenoRule:
        slopes = self.read_pair(element, "slope-first", "slope-second", "give both slopes or none")
        return syntax.SugenoRule(
            int(element.attributes["first"]),
            int(element.attributes["second"]),
            self.read_scalar(element, "constant"),
            slopes,
            span=element.start,
        )

    def read_pair(
        self, element: Element, first: str, second: str, message: str
    ) -> tuple[syntax.Scalar, syntax.Scalar] | None:
        """Read two numbers that are there together, or not at all."""
        if (first in element.attributes) != (second in element.attributes):
            raise LanguageError.at_span(message, element.start)
        if first not in element.attributes:
            return None
        return self.read_scalar(element, first), self.read_scalar(element, second)

    def read_preference(self, element: Element) -> dict[str, Any]:
        pairs = tuple(
            syntax.Prefer(
                self.read_label(child, "better"), self.read_label(child, "worse"), span=child.start
            )
            for child in element.children
        )
        return {"prefer": pairs} if pairs else {}

    def read_significance(self, element: Element) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        message = '"hits" and "window" must be given together'
        counts = self.read_pair(element, "hits", "window", message)
        if counts:
            fields["persistence"] = syntax.Persistence(*counts, span=element.start)
        if element.children:
            fields["dead_bands"] = tuple(map(self.read_dead_band, element.children))
        return fields

    def read_dead_band(self, element: Element) -> syntax.DeadBand:
        width = lexicon.read_quantity(element.text, element.text_span)
        return syntax.DeadBand(self.read_label(element, "attribute"), width, span=element.start)

    def read_why(self, _: Element) -> dict[str, Any]:
        return {"why": True}

    def read_whole(self, _: Element) -> dict[str, Any]:
        return {"whole": True}

    # Names and values ------------------------------------------------------------------------

    def read_label(self, element: Element, key: str) -> syntax.Name:
        span = element.find_attribute(key)
        return syntax.Name(lexicon.read_text(element.attributes[key], span), span=span)

    def read_value(self, element: Element) -> syntax.Value:
        return lexicon.read_value(element.text, element.text_span)

    def read_scalar(self, element: Element, key: str) -> syntax.Scalar:
        return lexicon.read_scalar(element.attributes[key], element.find_attribute(key))

    def read_quantity(self, element: Element, key: str) -> syntax.Quantity:
        return lexicon.read_quantity(element.attributes[key], element.find_attribute(key))


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
        kind = lexicon.read_text(element.attributes["kind"], element.find_attribute("kind"))
        points = [lexicon.read_value(point.text, point.text_span) for point in element.children]
        return syntax.Shape(kind, tuple(points), span=element.start)
    call = _CALL.fullmatch(element.text)
    if call is None or element.children:
        raise LanguageError.at_span(
            "a fuzzifier is written kind(value, ...)", span, 'as in "trapezoid(36, 37, 38, 39 °C)"'
        )
    kind = call[1]
    points = lexicon.share_unit(
        [lexicon.read_value(text, span) for text in _ARGUMENT.findall(call[2])]
    )
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
        names = None if listed is None else {lexicon.fold(name) for name in listed.text.split(",")}
        for child in element.find_all("Fuzzy-Set"):
            head = child.children[0]
            term = lexicon.read_text(head.text, head.text_span)
            if names is not None and lexicon.fold(term) not in names:
                raise LanguageError.at_span(f'<Fuzzy-Terms> does not list "{term}"', head.text_span)
            key = lexicon.fold(attribute.text), lexicon.fold(term)
            defined: syntax.Shape | _Derived
            if child.children[-1].tag == "Fuzzifier":
                defined = read_fuzzifier(child.children[-1])
            else:
                hedges = map(read_hedge, child.find_all("Hedge"))
                defined = _Derived(tuple(hedges), read_name(child.children[-1]))
            if self._sets.setdefault(key, defined) != defined:
                raise LanguageError.at_span(f'"{term}" is defined twice', head.text_span)

    def find(
        self, attribute: syntax.Name, term: syntax.Name
    ) -> tuple[syntax.Shape | syntax.NamedTerm, tuple[syntax.Hedge, ...]]:
        """Return what a term means, and its hedges; one that is not defined is the vocabulary's."""
        hedges: tuple[syntax.Hedge, ...] = ()
        seen: set[str] = set()
        name = term
        while True:
            found = self._sets.get((lexicon.fold(attribute.text), lexicon.fold(name.text)))
            if found is None:
                return syntax.NamedTerm(name, span=term.span), hedges
            if isinstance(found, syntax.Shape):
                return replace(found, span=term.span), hedges
            seen.add(lexicon.fold(name.text))
            name = found.base
            hedges += found.hedges
            if lexicon.fold(name.text) in seen:
                raise LanguageError.at_node(f'"{term.text}" is defined by itself', term)

    def _check_domain(self, element: Element) -> None:
        ends = [element.find("Domain_min"), element.find("Domain_max")]
        if None in ends:
            return
        low, high = (lexicon.read_value(end.text, end.text_span) for end in ends if end is not None)
        if isinstance(low, syntax.Text) or type(low) is not type(high):
            raise LanguageError.at_node("the ends of a domain are two numbers or two moments", high)
        if isinstance(low, syntax.Quantity) and isinstance(high, syntax.Quantity):
            if low.unit is not None and high.unit is not None and low.unit != high.unit:
                raise LanguageError.at_node("the ends of a domain have one unit", high)
            if low.value >= high.value:
                raise LanguageError.at_node("the domain is empty: its ends must rise", high)


# Predicate patterns of the XML surface: how numbered predicates are joined.
#
# Either an expression, "p1 and (p2 or not p3)", or a code of the DENS paper, "d2c1": letter and
# count of each group, c for conjunction and d for disjunction. The two groups are joined by the
# other operator, so d2c1 is (p1 or p2) and p3. Predicates are counted from 1 in document order.

MAX_DEPTH = 48

_TOKEN = re.compile(r"\s*((?:and|or|not)\b|[()]|p\d{1,3}\b|(\S))", re.IGNORECASE)
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
        for match in _TOKEN.finditer(text.rstrip()):
            place = syntax.SourceSpan(*match.span(1))
            if match[2]:
                raise self.refuse(f'"{match[2]}" means nothing', place)
            self.tokens.append((match[1].lower(), place))
        end = self.tokens[-1][1].end if self.tokens else 0
        self.end = syntax.SourceSpan(end, end)
        self.tokens.append(("", self.end))

    def refuse(self, message: str, place: syntax.SourceSpan) -> LanguageError:
        start = self.span.start + place.start
        return LanguageError.at_span(
            f"in the pattern: {message}",
            syntax.SourceSpan(start, start + max(1, place.end - place.start)),
            'as in "p1 and (p2 or not p3)"',
        )

    def parse(self) -> syntax.Condition:
        condition = self.parse_joined(("or", "and"), 0)
        token, place = self.tokens[self.at]
        if token:
            raise self.refuse(f'"{token}" is not expected', place)
        if self.unused:
            missing = ", ".join(f"p{number}" for number in sorted(self.unused))
            raise self.refuse(f"{missing} is missing", self.end)
        return condition

    def parse_joined(self, joints: tuple[str, ...], depth: int) -> syntax.Condition:
        """Parse operands of the first joint, whose operands are joined by the next ones."""
        if depth > MAX_DEPTH:
            raise self.refuse(f"nested more than {MAX_DEPTH} deep", self.tokens[self.at][1])
        if not joints:
            return self.parse_operand(depth)
        operands = [self.parse_joined(joints[1:], depth)]
        while self.tokens[self.at][0] == joints[0]:
            self.at += 1
            operands.append(self.parse_joined(joints[1:], depth))
        if len(operands) == 1:
            return operands[0]
        return (syntax.Or if joints[0] == "or" else syntax.And)(tuple(operands), span=self.span)

    def parse_operand(self, depth: int) -> syntax.Condition:
        token, place = self.tokens[self.at]
        self.at += 1
        if token == "not":
            return syntax.Not(self.parse_joined((), depth + 1), span=self.span)
        if token == "(":
            condition = self.parse_joined(("or", "and"), depth + 1)
            if self.tokens[self.at][0] != ")":
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
