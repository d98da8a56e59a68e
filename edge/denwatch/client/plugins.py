"""Plug-ins of the language: predicate types, membership functions and aggregators from outside.

A plug-in is a `LanguagePlugin` behind an entry point of the group `denwatch.language`. It adds
names, words, XML tags, a compile rule and an evaluation. Grammar, XML reader and compiler ask the
registry and know no plug-in by name. A compile rule *lowers*: it returns the core's own syntax, so
that a device needs no new code and the decompiler can read the result.

This is the only file that looks for entry points.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from denwatch.client import syntax
from denwatch.client.errors import LanguageError

if TYPE_CHECKING:
    from denwatch.client.vocabulary import Attribute

GROUP = "denwatch.language"
# Declared as entry points too; named here so that a source checkout has them without being
# installed.
SHIPPED = ("denwatch.client.extensions.circular:PLUGIN",)


@dataclass(frozen=True)
class Parameter:
    """One argument: its name in XML and JSON, and the word before it in words ("" for none)."""

    name: str
    word: str = ""
    optional: bool = False


class Named(Protocol):
    """What every extension has: its name in the syntax tree and in JSON, the phrases that name it
    in words, its XML tag, and its arguments in order.

    Optional parameters may be left out from the right.
    """

    @property
    def name(self) -> str: ...
    @property
    def words(self) -> tuple[str, ...]: ...
    @property
    def tag(self) -> str: ...
    @property
    def parameters(self) -> tuple[Parameter, ...]: ...


class PredicateType(Named, Protocol):
    """A constraint: `attribute is WORDS argument word argument ...`, in XML `<TAG .../>`."""

    def lower(self, predicate: syntax.PredicateNode, attribute: Attribute) -> syntax.Condition:
        """Return the predicate in core syntax; its constraint is the Extension.

        Negation, hedges and thresholds of the predicate are already taken off and are put back
        onto the answer, hedges and thresholds only if that is a single predicate.
        """

    def evaluate(self, x: float, arguments: Sequence[syntax.Value], attribute: Attribute) -> float:
        """Return the ideal degree (0..1) of x, in the attribute's unit."""


@runtime_checkable
class Recogniser(Protocol):
    """What a predicate type may do besides: see itself in the two predicates it lowers to."""

    def recognise(
        self, pair: tuple[syntax.PredicateNode, syntax.PredicateNode], attribute: Attribute
    ) -> syntax.Extension | None:
        """Return the constraint that lowers to "one of the pair", None if there is none.

        The pair comes in both orders. The decompiler checks the answer by compiling it.
        """


class MembershipFunction(Named, Protocol):
    """A kind of `Shape`: one hump. The compiler fits it to the wire and reports the error."""

    def find_core(self, points: Sequence[float]) -> tuple[float, float]:
        """Return where the function is highest; LanguageError if the points make no sense."""

    def evaluate(self, x: float, points: Sequence[float]) -> float:
        """Return the degree (0..1) of x; rising before the core, falling after it."""


@dataclass(frozen=True)
class Lowered:
    """A condition in core syntax with the core aggregator that joins it.

    Without an aggregator, weights and rules decide which one it is.
    """

    condition: syntax.Condition
    aggregator: str | None = "minimum"
    rules: tuple[syntax.SugenoRule, ...] = ()


class AggregatorType(Named, Protocol):
    """A way to combine the operands of the outermost `and`."""

    def lower(
        self, operands: tuple[syntax.Condition, ...], arguments: Sequence[syntax.Quantity]
    ) -> Lowered:
        """Return the aggregation in core terms."""

    def evaluate(self, degrees: Sequence[float], arguments: Sequence[float]) -> float:
        """Return the ideal degree (0..1) of the whole."""


@dataclass(frozen=True)
class LanguagePlugin:
    """What one entry point brings."""

    name: str
    predicates: tuple[PredicateType, ...] = ()
    shapes: tuple[MembershipFunction, ...] = ()
    aggregators: tuple[AggregatorType, ...] = ()


@dataclass(frozen=True)
class PluginRegistry:
    """All plug-ins that are there, by what they add."""

    predicates: Mapping[str, PredicateType] = field(default_factory=dict)
    shapes: Mapping[str, MembershipFunction] = field(default_factory=dict)
    aggregators: Mapping[str, AggregatorType] = field(default_factory=dict)

    @cached_property
    def constraints(self) -> tuple[PredicateType | MembershipFunction, ...]:
        """What may follow an attribute."""
        return (*self.predicates.values(), *self.shapes.values())

    @cached_property
    def words(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words that the grammar must know: of constraints, and before their arguments."""
        phrases = {word for extension in self.constraints for word in extension.words}
        named: tuple[Named, ...] = (*self.constraints, *self.aggregators.values())
        parameters = {p.word for extension in named for p in extension.parameters if p.word}
        return tuple(sorted(phrases)), tuple(sorted(parameters))

    @classmethod
    def of(cls, plugins: Iterable[LanguagePlugin]) -> PluginRegistry:
        """Return the registry of some plug-ins; a name may be added once."""
        found: dict[str, dict[str, Any]] = {"predicates": {}, "shapes": {}, "aggregators": {}}
        for plugin in plugins:
            for kind, known in found.items():
                for extension in getattr(plugin, kind):
                    if extension.name in known:
                        raise LanguageError(
                            f'plug-in "{plugin.name}" adds "{extension.name}", which another one'
                            " has added"
                        )
                    known[extension.name] = extension
        return cls(**found)


def order_arguments(extension: Named, given: Container[str], span: syntax.SourceSpan) -> list[str]:
    """Return the names of the arguments that are given, in order; only the last may be missing."""
    names = [parameter.name for parameter in extension.parameters]
    found = [name for name in names if name in given]
    if found != names[: len(found)]:
        missing = next(name for name in names if name not in given)
        raise LanguageError.at_span(f'"{missing}" is missing', span)
    return found


def check_arguments(extension: Named, arguments: Sequence[object], node: syntax.SyntaxNode) -> None:
    """Raise LanguageError unless there are as many arguments as the extension declares."""
    least = sum(not parameter.optional for parameter in extension.parameters)
    most = len(extension.parameters)
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        names = ", ".join(parameter.name for parameter in extension.parameters)
        raise LanguageError.at_node(
            f'"{extension.name}" takes {wanted} arguments, not {len(arguments)}', node, names
        )


def load_entry_points(group: str, shipped: Sequence[str], kind: type[Any]) -> list[Any]:
    """Return what is shipped and what is installed of a group: objects of a kind, with names."""
    from importlib.metadata import (  # slow to import: only who compiles pays
        EntryPoint,
        entry_points,
    )

    entries = [EntryPoint("shipped", value, group) for value in shipped]
    entries += [entry for entry in entry_points(group=group) if entry.value not in shipped]
    plugins: dict[str, Any] = {}
    for entry in entries:
        plugin = entry.load()
        if not isinstance(plugin, kind):
            raise LanguageError(f"entry point {entry.name} of {group} is not a {kind.__name__}")
        if plugin.name in plugins:
            raise LanguageError(f'two plug-ins are called "{plugin.name}"')
        plugins[plugin.name] = plugin
    return list(plugins.values())


@cache
def load_registry() -> PluginRegistry:
    """Return the shipped plug-ins and those that are installed; read once."""
    return PluginRegistry.of(load_entry_points(GROUP, SHIPPED, LanguagePlugin))
