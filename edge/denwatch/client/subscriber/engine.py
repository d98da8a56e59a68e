"""The thread that runs a subscriber's core: performs its actions on the store and the link.

Only this file decides the order in which things become true: first the commit, then the
acknowledgement. While an app's handler holds the store, what has arrived waits unacknowledged, and
the link is kept alive.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

from denwatch.client.subscriber.actions import (
    Acknowledge,
    Action,
    Answer,
    Close,
    KeepAnswer,
    KeepNote,
    KeepReported,
    Listen,
    Open,
    Request,
    Send,
    State,
    Tell,
)
from denwatch.client.subscriber.core import Core
from denwatch.client.subscriber.errors import StoreError, SubscriberError
from denwatch.client.subscriber.inbox import Inbox
from denwatch.client.subscriber.link import (
    Arrived,
    Failed,
    Happening,
    Identity,
    Link,
    Listened,
    Opened,
    Sent,
    Waker,
)
from denwatch.client.subscriber.messages import Reply
from denwatch.client.subscriber.servers import Server
from denwatch.client.subscriber.store import Store

log = logging.getLogger("denwatch.subscriber")
_LONGEST_SLEEP = 5_000  # ms
_TIDY_PERIOD = 300_000  # ms
_DISK_PAUSE = 0.5  # s
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
T = TypeVar("T")


class RisingClock:
    """Milliseconds since 1970 by the machine's clock at the start; they never fall."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> int:
        return int((time.monotonic() + self._offset) * 1000)


class Engine:
    """Runs one subscriber. Everything but the constructor and `wake` runs on its own thread,
    or is handed to it by `submit`."""

    def __init__(
        self,
        core: Core,
        store: Store,
        inbox: Inbox,
        identity: Identity,
        now: Callable[[], int],
        tell: Callable[[Tell], None],
    ) -> None:
        self._core, self._store, self._inbox = core, store, inbox
        self._identity = identity
        self._now = now
        self._tell = tell
        self._link: Link | None = None
        self._waker = Waker()
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._answers: dict[str, Future[Reply]] = {}
        self._is_stopping = self._is_finished = False
        self._tidied = now()
        self._thread = threading.Thread(target=self._run, name="denwatch-subscriber", daemon=True)

    def start(self) -> None:
        """Take up what an earlier run left, and go."""
        store = self._store
        self._core.restore(
            store.list_wanted(), store.list_ended(), store.list_requests(), store.list_unreported()
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what was not committed was not acknowledged either."""
        self._is_stopping = True
        self._waker.wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        self._waker.close()

    # Asked from other threads ----------------------------------------------------------------

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run something on the thread."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            if self._is_finished:
                future.set_exception(SubscriberError("the subscriber has stopped"))
                return
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - it is the asker's
                future.set_exception(error)

        self._commands.put(run)
        self._waker.wake()
        if self._is_finished:
            self._run_commands()
        return future

    def ask(self, request: Request) -> tuple[Future[None], Future[Reply]]:
        """Send a request; return when it is kept, and its answer, whenever that comes."""
        answer: Future[Reply] = Future()

        def run() -> None:
            if request.kind != "list":
                try:
                    self._write(lambda: self._store.add_request(request), is_patient=False)
                except sqlite3.Error as error:
                    raise StoreError(f"{self._store.path}: {error}") from None
            self._answers[request.id] = answer
            self._perform(self._core.ask(request, self._now()))

        return self.submit(run), answer

    def use_servers(self, servers: list[Server]) -> None:
        """Take other servers."""
        self.submit(lambda: self._perform(self._core.use_servers(servers, self._now())))

    def drop(self, request: str) -> None:
        """Stop asking."""

        def run() -> None:
            self._answers.pop(request, None)
            self._core.drop([request])

        self.submit(run)

    # The thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._turn()
            self._perform(self._core.leave(self._now()))
        except Exception:
            log.exception("the subscriber stopped")
            self._tell(Tell(State.IDLE, "", "stopped by an error: see the log"))
        finally:
            self._is_stopping = True
            if self._link is not None:
                self._link.close()
            self._is_finished = True
            for answer in self._answers.values():
                if answer.set_running_or_notify_cancel():
                    answer.set_exception(SubscriberError("the subscriber has stopped"))
            self._run_commands()

    def _turn(self) -> None:
        self._run_commands()
        self._perform(self._core.tick(self._now()))
        if self._now() - self._tidied > _TIDY_PERIOD:
            self._tidied = self._now()
            self._write(self._store.tidy)
        pause = min(_LONGEST_SLEEP, max(0, self._core.find_next_time() - self._now())) / 1000
        if self._link is None:
            self._waker.sleep(pause)
            return
        actions: list[Action] = []
        for happening in self._link.poll(pause, self._waker):
            found = self._handle(happening)
            actions += found
            if any(isinstance(action, Close | Open) for action in found):
                break  # the rest is of a link that is gone
        self._perform(actions)

    def _run_commands(self) -> None:
        while True:
            try:
                self._commands.get_nowait()()
            except queue.Empty:
                return

    def _handle(self, happening: Happening) -> list[Action]:
        now = self._now()
        if isinstance(happening, Arrived):
            return self._core.receive(happening.topic, happening.payload, happening.mid, now)
        if isinstance(happening, Sent):
            return self._core.sent(happening.token)
        if isinstance(happening, Opened):
            return self._core.opened(now)
        if isinstance(happening, Listened):
            return self._core.listened(now)
        assert isinstance(happening, Failed)
        if self._link is not None:
            self._link.close()
            self._link = None
        return self._core.failed(happening.reason, now)

    def _perform(self, actions: Iterable[Action]) -> None:
        """Commit what is to be kept, then do the rest."""
        actions = list(actions)
        kept = [a for a in actions if isinstance(a, KeepNote | KeepReported | KeepAnswer)]
        if kept and not self._commit(kept):
            return
        for action in actions:
            self._do(action)

    def _commit(self, kept: list[KeepNote | KeepReported | KeepAnswer]) -> bool:
        new = 0

        def write() -> None:
            nonlocal new
            new = self._store.keep(kept)

        if not self._write(write):
            return False
        if new:
            self._inbox.announce()
        return True

    def _write(self, work: Callable[[], None], *, is_patient: bool = True) -> bool:
        """Change the store, when whoever holds it lets go; False if we are to stop first.

        A disk that is full or failing may get better: what is patient waits for that, and nothing
        is acknowledged meanwhile.
        """
        complaint = ""
        while True:
            try:
                work()
                return True
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF in _BUSY
                if not is_busy and not is_patient:
                    raise
                if not is_busy and str(error) != complaint:
                    complaint = str(error)
                    log.error("%s: %s; nothing is acknowledged", self._store.path, complaint)
                    server = self._link.server.url if self._link is not None else ""
                    self._tell(Tell(self._core.state, server, f"cannot write: {complaint}"))
            if self._is_stopping:
                return False
            if self._link is not None:
                self._link.keep_alive()
            if complaint:
                self._waker.sleep(_DISK_PAUSE)

    def _do(self, action: Action) -> None:
        link = self._link
        if isinstance(action, Open):
            self._open(action)
        elif isinstance(action, Tell):
            self._tell(action)
        elif isinstance(action, Answer):
            answer = self._answers.pop(action.request, None)
            if answer is not None and answer.set_running_or_notify_cancel():
                answer.set_result(action.reply)
        elif link is None:
            return
        elif isinstance(action, Acknowledge):
            link.acknowledge(action.mid)
        elif isinstance(action, Send):
            link.send(action.topic, action.payload, action.token)
        elif isinstance(action, Listen):
            link.listen(action.topics)
        elif isinstance(action, Close):
            link.close()
            self._link = None

    def _open(self, action: Open) -> None:
        if self._link is not None:
            self._link.close()
        client_id = self._store.device + ("-probe" if action.is_probe else "")
        try:
            self._link = Link(action.server, self._identity, client_id, is_passing=action.is_probe)
        except SubscriberError as error:  # its certificates have gone
            self._link = None
            self._perform(self._core.failed(str(error), self._now()))
            return
        self._link.open()
