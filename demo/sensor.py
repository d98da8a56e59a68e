"""The sensor's side of the demo, on MicroPython: a watchdog that replays readings from its input.

Reads the event's number, a line of subscription vectors in hexadecimal, then a line of values for
each reading; prints a notification vector in hexadecimal for each reading that somebody asked for.
"""

import sys

from edge.watchdog.execution import Event, Execution, list_senses
from edge.watchdog.fuzzy import Fuzzy
from edge.watchdog.manager import Manager
from edge.watchdog.sources.base import Channel
from edge.watchdog.sources.callback import Callback

_MINUTE = 60_000  # ms
_ROOM = 2048  # bytes for subscriptions


class Printer:
    """An outbox that sends by printing; a reading's number is its sequence."""

    def put(self, vector: bytes, degree: int, now: int) -> None:  # noqa: ARG002 - nothing is kept
        """Send one notification."""
        sequence = now // _MINUTE
        print((vector[:2] + bytes([sequence >> 8, sequence & 255]) + vector[4:]).hex())


def main() -> None:
    """Serve until there is nothing more to read."""
    number = int(sys.stdin.readline())
    vectors = [bytes.fromhex(text) for text in sys.stdin.readline().split()]
    values = [0, 0, 0, 0]
    source = Callback(lambda field: values[field])
    channels = [Channel(source, bit, bit, 0, 255) for bit in range(len(values))]
    event = Event(number, channels, _MINUTE)
    senses = list_senses([event])
    manager = Manager([Fuzzy(_ROOM, senses)], senses)
    for vector in vectors:
        manager.install(vector, 0)
    execution = Execution(manager, [event], Printer())
    for minute, line in enumerate(sys.stdin):
        values[:] = [int(word) for word in line.split()]
        execution.step(minute * _MINUTE)


main()
