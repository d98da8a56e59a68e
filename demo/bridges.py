"""Links between nodes that can be cut: a TCP relay for each, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

_PIECE = 65536


class Bridges:
    """Relays; cut, they drop their connections and refuse new ones until they are healed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._cut: set[str] = set()
        self._open: dict[str, set[asyncio.StreamWriter]] = {}
        self.bytes: dict[str, int] = {}

    def add(self, name: str, port: int, target: int) -> None:
        """Relay from one local port to another."""
        self._open[name] = set()
        self.bytes[name] = 0
        self._do(self._listen(name, port, target))

    def cut(self, name: str) -> None:
        """Break a link."""
        self._cut.add(name)
        self._do(self._drop(name))

    def heal(self, name: str) -> None:
        """Mend a link."""
        self._cut.discard(name)

    def is_cut(self, name: str) -> bool:
        """Return whether a link is broken."""
        return name in self._cut

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self, name: str, port: int, target: int) -> None:
        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if name in self._cut:
                writer.close()
                return
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
            except OSError:
                writer.close()
                return
            self._open[name] |= {writer, far_writer}
            await asyncio.gather(
                self._copy(name, reader, far_writer), self._copy(name, far_reader, writer)
            )
            self._open[name] -= {writer, far_writer}

        await asyncio.start_server(relay, "127.0.0.1", port)

    async def _copy(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE):
                self.bytes[name] += len(piece)
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def _drop(self, name: str) -> None:
        for writer in self._open[name]:
            writer.transport.abort()
