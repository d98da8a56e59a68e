"""Fits the predicates of a subscription to the wire, as the whole subscription needs it.

Where only thresholds decide (minimum, maximum and every nesting of them), the values at which a
degree passes a threshold stay where they were meant. Elsewhere the least error counts. Hedges go to
the wire as they are, exactly; *fitting away* a hedge or a second gamma saves bytes and is done only
when asked. The arithmetic is `vocabulary.fitting`; the attribute keeps the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from denwatch.client.compiler.constraints import CrispSet, FuzzySet, Meaning
from denwatch.client.syntax import Hedge, PredicateNode
from denwatch.client.vocabulary import Attribute, Fit, Membership, Triple
from denwatch.client.vocabulary.fitting import Demand, find_power, find_width
from denwatch.protocol import vectors
from denwatch.protocol.cuts import invert_hedge
from denwatch.protocol.degrees import CRISP, EXTREMELY, MORE_OR_LESS, VERY, reach

_CODES = {
    Hedge.VERY: VERY,
    Hedge.EXTREMELY: EXTREMELY,
    Hedge.MORE_OR_LESS: MORE_OR_LESS,
    Hedge.SOMEWHAT: MORE_OR_LESS,
}
_POWERS = {code: find_power(code) for code in range(1, 16) if code & 3}
# How far from a threshold an ideal degree may be before its value must fall on the right side.
_TOLERANCE = 0.01


@dataclass(frozen=True)
class Draft:
    """A predicate with its attribute, its set and its thresholds as codes."""

    source: PredicateNode
    attribute: Attribute
    meaning: Meaning
    hedge: int  # the wire's code
    extra_power: float  # hedges that the wire has no code for
    possible: int = 0
    certain: int = 0
    weight: int = 1

    @property
    def negated(self) -> bool:
        """Whether the predicate as written is a negation."""
        inner = isinstance(self.meaning, CrispSet) and self.meaning.negated
        return self.source.negated != inner

    @property
    def is_crisp(self) -> bool:
        """Whether the set has no slope that a hedge could modify."""
        meaning = self.meaning
        return isinstance(meaning, CrispSet) and (
            meaning.triple.left == meaning.triple.right == CRISP
        )

    @property
    def has_thresholds(self) -> bool:
        """Whether the predicate has thresholds of its own."""
        return bool(self.possible or self.certain)


def encode_hedges(hedges: Sequence[Hedge]) -> tuple[int, float]:
    """Return the wire's hedge code and the power left over; the last hedge acts first."""
    code = 0
    for hedge in hedges[:2]:
        code = code << 2 | _CODES[hedge]
    if len(hedges) <= 2:
        return code, 1.0
    power = 1.0
    for hedge in hedges:
        power *= find_power(_CODES[hedge])
    if power == 1.0:
        return 0, 1.0
    for code in sorted(_POWERS):
        if _POWERS[code] == power:
            return code, 1.0
    return 0, power


def cut_triple(triple: Triple, hedge: int, level: int, attribute: Attribute) -> Demand:
    """Return the codes whose hedged degree is at least a level."""
    base = invert_hedge(hedge, level)
    left = reach(triple.left, base, attribute.wide)
    right = reach(triple.right, base, attribute.wide)
    return Demand(level, max(triple.low - left, 0), min(triple.high + right, attribute.last))


def fit_draft(draft: Draft, levels: Sequence[int]) -> Fit:
    """Return the draft for the wire, hedges as hedges; `levels` are of the set, decisive first.

    The answer is kept with the attribute: a second sentence with the same term, hedges and
    thresholds computes nothing.
    """
    meaning = draft.meaning
    if isinstance(meaning, CrispSet) and draft.extra_power == 1.0:
        return Fit(meaning.triple, 0.0, 0 if draft.is_crisp else draft.hedge, meaning.note)
    if isinstance(meaning, FuzzySet):
        membership = meaning.membership
    else:  # the ideal function that the triple stands for
        triple, wide = meaning.triple, draft.attribute.wide
        left, right = find_width(triple.left, wide), find_width(triple.right, wide)
        positions = (triple.low - left, triple.low, triple.high, triple.high + right)
        membership = Membership("trapezoid", tuple(map(draft.attribute.to_value, positions)))
    base, hedge = membership.hedged(draft.extra_power), draft.hedge
    key = base, hedge, tuple(levels)
    return draft.attribute.remember_fit(
        key, lambda: _fit_levels(base, hedge, levels, draft.attribute)
    )


def _fit_levels(base: Membership, hedge: int, levels: Sequence[int], attribute: Attribute) -> Fit:
    """Return the plain fit of a set, or one tuned to the levels if it passes them elsewhere."""
    plain = attribute.fit(base)
    full = base.hedged(find_power(hedge))
    demands = list_demands(plain.triple, hedge, levels, attribute, full)
    if demands is None:
        error = attribute.measure(full, plain.triple, hedge) if hedge else plain.error
        message = "" if base.is_linear else "fitted to straight sides"
        fit = Fit(plain.triple, error, hedge, message)
    else:
        tuned = attribute.fit(full, hedge, demands)
        message = "fitted so that it reaches the threshold at the intended value"
        fit = replace(tuned, message=message)
    if fit.triple.left == fit.triple.right == CRISP:
        return replace(fit, hedge=0)  # too steep for the wire: nothing is left to modify
    return fit


def list_demands(
    triple: Triple, hedge: int, levels: Sequence[int], attribute: Attribute, ideal: Membership
) -> tuple[Demand, ...] | None:
    """Return the cuts that the ideal has at the levels, None if the triple has them already."""
    demands = []
    off = False
    for level in levels:
        wanted = attribute.find_cut(ideal, level / 255)
        if wanted is None:
            continue
        demand = Demand(level, *wanted)
        demands.append(demand)
        found = cut_triple(triple, hedge, level, attribute)
        off = off or _is_off(found, demand, attribute, ideal)
    return tuple(demands) if off else None


def _is_off(found: Demand, wanted: Demand, attribute: Attribute, ideal: Membership) -> bool:
    """Return whether a value is on the wrong side though its degree is clear of the threshold."""
    threshold = wanted.level / 255
    for got, meant, outwards in ((found.low, wanted.low, -1), (found.high, wanted.high, 1)):
        if got != meant:
            worst = got if (got - meant) * outwards > 0 else got + outwards
            degree = ideal.evaluate(attribute.to_value(worst))
            if abs(degree - threshold) > _TOLERANCE:
                return True
    return False


def fit_away(draft: Draft, exact: Fit, levels: Sequence[int], symmetric: bool) -> Fit | None:
    """Return the draft without hedges, and with one gamma if `symmetric`, None if that fails.

    With levels the cuts at them stay exactly those of the exact form; the first one must, the
    others if a triple can. Without, as for means and products, the least error counts.
    """
    if not exact.hedge and (exact.triple.is_symmetric or not symmetric):
        return exact
    if isinstance(draft.meaning, CrispSet):
        return None  # a triple that was written as such stays
    attribute = draft.attribute
    ideal = draft.meaning.membership.hedged(draft.extra_power)
    ideal = ideal.hedged(find_power(exact.hedge))
    demands = tuple(cut_triple(exact.triple, exact.hedge, level, attribute) for level in levels)
    fit: Fit = attribute.fit(ideal, 0, demands, symmetric)
    if symmetric and not fit.triple.is_symmetric:
        return None
    if demands and cut_triple(fit.triple, 0, demands[0].level, attribute) != demands[0]:
        return None
    message = "hedge" if exact.hedge else "second slope"
    kept = ", without moving the threshold" if demands else ""
    return Fit(fit.triple, fit.error, 0, f"{message} fitted away to save bytes{kept}")


def build_predicate(draft: Draft, fitted: Fit, negated: bool) -> vectors.Predicate:
    """Return the wire's predicate."""
    triple = fitted.triple
    return vectors.Predicate(
        attribute=draft.attribute.bit,
        low=triple.low,
        high=triple.high,
        left=triple.left,
        right=triple.right,
        negated=negated,
        hedge=fitted.hedge,
        wide=draft.attribute.wide,
        possible=draft.possible,
        certain=draft.certain,
        weight=draft.weight,
    )
