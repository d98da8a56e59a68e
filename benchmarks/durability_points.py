"""Every commit point: one scenario, run again with a death before and after each store operation.

The scenario has subscriptions, a device's notifications, deliveries to an app that is away for a
while, an unsubscription, plain messages for a persistent session, and the exchange with another
node, whose own app waits for the same notifications. Whatever happens, in the end:

- what was acknowledged is there: notifications at both apps, subscriptions, plain messages;
- no notification is handled twice by an app that tells them apart by their ids;
- the log of each node has the numbers from 1 on, each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from benchmarks.durability_actors import App, Dog, Hearer, PeerLink, Speaker, list_requests
from benchmarks.durability_world import NODES, PEOPLE, ROUND, START, Host, Plan
from simulator.memory_store import Faults

NOTIFICATIONS = 6
MESSAGES = 4
_LONGEST = 400  # rounds; without a fault it takes about 40
_AFTERWARDS = 8  # rounds in which something could still come twice

Operation = Literal["apply", "commit", "outbox", "open"]
Trouble = Literal["crash", "crash-after", "full", "failed"]


@dataclass(frozen=True)
class Point:
    """Where a node meets trouble."""

    node: str
    operation: Operation
    number: int
    trouble: Trouble


class Scenario:
    """One run of it; `host_type` may be one that breaks a rule."""

    def __init__(
        self, plan: Plan, point: Point | None = None, host_type: type[Host] = Host
    ) -> None:
        self.faults = {name: Faults() for name in NODES}
        if point is not None:
            self.faults[point.node].plan(point.operation, point.number, point.trouble)
        first, second = NODES
        self.hosts = [host_type(name, plan, self.faults[name]) for name in NODES]
        here, there = self.hosts
        assert (here.name, there.name) == (first, second)
        self.dog = Dog(here, NOTIFICATIONS)
        self.app = App(here, PEOPLE[0], list_requests())
        self.other = App(there, PEOPLE[1], [list_requests()[0], {"list": True}])
        self.speaker = Speaker(here, MESSAGES)
        self.hearer = Hearer(here)
        self.link = PeerLink(here, there)
        self.clients = (self.app, self.other, self.link, self.dog, self.hearer, self.speaker)
        self.now = START

    def run(self) -> list[str]:
        """Run to the end; return what is wrong then."""
        for number in range(_LONGEST):
            self._direct(number)
            self._round()
            if self._is_done():
                break
        for host in self.hosts:
            host.die()  # once more, wherever it is: nothing may depend on memory
        self.app.held = self.other.held = None
        self.app.done = len(self.app.requests) - 1
        self.other.done = 1
        for number in range(_LONGEST):
            self._round()
            if number >= _AFTERWARDS and self._is_done():
                break
        return list(self._list_faults())

    def count_operations(self) -> dict[str, dict[str, int]]:
        """Return how many operations of each kind there were at each node."""
        return {name: dict(faults.counts) for name, faults in self.faults.items()}

    def _direct(self, number: int) -> None:
        """Say who may do what by now."""
        is_asked = self.app.done >= 2 and self.other.done >= 1
        self.dog.may_begin = is_asked
        self.app.limit = 3 if self.dog.acknowledged < 4 else 4
        self.speaker.is_away = not self.hearer.is_ready and not self.speaker.is_ready
        # Away while something comes in for them; back before the end.
        self.app.is_away = 2 <= self.dog.acknowledged < 4 and number % 12 < 8
        self.hearer.is_away = len(self.speaker.acknowledged) == 2 and number % 12 < 8
        is_over = self._has_all() and self.app.done >= 4
        if is_over:
            self.app.limit, self.other.limit = 5, 2

    def _round(self) -> None:
        self.now += ROUND
        for client in self.clients:
            client.act()
        for host in self.hosts:
            host.turn(self.now)

    def _has_all(self) -> bool:
        everything = set(range(1, NOTIFICATIONS + 1))
        return (
            self.dog.acknowledged == NOTIFICATIONS
            and set(self.app.handled) == everything
            and set(self.other.handled) == everything
            and len(self.speaker.acknowledged) == MESSAGES
            and self.speaker.acknowledged <= self.hearer.numbers
        )

    def _is_done(self) -> bool:
        return self._has_all() and self.app.held is not None and self.other.held is not None

    def _list_faults(self) -> Iterator[str]:
        told = set(range(1, self.dog.acknowledged + 1))
        for app in (self.app, self.other):
            for number in sorted(told - set(app.handled)):
                yield f"lost: notification {number} to {app.user}"
            for number, count in app.handled.items():
                if count > 1:
                    yield f"twice: notification {number} to {app.user}"
            if app.held is None:
                yield f"lost: no answer to {app.user}"
                continue
            for name in sorted(app.wanted - app.held):
                yield f"lost: subscription {name} of {app.user}"
            for name in sorted(app.ended & app.held):
                yield f"lost: the end of {name} of {app.user}"
        for number in sorted(self.speaker.acknowledged - self.hearer.numbers):
            yield f"lost: message {number}"
        if self.dog.acknowledged < NOTIFICATIONS or len(self.speaker.acknowledged) < MESSAGES:
            yield "stuck: not everything was acknowledged in the end"
        for host in self.hosts:
            fault = host.find_log_fault()
            if fault:
                yield f"log of {host.name}: {fault}"


def list_points(plan: Plan) -> list[Point]:
    """Run without a fault, and return every place where one can happen."""
    scenario = Scenario(plan)
    faults = scenario.run()
    if faults:
        raise RuntimeError(f"without any death: {faults}")
    points = []
    operations: tuple[Operation, ...] = ("open", "apply", "commit", "outbox")
    for node, counts in scenario.count_operations().items():
        for operation in operations:
            numbers = range(1, counts[operation] + 1)
            for trouble in _list_troubles(operation):
                points += [Point(node, operation, number, trouble) for number in numbers]
    return points


def _list_troubles(operation: Operation) -> tuple[Trouble, ...]:
    if operation == "commit":
        return ("crash", "crash-after", "full", "failed")
    return ("crash", "crash-after")


def try_points(
    plan: Plan, points: list[Point], host_type: type[Host] = Host
) -> dict[Point, list[str]]:
    """Return what went wrong at which point; nothing, if all is well."""
    found = {point: Scenario(plan, point, host_type).run() for point in points}
    return {point: faults for point, faults in found.items() if faults}


def count_faults(found: dict[Point, list[str]], kind: str) -> int:
    """Return how many faults of a kind there were: "lost", "twice", "stuck", "log"."""
    return sum(fault.startswith(kind) for fault in chain.from_iterable(found.values()))
