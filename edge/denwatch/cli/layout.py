"""A subscription vector byte by byte: what every byte is, in the words of its vocabulary.

Follows the layout of `denwatch.protocol.subscription`, which has refused whatever does not fit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from denwatch.client.vocabulary import Attribute, ValueKind, Vocabulary, format_moment
from denwatch.client.vocabulary.fitting import find_width
from denwatch.protocol import subscription as codec
from denwatch.protocol.degrees import CRISP, SLOPES
from denwatch.protocol.evaluator import (
    AND,
    ASYMMETRIC,
    CERTAIN,
    CONSEQUENTS,
    HEDGES,
    MORE,
    NEGATIONS,
    NOT,
    OR,
    PATTERN,
    RECENT,
    REPEATS,
    SIGNIFICANCE,
    THETAS,
    WEIGHTS,
    WHY,
    WIDE,
)
from denwatch.protocol.patterns import pack_pattern
from denwatch.protocol.timecode import decode_duration
from denwatch.protocol.vectors import Predicate, SubscriptionVector

AGGREGATORS = (
    *("minimum", "maximum", "product", "arithmetic mean", "geometric mean", "harmonic mean"),
    *("weighted mean", "fuzzy mean of rules"),
)
_HEDGES = ("", "very", "extremely", "more or less")
_SECTIONS = {
    REPEATS: "repeats",
    NEGATIONS: "negations",
    HEDGES: "hedges",
    ASYMMETRIC: "second gammas",
    WIDE: "16-bit attributes",
    PATTERN: "pattern",
    WHY: "why",
    MORE: "more sections",
}
_MORE = {
    CERTAIN: "certain",
    THETAS: "thresholds of predicates",
    WEIGHTS: "weights",
    SIGNIFICANCE: "significance",
    RECENT: "recent",
    CONSEQUENTS: "rules",
}


class Row(NamedTuple):
    """One field: where it begins, its bytes, its name and what it means."""

    at: int
    data: bytes
    field: str
    meaning: str


def format_code(attribute: Attribute | None, code: int) -> str:
    """Return the value that a code stands for, with its unit."""
    if attribute is None:
        return f"code {code}"
    if attribute.kind is ValueKind.TEXT:
        return attribute.symbols[code] if code < len(attribute.symbols) else f"symbol {code}"
    value = attribute.to_value(code)
    if attribute.kind is not ValueKind.NUMBER:
        return format_moment(value, attribute.kind)
    return f"{value:.5g}" + (f" {attribute.unit}" if attribute.unit else "")


def format_duration(seconds: float) -> str:
    """Return a duration in the unit that reads best."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.4g} s"


def describe_bytes(data: bytes, vocabulary: Vocabulary) -> list[Row]:
    """Return the fields of a subscription vector in order; ProtocolError if it is none."""
    return list(_Walker(codec.decode(data), data, vocabulary).walk())


def format_rows(rows: list[Row]) -> str:
    """Return the fields as a table."""
    cells = [(str(row.at), row.data.hex(" ") or "-", row.field, row.meaning) for row in rows]
    widths = [max(len(cell[column]) for cell in cells) for column in range(3)]
    return "\n".join(
        f"{at:>{widths[0]}}  {data:<{widths[1]}}  {field:<{widths[2]}}  {meaning}".rstrip()
        for at, data, field, meaning in cells
    )


class _Walker:
    def __init__(self, vector: SubscriptionVector, data: bytes, vocabulary: Vocabulary) -> None:
        self.vector = vector
        self.data = data
        self.at = 0
        self.event = vocabulary.find_number(vector.event)
        self.names = [self.name(p.attribute) for p in vector.predicates]

    def find(self, bit: int) -> Attribute | None:
        return self.event.find_bit(bit) if self.event else None

    def name(self, bit: int) -> str:
        attribute = self.find(bit)
        return attribute.name if attribute else f"attribute {bit}"

    def row(self, length: int, field: str, meaning: str) -> Row:
        row = Row(self.at, self.data[self.at : self.at + length], field, meaning)
        self.at += length
        return row

    def walk(self) -> Iterator[Row]:
        vector = self.vector
        event = self.event.name if self.event else f"event {vector.event}"
        yield self.row(1, "type and event", f"subscription, {event}")
        flags = self.data[1]
        parts = [AGGREGATORS[vector.aggregator]]
        negated = [name for i, name in enumerate(self.names[:4]) if flags >> 4 >> i & 1]
        parts += [f"not: {', '.join(negated)}"] if negated else []
        parts += ["sections follow"] if flags & 8 else []
        yield self.row(1, "flags", "; ".join(parts))
        yield self.row(2, "handle", str(vector.handle))
        yield self.row(1, "threshold", f"at least {vector.threshold / 255:.3f}")
        lasts = format_duration(decode_duration(vector.validity)) if vector.validity else ""
        yield self.row(1, "validity", lasts or "until removed")
        bits = [self.name(bit) for bit in range(16) if vector.features >> bit & 1]
        yield self.row(2, "features", ", ".join(bits))
        if flags & 8:
            yield from self.walk_sections()
        for p, name in zip(vector.predicates, self.names, strict=True):
            yield from self.walk_triple(p, name)

    def walk_sections(self) -> Iterator[Row]:
        vector = self.vector
        sections = self.data[self.at]
        yield self.row(1, "sections", _list_bits(sections, _SECTIONS))
        more = 0
        if sections & MORE:
            more = self.data[self.at]
            yield self.row(1, "more sections", _list_bits(more, _MORE))
        count = len(vector.predicates)
        if sections & REPEATS:
            extra = self.data[self.at]
            meaning = f"{extra} more: {', '.join(self.names[count - extra :])}"
            yield self.row(1 + extra, "repeats", meaning)
        if sections & NEGATIONS:
            later = [n for i, n in enumerate(self.names) if i >= 4 and vector.predicates[i].negated]
            yield self.row(2, "negations", f"not: {', '.join(later)}")
        if sections & HEDGES:
            said = [f"{_say_hedge(p.hedge)} {n}" for p, n in self.pairs() if p.hedge]
            yield self.row((count + 1) // 2, "hedges", ", ".join(said))
        if sections & ASYMMETRIC:
            said = [n for p, n in self.pairs() if p.left != p.right]
            yield self.row(2, "second gammas", ", ".join(said))
        if sections & WIDE:
            said = [n for p, n in self.pairs() if p.wide]
            yield self.row(2, "16-bit attributes", ", ".join(dict.fromkeys(said)))
        if sections & PATTERN:
            packed = pack_pattern(vector.pattern)
            yield self.row(len(packed), "pattern", _say_pattern(vector.pattern, count))
        yield from self.walk_conditions(more)

    def walk_conditions(self, more: int) -> Iterator[Row]:
        vector = self.vector
        if more & CERTAIN:
            yield self.row(1, "certain", f"at least {vector.certain / 255:.3f}")
        if more & THETAS:
            for p, name in self.pairs():
                meaning = f"possible {p.possible / 255:.3f}, certain {p.certain / 255:.3f}"
                yield self.row(2, f"thresholds of {name}", meaning)
        if more & WEIGHTS:
            for p, name in self.pairs():
                yield self.row(1, f"weight of {name}", str(p.weight))
        if more & SIGNIFICANCE:
            yield from self.walk_significance()
        if vector.recent:
            until, gone = map(decode_duration, vector.recent)
            meaning = f"fully until {format_duration(until)}, not from {format_duration(gone)}"
            yield self.row(2, "recent", meaning)
        if vector.consequents:
            first = self.data[self.at]
            yield self.row(1, "rules", "first order" if first else "zero order")
            for rule in vector.consequents:
                values = ", ".join(map(str, rule))
                yield self.row(4 if first else 1, "consequent", f"{values} (of 255)")

    def walk_significance(self) -> Iterator[Row]:
        s = self.vector.significance
        assert s is not None
        yield self.row(1, "significance", "which of its fields follow")
        if s.bands:
            bits = [bit for bit in range(16) if self.vector.features >> bit & 1]
            for bit, band in zip(bits, s.bands, strict=True):
                attribute = self.find(bit)
                span = (attribute.high - attribute.low) * band / 255 if attribute else band
                unit = f" {attribute.unit}" if attribute and attribute.unit else ""
                width = f"{span:.4g}{unit}" if band else "none"
                yield self.row(1, f"dead band of {self.name(bit)}", width)
        if s.relative:
            yield self.row(1, "relative band", f"{s.relative / 255:.1%}")
        if s.hysteresis:
            yield self.row(1, "hysteresis", f"{s.hysteresis / 255:.3f}")
        if s.window:
            yield self.row(1, "persistence", f"{s.hits} of {s.window}")
        if s.heartbeat:
            yield self.row(1, "heartbeat", format_duration(decode_duration(s.heartbeat)))
        if s.quiet:
            yield self.row(1, "quiet", format_duration(decode_duration(s.quiet)))

    def walk_triple(self, p: Predicate, name: str) -> Iterator[Row]:
        attribute = self.find(p.attribute)
        size = 2 if p.wide else 1
        yield self.row(size, f"{name} from", format_code(attribute, p.low))
        yield self.row(size, f"{name} to", format_code(attribute, p.high))
        sides = [p.left] if p.left == p.right else [p.left, p.right]
        for side, code in zip(("gamma", "second gamma"), sides, strict=False):
            yield self.row(1, f"{name} {side}", _say_gamma(code, attribute, p.wide))

    def pairs(self) -> list[tuple[Predicate, str]]:
        return list(zip(self.vector.predicates, self.names, strict=True))


def _list_bits(byte: int, names: dict[int, str]) -> str:
    return ", ".join(name for bit, name in names.items() if byte & bit)


def _say_hedge(code: int) -> str:
    return f"{_HEDGES[code >> 2]} {_HEDGES[code & 3]}".strip()


def _say_gamma(code: int, attribute: Attribute | None, wide: bool) -> str:
    if code == CRISP:
        return "crisp"
    gamma = (SLOPES[2 * code] << 8 | SLOPES[2 * code + 1]) / 256
    if attribute is None or attribute.kind is not ValueKind.NUMBER:
        return f"{gamma:.3g}"
    unit = f" {attribute.unit}" if attribute.unit else ""
    return f"{gamma:.3g}: nothing from {find_width(code, wide) * attribute.step:.4g}{unit} away"


def _say_pattern(pattern: bytes, count: int) -> str:
    """Return a postfix pattern as an expression over p1, p2, ..."""
    stack: list[str] = []
    for op in pattern:
        if op < count:
            stack.append(f"p{op + 1}")
        elif op == NOT:
            stack.append(f"not {stack.pop()}")
        else:
            joint = " or " if op & 0xF0 == OR else " and "
            assert op & 0xF0 in (AND, OR)
            operands = stack[-(op & 15) :]
            del stack[-(op & 15) :]
            stack.append(f"({joint.join(operands)})")
    return stack[0].removeprefix("(").removesuffix(")") if stack[0].startswith("(") else stack[0]
