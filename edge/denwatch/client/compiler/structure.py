"""Any nesting of and, or, not: its normal form, its levels, and the wire's postfix pattern.

Equal conditions give equal patterns: operands have no order, repeats are dropped where repeating
changes nothing, "not" moves down to the predicates where that is exact. Leaves are numbers of
predicates; this file knows neither sets nor vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from denwatch.client.errors import LanguageError
from denwatch.protocol.cuts import cut, find_level
from denwatch.protocol.degrees import MAX, MIN, PRODUCT, SUGENO, WEIGHTED
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import AND, MAX_PREDICATES, NOT, OR, Predicate, check_pattern


@dataclass(frozen=True)
class Leaf:
    """One predicate, maybe negated."""

    index: int
    negated: bool = False


@dataclass(frozen=True)
class Connective:
    """Operands joined by "and", or by "or"."""

    is_or: bool
    operands: tuple[Tree, ...]


@dataclass(frozen=True)
class Inverse:
    """The contrary of something that cannot take the negation in."""

    operand: Tree


Tree = Leaf | Connective | Inverse


def turn_to_or(tree: Tree) -> Tree:
    """Return the tree with every "and" an "or": what the maximum as aggregator means."""
    if isinstance(tree, Connective):
        return Connective(True, tuple(map(turn_to_or, tree.operands)))
    return Inverse(turn_to_or(tree.operand)) if isinstance(tree, Inverse) else tree


def push_negations(
    tree: Tree, kind: int, is_fixed: Callable[[int], bool], negate: bool = False
) -> Tree:
    """Return the tree with negations at its predicates, as far as the aggregator lets them go.

    Under the minimum they go through everything. A predicate that `is_fixed` has thresholds of
    its own, which a negation would move.
    """
    if isinstance(tree, Leaf):
        if not negate:
            return tree
        return Inverse(tree) if is_fixed(tree.index) else Leaf(tree.index, not tree.negated)
    if isinstance(tree, Inverse):
        return push_negations(tree.operand, kind, is_fixed, not negate)
    through = negate and kind == MIN
    operands = tuple(push_negations(o, kind, is_fixed, through) for o in tree.operands)
    group = Connective(tree.is_or != through, operands)
    return Inverse(group) if negate and not through else group


def has_and(tree: Tree) -> bool:
    """Return whether an "and" is left, so that the aggregator matters."""
    if isinstance(tree, Connective):
        return not tree.is_or or any(map(has_and, tree.operands))
    return isinstance(tree, Inverse) and has_and(tree.operand)


def find_polarities(tree: Tree, positive: bool = True) -> dict[Leaf, set[bool]]:
    """Return, for every leaf, whether it counts as it is (True), turned over (False), or both."""
    if isinstance(tree, Leaf):
        return {tree: {positive}}
    found: dict[Leaf, set[bool]] = {}
    operands = (tree.operand,) if isinstance(tree, Inverse) else tree.operands
    for operand in operands:
        sign = positive != isinstance(tree, Inverse)
        for leaf, signs in find_polarities(operand, sign).items():
            found.setdefault(leaf, set()).update(signs)
    return found


# From here on leaves are the wire's predicates -----------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The predicates in the wire's order, their pattern (empty: one aggregation) and aggregator."""

    predicates: tuple[Predicate, ...]
    pattern: bytes
    kind: int


@dataclass
class _WireBranch:
    """A simplified subtree: an operator with branches, or a predicate."""

    operator: int  # AND, OR, NOT, or 0 for a predicate
    operands: list[_WireBranch]
    predicate: Predicate | None = None

    def key(self) -> tuple[object, ...]:
        """Return what tells two branches apart, whatever the order of operands."""
        if self.predicate is not None:
            return (0, self.predicate.fields())
        return self.operator, tuple(sorted((o.key() for o in self.operands), key=repr))


def lay_out(tree: Tree, wires: Mapping[Leaf, Predicate], kind: int) -> Layout:
    """Return the tree as the wire carries it; LanguageError where it is too much for a vector."""
    branch = _simplify(tree, wires, kind)
    uses_and = _uses(branch, AND)
    flat = branch.predicate is not None or (
        branch.operator in (AND, OR) and all(o.predicate is not None for o in branch.operands)
    )
    if flat:
        operands = branch.operands if branch.predicate is None else [branch]
        found = [o.predicate for o in operands if o.predicate is not None]
        kind = MIN if len(found) == 1 else MAX if branch.operator == OR else kind
        return Layout(tuple(_sort(found)), b"", kind)
    unique: dict[tuple[object, ...], Predicate] = {}
    _collect(branch, unique)
    predicates = _sort(list(unique.values()))
    numbers = {p.fields(): i for i, p in enumerate(predicates)}
    kind = kind if uses_and else MIN
    for chain in (False, True):
        pattern = _write(branch, numbers, kind, chain)
        try:
            check_pattern(pattern, len(predicates))
            return Layout(tuple(predicates), pattern, kind)
        except ProtocolError as error:
            reason = error.what
    raise LanguageError(f"too deeply nested for a vector: {reason}")


def _simplify(tree: Tree, wires: Mapping[Leaf, Predicate], kind: int) -> _WireBranch:
    if isinstance(tree, Leaf):
        return _WireBranch(0, [], wires[tree])
    if isinstance(tree, Inverse):
        return _WireBranch(NOT, [_simplify(tree.operand, wires, kind)])
    operator = OR if tree.is_or else AND
    idempotent = tree.is_or or kind == MIN
    operands: list[_WireBranch] = []
    for operand in tree.operands:
        branch = _simplify(operand, wires, kind)
        splice = branch.operator == operator and (idempotent or kind == PRODUCT)
        operands += branch.operands if splice else [branch]
    if idempotent:
        operands = list({repr(o.key()): o for o in operands}.values())
    return operands[0] if len(operands) == 1 else _WireBranch(operator, operands)


def _uses(branch: _WireBranch, operator: int) -> bool:
    return branch.operator == operator or any(_uses(o, operator) for o in branch.operands)


def _collect(branch: _WireBranch, unique: dict[tuple[object, ...], Predicate]) -> None:
    if branch.predicate is not None:
        unique[branch.predicate.fields()] = branch.predicate
    for operand in branch.operands:
        _collect(operand, unique)


def _sort(predicates: list[Predicate]) -> list[Predicate]:
    """Return predicates by attribute, second ones on an attribute last, as the wire wants them."""
    ordered = sorted(predicates, key=lambda p: (p.attribute, *map(int, p.fields())))  # type: ignore[arg-type]
    seen: set[int] = set()
    first: list[Predicate] = []
    later: list[Predicate] = []
    for p in ordered:
        (later if p.attribute in seen else first).append(p)
        seen.add(p.attribute)
    if len(ordered) > MAX_PREDICATES:
        raise LanguageError(
            f"a vector stores at most {MAX_PREDICATES} predicates, not {len(ordered)}"
        )
    return first + later


def _write(
    branch: _WireBranch, numbers: Mapping[tuple[object, ...], int], kind: int, chain: bool
) -> bytes:
    """Return the postfix bytes; operands stand by their bytes, so that order says nothing.

    With `chain`, operators of many operands become chains of two, which need less stack.
    """
    if branch.predicate is not None:
        return bytes([numbers[branch.predicate.fields()]])
    parts = sorted(_write(o, numbers, kind, chain) for o in branch.operands)
    if branch.operator == NOT:
        return parts[0] + bytes([NOT])
    joinable = branch.operator == OR or kind in (MIN, PRODUCT)
    size = 2 if chain and joinable else 15
    if len(parts) > size and not joinable:
        raise LanguageError(f"a mean inside a pattern takes 15 operands, not {len(parts)}")
    out = b"".join(parts[:size]) + bytes([branch.operator | min(size, len(parts))])
    for start in range(size, len(parts), size - 1):
        more = parts[start : start + size - 1]
        out += b"".join(more) + bytes([branch.operator | (len(more) + 1)])
    return out


# Which levels of a predicate's set decide about a match: what a fit has to keep.


def find_levels(
    tree: Tree,
    thresholds: Callable[[int], tuple[int, int]],
    overall: tuple[int, int],
    is_lattice: bool,
) -> dict[Leaf, list[int]]:
    """Return the levels of each leaf's set, the decisive one first.

    `thresholds` answers a predicate's own (possible, certain). The overall ones concern a single
    predicate only in a lattice, where degrees are compared and never added or multiplied.
    """
    whole = [max(overall), *overall]
    levels = {}
    for leaf, signs in find_polarities(tree).items():
        own = thresholds(leaf.index)
        wanted: list[int] = []
        if is_lattice and True in signs:
            wanted += whole
        if is_lattice and False in signs:
            wanted += [256 - level for level in whole if level]
        wanted += [max(own), *own]
        # As levels of the set: "not" turns them over.
        inner = [256 - level if leaf.negated else level for level in wanted if level]
        levels[leaf] = [level for level in dict.fromkeys(inner) if 0 < level < 256]
    return levels


# Empty subscriptions ---------------------------------------------------------------------------
#
# Exact for predicates on one attribute, under min also nested. Another nesting is checked part by
# part, so a contradiction between parts may pass; what is found is always empty.

Interval = tuple[int, int]


@dataclass(frozen=True)
class EmptinessSearch:
    """Looks for the predicate because of which nothing can ever match."""

    kind: int
    wires: Mapping[Leaf, Predicate]

    def find(self, tree: Tree, level: int) -> Leaf | None:
        """Return the leaf that makes a tree empty at a level, None if it is not known to be."""
        if isinstance(tree, Leaf):
            return None if self._cut(tree, level) else tree
        if isinstance(tree, Inverse):
            return None
        if tree.is_or:
            found = [self.find(operand, level) for operand in tree.operands]
            return found[-1] if all(leaf is not None for leaf in found) else None
        return self._find_in_and(tree, level)

    def _find_in_and(self, tree: Connective, level: int) -> Leaf | None:
        remaining: dict[int, list[Interval]] = {}
        operands = self._flatten(tree)
        for place, operand in enumerate(operands):
            needed = self._find_needed(operands, place, level)
            leaves = list(find_polarities(operand))
            attribute = self.wires[leaves[0]].attribute
            found = self._unite(operand, needed, attribute)
            if found is None:
                leaf = self.find(operand, needed)
                if leaf is not None:
                    return leaf
                continue
            if attribute in remaining:
                found = _intersect(remaining[attribute], found)
            if not found:
                return leaves[-1]
            remaining[attribute] = found
        return None

    def _unite(self, tree: Tree, level: int, attribute: int) -> list[Interval] | None:
        """Return where predicates on one attribute fit, joined by "or"; None: it is not that."""
        if isinstance(tree, Leaf):
            return self._cut(tree, level) if self.wires[tree].attribute == attribute else None
        if isinstance(tree, Inverse) or not (tree.is_or or self.kind == MIN):
            return None
        parts = [self._unite(operand, level, attribute) for operand in tree.operands]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        return [one for part in found for one in part] if tree.is_or else reduce(_intersect, found)

    def _flatten(self, tree: Connective) -> list[Tree]:
        """Return the operands, those of an "and" within an "and" too where that is the same."""
        operands: list[Tree] = []
        for operand in tree.operands:
            is_and = isinstance(operand, Connective) and not operand.is_or
            if isinstance(operand, Connective) and is_and and self.kind in (MIN, PRODUCT):
                operands += self._flatten(operand)
            else:
                operands.append(operand)
        return operands

    def _find_needed(self, operands: Sequence[Tree], place: int, level: int) -> int:
        """Return the degree that an operand must reach whatever the others do."""
        if self.kind in (MIN, SUGENO):
            return level if self.kind == MIN else 0
        weights = b""
        if self.kind == WEIGHTED:
            weights = bytes(self.wires[o].weight for o in operands if isinstance(o, Leaf))
        return find_level(self.kind, len(operands), level, weights, place)

    def _cut(self, leaf: Leaf, level: int) -> list[Interval]:
        predicate = self.wires[leaf]
        return cut(predicate, max(level, predicate.possible, predicate.certain))


def _intersect(first: list[Interval], second: list[Interval]) -> list[Interval]:
    pairs = [(max(a, c), min(b, d)) for a, b in first for c, d in second]
    return [(low, high) for low, high in pairs if low <= high]
