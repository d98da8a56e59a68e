"""The MQTT server alone, in memory, for interoperability suites and benchmarks only.

    python -m simulator.open_server --port 18830 --open --refuse test/nosubscribe

Nothing is stored, so a PUBACK promises nothing: use `denwatch node` for real work.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import time

from denwatch.node.mqtt.interface import Input, Output
from denwatch.node.mqtt.listener import Listener
from denwatch.node.mqtt.server import MqttServer

_TICK_S = 0.25


class OpenRules:
    """Lets everybody do everything, except for some filters."""

    def __init__(self, refused: frozenset[str] = frozenset()) -> None:
        self._refused = refused

    def authenticate(self, user: str, password: bytes | None, client: str) -> int:  # noqa: ARG002
        """Accept everybody."""
        return 0

    def recognises(self, user: str, password: bytes | None) -> bool:  # noqa: ARG002
        """Nobody guesses here."""
        return True

    def may_publish(self, user: str, topic: str) -> bool:  # noqa: ARG002
        """Allow every topic."""
        return True

    def may_subscribe(self, user: str, name: str) -> bool:  # noqa: ARG002
        """Allow every filter but the refused ones."""
        return name not in self._refused


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the options. --open is required because this server accepts everybody."""
    parser = argparse.ArgumentParser(prog="python -m simulator.open_server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--open", action="store_true", help="allow everything to everybody")
    parser.add_argument("--refuse", action="append", default=[], help="a topic filter to refuse")
    options = parser.parse_args(argv)
    if not options.open:
        parser.error("this server has no names and keys; pass --open to run it all the same")
    return options


class Runner:
    """Runs a server and its listener without a store."""

    def __init__(self, server: MqttServer) -> None:
        self.server = server
        self.listener = Listener(self._take, server.budget)

    async def run(self, host: str, port: int, until: asyncio.Event) -> None:
        """Serve until `until` is set; print the port when it is open."""
        print(await self.listener.start(host, port), flush=True)
        while not until.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), _TICK_S)
            self.listener.perform(self.server.tick(_read_clock()))
        await self.listener.stop()

    def _take(self, inputs: list[Input]) -> None:
        now = _read_clock()
        outputs: list[Output] = []
        for event in inputs:
            outputs += self.server.take(event, now)
        self.listener.perform(outputs)


def _read_clock() -> int:
    return time.monotonic_ns() // 1_000_000


async def _main(options: argparse.Namespace) -> None:
    until = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, until.set)
    server = MqttServer(OpenRules(frozenset(options.refuse)))
    await Runner(server).run(options.host, options.port, until)


if __name__ == "__main__":
    asyncio.run(_main(parse_arguments()))
