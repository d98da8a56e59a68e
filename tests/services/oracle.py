"""The rules in plain Python integers, one attribute at a time; shares no code with the finders."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

Vector = Sequence[int]


def is_feasible(service: Vector, request: Vector, rule: str) -> bool:
    """Tell whether a service may be offered for a request."""
    pairs = list(zip(service, request, strict=True))
    if rule == "positive":
        return all(has >= wants for has, wants in pairs)
    if rule == "agreeing":
        return not any((has, wants) in ((1, -1), (-1, 1)) for has, wants in pairs)
    return True


def square_distance(service: Vector, request: Vector, rule: str) -> int:
    """Return the squared Euclidean distance, over stated attributes only if agreeing."""
    pairs = zip(service, request, strict=True)
    return sum((has - wants) ** 2 for has, wants in pairs if rule != "agreeing" or wants != 0)


def rank_items(
    items: dict[object, Vector], asked: Vector, rule: str, pull: bool
) -> list[tuple[object, int]]:
    """Return (identity, squared distance) of all feasible items, nearest and then oldest first."""
    found = []
    for identity, own in items.items():  # a dictionary keeps the order of arrival
        service, request = (own, asked) if pull else (asked, own)
        if is_feasible(service, request, rule):
            found.append((identity, square_distance(service, request, rule)))
    return sorted(found, key=lambda match: match[1])


class CountedKey:
    """A key that counts how often it is compared, as a binary search does."""

    compared = 0

    def __init__(self, key: float) -> None:
        self.key = key

    def __lt__(self, other: CountedKey) -> bool:
        CountedKey.compared += 1
        return self.key < other.key


def count_search_steps(keys: Sequence[float], target: float) -> int:
    """Return how many keys the standard library's binary search reads."""
    CountedKey.compared = 0
    bisect_left([CountedKey(key) for key in sorted(keys)], CountedKey(target))
    return CountedKey.compared


def walk_lists(
    lists: Sequence[dict[int, float]],
    targets: Sequence[float],
    feasible: set[int],
    limit: int,
) -> tuple[list[int], int, int]:
    """Walk ranked lists in turn; return the items found, the entries met and the items checked."""
    orders = [
        sorted(keys, key=lambda item, keys=keys, aim=aim: abs(keys[item] - aim))
        for keys, aim in zip(lists, targets, strict=True)
    ]
    met: dict[int, int] = {}
    found: list[int] = []
    entries = checks = 0
    for step in range(len(orders[0])):
        for order in orders:
            item = order[step]
            entries += 1
            met[item] = met.get(item, 0) + 1
            if met[item] == len(orders):
                checks += 1
                if item in feasible:
                    found.append(item)
                    if len(found) == limit:
                        return found, entries, checks
    return found, entries, checks
