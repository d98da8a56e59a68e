"""Syntax tree to words: `parse_words(print_words(tree)) == tree`, for every tree.

What the grammar would read otherwise is quoted: names with a keyword in them, odd units.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from denwatch.client import syntax
from denwatch.client.errors import LanguageError
from denwatch.client.language import lexicon
from denwatch.client.language.grammar import KEYWORD, load_parser
from denwatch.client.plugins import PluginRegistry, load_registry
from lark import Lark

_OPERATORS = {
    syntax.Operator.EQUAL: "=",
    syntax.Operator.UNEQUAL: "!=",
    syntax.Operator.LESS: "below",
    syntax.Operator.AT_MOST: "at most",
    syntax.Operator.GREATER: "above",
    syntax.Operator.AT_LEAST: "at least",
}
_OF_MOMENTS = {syntax.Operator.LESS: "before", syntax.Operator.GREATER: "after"}
# How a field of the subscription is said, if not by its name.
_SAID = {"possible": "at least", "expiry": "expires after", "quiet": "quiet for"}


def print_words(
    subscription: syntax.SubscriptionTree, registry: PluginRegistry | None = None
) -> str:
    """Return the subscription in words, on one line."""
    return _WordsPrinter(registry or load_registry()).print_subscription(subscription)


def print_condition(condition: syntax.Condition) -> str:
    """Return a condition in words."""
    return _WordsPrinter(load_registry()).print_condition(condition)


def print_name(name: str) -> str:
    """Return a name as the grammar reads it: in quotes where it looks like a keyword."""
    return _WordsPrinter(load_registry()).print_name(name)


class _WordsPrinter:
    def __init__(self, registry: PluginRegistry) -> None:
        self.registry = registry
        # Its restrictor would be read as that of the whole subscription, but for parentheses.
        self.lonely: syntax.PredicateNode | None = None
        self.names, self.unit, self.own, self.keyword = _compile_lexer(load_parser(registry))

    def print_subscription(self, s: syntax.SubscriptionTree) -> str:
        predicates = list(syntax.iterate_predicates(s.condition))
        if sum(p.recent is not None for p in predicates) == 1 and predicates[-1].recent:
            self.lonely = predicates[-1]
        parts = [self.print_condition(s.condition)]
        if s.recent:
            parts.append(self.print_recent(s.recent))
        parts += self.print_fields(s, lexicon.SCALARS)
        if s.aggregator:
            parts.append(self.print_aggregator(s.aggregator))
        for rule in s.rules:
            gives = lexicon.format_number(rule.constant.value)
            if rule.slopes:
                slopes = " and ".join(lexicon.format_number(slope.value) for slope in rule.slopes)
                gives += f" slopes {slopes}"
            parts.append(f"rule {rule.first} with {rule.second} gives {gives}")
        for prefer in s.prefer:
            better, worse = self.print_name(prefer.better.text), self.print_name(prefer.worse.text)
            parts.append(f"prefer {better} over {worse}")
        parts += self.print_fields(s, lexicon.DURATIONS)
        for band in s.dead_bands:
            of = self.print_name(band.attribute.text)
            parts.append(f"dead band {self.print_quantity(band.width)} of {of}")
        if s.persistence:
            hits, window = s.persistence.hits.value, s.persistence.window.value
            parts.append(f"{lexicon.format_number(hits)} of {lexicon.format_number(window)}")
        if s.why:
            parts.append("why")
        if s.whole:
            parts.append("whole reading")
        if s.event:
            parts.append(f"event {self.print_name(s.event.text)}")
        if s.name:
            parts.append(f"named {self.print_name(s.name.text)}")
        return ", ".join(parts)

    def print_fields(self, s: syntax.SubscriptionTree, fields: Iterable[str]) -> Iterator[str]:
        """Yield the scalars and durations that are set."""
        for field in fields:
            value: syntax.Scalar | syntax.Quantity | None = getattr(s, field)
            if value is not None:
                unit = value.unit if isinstance(value, syntax.Quantity) else None
                text = self.print_quantity(syntax.Quantity(value.value, unit))
                yield f"{_SAID.get(field, field.replace('_', ' '))} {text}"

    # Conditions ------------------------------------------------------------------------------

    def print_condition(self, condition: syntax.Condition) -> str:
        match condition:
            case syntax.PredicateNode():
                return self.print_predicate(condition)
            case syntax.Not(operand=operand):
                return f"not ({self.print_condition(operand)})"
            case syntax.And(operands=operands) | syntax.Or(operands=operands):
                joint = " and " if isinstance(condition, syntax.And) else " or "
                return joint.join(map(self.print_operand, operands))

    def print_operand(self, condition: syntax.Condition) -> str:
        words = self.print_condition(condition)
        return f"({words})" if isinstance(condition, syntax.And | syntax.Or) else words

    def print_predicate(self, p: syntax.PredicateNode) -> str:
        words = [self.print_name(p.attribute.text)]
        crisp = isinstance(p.constraint, syntax.CrispComparison | syntax.CrispRange)
        if p.negated or p.hedges or not crisp:
            words.append("is not" if p.negated else "is")
        words += [hedge.value for hedge in p.hedges]
        words.append(self.print_constraint(p.constraint))
        limits = ((key, getattr(p, key)) for key in lexicon.LIMITS)
        words += [f"{key} {lexicon.format_number(limit.value)}" for key, limit in limits if limit]
        if p.recent:
            words.append(self.print_recent(p.recent))
        said = " ".join(words)
        return f"({said})" if p is self.lonely else said

    def print_constraint(self, constraint: syntax.Constraint) -> str:
        match constraint:
            case syntax.NamedTerm(name=name):
                return self.print_name(name.text)
            case syntax.CrispComparison(operator=operator, value=value):
                word = _OPERATORS[operator]
                if isinstance(value, syntax.Moment):
                    word = _OF_MOMENTS.get(operator, word)
                return f"{word} {self.print_value(value)}"
            case syntax.CrispRange(low=low, high=high):
                first, last = map(self.print_value, lexicon.spread_unit([low, high]))
                return f"between {first} and {last}"
            case syntax.About(value=value, spread=spread):
                values = lexicon.spread_unit([value] if spread is None else [value, spread])
                return f"about {' within '.join(map(self.print_value, values))}"
            case (
                syntax.Shape(kind=called, points=given)
                | syntax.Extension(name=called, arguments=given)
            ):
                return self.print_extension(called, given)

    def print_extension(self, name: str, arguments: Sequence[syntax.Value]) -> str:
        """Print a plug-in's constraint in its words if they keep the arguments apart."""
        extension = self.registry.predicates.get(name) or self.registry.shapes.get(name)
        texts = list(map(self.print_value, lexicon.spread_unit(arguments)))
        declared = extension.parameters if extension else ()
        words = [parameter.word for parameter in declared[: len(texts)]]
        usable = [word for word in extension.words if self.own.fullmatch(word)] if extension else []
        if usable and len(words) == len(texts) and all(words[1:]):
            said = [usable[0]]
            for word, text in zip(words, texts, strict=True):
                said += [word, text] if word else [text]
            return " ".join(said)
        return f"{self.print_name(name)}({', '.join(texts)})"

    # Options ---------------------------------------------------------------------------------

    def print_recent(self, recent: syntax.Recent) -> str:
        if recent.phrase is None:
            if recent.within is None:
                raise LanguageError("a temporal restrictor needs a phrase or a duration")
            words = f"in the last {self.print_quantity(recent.within)}"
            if recent.gone is not None:
                words += f" fading until {self.print_quantity(recent.gone)}"
            return words
        if recent.phrase == "recent":
            return "recent"
        few = re.fullmatch(r"few (\S+)", recent.phrase)
        if few and few[1] == few[1].casefold() and self.is_plain(few[1]):
            return f"in the last {recent.phrase}"
        return f"recent {json.dumps(recent.phrase, ensure_ascii=False)}"

    def print_aggregator(self, aggregator: syntax.Aggregator) -> str:
        said = lexicon.say_aggregator(aggregator.name, self.registry)
        if said is None or not self.is_plain(said):
            said = json.dumps(aggregator.name, ensure_ascii=False)
        if not aggregator.arguments:
            return f"by {said}"
        return f"by {said}({', '.join(map(self.print_quantity, aggregator.arguments))})"

    # Names and values ------------------------------------------------------------------------

    def is_plain(self, name: str) -> bool:
        """Return whether the grammar reads a name as it stands."""
        if not self.names.fullmatch(name):
            return False
        starts = [0, *(match.end() for match in re.finditer(" ", name))]
        return not any(self.keyword.match(name, start) for start in starts)

    def print_name(self, name: str) -> str:
        return name if self.is_plain(name) else json.dumps(name, ensure_ascii=False)

    def print_value(self, value: syntax.Value) -> str:
        if isinstance(value, syntax.Text):
            return self.print_name(value.value)
        if isinstance(value, syntax.Moment):
            return lexicon.write_moment(value)
        return self.print_quantity(value)

    def print_quantity(self, quantity: syntax.Quantity) -> str:
        number = lexicon.format_number(quantity.value)
        unit = quantity.unit
        if unit is None:
            return number
        if unit == lexicon.OWN_UNIT:
            return f"{number} {lexicon.OWN_WORD}"
        if self.unit.fullmatch(unit) and unit != lexicon.OWN_WORD and not self.keyword.match(unit):
            return f"{number} {unit}"
        return f"{number} {json.dumps(unit, ensure_ascii=False)}"


@lru_cache(maxsize=8)
def _compile_lexer(parser: Lark) -> tuple[re.Pattern[str], ...]:
    """Return the grammar's own patterns: of names, units, plug-ins' words, and all keywords."""
    terminals = {terminal.name: terminal for terminal in parser.terminals}
    name, unit, own = (terminals[key].pattern.value for key in ("NAME", "UNIT", "EXTENSION"))
    keywords = [
        f"(?:{terminal.pattern.value})"
        for key, terminal in sorted(terminals.items())
        if terminal.priority == KEYWORD and key not in ("_END", "PERCENT")
    ]
    return (
        re.compile(f"(?:{name})(?: (?:{name}))*"),
        re.compile(unit),
        re.compile(own, re.IGNORECASE),
        re.compile("|".join((*keywords, r"the\b")), re.IGNORECASE),
    )
