"""The MQTT 3.1.1 server without I/O: what arrives, what the node publishes, and time.

Nothing here reads a clock, a socket or a random source; the same inputs give the same outputs.
`now` is in ms and never falls; take what arrived before calling `tick`, so that a node that was
busy does not blame its clients.

A publisher waits when a receiver has no room (or when its pace says so): the packet is put aside
with what follows it, acknowledgements and pings excepted, and is taken again when there is room.
Beyond a bounded number of packets the link is not read any more. After `hold_ms` the receiver is
sent away if it has a clean session, and otherwise the publisher, without an acknowledgement: it
sends the message again. Nothing that a client published with QoS 1 or 2 is ever dropped.
"""

from __future__ import annotations

from collections import deque

from denwatch.node.core.interface import Publish, Reader
from denwatch.node.mqtt import packets
from denwatch.node.mqtt.exchange import Exchange
from denwatch.node.mqtt.interface import (
    Blocked,
    Input,
    Opened,
    Output,
    Pace,
    Pause,
    Received,
    Refused,
    Resume,
    Rules,
)
from denwatch.node.mqtt.limits import Limits
from denwatch.node.mqtt.links import Link, Links
from denwatch.node.mqtt.packets import MalformedError, Packet
from denwatch.node.mqtt.reception import Reception
from denwatch.node.mqtt.restoration import restore_exchange
from denwatch.node.mqtt.session import Parcel
from denwatch.node.mqtt.status import COUNTS, describe_server
from denwatch.node.mqtt.step import Step

# Do not wait behind what waits.
_PASSING = (packets.Puback, packets.Pubrec, packets.Pubcomp, packets.Pingreq)


class Server:
    """Every method returns its outputs: perform the writes first, then commit, then the rest."""

    def __init__(
        self, rules: Rules, limits: Limits | None = None, pace: Pace | None = None
    ) -> None:
        self.limits = limits = limits or Limits()
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self._step = step = Step()
        self.exchange = Exchange(limits, step, self.counts)
        self._links = Links(self.exchange, limits, step, self.counts)
        reception = Reception(self._links, self.exchange, rules, pace, limits, step, self.counts)
        self._process = reception.process

    def restore(self, reader: Reader, now: int) -> None:
        """Take up what an earlier run left; called once, before anything else."""
        restore_exchange(self.exchange, reader, now)

    # From the listener -----------------------------------------------------------------------

    def take(self, event: Input, now: int) -> list[Output]:
        """Take whatever the listener reports."""
        if type(event) is Received:
            return self.receive(event.link, event.data, now)
        if type(event) is Opened:
            return self.open(event.link, now)
        if type(event) is Blocked:
            return self.block(event.link, event.is_blocked, now)
        return self.lost(event.link, now)

    def open(self, link: int, now: int) -> list[Output]:
        """Take a new connection."""
        self._links.all[link] = Link(link, self.limits, now)
        return []

    def receive(self, link: int, data: bytes, now: int) -> list[Output]:
        """Take bytes of a connection; those of one that was closed are passed over."""
        links = self._links.all
        here = links.get(link)
        if here is None:
            return []
        here.seen = now
        decoder = here.decoder
        decoder.feed(data)
        try:
            while link in links:
                packet = decoder.take()
                if packet is None:
                    break
                if here.waiting is not None:
                    self._wait(here, packet, now)
                elif not self._process(here, packet, now):
                    self._hold(here, packet, now)
        except MalformedError as error:
            self.counts["malformed"] += 1
            self._step.add(Refused(link, here.user, "bytes", str(error)))
            self._links.drop(here, str(error), now)
        return self._finish(now)

    def lost(self, link: int, now: int) -> list[Output]:
        """Take the end of a connection, with or without our doing."""
        here = self._links.all.get(link)
        if here is None:
            return []
        self._links.leave(here, now)
        return self._finish(now)

    def block(self, link: int, is_blocked: bool, now: int) -> list[Output]:
        """Note that a client does not read what is sent to it, or does so again."""
        here = self._links.all.get(link)
        if here is None:
            return []
        here.seen = now
        here.blocked_since = now if is_blocked else -1
        if here.session is not None:
            self.exchange.block(here.session, is_blocked)
        return self._finish(now)

    # From the node ---------------------------------------------------------------------------

    def publish(self, message: Publish, now: int) -> list[Output]:
        """Publish for the node. A receiver that has no room misses it, and that is reported."""
        topic, payload, qos, retain, token = message
        parcel = Parcel(topic, payload, qos, token)
        if retain:
            if self.exchange.retained.has_room(parcel):
                self.exchange.retained.put(parcel)
            else:
                self._links.refuse(None, f"retaining {topic}", "too many retained messages")
        for session in self.exchange.route_own(parcel):
            self._links.refuse(None, f"publishing to {topic}", f"{session.user} has no room")
        return self._finish(now)

    def report(self, now: int) -> list[Output]:
        """Publish the counts under $SYS."""
        outputs: list[Output] = []
        for topic, number in describe_server(self.counts, len(self._links.all), self.exchange):
            outputs += self.publish(Publish(topic, b"%d" % number, 0, True), now)
        return outputs

    def list_users(self) -> list[str]:
        """Return the names of those who are connected."""
        links = self._links.all.values()
        return sorted({link.user for link in links if link.session is not None})

    def expel(self, user: str, now: int) -> list[Output]:
        """Close all links of a user and forget its sessions and wills: its key was revoked."""
        for link in list(self._links.all.values()):
            if link.session is not None and link.user == user:
                link.will = None
                self._links.drop(link, "the user was revoked", now)
        for session in list(self.exchange.sessions.values()):
            if session.user == user:
                self.exchange.remove(session)
        return self._finish(now)

    # Time ------------------------------------------------------------------------------------

    def tick(self, now: int) -> list[Output]:
        """Do what is due; to be called about once a second."""
        for link in list(self._links.all.values()):
            reason = link.find_fault(self.limits, now)
            if reason:
                self.counts["timeouts"] += 1
                self._links.drop(link, reason, now)
        for link in list(self._links.held.values()):
            if link.number in self._links.held:  # not sent away as another's receiver
                self._give_up(link, now)
        self._expire_sessions(now)
        self.exchange.outbound.was_freed = True  # a pace may have room again
        return self._finish(now)

    def _expire_sessions(self, now: int) -> None:
        for session in list(self.exchange.sessions.values()):
            if not session.link and now - session.away_since > self.limits.session_ms:
                waiting = self.exchange.remove(session)
                self.counts["sessions_expired"] += 1
                why = f"away for too long; {waiting} messages waited"
                self._step.add(Refused(0, session.user, f"session {session.client}", why))

    def _finish(self, now: int) -> list[Output]:
        """Let those go on who waited for room, send slow listeners away, return the outputs."""
        exchange, links = self.exchange, self._links
        while exchange.outbound.slow or (
            exchange.outbound.was_freed and (links.held or links.wills)
        ):
            if exchange.outbound.slow:
                links.drop_slow(exchange.outbound.slow.pop(), now)
                continue
            exchange.outbound.was_freed = False
            links.retry_wills()
            for link in list(links.held.values()):
                self._go_on(link, now)
        return self._step.finish()

    # Waiting ---------------------------------------------------------------------------------

    def _hold(self, link: Link, packet: Packet, now: int) -> None:
        """Put a packet aside that cannot be taken now."""
        link.waiting = deque((packet,))
        link.since = now
        self._links.held[link.number] = link
        self.counts["held"] += 1

    def _wait(self, link: Link, packet: Packet, now: int) -> None:
        """Put a packet behind one that waits; acknowledgements may be what makes the room."""
        if type(packet) in _PASSING or link.waiting is None:
            self._process(link, packet, now)
            return
        link.waiting.append(packet)
        if type(packet) is packets.Publish:
            link.waiting_bytes += len(packet.payload)
        is_full = (
            len(link.waiting) >= self.limits.waiting
            or link.waiting_bytes >= self.limits.waiting_bytes
        )
        if is_full and not link.is_paused:
            link.is_paused = True
            self._step.add(Pause(link.number))

    def _go_on(self, link: Link, now: int) -> None:
        """Take what waits, as far as there is room."""
        waiting = link.waiting
        while waiting and link.number in self._links.held:
            if not self._process(link, waiting[0], now):
                return
            waiting.popleft()
            link.since = now
        if self._links.held.pop(link.number, None) is None:
            return  # the link has gone meanwhile
        link.waiting = None
        link.waiting_bytes = 0
        link.seen = now
        if link.is_paused:
            link.is_paused = False
            self._step.add(Resume(link.number))

    def _give_up(self, link: Link, now: int) -> None:
        """End a wait for room that took too long."""
        blocker = link.blocker
        if blocker is None or now - link.since <= self.limits.hold_ms:
            return
        if not blocker.is_persistent:
            self._links.drop_slow(blocker, now)
        else:
            self._links.refuse(link, "publishing", f"{blocker.user} has no room")
            self._links.drop(link, f"a receiver has no room: {blocker.user}", now)
