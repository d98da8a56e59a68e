"""A storm between a node and a device: messages are lost, repeated and overtaken, both sides lose
their power at any moment. `check_*` are the promises; the ablations show that each can fail.

An operation is a pair of numbers: what happens, and to which message or value. Whatever they are,
a storm of them runs, so that a failing one can be made smaller.
"""

from __future__ import annotations

from collections.abc import Callable

from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.events import Acknowledged, Event, Listening, Message, Publish
from denwatch.node.core.items import Item
from denwatch.node.covering import Exact
from denwatch.protocol.matching import match
from denwatch.protocol.notification import decode as decode_note
from denwatch.protocol.subscription import decode
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.devices.device_node import SENSES, TOPIC, DeviceNode, Watchdog, make_vector, settle

SETTINGS = DeviceSettings(policy=Exact(), batch=3, patience=4_000, longest_patience=8_000)


class Storm:
    """One node, one device, and the weather between them."""

    def __init__(self, node: DeviceNode | None = None) -> None:
        self.node = node or DeviceNode(SETTINGS)
        self.watchdog = Watchdog(capacity=400)
        self.up: list[Event] = []
        self.down: list[Publish] = []
        self.items: list[Item] = []
        self.last_up: list[Message] = []  # to be played back later
        self.happen: list[Callable[[int], None]] = [
            self.subscribe,
            self.subscribe,
            self.unsubscribe,
            self.read,
            self.read,
            self.send,
            self.send,
            self.carry_up,
            self.carry_up,
            self.carry_up,
            self.carry_down,
            self.carry_down,
            self.carry_down,
            self.lose_up,
            self.lose_down,
            self.repeat_up,
            self.repeat_down,
            self.pass_time,
            self.reconnect,
            self.hang_up,
            self.restart_watchdog,
            self.crash_before_commit,
            self.crash_after_commit,
            self.play_back,
            self.clear_up,
            self.clear_up,
        ]

    def run(self, operations: list[tuple[int, int]]) -> None:
        for what, which in operations:
            self.happen[what % len(self.happen)](which)
            self.gather()

    def gather(self) -> None:
        """Put what the node published on its way."""
        self.down += self.node.outbox
        self.node.outbox.clear()

    # What people and the world do

    def subscribe(self, which: int) -> None:
        low = which % 60
        vector = make_vector(low, low + which % 7 * which % 50, attribute=which % 2)
        self.items.append(self.node.subscribe(vector, life=which % 3 * 300))

    def unsubscribe(self, which: int) -> None:
        if self.items:
            self.node.unsubscribe(self.items.pop(which % len(self.items)))

    def read(self, which: int) -> None:
        if len(self.watchdog.put) < 60:  # what a full spool drops is another matter
            self.watchdog.tell(1, {0: which % 256, 1: which % 100})

    def pass_time(self, which: int) -> None:
        seconds = 1 + which % 9
        self.watchdog.now += 1000 * seconds
        self.watchdog.manager.expire(self.watchdog.now)
        self.node.tick(seconds)

    # What the network does

    def send(self, _: int) -> None:
        message = self.watchdog.next_message()
        if message is not None:
            self.up.append(message)
            self.last_up.append(message)

    def carry_up(self, which: int) -> None:
        if self.up:
            self.node.do(self.up.pop(which % min(3, len(self.up))))

    def carry_down(self, which: int) -> None:
        if self.down:
            publish = self.down.pop(which % min(3, len(self.down)))
            self.watchdog.receive(publish)
            self.check_acknowledged()
            if publish.token:
                self.up.append(Acknowledged(publish.topic, publish.token))

    def carry_all_down(self) -> None:
        while self.down:
            self.carry_down(0)

    def lose_up(self, which: int) -> None:
        if self.up:
            del self.up[which % len(self.up)]

    def lose_down(self, which: int) -> None:
        if self.down:
            del self.down[which % len(self.down)]

    def repeat_up(self, which: int) -> None:
        messages = [event for event in self.up if isinstance(event, Message)]
        if messages:
            self.up.append(messages[which % len(messages)])

    def repeat_down(self, which: int) -> None:
        if self.down:
            self.down.append(self.down[which % len(self.down)])

    def play_back(self, which: int) -> None:
        if self.last_up:
            self.up.append(self.last_up[which % len(self.last_up)])

    def reconnect(self, _: int) -> None:
        self.hang_up(0)
        self.watchdog.connect()
        self.node.do(Listening(TOPIC + "sv", True))

    def clear_up(self, _: int) -> None:
        """For a while the weather is fair."""
        self.reconnect(0)
        settle(self.node, self.watchdog)
        self.check_acknowledged()

    def hang_up(self, _: int) -> None:
        """The connection is gone: an acknowledgement of it can no longer arrive."""
        self.up = [event for event in self.up if isinstance(event, Message)]
        self.node.do(Listening(TOPIC + "sv", False))

    # What power cuts do

    def restart_watchdog(self, _: int) -> None:
        self.watchdog.restart()
        self.reconnect(0)

    def crash_before_commit(self, which: int) -> None:
        """The node takes a message, and is gone before anything of it is written."""
        if self.up:
            event = self.up.pop(which % len(self.up))
            self.node.node.handle(event, self.node.now)
        self.restart_node()

    def crash_after_commit(self, which: int) -> None:
        """The node takes a message and writes; nothing of what it wanted to say leaves."""
        if self.up:
            event = self.up.pop(which % len(self.up))
            self.node.do(event)
        self.restart_node()

    def restart_node(self) -> None:
        self.node.reopen()
        self.reconnect(0)

    # Promises

    def check_acknowledged(self) -> None:
        """Whatever the device may forget is on the node's disk."""
        waiting = self.watchdog.spool.peek(self.watchdog.now, 1 << 20, 1000)
        there = {(note.device_epoch, note.device_sequence) for note in self.node.list_notes()}
        first = decode_note(waiting[2][0]).sequence if waiting[2] else 1 << 32
        start = (waiting[0], first) if waiting[2] else (1 << 32, 0)
        lost = [number for number in self.watchdog.put if number < start and number not in there]
        assert not lost, f"acknowledged and lost: {lost}"

    def check_taken_once(self) -> None:
        """Each notification is there once, and says what the device said."""
        notes = self.node.list_notes()
        numbers = [(note.device_epoch, note.device_sequence) for note in notes]
        assert len(set(numbers)) == len(numbers), "taken twice"
        for number, note in zip(numbers, notes, strict=True):
            assert number in self.watchdog.put, f"the device never said {number}"
            said = self.watchdog.put[number]
            assert note.vector[:2] + note.vector[6:] == said[:2] + said[6:]

    def calm_down(self) -> None:
        """The weather clears: a connection that holds, and time."""
        self.up.clear()
        self.down.clear()
        self.reconnect(0)
        self.node.tick()
        settle(self.node, self.watchdog)
        for _ in range(3):
            self.pass_time(8)
            settle(self.node, self.watchdog)

    def check_installed(self) -> None:
        """The device has what the node thinks, and that is enough for every live subscription."""
        installed = self.watchdog.list_installed()
        rows = self.node.store.scan("device.table")
        assert {int.from_bytes(key[-2:], "big"): body for key, body in rows} == installed
        assert self.node.devices.is_installed(self.watchdog.name)
        live = [decode(body.vector) for body in self.node.list_subscriptions()]
        wanted = {body.vector for body in self.node.list_subscriptions()}
        assert set(installed.values()) <= wanted, "it has what nobody wants"
        tables = [decode(body) for body in installed.values()]
        fitting = [s for s in live if not s.features & ~SENSES[1][0]]
        for value in range(0, 256, 3):
            readings = [Reading(0, (value,) * 4), Reading(1, ((value * 7) % 256,) * 4)]
            n = NotificationVector(1, readings)
            is_wanted = any((found := match(s, n)) and found.matched for s in fitting)
            is_told = any((found := match(s, n)) and found.matched for s in tables)
            assert is_wanted == is_told, f"{value}: wanted {is_wanted}, told {is_told}"

    def check_all(self) -> None:
        self.check_acknowledged()
        self.check_taken_once()
        self.calm_down()
        self.check_acknowledged()
        self.check_taken_once()
        self.check_installed()
        assert not self.watchdog.spool.has_waiting()
        assert len(self.node.list_notes()) == len(self.watchdog.put)
