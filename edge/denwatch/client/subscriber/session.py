"""A running subscriber: its core, its store, its link, and the threads that drive them.

Two threads. The *link thread* runs the core: it performs the core's actions on the store and on the
link, and it alone decides the order in which things become true. The *handler thread* exists only
if the app gave a handler; it reads notifications from the inbox. Both front ends (`subscriber.py`,
`aio.py`) are thin layers over this object.

RULE (durability)  All store changes of one step are committed first, in one transaction; only then
are messages acknowledged, sent, or reported to the app (`_perform`). A process killed between the
two receives the message again, and the store recognises it by its key.

EXAMPLE  A notification arrives: the core returns [StoreNotification, AcknowledgeMessage]; the first
is committed, then the second is sent. If the commit cannot happen (the app's handler holds the
store, the disk is full), nothing is acknowledged; meanwhile only keep-alives are sent.
"""

from __future__ import annotations

import json
import logging
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from denwatch.client.subscriber import core, messages
from denwatch.client.subscriber.link import (
    Identity,
    LinkConnected,
    LinkEvent,
    LinkFailed,
    MessageArrived,
    MessageSent,
    MqttLink,
    TopicsSubscribed,
    Waker,
)
from denwatch.client.subscriber.servers import (
    DENIED,
    NodeUrl,
    ServerList,
    explain_choice,
    parse_server,
)
from denwatch.client.subscriber.store import (
    HandlerTransaction,
    Inbox,
    Promise,
    SubscriberStore,
    SubscriptionStatus,
)

if TYPE_CHECKING:
    from denwatch.client.syntax import SubscriptionTree as Tree

log = logging.getLogger("denwatch.subscriber")
_LONGEST_SLEEP = 5_000  # ms
_TIDY_PERIOD = 300_000  # ms
_DISK_PAUSE = 0.5  # s, before the link thread tries a failing disk again
_HANDLER_DISK_PAUSE = 1.0  # s, before the handler thread does
_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
T = TypeVar("T")

Handler = Callable[[messages.ReceivedNotification, HandlerTransaction], object]
StatusListener = Callable[[core.ConnectionStatus], object]


def make_clock() -> Callable[[], int]:
    """Return a clock: ms since 1970, by the machine's clock at the start; never falls."""
    offset = time.time() - time.monotonic()
    return lambda: int((time.monotonic() + offset) * 1000)


class SubscriberSession:
    """One subscriber, started once and closed once. Methods with an underscore run on the link
    thread (`_dispatch` on the handler thread); the others may be called from any thread."""

    def __init__(
        self,
        identity: Identity,
        servers: Iterable[str],
        store: str | Path,
        rng: random.Random,
        settings: core.SubscriberOptions | None = None,
    ) -> None:
        name = messages.check_name(identity.name)
        self._rng = rng
        self._identity = identity
        self.now = make_clock()
        self.status = core.ConnectionStatus(core.ConnectionState.IDLE, "")
        self._core = core.SubscriberCore(
            name, self._parse_servers(servers), rng, settings or core.SubscriberOptions()
        )
        self._store = SubscriberStore(store, name, f"{name}-{self._draw_id()[:8]}")
        self.inbox = Inbox(store, self.now)
        self._link: MqttLink | None = None
        self._waker = Waker()
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._login_patience = (settings or core.SubscriberOptions()).login_patience
        self._denied_at: int | None = None  # since when all servers refuse us
        self._answers: dict[str, Future[messages.Reply]] = {}
        self._tidied = self.now()
        self._is_started = self._is_closed = False
        self._is_stopping = self._is_finished = False  # the link thread: is to end; has ended
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="denwatch-subscriber", daemon=True)
        self._dispatcher: threading.Thread | None = None
        self._listeners: list[StatusListener] = []
        self.on_told: Callable[[messages.Reply], object] | None = None
        self._status_changed = threading.Condition()

    def handle(self, handler: Handler, promise: Promise) -> None:
        """Call `handler` for every notification, on a thread of its own; before `start`."""
        self._dispatcher = threading.Thread(
            target=self._dispatch, args=(handler, promise), name="denwatch-handler", daemon=True
        )

    def start(self) -> None:
        """Load what an earlier run left, connect, and handle notifications."""
        if self._is_started:
            raise messages.SubscriberError("a subscriber can be started only once")
        self._is_started = True
        store = self._store
        self._core.restore(
            store.list_wanted(), store.list_ended(), store.list_requests(), store.list_unreported()
        )
        self._thread.start()
        if self._dispatcher is not None:
            self._dispatcher.start()

    def close(self) -> None:
        """Stop; subscriptions stay, and unhandled notifications wait in the store.

        What was not committed was not acknowledged either.
        """
        if self._is_closed:
            return
        self.inbox.check_thread("close")
        self._is_closed = True
        self._stopped.set()
        self.inbox.close()
        if self._dispatcher is not None and self._dispatcher.is_alive():
            self._dispatcher.join()
        self._is_stopping = True
        self._waker.wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        self._waker.close()
        self._store.close()

    # Requests --------------------------------------------------------------------------------

    def ask(
        self, kind: str, name: str = "", text: str = ""
    ) -> tuple[core.SubscriberRequest, Future[None], Future[messages.Reply]]:
        """Send a request, now or when a node is in range.

        The first future completes when the request is stored, the second with the node's reply.
        """
        self._check_running(kind)
        request = core.SubscriberRequest(self._draw_id(), kind, name, text)
        answer: Future[messages.Reply] = Future()

        def run() -> None:
            if request.is_stored:
                try:
                    self._write(lambda: self._store.add_request(request), is_patient=False)
                except sqlite3.Error as error:
                    raise messages.SubscriberStoreError(f"{self._store.path}: {error}") from None
            self._answers[request.id] = answer
            self._perform(self._core.ask(request, self.now()))

        return request, self._submit(run), answer

    def drop(self, request: str) -> None:
        """Stop repeating a request: nobody waits for its reply."""

        def run() -> None:
            self._answers.pop(request, None)
            self._core.drop([request])

        self._submit(run)

    def list_subscriptions(self) -> list[SubscriptionStatus]:
        """Return our subscriptions, as our own store has them."""
        self._check_running("subscriptions")
        return self._submit(self._store.list_subscriptions).result()

    def use_servers(self, servers: Iterable[str]) -> None:
        """Use other nodes from now on."""
        found = ServerList.check(self._parse_servers(servers))
        self.inbox.check_thread("use_servers")
        self._submit(lambda: self._perform(self._core.use_servers(found, self.now())))

    def _check_running(self, what: str) -> None:
        self.inbox.check_thread(what)
        if not self._is_started or self._is_closed:
            raise messages.SubscriberError(f"{what}: the subscriber is not running")

    def _parse_servers(self, servers: Iterable[str]) -> list[NodeUrl]:
        """Parse addresses; refuse now, not later, one that would send a password in the clear."""
        found = [parse_server(server) for server in servers]
        for server in found:
            self._identity.build_context(server)
        return found

    def _draw_id(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        """Run something on the link thread."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            if self._is_finished:
                future.set_exception(messages.SubscriberError("the subscriber has stopped"))
                return
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - it belongs to the caller
                future.set_exception(error)

        self._commands.put(run)
        self._waker.wake()
        if self._is_finished:
            self._run_commands()
        return future

    # The connection's status -----------------------------------------------------------------

    @property
    def is_denied(self) -> bool:
        """Whether all servers refuse our name or password."""
        return self._core.servers.is_denied

    def explain_choice(self) -> list[str]:
        """Return why the server was chosen, one line for each that was asked, best first."""
        return explain_choice(self._core.offers)

    def _fail_answers(self, error: messages.SubscriberError) -> None:
        """Let nobody wait any longer; the requests stay."""
        while self._answers:
            answer = self._answers.popitem()[1]
            if answer.set_running_or_notify_cancel():
                answer.set_exception(error)

    def add_listener(self, listener: StatusListener) -> None:
        """Call somebody, on the link thread, whenever the connection's status changes."""
        self._listeners.append(listener)

    def wait_until_connected(self, timeout: float | None) -> bool:
        """Return whether a node serves us, at the latest after so many seconds."""
        with self._status_changed:
            return self._status_changed.wait_for(
                lambda: self.status.state is core.ConnectionState.ONLINE or self._is_closed, timeout
            )

    def _report_status(self, status: core.ConnectionStatus) -> None:
        log.info("%s %s %s", status.state.value, status.server, status.reason)
        with self._status_changed:
            self.status = status
            self._status_changed.notify_all()
        if not self.is_denied:
            self._denied_at = None
        elif self._denied_at is None:
            self._denied_at = self.now()
        if self._denied_at is not None and self.now() - self._denied_at >= self._login_patience:
            self._fail_answers(messages.LoginRefusedError(f"{status.server} {DENIED}"))
        for listener in list(self._listeners):
            try:
                listener(status)
            except Exception:
                log.exception("a listener for the connection's status failed")

    def _report_told(self, reply: messages.Reply) -> None:
        try:
            if self.on_told is not None:
                self.on_told(reply)
        except Exception:
            log.exception("a listener for what a node tells failed")

    # The handler thread ----------------------------------------------------------------------

    def _dispatch(self, handler: Handler, promise: Promise) -> None:
        while self.inbox.wait():
            try:
                with self.inbox.take(promise) as taken:
                    if taken is not None:
                        handler(*taken)
            except sqlite3.Error:
                log.exception("a notification could not be marked as handled; it comes again")
                self._stopped.wait(_HANDLER_DISK_PAUSE)
            except messages.TransactionError:
                log.exception("a handler broke its transaction; the notification was not handled")
            except Exception:
                log.exception("a handler failed; what it wrote was rolled back")

    # The link thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._step()
            self._perform(self._core.leave(self.now()))
        except Exception:
            log.exception("the subscriber stopped")
            reason = "stopped by an error: see the log"
            self._report_status(core.ConnectionStatus(core.ConnectionState.IDLE, "", reason))
        finally:
            self._is_stopping = True
            if self._link is not None:
                self._link.close()
            self._is_finished = True
            self._fail_answers(messages.SubscriberError("the subscriber has stopped"))
            self._run_commands()

    def _step(self) -> None:
        self._run_commands()
        self._perform(self._core.tick(self.now()))
        if self.now() - self._tidied > _TIDY_PERIOD:
            self._tidied = self.now()
            self._write(self._store.tidy)
        pause = min(_LONGEST_SLEEP, max(0, self._core.find_next_time() - self.now())) / 1000
        if self._link is None:
            self._waker.sleep(pause)
            return
        actions: list[core.Action] = []
        for event in self._link.poll(pause, self._waker):
            found = self._handle_event(event)
            actions += found
            if any(isinstance(action, core.CloseLink | core.OpenLink) for action in found):
                break  # the remaining events belong to a link that is gone
        self._perform(actions)

    def _run_commands(self) -> None:
        while True:
            try:
                self._commands.get_nowait()()
            except queue.Empty:
                return

    def _handle_event(self, event: LinkEvent) -> list[core.Action]:
        now = self.now()
        if isinstance(event, MessageArrived):
            return self._core.receive(*event, now)
        if isinstance(event, MessageSent):
            return self._core.sent(event.token)
        if isinstance(event, LinkConnected):
            return self._core.opened(now)
        if isinstance(event, TopicsSubscribed):
            return self._core.listened(now)
        assert isinstance(event, LinkFailed)
        if self._link is not None:
            self._link.close()
            self._link = None
        return self._core.failed(event.reason, now)

    def _perform(self, actions: Iterable[core.Action]) -> None:
        """Commit the store changes, then do everything else."""
        actions = list(actions)
        changes = [
            a
            for a in actions
            if isinstance(a, core.StoreNotification | core.MarkReported | core.StoreReply)
        ]
        if changes:
            new = self._write(lambda: self._store.apply(changes))
            if new is None:
                return
            if new:
                self.inbox.announce()
        for action in actions:
            self._do(action)

    def _write(self, work: Callable[[], T], *, is_patient: bool = True) -> T | None:
        """Change the store as soon as nobody else holds it; None if we are to stop first.

        A disk that is full or failing may recover: patient work waits for that, and nothing is
        acknowledged meanwhile.
        """
        failure = ""
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF in _BUSY_CODES
                if not is_busy and not is_patient:
                    raise
                if not is_busy and str(error) != failure:
                    failure = str(error)
                    log.error("%s: %s; nothing is acknowledged", self._store.path, failure)
                    server = self._link.server.url if self._link is not None else ""
                    reason = f"cannot write: {failure}"
                    self._report_status(core.ConnectionStatus(self._core.state, server, reason))
            if self._is_stopping:
                return None
            if self._link is not None:
                self._link.keep_alive()
            if failure:
                self._waker.sleep(_DISK_PAUSE)

    def _do(self, action: core.Action) -> None:
        link = self._link
        if isinstance(action, core.OpenLink):
            self._open(action)
        elif isinstance(action, core.ConnectionStatus):
            self._report_status(action)
        elif isinstance(action, core.CompleteRequest) and not action.request:
            self._report_told(action.reply)
        elif isinstance(action, core.CompleteRequest):
            answer = self._answers.pop(action.request, None)
            if answer is not None and answer.set_running_or_notify_cancel():
                answer.set_result(action.reply)
        elif link is None:
            return
        elif isinstance(action, core.AcknowledgeMessage):
            link.acknowledge(action.mid)
        elif isinstance(action, core.PublishMessage):
            link.send(*action)
        elif isinstance(action, core.SubscribeTopics):
            link.listen(action.topics)
        elif isinstance(action, core.CloseLink):
            link.close()
            self._link = None

    def _open(self, action: core.OpenLink) -> None:
        if self._link is not None:
            self._link.close()
        client_id = self._store.device + ("-probe" if action.is_probe else "")
        try:
            self._link = MqttLink(
                action.server, self._identity, client_id, is_temporary=action.is_probe
            )
        except messages.SubscriberError as error:  # its certificates have gone
            self._link = None
            self._perform(self._core.failed(str(error), self.now()))
            return
        self._link.open()


def find_name(wanted: str | Tree | Mapping[str, Any], name: str | None) -> tuple[str, str]:
    """Return a subscription's name and text; the name is given, written in it, or derived."""
    text = messages.write_text(wanted)
    if not text.strip():
        raise messages.SubscriberError("the subscription is empty")
    if name is None and text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            written = json.loads(text).get("name")
        except ValueError:
            written = None  # the node reports what is wrong
        name = written if isinstance(written, str) and written.strip() else None
    return name or messages.derive_name(text), text
