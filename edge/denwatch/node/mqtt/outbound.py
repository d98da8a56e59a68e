"""Messages on their way to clients: windows, queues, acknowledgements, and their durable copies.

The rules that hold here:
- What waits for a persistent session is written when it is handed over, and taken away when the
  client has acknowledged it.
- Messages on directed topics are never kept for a session that is away: the node keeps them.
- A parcel's token is answered once, by the first delivery that counts.
"""

from __future__ import annotations

from denwatch.node.core.interface import Acknowledged, Write
from denwatch.node.mqtt.limits import Limits
from denwatch.node.mqtt.packets import write_pubrel
from denwatch.node.mqtt.records import QUEUE, QueueRecord, make_queue_key, write_queue_value
from denwatch.node.mqtt.session import Delivery, Parcel, Session
from denwatch.node.mqtt.step import Step


class Outbound:
    """Hands parcels to sessions."""

    def __init__(self, limits: Limits, step: Step, counts: dict[str, int]) -> None:
        self.slow: list[Session] = []  # listeners that must be sent away: they do not keep up
        self.was_freed = False  # room was made in a queue since somebody last looked
        self.bytes = 0  # in all queues and flights
        self.last_number = 0  # of a durable message
        self._limits = limits
        self._step = step
        self._counts = counts

    def has_room(self, session: Session, size: int) -> bool:
        """Tell whether a queue can take one more; an empty one always can."""
        if not session.bytes:
            return True
        limits = self._limits
        return (
            len(session.queue) < limits.queue
            and session.bytes + size <= limits.queue_bytes
            and self.bytes + size <= limits.total_queue_bytes
        )

    def deliver(
        self,
        session: Session,
        parcel: Parcel,
        qos: int,
        retain: bool,
        directed: bool,
        counts: bool,
    ) -> None:
        """Send a parcel or queue it. `counts`: this copy's acknowledgement is the parcel's."""
        if not session.link and (directed or not qos):
            return
        is_ready = session.link and not session.is_blocked
        delivery = Delivery(parcel, qos, retain, directed, counts)
        if not qos:
            if is_ready:
                self._send(session, delivery)
                if counts:
                    self._acknowledge_parcel(parcel)
                return
            if not (counts and directed):
                self._counts["dropped_qos0"] += 1
                return
        if directed and not self.has_room(session, parcel.size):
            self.slow.append(session)
            return
        if counts:
            parcel.carriers += 1
        size = parcel.size
        session.bytes += size
        self.bytes += size
        if session.is_persistent and not directed:
            self.last_number += 1
            delivery.number = self.last_number
        if is_ready and not session.queue and len(session.flight) < self._limits.window:
            self._transmit(session, delivery)
            if delivery.number and qos == 1:
                self._keep(session, delivery)
        else:
            session.queue.append(delivery)
            if delivery.number:
                self._keep(session, delivery)

    def pump(self, session: Session) -> None:
        """Send from the queue what the window allows."""
        queue = session.queue
        while queue and session.link and not session.is_blocked:
            if queue[0].qos and len(session.flight) >= self._limits.window:
                break
            delivery = queue.popleft()
            if delivery.qos:
                self._transmit(session, delivery)
            else:
                self._send(session, delivery)
                self._settle(session, delivery)

    def _transmit(self, session: Session, delivery: Delivery) -> None:
        delivery.id = session.take_id()
        session.flight[delivery.id] = delivery
        self._send(session, delivery)
        if delivery.qos == 2 and delivery.number:
            self._keep(session, delivery)  # with its id, which the client knows it by

    def _send(self, session: Session, delivery: Delivery) -> None:
        first = 0x30 | delivery.qos << 1
        if delivery.retain:
            first |= 1
        if delivery.is_repeated:
            first |= 8
        self._counts["messages_sent"] += 1
        self._step.send(session.link, delivery.parcel.write(first, delivery.id))

    # Coming and going ----------------------------------------------------------------------

    def resume(self, session: Session) -> None:
        """Send again what was not acknowledged, then what waited: the session is connected."""
        for delivery in session.flight.values():
            if delivery.is_released:
                self._step.send(session.link, write_pubrel(delivery.id))
            else:
                self._send(session, delivery)
        self.pump(session)

    def take_directed(self, session: Session) -> list[Delivery]:
        """Take back what is not kept for a session that is away; the rest will go again."""
        taken: list[Delivery] = []
        for number, delivery in list(session.flight.items()):
            delivery.is_repeated = True
            if delivery.is_directed:
                del session.flight[number]
                taken.append(delivery)
        queued = [delivery for delivery in session.queue if delivery.is_directed]
        if queued:
            kept = [delivery for delivery in session.queue if not delivery.is_directed]
            session.queue.clear()
            session.queue.extend(kept)
        taken += queued
        for delivery in taken:
            self._free(session, delivery.parcel.size)
            delivery.parcel.carriers -= delivery.counts
        return taken

    def discard(self, session: Session) -> int:
        """Drop everything of a session that ends; return how many messages waited for it."""
        self._free(session, session.bytes)
        waiting = (*session.flight.values(), *session.queue)
        for delivery in waiting:
            if delivery.number:
                self._forget(session, delivery)
        return len(waiting)

    # Acknowledgements ----------------------------------------------------------------------

    def acknowledge(self, session: Session, number: int) -> None:
        """Take PUBACK; one that fits nothing is passed over, as clients send those too."""
        delivery = session.flight.get(number)
        if delivery is not None and delivery.qos == 1:
            del session.flight[number]
            self._settle(session, delivery)
            if session.queue:
                self.pump(session)

    def record(self, session: Session, number: int) -> None:
        """Take PUBREC: the client has the message; from now on only PUBREL goes again."""
        delivery = session.flight.get(number)
        # An unknown id is answered too: the client would keep it for ever.
        if delivery is not None and delivery.qos == 2 and not delivery.is_released:
            delivery.is_released = True
            if delivery.number:
                self._keep(session, delivery)
        self._step.send(session.link, write_pubrel(number))

    def complete(self, session: Session, number: int) -> None:
        """Take PUBCOMP."""
        delivery = session.flight.get(number)
        if delivery is not None and delivery.is_released:
            del session.flight[number]
            self._settle(session, delivery)
            self.pump(session)

    def _settle(self, session: Session, delivery: Delivery) -> None:
        self._free(session, delivery.parcel.size)
        if delivery.number:
            self._forget(session, delivery)
        if delivery.counts:
            delivery.parcel.carriers -= 1
            self._acknowledge_parcel(delivery.parcel)

    def _acknowledge_parcel(self, parcel: Parcel) -> None:
        if parcel.token:
            self._step.add(Acknowledged(parcel.topic, parcel.token))
            parcel.token = 0

    # Bookkeeping ---------------------------------------------------------------------------

    def _keep(self, session: Session, delivery: Delivery) -> None:
        parcel = delivery.parcel
        record = QueueRecord(
            parcel.topic,
            parcel.payload,
            delivery.qos,
            delivery.retain,
            delivery.is_released,
            delivery.id if delivery.qos == 2 else 0,
        )
        key = make_queue_key(session.key, delivery.number)
        self._step.add(Write(QUEUE, key, write_queue_value(record)))

    def _forget(self, session: Session, delivery: Delivery) -> None:
        self._step.add(Write(QUEUE, make_queue_key(session.key, delivery.number), None))

    def _free(self, session: Session, size: int) -> None:
        session.bytes -= size
        self.bytes -= size
        self.was_freed = True
