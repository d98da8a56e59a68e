"""What MQTT clients send, as bytes: for clients that a library would keep from misbehaving."""

from __future__ import annotations

from denwatch.node.mqtt.packets import write_head, write_publish, write_variable

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
    properties: bytes | None = None,  # of MQTT 5, which it speaks if there are any
) -> bytes:
    """Return CONNECT with a password, and with a will if it has a topic."""
    flags = 0xC0 | is_clean << 1 | (0x0C if will else 0)
    wills = _write_field(will) + _write_field("gone") if will else b""
    level, own = 4, b""
    if properties is not None:
        level, own = 5, _write_properties(properties)
        wills = b"\0" + wills if will else b""
    tail = _write_field(client) + wills + _write_field(user) + _write_field(password)
    body = _write_field("MQTT") + bytes([level, flags, 0, keep_alive]) + own + tail
    return write_head(0x10, len(body)) + body


def write_subscribe(
    number: int, *filters: str, qos: int = 1, properties: bytes | None = None
) -> bytes:
    """Return SUBSCRIBE; with properties MQTT 5's, whose options are the QoS."""
    names = b"".join(_write_field(name) + bytes([qos]) for name in filters)
    own = b"" if properties is None else _write_properties(properties)
    return write_head(0x82, 2 + len(own + names)) + number.to_bytes(2, "big") + own + names


def write_publish_v5(
    topic: str, payload: bytes, qos: int, number: int, properties: bytes, *, retain: bool = False
) -> bytes:
    """Return PUBLISH of MQTT 5."""
    body = _write_field(topic) + (number.to_bytes(2, "big") if qos else b"")
    body += _write_properties(properties) + payload
    return write_head(0x30 | qos << 1 | retain, len(body)) + body


# Properties of MQTT 5: right ones, and some that no packet may have.
PROPERTIES = (
    b"",
    b"\x01\x01",  # payload format
    b"\x02\0\0\0\x05",  # message expiry
    b"\x03\0\1t",  # content type
    b"\x08\0\x05a/b/c",  # response topic
    b"\x08\0\x13dens/1/reply/medic7",
    b"\x09\0\x0242",  # correlation data
    b"\x0b\x07",  # subscription identifier
    b"\x11\0\0\0\x0a",  # session expiry
    b"\x17\0",  # problem information
    b"\x18\0\0\0\x02",  # will delay
    b"\x19\1",  # response information
    b"\x15\0\1x",  # authentication method
    b"\x21\0\x02",  # receive maximum
    b"\x22\0\x02",  # topic alias maximum
    b"\x23\0\x01",  # topic alias
    b"\x26\0\1k\0\1v",  # user property
    b"\x27\0\0\0\x40",  # maximum packet size
    b"\x7e",
)

# WebSocket: the request that opens it, and a frame with bytes of MQTT.
HANDSHAKE = (
    b"GET /mqtt HTTP/1.1\r\nHost: north\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def write_frame(data: bytes, first: int = 0x82) -> bytes:
    """Return a frame of WebSocket, masked with zeros as a client may."""
    size = bytes([128 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return bytes([first]) + size + bytes(4) + data


def _write_properties(properties: bytes) -> bytes:
    return write_variable(len(properties)) + properties


def _write_field(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


__all__ = [
    "DISCONNECT",
    "HANDSHAKE",
    "PINGREQ",
    "PROPERTIES",
    "write_connect",
    "write_frame",
    "write_publish",
    "write_publish_v5",
    "write_subscribe",
]
