"""Notification frames: which notifications of one are new, and when each was read. Pure.

A device sends its oldest notifications first, and the next ones when these are acknowledged. So
everything up to the highest number that was taken is here, or with another node that acknowledged
it: one number a device says what is old, and a repetition is acknowledged again and not taken.

Notifications of the run that the last hello speaks of must be of what that hello announced. Older
ones waited through a restart, perhaps with other sensors: for them the vocabulary is the limit.
"""

from __future__ import annotations

from typing import NamedTuple

from denwatch.node.core.devices.contracts import RefusedError, Senses
from denwatch.node.core.devices.registry import Device, Number
from denwatch.node.core.vectors import decode_notification
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import NOTIFICATIONS, Frame, split_vectors
from denwatch.protocol.timecode import AGES_PER_SECOND, decode_age
from denwatch.protocol.vectors import NotificationVector

_MANTISSA = 11  # bits of an age code


class Note(NamedTuple):
    """One notification of a frame."""

    sequence: int  # all 32 bits
    vector: bytes
    age: int  # ms
    doubt: int  # ms by which the age may be wrong
    is_doubtful: bool  # a reading has an accuracy


def read_notes(frame: Frame, device: Device, possible: Senses) -> list[Note]:
    """Return the notifications of a frame in order; RefusedError if any of it cannot be."""
    if frame.kind != NOTIFICATIONS:
        raise RefusedError("kind", f"kind {frame.kind} has no notifications")
    try:
        vectors = split_vectors(frame.body)
        decoded = [decode_notification(vector) for vector in vectors]
    except ProtocolError as error:
        raise RefusedError("vector", str(error)) from None
    senses = device.senses if frame.epoch == device.hello[0] else possible
    notes: list[Note] = []
    for vector, n in zip(vectors, decoded, strict=True):
        _check_senses(n, senses)
        sequence = frame.sequence - ((frame.sequence - n.sequence) & 0xFFFF)
        if sequence <= (notes[-1].sequence if notes else 0):
            raise RefusedError("sequence", f"number {sequence} is out of order")
        is_doubtful = not all(reading.exact for reading in n.readings)
        notes.append(Note(sequence, vector, *_find_age(n.age), is_doubtful))
    if not notes or notes[-1].sequence != frame.sequence:
        raise RefusedError("sequence", f"the last number is not the frame's, {frame.sequence}")
    return notes


def is_new(number: Number, device: Device) -> bool:
    """Return whether a notification was not taken before."""
    return number > device.taken


def _check_senses(n: NotificationVector, senses: Senses) -> None:
    features, wides = senses.get(n.event, (0, 0))
    strange = (n.features | n.faults) & ~features
    if strange:
        raise RefusedError("senses", f"event {n.event}: features {strange:#06x} were not announced")
    for reading in n.readings:
        if reading.wide != bool(wides >> reading.attribute & 1):
            raise RefusedError(
                "senses", f"event {n.event}: attribute {reading.attribute} has another resolution"
            )


def _find_age(code: int) -> tuple[int, int]:
    """Return an age in ms, and by how much it may be wrong: half a step, and the device's tick."""
    step = 1 << max(0, (code >> _MANTISSA) - 1)
    return decode_age(code) * 1000 // AGES_PER_SECOND, (step + 2) * 500 // AGES_PER_SECOND + 1
