"""XML to syntax tree, in the DENS paper's shape; `xml_print.py` is the way back.

subscription.xsd says which elements stand where; this file gives them their meaning. A subscription
may define fuzzy sets of its own, as the paper's do: a term that is defined in the document becomes
the shape itself, any other is the vocabulary's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from denwatch.client.errors import LanguageError
from denwatch.client.language.lexicon import LASTLY, fold
from denwatch.client.language.pattern import read_pattern
from denwatch.client.language.values import (
    LIMITS,
    read_hedge,
    read_quantity,
    read_scalar,
    read_text,
    read_value,
)
from denwatch.client.language.xml_schema import list_tags, validate
from denwatch.client.language.xml_sets import FuzzySets, read_fuzzifier
from denwatch.client.language.xml_source import Element, parse_source
from denwatch.client.plugins import (
    AggregatorType,
    MembershipFunction,
    Named,
    PluginRegistry,
    PredicateType,
    load_registry,
)
from denwatch.client.syntax import (
    About,
    Aggregator,
    And,
    Condition,
    Constraint,
    CrispComparison,
    CrispRange,
    DeadBand,
    Extension,
    Hedge,
    Name,
    NamedTerm,
    Operator,
    Persistence,
    PredicateNode,
    Prefer,
    Quantity,
    Recent,
    Scalar,
    Shape,
    SubscriptionTree,
    SugenoRule,
    Value,
)


def parse_xml(text: str, registry: PluginRegistry | None = None) -> SubscriptionTree:
    """Return the subscription of an XML text; LanguageError points at what is wrong."""
    registry = registry or load_registry()
    root = parse_source(text, list_tags(registry))
    validate(root, registry)
    return _XmlReader(registry, root).read()


class _XmlReader:
    def __init__(self, registry: PluginRegistry, root: Element) -> None:
        self.registry = registry
        self.root = root
        self.recent: Recent | None = None
        self.sets = FuzzySets()
        predicates = {extension.tag: extension for extension in registry.predicates.values()}
        shapes = {extension.tag: extension for extension in registry.shapes.values()}
        self.predicates: dict[str, PredicateType] = predicates
        self.shapes: dict[str, MembershipFunction] = shapes
        self.aggregators: dict[str, AggregatorType] = {
            extension.tag: extension for extension in registry.aggregators.values()
        }

    def read(self) -> SubscriptionTree:
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
                raise LanguageError.at_span(f"<{element.tag}> stands here twice", element.start)
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
                fields[key] = Name(read_text(root.attributes[key], span), span=span)
        return SubscriptionTree(self.join(predicates, pattern), **fields, span=root.start)

    def join(self, predicates: Sequence[PredicateNode], pattern: Element | None) -> Condition:
        if pattern is not None:
            return read_pattern(pattern.text, predicates, pattern.text_span)
        if len(predicates) == 1:
            return predicates[0]
        return And(tuple(predicates), span=self.root.start)

    # Predicates ------------------------------------------------------------------------------

    def read_name(self, element: Element) -> Name:
        if not element.text:
            raise LanguageError.at_span(f"<{element.tag}> has no name", element.start)
        return Name(read_text(element.text, element.text_span), span=element.text_span)

    def read_predicate(self, element: Element) -> PredicateNode:
        attribute = self.read_name(element.children[0])
        operator = element.find("Relational-operator")
        negated, hedges = self.read_operator(operator) if operator else (False, ())
        hedges += tuple(read_hedge(h.text, h.text_span) for h in element.find_all("Hedge"))
        constraint, own = self.read_constraint(element.children[-1], attribute)
        limits = {
            key: self.read_scalar(element, key) for key in LIMITS if key in element.attributes
        }
        return PredicateNode(
            attribute, constraint, negated, hedges + own, **limits, span=element.start
        )

    def read_operator(self, element: Element) -> tuple[bool, tuple[Hedge, ...]]:
        """Read "is", "is not", and the paper's "is" with a hedge or with a time."""
        words = fold(element.text).split()
        if words[:1] == ["is"]:
            del words[0]
        negated = words[:1] == ["not"]
        rest = " ".join(words[1:] if negated else words)
        lastly = LASTLY.fullmatch(rest)
        if lastly:
            recent = Recent(lastly[1], span=element.text_span)
            if self.recent not in (None, recent):
                raise LanguageError.at_node("two temporal restrictors", recent)
            self.recent = recent
            return negated, ()
        return negated, (read_hedge(rest, element.text_span),) if rest else ()

    def read_constraint(
        self, element: Element, attribute: Name
    ) -> tuple[Constraint, tuple[Hedge, ...]]:
        """Return the constraint, and the hedges of a term that the document defines by them."""
        span = element.start
        tag = element.tag
        if tag == "term":
            name = self.read_name(element)
            defined = self.sets.find(attribute, name)
            return defined or (NamedTerm(name, span=element.text_span), ())
        if tag == "Fuzzifier":
            return read_fuzzifier(element), ()
        if tag == "About":
            spread = self.read_quantity(element, "spread") if element.attributes else None
            return About(self.read_value(element), spread, span=span), ()
        if tag == "Comparison":
            operator = Operator(element.attributes["operator"].strip())
            return CrispComparison(operator, self.read_value(element), span=span), ()
        if tag == "Range":
            low, high = map(self.read_value, element.children)
            return CrispRange(low, high, span=span), ()
        if tag == "Extension":
            called = read_text(element.attributes["name"], span)
            return Extension(called, tuple(map(self.read_value, element.children)), span=span), ()
        if tag in self.shapes:
            shape = self.shapes[tag]
            return Shape(shape.name, tuple(self.read_arguments(element, shape)), span=span), ()
        plugin = self.predicates[tag]
        return Extension(plugin.name, tuple(self.read_arguments(element, plugin)), span=span), ()

    def read_arguments(self, element: Element, extension: Named) -> list[Value]:
        """Read the arguments of a plug-in, by the names of its parameters."""
        arguments: list[Value] = []
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
            return {"recent": Recent(lastly[1] if lastly else phrase, span=element.text_span)}
        if element.text or "within" not in element.attributes:
            raise LanguageError.at_span('a phrase or "within" is expected', span)
        gone = self.read_quantity(element, "gone") if "gone" in element.attributes else None
        return {"recent": Recent(None, self.read_quantity(element, "within"), gone, span=span)}

    def read_local_linear_model(self, element: Element) -> dict[str, Any]:
        return {"rules": tuple(map(self.read_rule, element.children))}

    def read_rule(self, element: Element) -> SugenoRule:
        slopes = [
            self.read_scalar(element, key)
            for key in ("slope-first", "slope-second")
            if key in element.attributes
        ]
        if len(slopes) == 1:
            raise LanguageError.at_span("both slopes or none", element.start)
        return SugenoRule(
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
                names.append(Name(read_text(child.attributes[key], span), span=span))
            pairs.append(Prefer(names[0], names[1], span=child.start))
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
            raise LanguageError.at_span('"hits" and "window" go together', element.start)
        if counts:
            fields["persistence"] = Persistence(counts[0], counts[1], span=element.start)
        bands = []
        for child in element.children:
            span = child.find_attribute("attribute")
            name = Name(read_text(child.attributes["attribute"], span), span=span)
            bands.append(
                DeadBand(name, read_quantity(child.text, child.text_span), span=child.start)
            )
        return fields | ({"dead_bands": tuple(bands)} if bands else {})

    def read_why(self, _: Element) -> dict[str, Any]:
        return {"why": True}

    # Values ----------------------------------------------------------------------------------

    def read_value(self, element: Element) -> Value:
        return read_value(element.text, element.text_span)

    def read_scalar(self, element: Element, key: str) -> Scalar:
        return read_scalar(element.attributes[key], element.find_attribute(key))

    def read_quantity(self, element: Element, key: str) -> Quantity:
        return read_quantity(element.attributes[key], element.find_attribute(key))


def _aggregate(name: str, arguments: Sequence[Value], element: Element) -> Aggregator:
    quantities = []
    for argument in arguments:
        if not isinstance(argument, Quantity):
            raise LanguageError.at_node("an aggregator's argument is a number", argument)
        quantities.append(replace(argument))
    return Aggregator(name, tuple(quantities), span=element.text_span)
