"""Refuse a subscription that nothing can ever match.

Exact for one predicate and for predicates on one attribute joined by "and"; a nesting is looked at
part by part, so that a contradiction between parts may pass. What is refused is really empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from denwatch.client.compiler.drafts import Draft
from denwatch.client.compiler.structure import Connective, Inverse, Leaf, Tree
from denwatch.client.errors import LanguageError
from denwatch.protocol.cuts import cut, find_level
from denwatch.protocol.degrees import MIN, PRODUCT, SUGENO, WEIGHTED
from denwatch.protocol.vectors import Predicate, SubscriptionVector

Interval = tuple[int, int]


def check_emptiness(
    tree: Tree,
    kind: int,
    wires: Mapping[Leaf, Predicate],
    vector: SubscriptionVector,
    drafts: Sequence[Draft],
) -> None:
    """Raise LanguageError at the predicate that leaves nothing."""
    threshold = max(vector.threshold, vector.certain)
    culprit = _Search(kind, wires, threshold).find(tree, threshold)
    if culprit is not None:
        draft = drafts[culprit.index]
        raise LanguageError.at_node(
            f"empty set: no value of {draft.attribute.name} can satisfy this",
            draft.source,
            "the subscription can never match",
        )


class _Search:
    def __init__(self, kind: int, wires: Mapping[Leaf, Predicate], threshold: int) -> None:
        self.kind = kind
        self.wires = wires
        self.threshold = threshold

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
            if isinstance(operand, Leaf):
                attribute = self.wires[operand].attribute
                found = self._cut(operand, needed)
                if attribute in remaining:
                    found = _intersect(remaining[attribute], found)
                if not found:
                    return operand
                remaining[attribute] = found
            else:
                leaf = self.find(operand, needed)
                if leaf is not None:
                    return leaf
        return None

    def _flatten(self, tree: Connective) -> list[Tree]:
        """Return the operands, those of an "and" within an "and" too where that is the same."""
        operands: list[Tree] = []
        for operand in tree.operands:
            if (
                isinstance(operand, Connective)
                and not operand.is_or
                and self.kind in (MIN, PRODUCT)
            ):
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
