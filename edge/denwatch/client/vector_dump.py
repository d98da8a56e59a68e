"""Vectors byte by byte: every field, with its meaning in the words of the vocabulary.

For `denwatch compile --verbose`, `denwatch explain` and the console's preview. The decoders of
`denwatch.protocol` have refused whatever is malformed before anything is described here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import Attribute, EventType, ValueKind, Vocabulary, format_moment
from denwatch.client.vocabulary.fitting import find_width
from denwatch.protocol import notification as notification_codec
from denwatch.protocol import subscription as subscription_codec
from denwatch.protocol.degrees import CRISP, SLOPES
from denwatch.protocol.subscription import pack_pattern
from denwatch.protocol.timecode import AGES_PER_SECOND, decode_age, decode_duration
from denwatch.protocol.vectors import (
    AND,
    NOT,
    OR,
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)

AGGREGATORS = (
    *("minimum", "maximum", "product", "arithmetic mean", "geometric mean", "harmonic mean"),
    *("weighted mean", "fuzzy mean of rules"),
)
_HEDGES = ("", "very", "extremely", "more or less")
_SECTIONS = {
    subscription_codec.REPEATS: "repeats",
    subscription_codec.NEGATIONS: "negations",
    subscription_codec.HEDGES: "hedges",
    subscription_codec.ASYMMETRIC: "second gammas",
    subscription_codec.WIDE: "16-bit attributes",
    subscription_codec.PATTERN: "pattern",
    subscription_codec.WHY: "why",
    subscription_codec.MORE: "more sections",
}
_MORE = {
    subscription_codec.CERTAIN: "certain",
    subscription_codec.THETAS: "thresholds of predicates",
    subscription_codec.WEIGHTS: "weights",
    subscription_codec.SIGNIFICANCE: "significance",
    subscription_codec.RECENT: "recent",
    subscription_codec.CONSEQUENTS: "rules",
    subscription_codec.RESTRICTORS: "restrictors",
}


class VectorField(NamedTuple):
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
        is_symbol = not attribute.is_graded or code in attribute.symbol_codes
        return attribute.name_code(code) or f"symbol {code}" if is_symbol else f"code {code}"
    value = attribute.to_value(code)
    if attribute.kind is not ValueKind.NUMBER:
        return format_moment(value, attribute.kind)
    return f"{value:.5g}{attribute.suffix}"


def format_duration(seconds: float) -> str:
    """Return a duration in the unit that reads best."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.4g} s"


def describe_bytes(data: bytes, vocabulary: Vocabulary) -> list[VectorField]:
    """Return the fields of a subscription vector in order; ProtocolError if it is malformed."""
    walker = _VectorWalker(subscription_codec.decode(data), data, vocabulary)
    walker.walk()
    return walker.rows


def format_rows(rows: list[VectorField]) -> str:
    """Return the fields as a table."""
    cells = [(str(row.at), row.data.hex(" ") or "-", row.field, row.meaning) for row in rows]
    widths = [max(len(cell[column]) for cell in cells) for column in range(3)]
    return "\n".join(
        f"{at:>{widths[0]}}  {data:<{widths[1]}}  {field:<{widths[2]}}  {meaning}".rstrip()
        for at, data, field, meaning in cells
    )


class _Rows:
    """The fields of a vector so far, in the order of its bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.rows: list[VectorField] = []

    def add(self, length: int, field: str, meaning: str) -> None:
        """Add the next field, of so many bytes."""
        part = self.data[self.at : self.at + length]
        self.rows.append(VectorField(self.at, part, field, meaning))
        self.at += length


class _VectorWalker(_Rows):
    """Walks through a subscription vector in the order of its bytes."""

    def __init__(self, vector: SubscriptionVector, data: bytes, vocabulary: Vocabulary) -> None:
        super().__init__(data)
        self.vector = vector
        self.event = vocabulary.find_number(vector.event)
        self.names = [name_bit(self.event, p.attribute) for p in vector.predicates]

    def find(self, bit: int) -> Attribute | None:
        return self.event.find_bit(bit) if self.event else None

    def walk(self) -> None:
        vector = self.vector
        event = self.event.name if self.event else f"event {vector.event}"
        self.add(1, "type and event", f"subscription, {event}")
        flags = self.data[1]
        parts = [AGGREGATORS[vector.aggregator]]
        negated = [name for i, name in enumerate(self.names[:4]) if flags >> 4 >> i & 1]
        parts += [f"not: {', '.join(negated)}"] if negated else []
        parts += ["sections follow"] if flags & 8 else []
        self.add(1, "flags", "; ".join(parts))
        self.add(2, "handle", str(vector.handle))
        self.add(1, "threshold", f"at least {vector.threshold / 255:.3f}")
        lasts = format_duration(decode_duration(vector.validity)) if vector.validity else ""
        self.add(1, "validity", lasts or "until removed")
        bits = [name_bit(self.event, bit) for bit in range(16) if vector.features >> bit & 1]
        self.add(2, "features", ", ".join(bits))
        if flags & 8:
            self.walk_sections()
        for p, name in zip(vector.predicates, self.names, strict=True):
            self.walk_triple(p, name)

    def walk_sections(self) -> None:
        vector = self.vector
        sections = self.data[self.at]
        self.add(1, "sections", _list_bits(sections, _SECTIONS))
        more = 0
        if sections & subscription_codec.MORE:
            more = self.data[self.at]
            self.add(1, "more sections", _list_bits(more, _MORE))
        count = len(vector.predicates)
        if sections & subscription_codec.REPEATS:
            extra = self.data[self.at]
            meaning = f"{extra} more: {', '.join(self.names[count - extra :])}"
            self.add(1 + extra, "repeats", meaning)
        if sections & subscription_codec.NEGATIONS:
            later = [n for i, n in enumerate(self.names) if i >= 4 and vector.predicates[i].negated]
            self.add(2, "negations", f"not: {', '.join(later)}")
        if sections & subscription_codec.HEDGES:
            described = [
                f"{_HEDGES[p.hedge >> 2]} {_HEDGES[p.hedge & 3]} {n}".strip()
                for p, n in self.pairs()
                if p.hedge
            ]
            self.add((count + 1) // 2, "hedges", ", ".join(described))
        if sections & subscription_codec.ASYMMETRIC:
            described = [n for p, n in self.pairs() if p.left != p.right]
            self.add(2, "second gammas", ", ".join(described))
        if sections & subscription_codec.WIDE:
            described = [n for p, n in self.pairs() if p.wide]
            self.add(2, "16-bit attributes", ", ".join(dict.fromkeys(described)))
        if sections & subscription_codec.PATTERN:
            packed = pack_pattern(vector.pattern)
            self.add(len(packed), "pattern", _describe_pattern(vector.pattern, count))
        self.walk_conditions(more)

    def walk_conditions(self, more: int) -> None:
        vector = self.vector
        if more & subscription_codec.CERTAIN:
            self.add(1, "certain", f"at least {vector.certain / 255:.3f}")
        if more & subscription_codec.THETAS:
            for p, name in self.pairs():
                meaning = f"possible {p.possible / 255:.3f}, certain {p.certain / 255:.3f}"
                self.add(2, f"thresholds of {name}", meaning)
        if more & subscription_codec.WEIGHTS:
            for p, name in self.pairs():
                self.add(1, f"weight of {name}", str(p.weight))
        if more & subscription_codec.SIGNIFICANCE:
            self.walk_significance()
        if vector.recent:
            until, gone = map(decode_duration, vector.recent)
            meaning = f"fully until {format_duration(until)}, not from {format_duration(gone)}"
            self.add(2, "recent", meaning)
        if vector.consequents:
            first = self.data[self.at]
            self.add(1, "rules", "first order" if first else "zero order")
            for rule in vector.consequents:
                values = ", ".join(map(str, rule))
                self.add(4 if first else 1, "consequent", f"{values} (of 255)")
        bits = [bit for bit in range(16) if vector.features >> bit & 1]
        for bit, code in zip(bits, vector.restrictors, strict=False):
            meaning = f"in the last {format_duration(decode_duration(code))}" if code else "now"
            self.add(1, f"restrictor of {name_bit(self.event, bit)}", meaning)

    def walk_significance(self) -> None:
        s = self.vector.significance
        assert s is not None
        self.add(1, "significance", "which of its fields follow")
        if s.bands:
            bits = [bit for bit in range(16) if self.vector.features >> bit & 1]
            for bit, band in zip(bits, s.bands, strict=True):
                attribute = self.find(bit)
                span = (attribute.high - attribute.low) * band / 255 if attribute else band
                width = f"{span:.4g}{attribute.suffix if attribute else ''}" if band else "none"
                self.add(1, f"dead band of {name_bit(self.event, bit)}", width)
        for code, field, meaning in (
            (s.relative, "relative band", f"{s.relative / 255:.1%}"),
            (s.hysteresis, "hysteresis", f"{s.hysteresis / 255:.3f}"),
            (s.window, "persistence", f"{s.hits} of {s.window}"),
            (s.heartbeat, "heartbeat", format_duration(decode_duration(s.heartbeat))),
            (s.quiet, "quiet", format_duration(decode_duration(s.quiet))),
        ):
            if code:
                self.add(1, field, meaning)

    def walk_triple(self, p: Predicate, name: str) -> None:
        attribute = self.find(p.attribute)
        size = 2 if p.wide else 1
        self.add(size, f"{name} from", format_code(attribute, p.low))
        self.add(size, f"{name} to", format_code(attribute, p.high))
        sides = [p.left] if p.left == p.right else [p.left, p.right]
        for side, code in zip(("gamma", "second gamma"), sides, strict=False):
            self.add(1, f"{name} {side}", _describe_gamma(code, attribute, p.wide))

    def pairs(self) -> list[tuple[Predicate, str]]:
        return list(zip(self.vector.predicates, self.names, strict=True))


def _list_bits(byte: int, names: dict[int, str]) -> str:
    return ", ".join(name for bit, name in names.items() if byte & bit)


def _describe_gamma(code: int, attribute: Attribute | None, wide: bool) -> str:
    if code == CRISP:
        return "crisp"
    gamma = (SLOPES[2 * code] << 8 | SLOPES[2 * code + 1]) / 256
    if attribute is None or attribute.kind is not ValueKind.NUMBER:
        return f"{gamma:.3g}"
    width = f"{find_width(code, wide) * attribute.step:.4g}{attribute.suffix}"
    return f"{gamma:.3g}: nothing from {width} away"


def _describe_pattern(pattern: bytes, count: int) -> str:
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


# Notification vectors ------------------------------------------------------------------------


def explain_notification(data: bytes, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of a notification vector; ProtocolError if it is malformed."""
    vector = notification_codec.decode(data)
    event = vocabulary.find_number(vector.event)
    if event is None:
        raise LanguageError(f'vocabulary "{vocabulary.name}" has no event {vector.event}')
    age = decode_age(vector.age) / AGES_PER_SECOND
    lines = [f"{event.name} {vector.sequence}, {format_duration(age)} old"]
    values: dict[str, Any] = {}
    for reading in vector.readings:
        attribute = event.find_bit(reading.attribute)
        name = name_bit(event, reading.attribute)
        values[name] = measure_reading(reading, attribute)
        earlier = ""
        if reading.age:
            values[name]["age"] = decode_duration(reading.age)
            earlier = f", {format_duration(decode_duration(reading.age))} earlier"
        lines.append(f"{name} {describe_reading(reading, attribute)}{earlier}")
    answer: dict[str, Any] = {
        "kind": "notification",
        "length": len(data),
        "event": event.name,
        "sequence": vector.sequence,
        "age": age,
        "values": values,
    }
    if vector.why:
        decisive, degree = name_bit(event, vector.why[0]), vector.why[1] / 255
        answer["why"] = {"attribute": decisive, "degree": round(degree, 3)}
        lines.append(f"because of {decisive}, to {degree:.2f}")
    broken = [name_bit(event, bit) for bit in range(16) if vector.faults >> bit & 1]
    if broken:
        answer["faults"] = broken
        lines.append(f"broken sensors: {', '.join(broken)}")
    return answer | {
        "lines": lines,
        "rows": format_rows(list_notification_fields(data, vector, event)),
    }


def name_bit(event: EventType | None, bit: int) -> str:
    """Return the name of an attribute, or its number if the vocabulary has none."""
    attribute = event.find_bit(bit) if event else None
    return attribute.name if attribute else f"attribute {bit}"


def scale_points(reading: Reading, attribute: Attribute | None) -> list[int]:
    """Return the points at the attribute's resolution, which a device need not have."""
    if attribute is None or attribute.wide == reading.wide:
        return list(reading.points)
    return [point >> 8 if reading.wide else point * 257 for point in reading.points]


def describe_reading(reading: Reading, attribute: Attribute | None) -> str:
    """Return a value with its unit, or the range that an uncertain one lies in."""
    a, b, c, d = (format_code(attribute, point) for point in scale_points(reading, attribute))
    if reading.exact:
        return f"= {a}"
    likely = b if b == c else f"{b} to {c}"
    return f"between {a} and {d}, most likely {likely}"


def measure_reading(reading: Reading, attribute: Attribute | None) -> dict[str, Any]:
    """Return a value as JSON has it: numbers as numbers, with their unit."""
    points: list[Any] = list(scale_points(reading, attribute))
    answer: dict[str, Any] = {}
    if attribute is not None and attribute.kind is ValueKind.NUMBER:
        points = [float(f"{attribute.to_value(point):.6g}") for point in points]
        if attribute.unit:
            answer["unit"] = attribute.unit
    elif attribute is not None:
        points = [format_code(attribute, point) for point in points]
    return {"value": points[0]} | answer if reading.exact else {"trapezoid": points} | answer


def list_notification_fields(
    data: bytes, vector: NotificationVector, event: EventType
) -> list[VectorField]:
    """Return the fields of the vector in order."""
    rows = _Rows(data)
    add = rows.add

    def list_names(mask: int) -> str:
        return ", ".join(name_bit(event, bit) for bit in range(16) if mask >> bit & 1)

    uncertain = sum(1 << r.attribute for r in vector.readings if not r.exact)
    wide = sum(1 << r.attribute for r in vector.readings if r.wide)
    masks = {"uncertain": uncertain, "16-bit": wide, "broken": vector.faults, "old": vector.olds}
    described = [name for name, mask in masks.items() if mask] + (["why"] if vector.why else [])
    add(1, "type and event", f"notification, {event.name}")
    add(1, "flags", ", ".join(described) or "none")
    add(2, "sequence", str(vector.sequence))
    add(2, "age", format_duration(decode_age(vector.age) / AGES_PER_SECOND))
    add(2, "features", list_names(vector.features))
    for name, mask in masks.items():
        if mask:
            add(2, name, list_names(mask))
    for reading in vector.readings:
        size = (2 if reading.wide else 1) * (1 if reading.exact else 4)
        attribute = event.find_bit(reading.attribute)
        add(size, name_bit(event, reading.attribute), describe_reading(reading, attribute))
    for reading in vector.readings:
        if reading.age:
            earlier = f"{format_duration(decode_duration(reading.age))} earlier"
            add(1, f"age of {name_bit(event, reading.attribute)}", earlier)
    if vector.why:
        add(1, "why", name_bit(event, vector.why[0]))
        add(1, "why's degree", f"{vector.why[1] / 255:.3f}")
    return rows.rows
