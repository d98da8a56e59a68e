"""`denwatch plot`: membership functions, the quantised one over the ideal one.

The only file of `edge` that imports matplotlib, and only when it is called.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denwatch.cli import common
from denwatch.cli.errors import WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from denwatch.client.syntax import SubscriptionTree
    from denwatch.client.vocabulary import Attribute, Vocabulary

_DESCRIPTION = """
Draws all terms of an attribute, or the predicates of a subscription in words, XML or JSON by
attribute. Thin dark lines are the ideal functions, wide coloured ones the quantised functions of
the vector."""
_EXAMPLES = """
denwatch plot patient_temperature -o temperature.svg
denwatch plot 'patient_temperature is very high and heart_rate is not normal' -o fever.png
denwatch plot --vocabulary weather 'wind_direction is near 350 ° within 40 °' -o wind.png"""
_FORMATS = (".png", ".svg")
_SAMPLES = 1024


@dataclass(frozen=True)
class Curve:
    """One function over an attribute's codes: its label, the ideal and the quantised function."""

    label: str
    ideal: Callable[[float], float] | None  # of a value in the attribute's unit
    device: Callable[[int], int] | None  # of a code


@dataclass(frozen=True)
class Panel:
    """The curves of one attribute."""

    attribute: Attribute
    curves: tuple[Curve, ...]


def run(argv: list[str]) -> int:
    """Draw one attribute or one subscription."""
    arguments = _parse(argv)
    output = Path(arguments.output)
    if output.suffix.casefold() not in _FORMATS:
        raise CommandError(f"{output}: a picture ends in {' or '.join(_FORMATS)}", WRONG_USAGE)
    text, name = common.read_input(arguments.what, arguments.file)
    vocabulary = common.load_vocabulary(arguments.vocabulary).prefer(arguments.organisation)
    with common.underline(text, name):
        panels = find_panels(text, vocabulary)
    draw(panels, output, text if len(text) <= 90 and "\n" not in text else "")
    print(output)
    return 0


def find_panels(text: str, vocabulary: Vocabulary) -> list[Panel]:
    """Return what is to be drawn: an attribute's terms, or a subscription's predicates."""
    from denwatch.client.errors import LanguageError
    from denwatch.client.language import parse
    from denwatch.client.syntax import Name, SourceSpan

    name = Name(text.strip(), span=SourceSpan(0, len(text)))
    try:
        attributes = vocabulary.find_attributes(name)
    except LanguageError as unknown:
        if len(text.split()) == 1 and text[:1] not in "<{":
            raise unknown from None
        return list_predicates(parse(text), vocabulary)
    return [panel for attribute in attributes for panel in [list_terms(attribute)] if panel.curves]


def list_terms(attribute: Attribute) -> Panel:
    """Return the terms of an attribute as curves."""
    from denwatch.protocol.degrees import fuzzify

    curves = []
    for term in attribute.terms.values():
        triple = attribute.fit_term(term).triple

        def device(code: int, triple: Any = triple) -> int:
            return fuzzify(code, triple.low, triple.high, triple.left, triple.right, attribute.wide)

        curves.append(Curve(term.name, term.membership.evaluate, device))
    return Panel(attribute, tuple(curves))


def list_predicates(tree: SubscriptionTree, vocabulary: Vocabulary) -> list[Panel]:
    """Return the predicates of a subscription as curves, by attribute."""
    from denwatch.client.compiler import compile_subscription
    from denwatch.client.compiler.compiler import Lowerer, lower_aggregator, resolve_event
    from denwatch.client.compiler.constraints import ConstraintReader, FuzzySet
    from denwatch.client.language.words_printer import print_condition
    from denwatch.client.plugins import load_registry
    from denwatch.client.vocabulary.fitting import find_power
    from denwatch.protocol.degrees import fuzzify, hedge

    registry = load_registry()
    compiled = compile_subscription(tree, vocabulary)
    event = resolve_event(tree, vocabulary)
    lowerer = Lowerer(ConstraintReader(vocabulary, registry), event)
    lowerer.lower(lower_aggregator(tree, registry).condition)
    curves: dict[int, list[Curve]] = {}
    for draft in lowerer.drafts:
        if not isinstance(draft.meaning, FuzzySet):
            continue
        power = draft.extra_power * find_power(draft.hedge)
        membership = draft.meaning.membership.hedged(power)

        def ideal(x: float, m: Any = membership, negated: bool = draft.negated) -> float:
            degree: float = m.evaluate(x)
            return 1 - degree if negated else degree

        label = print_condition(draft.source)
        curves.setdefault(draft.attribute.bit, []).append(Curve(label, ideal, None))
    for p in compiled.vector.predicates:

        def device(code: int, p: Any = p) -> int:
            degree = hedge(fuzzify(code, p.low, p.high, p.left, p.right, p.wide), p.hedge)
            return 255 - degree if p.negated else degree

        curves.setdefault(p.attribute, []).append(Curve("", None, device))
    attributes = [event.find_bit(bit) for bit in sorted(curves)]
    return [Panel(a, tuple(curves[a.bit])) for a in attributes if a is not None]


def draw(panels: list[Panel], output: Path, title: str) -> None:
    """Draw the panels one under the other and write the picture."""
    with common.need_extra("plot"):
        from matplotlib import rc_context
        from matplotlib.colors import TABLEAU_COLORS
        from matplotlib.figure import Figure
    if not panels:
        raise CommandError("nothing to draw: this attribute has no fuzzy terms")
    figure = Figure(figsize=(8, 0.6 + 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for panel, axis in zip(panels, axes, strict=True):
        draw_panel(axis, panel, list(TABLEAU_COLORS.values()))
    if title:
        figure.suptitle(title, fontsize=10)
    # The same input gives the same file: no date, no random ids.
    metadata = {"Date": None} if output.suffix.casefold() == ".svg" else {}
    with rc_context({"svg.hashsalt": "denwatch"}), common.reach(output):
        figure.savefig(output, dpi=130, metadata=metadata)


def draw_panel(axis: Any, panel: Panel, colours: Any) -> None:
    """Draw the curves of one attribute."""
    from denwatch.client.vocabulary import ValueKind

    attribute = panel.attribute
    is_text = attribute.kind is ValueKind.TEXT
    step = max(1, (attribute.last + 1) // _SAMPLES)
    codes = attribute.symbol_codes if is_text else range(0, attribute.last + 1, step)
    values = [attribute.to_value(code) for code in codes]
    fine = [attribute.low + (attribute.high - attribute.low) * i / 2000 for i in range(2001)]
    used = 0
    for place, curve in enumerate(panel.curves):
        if curve.device is not None:
            degrees = [curve.device(code) / 255 for code in codes]
            colour = colours[used % len(colours)]
            label = f"{curve.label}, quantised" if curve.label else "quantised"
            style = {"color": colour, "alpha": 0.5, "label": label}
            if is_text:
                axis.plot(values, degrees, "o", markersize=9, **style)
            else:
                axis.step(values, degrees, where="mid", linewidth=4, **style)
            used += 1
        if curve.ideal is not None:
            label = (
                f"{curve.label}, ideal" if curve.device is None else "ideal" if used == 1 else "_"
            )
            dashes = ("-", "--", ":", "-.")[place % 4] if curve.device is None else "-"
            degrees = [curve.ideal(x) for x in fine]
            axis.plot(fine, degrees, "k", linestyle=dashes, linewidth=1, label=label)
    axis.set_ylim(-0.05, 1.08)
    axis.set_xlabel(f"{attribute.name} [{attribute.unit}]" if attribute.unit else attribute.name)
    axis.set_ylabel("degree")
    if is_text:
        axis.set_xticks(range(len(attribute.symbols)), attribute.symbols)
    elif attribute.kind is not ValueKind.NUMBER:
        from denwatch.client.vocabulary import format_moment

        def format_tick(x: float, _: int | None) -> str:
            return format_moment(min(max(x, attribute.low), attribute.high), attribute.kind)

        axis.xaxis.set_major_formatter(format_tick)
        if attribute.kind is ValueKind.TIME:
            axis.set_xticks([hour * 3600 for hour in range(0, 25, 4)])
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    axis.grid(alpha=0.3)


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Draw membership functions, the quantised one over the ideal one."
    parser = common.build_parser("plot", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("what", nargs="?", help='an attribute or a subscription; "-" reads stdin')
    common.add_option(parser, "-f, --file FILE", "read the subscription from a file")
    common.add_option(parser, "-o, --output OUTPUT", "the picture, .png or .svg", required=True)
    common.add_vocabulary(parser)
    return parser.parse_args(argv)
