"""What the papers' definitions say, computed the slow way; shares no code with `edge`.

Constraints are triples (name, operator, value), notifications dictionaries, times plain numbers.
"""

from __future__ import annotations

from datetime import datetime


def same_kind(a, b) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str)
    if isinstance(a, datetime) or isinstance(b, datetime):
        return isinstance(a, datetime) and isinstance(b, datetime)
    return a is not None and b is not None


def satisfies(value, op, wanted) -> bool:
    """Definition 3 for one constraint."""
    if not same_kind(value, wanted):
        return False
    if op == "=":
        return value == wanted
    if op == "!=":
        return value != wanted
    if op == "<":
        return value < wanted
    if op == ">":
        return value > wanted
    if op == "<=":
        return value < wanted or value == wanted
    if op == ">=":
        return value > wanted or value == wanted
    if op == "substring":
        return value.find(wanted) >= 0
    if op == "prefix":
        return value[: len(wanted)] == wanted
    if op == "suffix":
        return len(wanted) <= len(value) and value[len(value) - len(wanted) :] == wanted
    raise AssertionError(op)


def matches(triples, notification) -> bool:
    """Definition 3."""
    return all(satisfies(notification.get(name), op, value) for name, op, value in triples)


def covers(general, special, universe) -> bool:
    """Definition 7 over a finite universe of notifications."""
    return all(matches(general, n) for n in universe if matches(special, n))


def reduce_edges(classes, covers_class):
    """Definition 9: pairs of classes with a strict cover and nothing strictly between."""

    def above(a, b):
        return covers_class(a, b) and not covers_class(b, a)

    return {
        (a, b)
        for a in classes
        for b in classes
        if above(a, b) and not any(above(a, c) and above(c, b) for c in classes)
    }


def replay_definition_6(events, k, window=None):
    """Yield "delivered", "outranked" or "expired" for each (rank, now, expires).

    Every decision looks at the whole history of received notifications. With a window only those
    among the last `window` matching ones count, this one included.
    """
    received = []
    for turn, (rank, now, expires) in enumerate(events, start=1):
        if expires <= now:
            yield "expired"
            continue
        holding = [
            old_rank
            for old_rank, old_expires, old_turn in received
            if old_expires > now
            and old_rank > rank
            and (window is None or turn - old_turn < window)
        ]
        if len(holding) >= k:
            yield "outranked"
        else:
            yield "delivered"
            received.append((rank, expires, turn))


def list_best(events, verdicts, k, now, window=None):
    """The turns of the k best valid received ones: by rank, the fresher first."""
    valid = [
        (rank, turn)
        for turn, ((rank, _, expires), verdict) in enumerate(
            zip(events, verdicts, strict=True), start=1
        )
        if verdict == "delivered"
        and expires > now
        and (window is None or len(events) - turn < window)
    ]
    return [turn for _, turn in sorted(valid, reverse=True)[:k]]


def replay_algorithm_1(events, k):
    """The paper's listing, line by line, with >= in line 21."""
    pairs = []
    for score, now, expires in events:
        if expires <= now:
            yield "expired"
            continue
        pairs = [pair for pair in pairs if pair[1] > now]
        if len(pairs) < k:
            pairs.append((score, expires))
            yield "delivered"
            continue
        lowest = min(range(len(pairs)), key=lambda i: pairs[i][0])
        if score >= pairs[lowest][0]:
            del pairs[lowest]
            pairs.append((score, expires))
            yield "delivered"
        else:
            yield "outranked"


def winnow(items, conditions):
    """Definition 10, level by level, as sets."""
    rest = set(items)
    levels = []
    while rest:
        level = {s for s in rest if not any(b == s and a in rest for a, b in conditions)}
        if not level:
            return None
        levels.append(level)
        rest -= level
    return levels
