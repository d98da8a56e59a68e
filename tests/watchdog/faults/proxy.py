"""A network that can be cut, stalled or slow: forwards TCP from a free port to a server."""

from __future__ import annotations

import asyncio
import threading


class Proxy:
    """Runs in a thread. `mode`: "pass", "stall" (nothing moves, nothing closes) or "cut"."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.mode = "pass"
        self.delay = 0.0  # s for each piece
        self.piece = 65536  # bytes at once
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == "cut":
            writer.close()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._writers += [writer, far_writer]
        await asyncio.gather(self._forward(reader, far_writer), self._forward(far_reader, writer))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(self.piece):
                if self.delay:
                    await asyncio.sleep(self.delay)
                while self.mode == "stall":
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self.mode = "cut"
        self._loop.call_soon_threadsafe(self._break)

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers = []

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(10)

    def _end(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_later(0.05, self._loop.stop)
