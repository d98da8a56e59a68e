"""The quick decoder of notification vectors and the protocol's say the same of every frame."""

from __future__ import annotations

from collections.abc import Callable

from denwatch.node.core.notifications import decode_notification
from denwatch.protocol import notification
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import NotificationVector, Reading
from hypothesis import given, settings
from hypothesis import strategies as st

plain = st.builds(
    lambda event, values, sequence, age: notification.encode(
        NotificationVector(
            event, [Reading(a, (v, v, v, v)) for a, v in sorted(values.items())], sequence, age
        )
    ),
    st.integers(0, 63),
    st.dictionaries(st.integers(0, 15), st.integers(0, 255), min_size=1),
    st.integers(0, 65535),
    st.integers(0, 2047),
)


def judge(decode: Callable[[bytes], NotificationVector], frame: bytes) -> object:
    """Return what a decoder says: the notification with its features, or why there is none."""
    try:
        found = decode(frame)
    except ProtocolError as error:
        return str(error)
    return found, found.features


def agree(frame: bytes) -> None:
    assert judge(decode_notification, frame) == judge(notification.decode, frame)


@settings(max_examples=200, deadline=None)
@given(plain, st.integers(0, 30), st.integers(0, 255), st.integers(0, 40))
def test_plain_damaged_and_cut_vectors(frame: bytes, place: int, value: int, end: int) -> None:
    agree(frame)
    agree(frame[:end])
    agree(frame + bytes([value]))
    damaged = bytearray(frame)
    damaged[place % len(damaged)] = value
    agree(bytes(damaged))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_behind_the_type(rest: bytes) -> None:
    agree(b"\x81" + rest)
