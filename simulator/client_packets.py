"""What MQTT clients send, as bytes: for clients that a library would keep from misbehaving."""

from __future__ import annotations

from denwatch.node.mqtt.packets import write_head, write_publish

DISCONNECT = b"\xe0\x00"
PINGREQ = b"\xc0\x00"


def write_connect(
    client: str,
    user: str,
    password: str = "secret",
    *,
    is_clean: bool = True,
    will: str = "",
    keep_alive: int = 30,  # s; 0: for ever
) -> bytes:
    """Return CONNECT with a password, and with a will if it has a topic."""
    flags = 0xC0 | is_clean << 1 | (0x0C if will else 0)
    wills = _write_field(will) + _write_field("gone") if will else b""
    tail = _write_field(client) + wills + _write_field(user) + _write_field(password)
    body = _write_field("MQTT") + bytes([4, flags, 0, keep_alive]) + tail
    return write_head(0x10, len(body)) + body


def write_subscribe(number: int, *filters: str, qos: int = 1) -> bytes:
    """Return SUBSCRIBE."""
    names = b"".join(_write_field(name) + bytes([qos]) for name in filters)
    return write_head(0x82, 2 + len(names)) + number.to_bytes(2, "big") + names


def _write_field(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


__all__ = ["DISCONNECT", "PINGREQ", "write_connect", "write_publish", "write_subscribe"]
