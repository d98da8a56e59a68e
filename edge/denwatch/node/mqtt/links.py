"""The links of a server: who is connected, when a link must go, and the will that it leaves."""

from __future__ import annotations

from collections import deque

from denwatch.node.core.interface import Message
from denwatch.node.mqtt.decoder import Decoder
from denwatch.node.mqtt.exchange import Exchange
from denwatch.node.mqtt.interface import Refused
from denwatch.node.mqtt.limits import Limits
from denwatch.node.mqtt.packets import Packet, Will
from denwatch.node.mqtt.session import Parcel, Session
from denwatch.node.mqtt.step import Step


class Link:
    """A connection; it has a session from CONNECT on."""

    __slots__ = (
        "blocked_since",
        "blocker",
        "decoder",
        "is_paid",
        "is_paused",
        "keep_ms",
        "number",
        "seen",
        "session",
        "since",
        "waiting",
        "waiting_bytes",
        "will",
    )

    def __init__(self, number: int, limits: Limits, now: int) -> None:
        self.number = number
        self.decoder = Decoder(limits)
        self.session: Session | None = None
        self.keep_ms = 0
        self.seen = now
        self.will: Will | None = None
        self.waiting: deque[Packet] | None = None  # packets that cannot be taken yet
        self.waiting_bytes = 0  # since the first of them
        self.since = now  # when it began to wait; before CONNECT, when it was opened
        self.blocker: Session | None = None  # who has no room; None: it is the pace
        self.is_paid = False  # the pace has counted the packet that waits
        self.is_paused = False  # it is not read
        self.blocked_since = -1  # it does not read

    @property
    def user(self) -> str:
        """The name that it was let in with."""
        return self.session.user if self.session else ""

    def find_fault(self, limits: Limits, now: int) -> str:
        """Return why the link must go now; "" if it may stay."""
        if self.session is None:
            return "no CONNECT in time" if now - self.since > limits.connect_ms else ""
        if self.blocked_since >= 0:
            return "it does not read" if now - self.blocked_since > limits.slow_ms else ""
        if self.keep_ms and now - self.seen > self.keep_ms and not self.is_paused:
            return "silent beyond its keep-alive"
        return ""


class Links:
    """All links; `held` are those with packets that wait."""

    def __init__(
        self, exchange: Exchange, limits: Limits, step: Step, counts: dict[str, int]
    ) -> None:
        self.all: dict[int, Link] = {}
        self.held: dict[int, Link] = {}
        self.wills: deque[tuple[str, Will]] = deque()  # that wait for room
        self._exchange = exchange
        self._limits = limits
        self._step = step
        self._counts = counts

    def drop(self, link: Link, reason: str, now: int) -> None:
        """Close a link from our side; its will is published."""
        self._step.close(link.number, reason)
        self.leave(link, now)

    def drop_slow(self, session: Session, now: int) -> None:
        """Send a session's client away that does not keep up."""
        if session.link:
            self._counts["slow"] += 1
            self.drop(self.all[session.link], "it does not keep up", now)

    def leave(self, link: Link, now: int) -> None:
        """Take a link away that is gone; its will is published, or waits for room."""
        del self.all[link.number]
        self.held.pop(link.number, None)
        session, will = link.session, link.will
        if session is None:
            return
        self._exchange.detach(session, now)
        if will is None or self._publish_will(session.user, will):
            return
        if len(self.wills) < self._limits.wills:
            self.wills.append((session.user, will))
        else:
            self.refuse(None, f"the will of {session.user}", "too many wills wait")

    def retry_wills(self) -> None:
        """Publish the wills that there is room for by now."""
        for _ in range(len(self.wills)):
            user, will = self.wills.popleft()
            if not self._publish_will(user, will):
                self.wills.append((user, will))

    def refuse(self, link: Link | None, what: str, why: str) -> None:
        """Count and report what was not done."""
        self._counts["refused"] += 1
        number, user = (link.number, link.user) if link else (0, "")
        self._step.add(Refused(number, user, what, why))

    def _publish_will(self, user: str, will: Will) -> bool:
        parcel = Parcel(will.topic, will.payload, will.qos)
        if self._exchange.route(parcel) is not None:
            return False
        if will.retain:
            if self._exchange.retained.has_room(parcel):
                self._exchange.retained.put(parcel)
            else:
                self.refuse(None, f"retaining the will of {user}", "too many retained messages")
        self._step.add(Message(user, will.topic, will.payload))
        return True
