"""Opening frames that come up, and sealing those that go down; the only file here that has keys.

Each way in which a frame can be wrong has its own reason, so that a count of refusals says what is
going on: a forger, a device with an old key, a radio that cuts frames short.
"""

from __future__ import annotations

from denwatch.node.core.devices.contracts import Keys, RefusedError
from denwatch.protocol import frames
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import Frame, Link
from denwatch.protocol.messages import encode_message


def open_upward(keys: Keys, device: str, payload: bytes) -> tuple[Frame, int]:
    """Return an authenticated frame of a device, and the id of its key; RefusedError otherwise."""
    if len(payload) > frames.MAX_LENGTH:
        raise RefusedError("too long", f"{len(payload)} bytes")
    if len(payload) < frames.OVERHEAD:
        raise RefusedError("truncated", f"{len(payload)} bytes are no frame")
    key_id = frames.read_key_id(payload)
    link = keys.link_for(device, key_id)
    if link is None:
        if not keys.list_key_ids(device):
            raise RefusedError("unknown device", "it has no key that is good")
        raise RefusedError("unknown key", f"key {key_id} is not good")
    try:
        return frames.open_frame(link, frames.UP, payload), key_id
    except ProtocolError as error:
        raise RefusedError(_name_fault(link, payload), str(error)) from None


def _name_fault(link: Link, payload: bytes) -> str:
    """Tell a frame of ours that comes back from one that was forged or damaged."""
    try:
        frames.open_frame(link, frames.DOWN, payload)
    except ProtocolError:
        return "tag" if payload[0] & 0xC0 == 0x40 else "version"
    return "direction"


def seal_vectors(link: Link, number: tuple[int, int], vectors: list[bytes]) -> bytes:
    """Return a frame that installs subscriptions."""
    return _seal(link, frames.SUBSCRIPTIONS, number, frames.join_vectors(vectors))


def seal_removal(link: Link, number: tuple[int, int], handles: list[int]) -> bytes:
    """Return a frame that removes subscriptions."""
    return _seal(link, frames.MESSAGE, number, encode_message("remove", {"handles": handles}))


def seal_acknowledgement(link: Link, number: tuple[int, int], taken: tuple[int, int]) -> bytes:
    """Return a frame that says up to where notifications are committed.

    Its own number means nothing: the device takes acknowledgements again and again.
    """
    fields: dict[str, object] = {"epoch": taken[0], "sequence": taken[1]}
    return _seal(link, frames.MESSAGE, number, encode_message("acknowledge", fields))


def _seal(link: Link, kind: int, number: tuple[int, int], body: bytes) -> bytes:
    return frames.seal(link, frames.DOWN, Frame(kind, number[0], number[1], body))
