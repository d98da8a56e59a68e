"""Syntax tree to XML: `parse_xml(print_xml(tree)) == tree`, valid by subscription.xsd.

With a vocabulary the document is *self-contained*, as the DENS paper's are: domain, terms and
fuzzifiers of every attribute are written out, so that a reader needs no vocabulary to see what is
meant. Read back, such terms are shapes; they compile to the same bytes.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from denwatch.client import syntax
from denwatch.client.language import lexicon
from denwatch.client.plugins import Named, PluginRegistry, load_registry
from denwatch.client.vocabulary import (
    Attribute,
    ValueKind,
    Vocabulary,
    VocabularyTerm,
    format_moment,
)
from denwatch.client.vocabulary.values import write_place

_Attributes = dict[str, str]
_KIND = re.compile(r"[\w-]+")


def print_xml(
    subscription: syntax.SubscriptionTree,
    registry: PluginRegistry | None = None,
    vocabulary: Vocabulary | None = None,
) -> str:
    """Return the subscription as an XML document; with a vocabulary, it is self-contained."""
    printer = _XmlPrinter(registry or load_registry(), vocabulary)
    return "\n".join(printer.print_subscription(subscription)) + "\n"


@dataclass(frozen=True)
class _XmlPrinter:
    registry: PluginRegistry
    vocabulary: Vocabulary | None

    def print_subscription(self, s: syntax.SubscriptionTree) -> Iterator[str]:
        names = {"event": s.event, "name": s.name}
        attributes = {key: lexicon.write_text(name.text) for key, name in names.items() if name}
        yield '<?xml version="1.0" encoding="UTF-8"?>'
        yield f"<Subscription{_write_attributes(attributes)}>"
        predicates: list[syntax.PredicateNode] = []
        pattern = write_pattern(s.condition, predicates)
        for predicate in predicates:
            yield from _indent(self.print_predicate(predicate, s))
        if s.aggregator is not None:
            name, arguments = s.aggregator.name, s.aggregator.arguments
            inner = _write_plugin(self.registry.aggregators.get(name), arguments)
            inner = inner or escape(lexicon.write_text(name)) + _write_all("argument", arguments)
            yield f"  <Aggregating-function>{inner}</Aggregating-function>"
        if not _is_plain(s.condition):
            yield f"  <Predicate-pattern>{pattern}</Predicate-pattern>"
        yield from _indent(_print_options(s))
        yield "</Subscription>"

    def print_predicate(self, p: syntax.PredicateNode, s: syntax.SubscriptionTree) -> Iterator[str]:
        crisp = isinstance(p.constraint, syntax.CrispComparison | syntax.CrispRange)
        tag = "Crisp-Predicate" if crisp else "Approximate-Predicate"
        yield f"<{tag}{_write_attributes(_take(p, *lexicon.LIMITS))}>"
        kind = "crisp variable" if crisp else "fuzzy variable"
        name = escape(lexicon.write_text(p.attribute.text))
        defined = [] if self.vocabulary is None else list(self.print_sets(self.vocabulary, p, s))
        yield f'  <Attribute type="{kind}">{name}{"" if defined else "</Attribute>"}'
        if defined:
            yield from (f"    {line}" for line in defined)
            yield "  </Attribute>"
        if p.negated:
            yield "  <Relational-operator>is not</Relational-operator>"
        for hedge in p.hedges:
            yield f"  <Hedge>{hedge.value}</Hedge>"
        yield from _indent(_print_recent(p.recent))
        yield f"  {self.print_constraint(p.constraint)}"
        yield f"</{tag}>"

    def print_constraint(self, constraint: syntax.Constraint) -> str:
        match constraint:
            case syntax.NamedTerm(name=name):
                return f"<term>{escape(lexicon.write_text(name.text))}</term>"
            case syntax.CrispComparison(operator=operator, value=value):
                head = f"Comparison operator={quoteattr(operator.value)}"
                return f"<{head}>{escape(lexicon.write_value(value))}</Comparison>"
            case syntax.CrispRange(low=low, high=high):
                return f"<Range>{_write_all('low', [low])}{_write_all('high', [high])}</Range>"
            case syntax.About(value=value):
                text = escape(lexicon.write_value(value))
                return f"<About{_write_attributes(_take(constraint, 'spread'))}>{text}</About>"
            case syntax.Shape(kind=kind, points=points):
                plugin = _write_plugin(self.registry.shapes.get(kind), points)
                return plugin or _write_fuzzifier(kind, points)
            case syntax.Extension(name=called, arguments=arguments):
                plugin = _write_plugin(self.registry.predicates.get(called), arguments)
                inner = _write_all("argument", arguments)
                head = f"Extension name={quoteattr(lexicon.write_text(called))}"
                return plugin or f"<{head}>{inner}</Extension>"

    # Fuzzy sets of the vocabulary --------------------------------------------------------------

    def print_sets(
        self, vocabulary: Vocabulary, p: syntax.PredicateNode, s: syntax.SubscriptionTree
    ) -> Iterator[str]:
        """Yield terms, domain and fuzzifiers of the predicate's attribute."""
        event = vocabulary.find_event(s.event) if s.event else None
        attribute = vocabulary.find_attributes(p.attribute, event)[0]
        terms = dict(attribute.terms)
        if isinstance(p.constraint, syntax.NamedTerm):
            named = p.constraint.name.text
            term = vocabulary.find_term(attribute, p.constraint.name)
            if term is not None and lexicon.fold(named) not in map(lexicon.fold, terms):
                terms[named] = term  # a synonym is defined under its own name too
        names = [*attribute.symbols, *terms]
        if names:
            yield f"<Fuzzy-Terms>{escape(', '.join(names))}</Fuzzy-Terms>"
        if attribute.kind is not ValueKind.TEXT:
            yield f"<Domain_min>{escape(_write_end(attribute, attribute.low))}</Domain_min>"
            yield f"<Domain_max>{escape(_write_end(attribute, attribute.high))}</Domain_max>"
        for name, term in terms.items():
            if not _is_writable(attribute, term):
                continue  # the vocabulary's own stays in force
            inner = f"<term>{escape(lexicon.write_text(name))}</term>{_write_set(attribute, term)}"
            yield f"<Fuzzy-Set>{inner}</Fuzzy-Set>"


def _write_set(attribute: Attribute, term: VocabularyTerm) -> str:
    if term.base is not None:
        hedges = "".join(f"<Hedge>{hedge}</Hedge>" for hedge in term.hedges)
        return f"{hedges}<term>{escape(lexicon.write_text(term.base))}</term>"
    kind, points = term.membership.kind, term.membership.points
    if attribute.kind is ValueKind.NUMBER:
        return _write_fuzzifier(
            kind, tuple(syntax.Quantity(point, attribute.unit) for point in points)
        )
    places = 1 if kind in ("bell", "gaussian") else len(points)  # the others are widths
    values = [_write_point(attribute, point) for point in points[:places]]
    return _write_fuzzifier(kind, (*values, *map(syntax.Quantity, points[places:])))


def _write_point(attribute: Attribute, point: float) -> syntax.Value:
    if attribute.kind is ValueKind.TEXT:
        return write_place(point, attribute)
    return syntax.Moment(format_moment(point, attribute.kind))


def _is_writable(attribute: Attribute, term: VocabularyTerm) -> bool:
    """Return whether a term's points are moments of the calendar or the day, where they must be."""
    low, high = {
        ValueKind.DATE: (1.0, float(datetime.date.max.toordinal())),
        ValueKind.TIME: (0.0, 86400.0),
    }.get(attribute.kind, (-math.inf, math.inf))
    return all(low <= point <= high for point in term.membership.points)


def _write_end(attribute: Attribute, value: float) -> str:
    if attribute.kind is ValueKind.NUMBER:
        return lexicon.write_quantity(syntax.Quantity(value, attribute.unit))
    return format_moment(value, attribute.kind)


def _write_fuzzifier(kind: str, points: tuple[syntax.Value, ...]) -> str:
    units = {point.unit for point in points if isinstance(point, syntax.Quantity)}
    is_text = any(isinstance(point, syntax.Text) for point in points)
    if _KIND.fullmatch(kind) and not is_text and (len(units) < 2 or None not in units):
        values = ", ".join(map(lexicon.write_value, lexicon.spread_unit(points)))
        return f"<Fuzzifier>{escape(f'{kind}({values})')}</Fuzzifier>"
    head = f"Fuzzifier kind={quoteattr(lexicon.write_text(kind))}"
    return f"<{head}>{_write_all('point', points)}</Fuzzifier>"


def _write_plugin(extension: Named | None, arguments: Sequence[syntax.Value]) -> str:
    """Return a plug-in's element; "" if it is not valid with so many arguments."""
    parameters = extension.parameters if extension else ()
    least = sum(not parameter.optional for parameter in parameters)
    if extension is None or not least <= len(arguments) <= len(parameters):
        return ""
    names = [parameter.name for parameter in parameters]
    values = dict(zip(names, map(lexicon.write_value, arguments), strict=False))
    return f"<{extension.tag}{_write_attributes(values)}/>"


def _write_all(tag: str, values: Iterable[syntax.Value]) -> str:
    return "".join(f"<{tag}>{escape(lexicon.write_value(value))}</{tag}>" for value in values)


# Options -----------------------------------------------------------------------------------------


def _print_recent(recent: syntax.Recent | None) -> Iterator[str]:
    """Yield a temporal restrictor, of the subscription or of one predicate."""
    if recent is None:
        return
    if recent.phrase is None:
        yield from _print_element("Temporal-restrictor", _take(recent, "within", "gone"))
        return
    phrase = lexicon.write_text(recent.phrase)
    if lexicon.LASTLY.fullmatch(lexicon.fold(phrase)):
        phrase = lexicon.quote(phrase)
    yield f"<Temporal-restrictor>{escape(phrase)}</Temporal-restrictor>"


def _print_options(s: syntax.SubscriptionTree) -> Iterator[str]:
    yield from _print_element("Threshold", _take(s, "possible", "certain"))
    yield from _print_recent(s.recent)
    if s.rules:
        yield from _print_element("Local-linear-model", {}, map(_write_rule, s.rules))
    pairs = [
        {
            "better": lexicon.write_text(prefer.better.text),
            "worse": lexicon.write_text(prefer.worse.text),
        }
        for prefer in s.prefer
    ]
    inner = [f"<Prefer{_write_attributes(pair)}/>" for pair in pairs]
    yield from _print_element("Preference", _take(s, "score", "top"), inner)
    yield from _print_element("Lifetime", _take(s, "valid_for", "expiry"))
    attributes = _take(s, "relative_band", "hysteresis")
    if s.persistence is not None:
        attributes |= _take(s.persistence, "hits", "window")
    attributes |= _take(s, "heartbeat", "quiet")
    inner = [
        f"<Dead-band attribute={quoteattr(lexicon.write_text(band.attribute.text))}>"
        f"{escape(lexicon.write_quantity(band.width))}</Dead-band>"
        for band in s.dead_bands
    ]
    yield from _print_element("Significance", attributes, inner)
    if s.why:
        yield "<Why/>"
    if s.whole:
        yield "<Whole/>"


def _write_rule(rule: syntax.SugenoRule) -> str:
    attributes = {"first": str(rule.first), "second": str(rule.second)} | _take(rule, "constant")
    slopes = zip(("slope-first", "slope-second"), rule.slopes or (), strict=False)
    attributes |= {key: lexicon.format_number(slope.value) for key, slope in slopes}
    return f"<Rule{_write_attributes(attributes)}/>"


def _print_element(tag: str, attributes: _Attributes, inner: Iterable[str] = ()) -> Iterator[str]:
    """Yield an element, unless it would say nothing."""
    lines = [f"  {line}" for line in inner]
    if lines:
        yield from (f"<{tag}{_write_attributes(attributes)}>", *lines, f"</{tag}>")
    elif attributes:
        yield f"<{tag}{_write_attributes(attributes)}/>"


def _take(node: object, *fields: str) -> _Attributes:
    """Return the fields that are set as attributes: `valid_for` is "valid-for"."""
    values: dict[str, syntax.Scalar | syntax.Quantity | None] = {
        field.replace("_", "-"): getattr(node, field) for field in fields
    }
    return {
        key: lexicon.write_quantity(value)
        if isinstance(value, syntax.Quantity)
        else lexicon.format_number(value.value)
        for key, value in values.items()
        if value is not None
    }


def _write_attributes(attributes: _Attributes) -> str:
    return "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())


def _indent(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _is_plain(condition: syntax.Condition) -> bool:
    """Return whether a condition is what an absent pattern means."""
    if isinstance(condition, syntax.And):
        return all(isinstance(operand, syntax.PredicateNode) for operand in condition.operands)
    return isinstance(condition, syntax.PredicateNode)


def write_pattern(condition: syntax.Condition, predicates: list[syntax.PredicateNode]) -> str:
    """Return the pattern of a condition; its predicates are appended in the order they stand."""
    match condition:
        case syntax.PredicateNode():
            predicates.append(condition)
            return f"p{len(predicates)}"
        case syntax.Not(operand=operand):
            inner = write_pattern(operand, predicates)
            return f"not {inner if isinstance(operand, syntax.PredicateNode) else f'({inner})'}"
        case syntax.And(operands=operands) | syntax.Or(operands=operands):
            parts = []
            for operand in operands:
                inner = write_pattern(operand, predicates)
                parts.append(f"({inner})" if isinstance(operand, syntax.And | syntax.Or) else inner)
            return (" and " if isinstance(condition, syntax.And) else " or ").join(parts)
