"""Runs a server behind its listener in a thread, as a node does: writes, then bytes. For tests."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from denwatch.node.core.events import Publish, Write
from denwatch.node.mqtt.interface import Input, Limits, Output, Rules
from denwatch.node.mqtt.listener import Door, Listener
from denwatch.node.mqtt.server import MqttServer

from simulator.open_server import OpenRules
from tests.mqtt.wire import Store

T = TypeVar("T")

TIMEOUT = 30  # generous: a loaded machine must not look like a failing test


def read_clock() -> int:
    return time.monotonic_ns() // 1_000_000


class Host:
    """`with Host() as host:` serves on `host.port`; `call` runs something in its thread."""

    def __init__(
        self,
        rules: Rules | None = None,
        limits: Limits | None = None,
        context: ssl.SSLContext | None = None,
        store: Store | None = None,
        port: int = 0,
        door: Door | None = None,
    ) -> None:
        self.store = store or Store()
        self.server = MqttServer(rules or OpenRules(), limits)
        self.server.restore(self.store, read_clock())
        self.listener = Listener(self._take, self.server.budget)
        self.events: list[Output] = []
        self.batches: list[int] = []
        self.is_open = True  # what a commit would hold back goes out
        self.port = port
        self._door = door or Door(context)
        self._kept: list[Output] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Host:
        self._thread.start()
        start = self.listener.start("127.0.0.1", self.port, self._door)
        self.port = asyncio.run_coroutine_threadsafe(start, self._loop).result(TIMEOUT)
        self.call(self._tick)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.listener.stop(), self._loop).result(TIMEOUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT)
        self._loop.close()

    def call(self, act: Callable[[], T]) -> T:
        """Run something in the server's thread and return what it returns."""

        async def run() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(TIMEOUT)

    def publish(self, topic: str, payload: bytes, qos: int = 1, token: int = 0) -> None:
        message = Publish(topic, payload, qos, False, token)
        self.call(lambda: self._perform(self.server.publish(message, read_clock())))

    def commit(self) -> None:
        """Let go what was kept back."""
        self.is_open = True
        self.call(lambda: self._perform([]))

    def wait_for(self, condition: Callable[[], object]) -> None:
        wait_for(condition)

    def _take(self, inputs: list[Input]) -> None:
        self.batches.append(len(inputs))
        outputs: list[Output] = []
        for event in inputs:
            outputs += self.server.take(event, read_clock())
        self._perform(outputs)

    def _tick(self) -> None:
        self._perform(self.server.tick(read_clock()))
        self._loop.call_later(0.1, self._tick)

    def _perform(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Write):
                self.store.write(output)
            else:
                self.events.append(output)
        self._kept += outputs
        if self.is_open:
            kept, self._kept = self._kept, []
            self.listener.perform(kept)


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.01)
