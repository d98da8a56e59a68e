"""Every limit of the MQTT server in one place: sizes, numbers and times.

What a client can make the server keep is bounded by these and by nothing else; each is checked
where its comment says.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in milliseconds."""

    # Of packets: the decoder.
    packet_bytes: int = 262_144
    connect_bytes: int = 16_384  # of a packet from somebody who was not let in yet
    topic_bytes: int = 1_024  # of a topic name or filter
    topic_levels: int = 32
    client_bytes: int = 256  # of a client id
    filters: int = 64  # in one SUBSCRIBE or UNSUBSCRIBE

    # Of a session: the exchange.
    subscriptions: int = 1_000
    window: int = 32  # messages sent and not acknowledged
    queue: int = 1_000  # messages that wait for the window or for the client to come back
    queue_bytes: int = 4_194_304
    inbound: int = 1_024  # QoS 2 messages that the client did not release yet

    # Of all sessions together: the exchange.
    sessions: int = 10_000
    user_sessions: int = 256  # of one user that stay when their clients leave
    total_queue_bytes: int = 268_435_456
    retained: int = 10_000
    retained_bytes: int = 67_108_864
    wills: int = 1_000  # that wait for room in somebody's queue

    # Of a link: the server.
    waiting: int = 64  # packets decoded and not taken, while a receiver has no room
    waiting_bytes: int = 262_144  # of their payloads
    connect_ms: int = 10_000  # from the connection to CONNECT
    hold_ms: int = 20_000  # a publisher waits for room before it is refused
    slow_ms: int = 60_000  # a client may leave what we sent unread
    session_ms: int = 604_800_000  # a persistent session may be away, within one run of the node

    # Of a socket: the listener.
    links: int = 2_000
    buffer_bytes: int = (
        262_144  # unsent, before the link counts as blocked and is not read any more
    )
    buffer_limit_bytes: int = 16_777_216  # unsent, before the link is cut
    farewell_ms: int = 5_000  # a closed link may take to read what was sent before

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"limit {field.name}: {getattr(self, field.name)} is below 1")
        if self.window > 65_535 or self.inbound > 65_535:
            raise ValueError("limit window or inbound: there are 65,535 packet ids")
        if self.packet_bytes > 268_435_460:
            raise ValueError("limit packet_bytes: MQTT has no packets beyond 268,435,460 bytes")
