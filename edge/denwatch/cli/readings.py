"""A notification vector in values and units, and byte by byte, for `denwatch explain`."""

from __future__ import annotations

from typing import Any

from denwatch.cli.failures import CommandError
from denwatch.cli.layout import Row, format_code, format_duration, format_rows
from denwatch.client.vocabulary import Attribute, EventType, ValueKind, Vocabulary
from denwatch.protocol import notification as codec
from denwatch.protocol.timecode import AGES_PER_SECOND, decode_age
from denwatch.protocol.vectors import NotificationVector, Reading


def explain_notification(data: bytes, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return what a notification vector says; ProtocolError if it is none."""
    vector = codec.decode(data)
    event = vocabulary.find_number(vector.event)
    if event is None:
        raise CommandError(f'vocabulary "{vocabulary.name}" has no event {vector.event}')
    age = decode_age(vector.age) / AGES_PER_SECOND
    lines = [f"{event.name} {vector.sequence}, {format_duration(age)} old"]
    values: dict[str, Any] = {}
    for reading in vector.readings:
        attribute = event.find_bit(reading.attribute)
        name = name_bit(event, reading.attribute)
        values[name] = measure_reading(reading, attribute)
        lines.append(f"{name} {describe_reading(reading, attribute)}")
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
    return answer | {"lines": lines, "rows": format_rows(list_rows(data, vector, event))}


def name_bit(event: EventType, bit: int) -> str:
    """Return the name of an attribute, or its number if the vocabulary has none."""
    attribute = event.find_bit(bit)
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


def list_rows(data: bytes, vector: NotificationVector, event: EventType) -> list[Row]:
    """Return the fields of the vector in order."""
    rows: list[Row] = []

    def add(length: int, field: str, meaning: str) -> None:
        at = sum(len(row.data) for row in rows)
        rows.append(Row(at, data[at : at + length], field, meaning))

    def list_names(mask: int) -> str:
        return ", ".join(name_bit(event, bit) for bit in range(16) if mask >> bit & 1)

    uncertain = sum(1 << r.attribute for r in vector.readings if not r.exact)
    wide = sum(1 << r.attribute for r in vector.readings if r.wide)
    masks = {"uncertain": uncertain, "16-bit": wide, "broken": vector.faults}
    said = [name for name, mask in masks.items() if mask] + (["why"] if vector.why else [])
    add(1, "type and event", f"notification, {event.name}")
    add(1, "flags", ", ".join(said) or "none")
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
    if vector.why:
        add(1, "why", name_bit(event, vector.why[0]))
        add(1, "why's degree", f"{vector.why[1] / 255:.3f}")
    return rows
