"""Notification vectors as objects, quickly: the same as `protocol.notification` gives, shared.

A node sees each vector several times, and most are plain: exact values of one byte each. Whoever
gets a notification from here must not change it. The protocol's own decoder, which also runs on
devices, stays the judge of everything that is not plain, and of every error.
"""

from __future__ import annotations

from functools import lru_cache

from denwatch.protocol import notification as codec
from denwatch.protocol.timecode import LAST_AGE
from denwatch.protocol.vectors import NotificationVector, Reading

_HEAD = 8  # bytes before the values: type and event, flags, sequence, age, features


@lru_cache(maxsize=1024)
def decode_notification(frame: bytes) -> NotificationVector:
    """Return the notification of a whole vector; ProtocolError names the byte that is wrong."""
    if len(frame) > _HEAD and frame[0] & 0xC0 == codec.TYPE and not frame[1]:
        features = frame[6] << 8 | frame[7]
        attributes = list_attributes(features)
        age = frame[4] << 8 | frame[5]
        if len(attributes) == len(frame) - _HEAD and age <= LAST_AGE:
            readings = [_read(a, frame[_HEAD + i]) for i, a in enumerate(attributes)]
            n = NotificationVector.__new__(NotificationVector)  # its checks are those above
            n.event = frame[0] & 63
            n.readings = readings
            n.sequence = frame[2] << 8 | frame[3]
            n.age = age
            n.why = None
            n.faults = 0
            n.features = features
            return n
    return codec.decode(frame)


@lru_cache(maxsize=4096)
def list_attributes(features: int) -> tuple[int, ...]:
    """Return the attributes of a mask, rising."""
    return tuple(bit for bit in range(16) if features >> bit & 1)


@lru_cache(maxsize=4096)
def _read(attribute: int, value: int) -> Reading:
    return Reading(attribute, (value, value, value, value))
