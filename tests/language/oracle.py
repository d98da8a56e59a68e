"""What a subscription means, in plain floating point, straight from the papers' formulas.

Shares no code with the compiler, the vocabulary or the protocol: it reads the vocabulary's TOML
document and the syntax tree, and knows nothing of codes but that code q of n stands for
low + q / (n - 1) * (high - low).

Formulas: trapezoids and triangles as in DENS, section 4.2 (Eq. 1 is a trapezoid with slope gamma);
hedges as powers (Zadeh: very is the square, more or less the square root); minimum, maximum,
product and means as the DENS paper's aggregators; Takagi-Sugeno rules over pairs of predicates,
each weighed by the minimum of its pair, averaged by the fuzzy mean (DENS, section 4.3).
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from denwatch.client import syntax

POWERS = {"very": 2.0, "extremely": 3.0, "more or less": 0.5, "somewhat": 0.5}
TO_BASE: dict[str, Callable[[float], float]] = {
    "°C": lambda x: x,
    "°F": lambda x: (x - 32) * 5 / 9,
    "K": lambda x: x - 273.15,
    "m/s": lambda x: x,
    "km/h": lambda x: x / 3.6,
    "kn": lambda x: x * 1852 / 3600,
    "m": lambda x: x,
    "km": lambda x: x * 1000,
    "cm": lambda x: x / 100,
    "min": lambda x: x,
    "h": lambda x: x * 60,
}


def from_base(x: float, unit: str) -> float:
    """Return a value of the base unit in a unit, by inverting the straight line."""
    zero = TO_BASE[unit](0.0)
    return (x - zero) / (TO_BASE[unit](1.0) - zero)


def to_number(value: syntax.Value, table: Mapping[str, Any]) -> float:
    """Return a value in the unit of its attribute."""
    if isinstance(value, syntax.Text):
        return float(table["symbols"].index(value.value))
    if isinstance(value, syntax.Moment):
        return moment(value.text, table["kind"])
    unit = table.get("unit")
    if value.unit is None or value.unit == unit:
        return value.value
    return from_base(TO_BASE[value.unit](value.value), unit)


def moment(text: str, kind: str) -> float:
    """Return days of a date, seconds of a time of day or of a date and time."""
    if kind == "date":
        return float((datetime.date.fromisoformat(text) - datetime.date(1, 1, 1)).days)
    if kind == "time":
        hours, minutes, *rest = text.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + (float(rest[0]) if rest else 0.0)
    start = datetime.datetime(1970, 1, 1)
    return (datetime.datetime.fromisoformat(text) - start).total_seconds()


def find_domain(table: Mapping[str, Any]) -> tuple[float, float, int]:
    """Return (low, high, number of codes) of an attribute.

    A text's codes are its symbols; with terms, its symbols are spread over all codes.
    """
    if "symbols" in table:
        return 0.0, len(table["symbols"]) - 1.0 if "terms" in table else 255.0, 256
    kind = table.get("kind", "number")
    low, high = (x if kind == "number" else moment(str(x), kind) for x in table["domain"])
    return float(low), float(high), 65536 if table.get("resolution") == 16 else 256


def decode(code: int, table: Mapping[str, Any]) -> float:
    """Return the value that a code stands for."""
    low, high, count = find_domain(table)
    value = low + code / (count - 1) * (high - low)
    is_symbol = "symbols" in table and abs(value - round(value)) <= (high - low) / (count - 1) / 2
    return float(round(value)) if is_symbol else value


def shape(kind: str, p: Sequence[float], x: float) -> float:
    """Return the degree of x in a membership function."""
    if kind == "trapezoid":
        a, b, c, d = p
        if b <= x <= c:
            return 1.0
        if x <= a or x >= d:
            return 0.0
        return (x - a) / (b - a) if x < b else (d - x) / (d - c)
    if kind == "triangle":
        return shape("trapezoid", (p[0], p[1], p[1], p[2]), x)
    if kind == "rising":
        return min(1.0, max(0.0, (x - p[0]) / (p[1] - p[0])))
    if kind == "falling":
        return min(1.0, max(0.0, (p[1] - x) / (p[1] - p[0])))
    if kind == "bell":
        return 1 / (1 + abs((x - p[0]) / p[1]) ** (2 * p[2]))
    if kind == "gaussian":
        return math.exp(-((x - p[0]) ** 2) / (2 * p[1] ** 2))
    raise ValueError(kind)


def term(name: str, table: Mapping[str, Any], x: float) -> float:
    """Return the degree of x in a term, hedged terms included."""
    entry = table["terms"][name]
    if "of" in entry:
        degree = term(entry["of"], table, x)
        for word in entry["hedges"]:
            degree **= POWERS[word]
        return degree
    kind, points = next(iter(entry.items()))
    own = table.get("kind", "number")
    if "symbols" in table:
        numbers = [float(table["symbols"].index(p)) if isinstance(p, str) else p for p in points]
    else:
        numbers = [p if own == "number" else moment(str(p), own) for p in points]
    return shape(kind, numbers, x)


def constraint(node: syntax.Constraint, table: Mapping[str, Any], x: float) -> float:
    """Return the degree of x under a constraint."""
    low, high, count = find_domain(table)
    step = (high - low) / (count - 1)
    tiny = step * 1e-6
    match node:
        case syntax.NamedTerm(name=name):
            if name.text in table.get("symbols", ()):
                return float(x == table["symbols"].index(name.text))
            return term(name.text, table, x)
        case syntax.CrispComparison(operator=operator, value=value):
            v = to_number(value, table)
            near = abs(x - v) <= step / 2  # equality is at the attribute's resolution
            holds = {
                "<": x < v - tiny,
                "<=": x <= v + tiny,
                ">": x > v + tiny,
                ">=": x >= v - tiny,
                "=": near,
                "!=": not near,
            }
            return float(holds[operator.value])
        case syntax.CrispRange(low=first, high=last):
            inside = to_number(first, table) - tiny <= x <= to_number(last, table) + tiny
            return float(inside)
        case syntax.About(value=value, spread=spread):
            usual = 2.0 if "symbols" in table else (high - low) / 20
            width = table.get("about", usual) if spread is None else spread.value
            return max(0.0, 1 - abs(x - to_number(value, table)) / width)
        case syntax.Shape(kind=kind, points=points):
            places = [to_number(p, table) for p in points[:1]]
            if kind in ("bell", "gaussian"):
                places += [p.value for p in points[1:] if isinstance(p, syntax.Quantity)]
            else:
                places = [to_number(p, table) for p in points]
            return shape(kind, places, x)
        case syntax.Extension(name="near", arguments=(centre, *rest)):
            width = rest[0].value if rest else table["about"]
            way = abs(x - centre.value) % 360
            return max(0.0, 1 - min(way, 360 - way) / width)
    raise ValueError(node)


def aggregate(name: str, degrees: Sequence[float], weights: Sequence[float]) -> float:
    """Return the degrees as one."""
    n = len(degrees)
    if name == "minimum":
        return min(degrees)
    if name == "maximum":
        return max(degrees)
    if name == "product":
        return math.prod(degrees)
    if name == "arithmetic_mean":
        return sum(degrees) / n
    if name == "weighted_mean":
        return sum(w * d for w, d in zip(weights, degrees, strict=True)) / sum(weights)
    if min(degrees) <= 0:
        return 0.0
    if name == "geometric_mean":
        return math.exp(sum(map(math.log, degrees)) / n)
    if name == "harmonic_mean":
        return n / sum(1 / d for d in degrees)
    raise ValueError(name)


class Oracle:
    """One subscription's meaning. Degrees of predicates are remembered by value."""

    def __init__(self, tree: syntax.SubscriptionTree, tables: Mapping[str, Any]) -> None:
        self.tree = tree
        self.tables = tables  # attributes of the event, by name
        self.leaves = list(syntax.iterate_predicates(tree.condition))
        self.memory: list[dict[int, float]] = [{} for _ in self.leaves]
        self.numbers = {id(leaf): i for i, leaf in enumerate(self.leaves)}
        self.aggregator = tree.aggregator.name if tree.aggregator else "minimum"
        if any(leaf.weight for leaf in self.leaves):
            self.aggregator = "weighted_mean"

    def rate_leaf(self, leaf: syntax.PredicateNode, codes: Mapping[str, int]) -> float:
        """Return the degree of one predicate."""
        code = codes[leaf.attribute.text]
        memory = self.memory[self.numbers[id(leaf)]]
        if code not in memory:
            table = self.tables[leaf.attribute.text]
            degree = constraint(leaf.constraint, table, decode(code, table))
            for word in leaf.hedges:
                degree **= POWERS[word.value]
            memory[code] = 1 - degree if leaf.negated else degree
        return memory[code]

    def rate(self, node: syntax.Condition, codes: Mapping[str, int]) -> float:
        """Return the degree of a condition."""
        match node:
            case syntax.PredicateNode():
                return self.rate_leaf(node, codes)
            case syntax.Not(operand=operand):
                return 1 - self.rate(operand, codes)
            case syntax.Or(operands=operands):
                return max(self.rate(operand, codes) for operand in operands)
            case syntax.And(operands=operands):
                degrees = [self.rate(operand, codes) for operand in operands]
                return aggregate(self.aggregator, degrees, find_weights(operands))

    def rate_rules(self, codes: Mapping[str, int]) -> float:
        """Return the fuzzy mean of the rules."""
        total = weight = 0.0
        for rule in self.tree.rules:
            pair = [self.leaves[rule.first - 1], self.leaves[rule.second - 1]]
            share = min(self.rate_leaf(leaf, codes) for leaf in pair)
            total += share * self.find_consequent(rule, codes)
            weight += share
        return total / weight if weight else 0.0

    def find_consequent(self, rule: syntax.SugenoRule, codes: Mapping[str, int]) -> float:
        """Return what a rule concludes, between 0 and 1."""
        result = rule.constant.value
        pair = [self.leaves[rule.first - 1], self.leaves[rule.second - 1]]
        for leaf, slope in zip(pair, rule.slopes or (), strict=False):
            name = leaf.attribute.text
            result += slope.value * decode(codes[name], self.tables[name])
        return min(1.0, max(0.0, result))

    def decide(self, codes: Mapping[str, int], margin: float) -> bool | None:
        """Return whether the codes match; None if a degree is within the margin of a threshold.

        For exact readings possible and certain degrees are the same one.
        """
        whole = self.rate_rules(codes) if self.tree.rules else self.rate(self.tree.condition, codes)
        checks = [(whole - margin, whole + margin, t) for t in self.list_thresholds()]
        for leaf in self.leaves:
            degree = self.rate_leaf(leaf, codes)
            checks += [(degree - margin, degree + margin, t) for t in list_own(leaf)]
        return conclude(checks)

    def decide_bounded(self, codes: Mapping[str, int], slack: float) -> bool | None:
        """Return whether the codes match, if predicates may be off by so much; None if unclear.

        Means that hang on their smallest degree turn a small slack into a large one: here the
        slack is on the predicates, and what it does to the whole is computed.
        """
        bounds = {}
        for leaf in self.leaves:
            degree = self.rate_leaf(leaf, codes)
            bounds[id(leaf)] = max(0.0, degree - slack), min(1.0, degree + slack)
        low, high = (
            self.bound_rules(bounds, codes)
            if self.tree.rules
            else self.bound(self.tree.condition, bounds)
        )
        # The whole is a byte as well, and roots of bytes are within 1 %.
        checks = [(low - 0.01, high + 0.01, t) for t in self.list_thresholds()]
        for leaf in self.leaves:
            checks += [(*bounds[id(leaf)], t) for t in list_own(leaf)]
        return conclude(checks)

    def bound(
        self, node: syntax.Condition, bounds: Mapping[int, tuple[float, float]]
    ) -> tuple[float, float]:
        """Return the lowest and highest degree of a condition."""
        match node:
            case syntax.PredicateNode():
                return bounds[id(node)]
            case syntax.Not(operand=operand):
                low, high = self.bound(operand, bounds)
                return 1 - high, 1 - low
            case syntax.Or(operands=operands):
                pairs = [self.bound(operand, bounds) for operand in operands]
                return max(low for low, _ in pairs), max(high for _, high in pairs)
            case syntax.And(operands=operands):
                pairs = [self.bound(operand, bounds) for operand in operands]
                weights = find_weights(operands)
                lows = [low for low, _ in pairs]
                highs = [high for _, high in pairs]
                return aggregate(self.aggregator, lows, weights), aggregate(
                    self.aggregator, highs, weights
                )

    def bound_rules(
        self, bounds: Mapping[int, tuple[float, float]], codes: Mapping[str, int]
    ) -> tuple[float, float]:
        """Return the lowest and highest fuzzy mean: rules on one side weigh most, others least."""
        rows = []
        for rule in self.tree.rules:
            pair = [self.leaves[rule.first - 1], self.leaves[rule.second - 1]]
            low = min(bounds[id(leaf)][0] for leaf in pair)
            high = min(bounds[id(leaf)][1] for leaf in pair)
            rows.append((self.find_consequent(rule, codes), low, high))
        rows.sort()
        found = [0.0] if not any(low for _, low, _ in rows) else []
        for split in range(len(rows) + 1):
            for favoured in (rows[:split], rows[split:]):
                rest = [row for row in rows if row not in favoured]
                weight = sum(high for _, _, high in favoured) + sum(low for _, low, _ in rest)
                if weight:
                    total = sum(r * high for r, _, high in favoured) + sum(
                        r * low for r, low, _ in rest
                    )
                    found.append(total / weight)
        return min(found), max(found)

    def list_thresholds(self) -> list[float]:
        """Return the thresholds of the whole."""
        tree = self.tree
        thresholds = [0.5 if tree.possible is None else tree.possible.value]
        return thresholds if tree.certain is None else [*thresholds, tree.certain.value]


def list_own(leaf: syntax.PredicateNode) -> list[float]:
    """Return the thresholds of a predicate."""
    return [t.value for t in (leaf.possible, leaf.certain) if t is not None]


def find_weights(operands: Sequence[syntax.Condition]) -> list[float]:
    """Return what each operand counts in a weighted mean."""
    return [
        o.weight.value if isinstance(o, syntax.PredicateNode) and o.weight else 1.0
        for o in operands
    ]


def conclude(checks: Sequence[tuple[float, float, float]]) -> bool | None:
    """Return whether all (low, high, threshold) are met; None if that is not clear."""
    if any(high < threshold for _, high, threshold in checks):
        return False
    return True if all(low > threshold for low, _, threshold in checks) else None
