"""Sessions and their subscriptions: who gets a message, who listens, what a lost session leaves.

The rules that hold here:
- A message of QoS 1 or 2 is routed to everybody at once or to nobody: if one receiver has no room,
  `route` changes nothing and names that receiver, so that the publisher can be made to wait.
- Only a session that subscribed to exactly a topic acknowledges the node's messages there; somebody
  who looks on through a wildcard does not.
"""

from __future__ import annotations

from denwatch.node.core.interface import Listening, Write
from denwatch.node.mqtt.limits import Limits
from denwatch.node.mqtt.outbound import Outbound
from denwatch.node.mqtt.records import (
    INBOUND,
    PRESENT,
    SESSIONS,
    SUBSCRIPTIONS,
    VERSION,
    make_inbound_key,
    make_subscription_key,
)
from denwatch.node.mqtt.retained import Retained
from denwatch.node.mqtt.session import Delivery, Parcel, Session
from denwatch.node.mqtt.step import Step
from denwatch.node.mqtt.topics import FilterIndex, is_directed, is_listened


class Exchange:
    """All sessions of a server."""

    def __init__(self, limits: Limits, step: Step, counts: dict[str, int]) -> None:
        self.sessions: dict[tuple[str, str], Session] = {}
        self.retained = Retained(limits, step)
        self.index: FilterIndex[Session] = FilterIndex()
        self.outbound = Outbound(limits, step, counts)
        self._limits = limits
        self._step = step
        self._listeners: dict[str, int] = {}

    # Sessions ------------------------------------------------------------------------------

    def create(self, user: str, client: str, is_persistent: bool) -> Session:
        """Start a session."""
        session = Session(user, client, is_persistent)
        self.sessions[user, client] = session
        if is_persistent:
            self._step.add(Write(SESSIONS, session.key, VERSION))
        return session

    def remove(self, session: Session) -> int:
        """End a session that is away; return how many messages waited for it."""
        del self.sessions[session.user, session.client]
        for name in session.subscriptions:
            self.index.remove(name, session)
        waiting = self.outbound.discard(session)
        if session.is_persistent:
            for name in session.subscriptions:
                key = make_subscription_key(session.key, name)
                self._step.add(Write(SUBSCRIPTIONS, key, None))
            for number in session.inbound:
                self._step.add(Write(INBOUND, make_inbound_key(session.key, number), None))
            self._step.add(Write(SESSIONS, session.key, None))
        return waiting

    def attach(self, session: Session, link: int) -> None:
        """Connect a session: what was sent and not acknowledged goes again, then what waited."""
        session.link = link
        session.is_blocked = False
        self.outbound.resume(session)
        for name in session.subscriptions:
            self._count_listener(name, 1)

    def detach(self, session: Session, now: int) -> None:
        """Disconnect a session: a persistent one stays, without directed messages."""
        for name in session.subscriptions:
            self._count_listener(name, -1)
        session.link = 0
        session.is_blocked = False
        session.away_since = now
        orphans = self.outbound.take_directed(session)
        if not session.is_persistent:
            self.remove(session)
        for delivery in orphans:
            self._hand_over(delivery)

    def block(self, session: Session, is_blocked: bool) -> None:
        """Note that a client stopped reading, or reads again."""
        session.is_blocked = is_blocked
        if not is_blocked:
            self.outbound.pump(session)

    # Subscriptions -------------------------------------------------------------------------

    def subscribe(self, session: Session, name: str, qos: int) -> bool:
        """Add a subscription or change its QoS; False: the session has too many."""
        is_new = name not in session.subscriptions
        if is_new and len(session.subscriptions) >= self._limits.subscriptions:
            return False
        session.subscriptions[name] = qos
        self.index.add(name, session, qos)
        if session.is_persistent:
            key = make_subscription_key(session.key, name)
            self._step.add(Write(SUBSCRIPTIONS, key, bytes((qos,))))
        if is_new:
            self._count_listener(name, 1)
        return True

    def unsubscribe(self, session: Session, name: str) -> None:
        """Remove a subscription, if there is one; what was queued through it still goes out."""
        if session.subscriptions.pop(name, None) is None:
            return
        self.index.remove(name, session)
        if session.is_persistent:
            self._step.add(Write(SUBSCRIPTIONS, make_subscription_key(session.key, name), None))
        self._count_listener(name, -1)

    def deliver_retained(self, session: Session, filters: list[tuple[str, int]]) -> None:
        """Send what is retained below some filters, each message once, with the best QoS."""
        found: dict[Parcel, int] = {}
        for name, qos in filters:
            for parcel in self.retained.find_all(name):
                found[parcel] = max(found.get(parcel, 0), min(qos, parcel.qos))
        for parcel, qos in found.items():
            self.outbound.deliver(session, parcel, qos, True, False, False)

    def count_kept(self, user: str) -> int:
        """Return how many persistent sessions a user has."""
        return sum(1 for s in self.sessions.values() if s.user == user and s.is_persistent)

    # Routing -------------------------------------------------------------------------------

    def route(self, parcel: Parcel) -> Session | None:
        """Hand a message to everybody who subscribed; or to nobody, and return who has no room."""
        targets = self.index.find_all(parcel.topic)
        if not targets:
            return None
        directed = is_directed(parcel.topic)
        if parcel.qos and not directed:
            size = parcel.size
            for session, granted in targets.items():
                if granted and session.bytes and not self.outbound.has_room(session, size):
                    return session
        self._deliver_all(parcel, targets, directed)
        return None

    def route_own(self, parcel: Parcel) -> list[Session]:
        """Hand the node's own message to everybody who has room; return those who have none."""
        targets = self.index.find_all(parcel.topic)
        directed = is_directed(parcel.topic)
        full: list[Session] = []
        if parcel.qos and not directed:
            size = parcel.size
            full = [
                s
                for s, granted in targets.items()
                if granted and not self.outbound.has_room(s, size)
            ]
            if full:
                targets = {s: granted for s, granted in targets.items() if s not in full}
        self._deliver_all(parcel, targets, directed)
        return full

    def _deliver_all(self, parcel: Parcel, targets: dict[Session, int], directed: bool) -> None:
        exact = self.index.get_exact(parcel.topic) if parcel.token else None
        qos = parcel.qos
        for session, granted in targets.items():
            counts = exact is not None and session in exact
            self.outbound.deliver(
                session, parcel, qos if qos < granted else granted, False, directed, counts
            )

    def _hand_over(self, delivery: Delivery) -> None:
        """Give what a lost session did not acknowledge to another listener of the same topic.

        When there is none the node hears that nobody listens, and sends it again itself.
        """
        parcel = delivery.parcel
        if not delivery.counts or not parcel.token or parcel.carriers:
            return
        listeners = [
            (session, granted)
            for session, granted in (self.index.get_exact(parcel.topic) or {}).items()
            if session.link
        ]
        for session, granted in listeners:
            if self.outbound.has_room(session, parcel.size):
                self.outbound.deliver(session, parcel, min(parcel.qos, granted), False, True, True)
                return
        self.outbound.slow += [session for session, _ in listeners]

    def _count_listener(self, name: str, change: int) -> None:
        if not is_listened(name):
            return
        before = self._listeners.get(name, 0)
        after = before + change
        if after:
            self._listeners[name] = after
        else:
            del self._listeners[name]
        if not before or not after:
            self._step.add(Listening(name, after > 0))

    # QoS 2 inbound -------------------------------------------------------------------------

    def accept_inbound(self, session: Session, number: int) -> None:
        """Note a QoS 2 message of a client until the client releases it."""
        session.inbound[number] = None
        if session.is_persistent:
            self._step.add(Write(INBOUND, make_inbound_key(session.key, number), PRESENT))

    def release_inbound(self, session: Session, number: int) -> None:
        """Take PUBREL: the packet id is free for another message."""
        if session.inbound.pop(number, 0) is None and session.is_persistent:
            self._step.add(Write(INBOUND, make_inbound_key(session.key, number), None))
