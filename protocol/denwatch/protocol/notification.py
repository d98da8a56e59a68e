"""Notification vectors to bytes and back: 11 bytes for three exact 8-bit values.

One object, one encoding, as for subscriptions.
"""

from .errors import Cursor
from .timecode import LAST_AGE, LAST_DURATION
from .vectors import NotificationVector, Reading

MAX_LENGTH = 165  # sixteen uncertain 16-bit readings, fifteen of them old, with everything else
TYPE = 0x80

_WHY = 0x01
_UNCERTAIN = 0x02
_WIDE = 0x04
_FAULTS = 0x08
_OLDS = 0x10


def encode(n: NotificationVector) -> bytes:
    """Return the notification vector."""
    uncertain = wide = 0
    for reading in n.readings:
        if not reading.exact:
            uncertain |= 1 << reading.attribute
        if reading.wide:
            wide |= 1 << reading.attribute
    flags = (
        (_WHY if n.why else 0)
        | (_UNCERTAIN if uncertain else 0)
        | (_WIDE if wide else 0)
        | (_FAULTS if n.faults else 0)
        | (_OLDS if n.olds else 0)
    )
    out = bytearray([TYPE | n.event, flags])
    for value in (n.sequence, n.age, n.features):
        out += _pair(value)
    for mask in (uncertain, wide, n.faults, n.olds):
        if mask:
            out += _pair(mask)
    for reading in n.readings:
        for point in reading.points[:1] if reading.exact else reading.points:
            out += _pair(point) if reading.wide else bytes([point])
    out += bytes([reading.age for reading in n.readings if reading.age])
    if n.why:
        out += bytes(n.why)
    return bytes(out)


def decode(frame: bytes) -> NotificationVector:
    """Return the notification of a whole vector; ProtocolError names the byte that is wrong."""
    c = Cursor(frame, MAX_LENGTH)
    head = c.byte("type and event")
    if head & 0xC0 != TYPE:
        raise c.error("not a notification vector of version 1")
    flags = c.byte("flags")
    if flags & 0xE0:
        raise c.error(f"reserved flags 0x{flags & 0xE0:02x}")
    sequence = c.pair("sequence")
    age = c.pair("age")
    if age > LAST_AGE:
        raise c.error(f"age code 0x{age:04x} is above 0x{LAST_AGE:04x}")
    features = c.pair("features")
    if not features and not flags & _FAULTS:
        raise c.error("no features")
    uncertain = c.mask("uncertain", features) if flags & _UNCERTAIN else 0
    wide = c.mask("wide", features) if flags & _WIDE else 0
    faults = c.mask("faults", 0xFFFF & ~features) if flags & _FAULTS else 0
    olds = c.mask("old readings", features) if flags & _OLDS else 0
    if olds == features and olds and not faults:
        raise c.error("no new reading")
    readings = []
    for attribute in range(16):
        if features >> attribute & 1:
            readings.append(
                _take_reading(c, attribute, uncertain >> attribute & 1, wide >> attribute & 1)
            )
    for reading in readings:
        if olds >> reading.attribute & 1:
            reading.age = c.limited("age of a reading", LAST_DURATION)
            if not reading.age:
                raise c.error("an old reading of now")
    why = None
    if flags & _WHY:
        decisive = c.limited("why", 15)
        why = (decisive, c.byte("why's degree"))
    c.end()
    return NotificationVector(head & 63, readings, sequence, age, why, faults)


def _take_reading(c: Cursor, attribute: int, uncertain: int, wide: int) -> Reading:
    points = []
    for _ in range(4 if uncertain else 1):
        points.append(c.pair("value") if wide else c.byte("value"))
        if len(points) > 1 and points[-1] < points[-2]:
            raise c.error("points of a reading that fall")
    if uncertain and points[0] == points[3]:
        raise c.error("an uncertain reading without doubt")
    if not uncertain:
        points = points * 4
    return Reading(attribute, (points[0], points[1], points[2], points[3]), bool(wide))


def _pair(value: int) -> bytes:
    return bytes([value >> 8, value & 255])
