"""What a node's process does when a run of it ends: the product's own loop, asked step by step.

`serve_node` opens a node, serves until something fails, and decides whether to open it again, how
long to wait first, or to end. It blocks, which simulated time cannot. So every question plays it
from the start of the process, with a list of what happened so far in the place of opening and
serving, up to the point where the list ends: what it wants there is the answer.

`drive_module` puts the simulation's own clock, files and store into the places that
`denwatch.node.runtime.process` looks them up in, while a call of it lasts. One thread, so nobody
else sees them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from denwatch.node.config import NodeConfig
from denwatch.node.runtime import process

SILENT = logging.getLogger("simulator.silent")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
logging.getLogger("denwatch.node").addHandler(logging.NullHandler())  # and not stderr


class Step(NamedTuple):
    """Something that ended: an attempt to open the node, or a run of it; None: without error."""

    what: str  # "open" or "run"
    error: BaseException | None
    time: int  # ms


class LoopRequest(NamedTuple):
    """What the process does next: "open" after so many ms, "run", or "end" with an error."""

    what: str
    wait: int = 0
    error: BaseException | None = None


class _EndOfList(BaseException):
    """The process wants something that has not happened yet."""

    def __init__(self, what: str) -> None:
        self.what = what


@contextmanager
def drive_module(**replaced: Any) -> Iterator[None]:
    """Replace names of the process's module for a while."""
    module = cast("Any", process)
    before = {name: getattr(module, name) for name in replaced}
    for name, value in replaced.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


class ProcessLoop:
    """One process of a node, from its start to its end."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._steps: list[Step] = []
        self.defects = 0

    def note(self, what: str, error: BaseException | None, time: int) -> LoopRequest:
        """Note how something ended; return what the process does now."""
        self._steps.append(Step(what, error, time))
        return self.ask()

    def ask(self) -> LoopRequest:
        """Return what the process wants after all that happened."""
        left = iter(self._steps)
        time, waited = [self._steps[0].time if self._steps else 0], [0]

        def take(what: str) -> Any:
            step = next(left, None)
            if step is None:
                raise _EndOfList(what)
            assert step.what == what, f"the process wants to {what}, and it was to {step.what}"
            time[0], waited[0] = step.time, 0
            if step.error is not None:
                raise step.error
            return SimpleNamespace(store=SimpleNamespace(close=_do_nothing))

        def sleep(seconds: float) -> None:
            waited[0] += int(1000 * seconds)

        clock = SimpleNamespace(
            sleep=sleep, monotonic=lambda: (time[0] + waited[0]) / 1000, time=lambda: time[0] / 1000
        )
        with drive_module(
            open_node=lambda _: take("open"),
            _serve=_do_nothing,
            asyncio=SimpleNamespace(run=lambda _: take("run")),
            time=clock,
            raise_file_limit=_do_nothing,
            _log=SILENT,
        ):
            try:
                process.serve_node(self._config)
            except _EndOfList as wanted:
                return LoopRequest(wanted.what, waited[0])
            except BaseException as error:  # noqa: BLE001 - whatever ends it
                return LoopRequest("end", 0, error)
        return LoopRequest("end")


def _do_nothing(*_: object) -> None:
    """Nothing is to be done."""


# A run of the process ------------------------------------------------------------------------


class _Pause:
    """What a run waits for: the next tick."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class SimulatedLoop:
    """What a process needs of asyncio: calls for later, threads that are done at once, a wait."""

    def __init__(self) -> None:
        self._calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.Event = asyncio.Event
        self.is_stopping: Callable[[], bool] = lambda: False

    def get_running_loop(self) -> SimulatedLoop:
        """Return this one."""
        return self

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call it when what is being done is done."""
        self._calls.append((call, arguments))

    def call_soon_threadsafe(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call it: there is one thread."""
        self.call_soon(call, *arguments)
        self.drain()

    def run_in_executor(self, _: object, call: Callable[..., object], *arguments: Any) -> None:
        """Call it."""
        call(*arguments)

    def drain(self) -> None:
        """Make the calls that were left for later."""
        while self._calls:
            call, arguments = self._calls.pop(0)
            call(*arguments)

    async def to_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call it here."""
        return call(*arguments)

    async def wait_for(self, waiting: Any, _: float) -> None:
        """Wait for the next tick, or return at once if what is waited for has happened."""
        waiting.close()
        if not self.is_stopping():
            await _Pause()
            if not self.is_stopping():
                raise TimeoutError


class Run:
    """One run of a process: `run` of it, resumed at every tick."""

    def __init__(self, opened: Any, loop: SimulatedLoop, listener: object, files: object) -> None:
        self._loop = loop
        self._is_live = True
        with self._drive(
            DiskFiles=lambda _: files,
            Listener=lambda *_: listener,
            Discovery=_NoDiscovery,
            KernelLoader=_NoKernels,
        ):
            self.process = process.Process(opened)
        loop.is_stopping = self.process._stopping.is_set
        close, self.process._close = self.process._close, self._close  # type: ignore[method-assign]
        self._close_process = close
        self._coroutine = self.process.run()

    async def _close(self) -> None:
        """Close as the process does; one that is dead or forgotten closes nothing."""
        if self._is_live:
            await self._close_process()

    @contextmanager
    def _drive(self, **more: Any) -> Iterator[None]:
        self._is_live = True
        try:
            with drive_module(asyncio=self._loop, _log=SILENT, **more):
                yield
        finally:
            self._is_live = False

    def tick(self) -> None:
        """Go on to the next wait, at first from the start; raises what ends the run."""
        with self._drive():
            try:
                self._coroutine.send(None)
            except StopIteration:
                raise AssertionError("a run ended, and nobody asked for it") from None
            self._loop.drain()

    def do(self, call: Callable[..., None], *arguments: Any) -> None:
        """Let something happen between two ticks; raises what ends the run, if that does."""
        with self._drive():
            call(*arguments)
            self._loop.drain()
        if self.process._failure is not None:
            self.tick()  # the loop sees the failure, closes, and raises it

    def stop(self) -> None:
        """End it in order."""
        self.process.stop()
        with self._drive(), suppress(StopIteration):
            self._coroutine.send(None)

    def abandon(self) -> None:
        """Forget it: its process is dead, and closes nothing any more."""
        self._coroutine.close()


class _NoKernels:
    """Nothing is compiled: a thread would load it at a time that no seed decides."""

    def offer(self, subscriptions: int) -> None:
        """Do not begin."""

    def stop(self) -> None:
        """Nothing has begun."""


class _NoDiscovery:
    """Nobody is announced."""

    def __init__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        """Nothing is to be withdrawn."""
