"""What the two front ends share: a store, an inbox, a core, and the engine that runs them."""

from __future__ import annotations

import json
import logging
import random
import sqlite3
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denwatch.client.subscriber.actions import Request, State, Tell
from denwatch.client.subscriber.core import Core, Settings
from denwatch.client.subscriber.engine import Engine, RisingClock
from denwatch.client.subscriber.errors import SubscriberError, TransactionError
from denwatch.client.subscriber.inbox import Inbox, Promise, Transaction
from denwatch.client.subscriber.link import Identity
from denwatch.client.subscriber.messages import Note, Reply, check_name, derive_name, write_text
from denwatch.client.subscriber.servers import Server, parse_server
from denwatch.client.subscriber.store import Store, Subscription

if TYPE_CHECKING:
    from denwatch.client.syntax import SubscriptionTree as Tree

log = logging.getLogger("denwatch.subscriber")
_DISK_PAUSE = 1.0  # s, after a disk that did not write

Handler = Callable[[Note, Transaction], object]
Watcher = Callable[[Tell], object]


class Session:
    """One subscriber's parts, wired; started once, closed once."""

    def __init__(
        self,
        identity: Identity,
        servers: Iterable[str],
        store: str | Path,
        rng: random.Random,
        settings: Settings | None = None,
    ) -> None:
        name = check_name(identity.name)
        self._rng = rng
        self.now = RisingClock()
        self.state = Tell(State.IDLE, "")
        self._identity = identity
        core = Core(name, self._parse_servers(servers), rng, settings or Settings())
        self.store = Store(store, name, f"{name}-{self.draw_id()[:8]}")
        self.inbox = Inbox(store, self.now)
        self.engine = Engine(core, self.store, self.inbox, identity, self.now, self._tell)
        self._watchers: list[Watcher] = []
        self._dispatcher: threading.Thread | None = None
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._is_started = self._is_closed = False

    def handle(self, handler: Handler, promise: Promise) -> None:
        """Hand every note to somebody, on a thread of its own; before `start`."""
        self._dispatcher = threading.Thread(
            target=self._dispatch, args=(handler, promise), name="denwatch-notes", daemon=True
        )

    def start(self) -> None:
        """Connect, and handle notes."""
        if self._is_started:
            raise SubscriberError("a subscriber starts once")
        self._is_started = True
        self.engine.start()
        if self._dispatcher is not None:
            self._dispatcher.start()

    def close(self) -> None:
        """Stop; the subscriptions stay, and what is not handled waits in the store."""
        if self._is_closed:
            return
        self.inbox.check_thread("close")
        self._is_closed = True
        self._stopped.set()
        self.inbox.close()
        if self._dispatcher is not None and self._dispatcher.is_alive():
            self._dispatcher.join()
        self.engine.stop()
        self.store.close()

    def draw_id(self) -> str:
        """Return a number for a request that nobody else has drawn."""
        return f"{self._rng.getrandbits(64):016x}"

    # Requests --------------------------------------------------------------------------------

    def ask(
        self, kind: str, name: str = "", text: str = ""
    ) -> tuple[Request, Future[None], Future[Reply]]:
        """Ask, now or when a node is there; the futures: it is on the disk, and its answer."""
        self.inbox.check_thread(kind)
        if not self._is_started or self._is_closed:
            raise SubscriberError(f"{kind}: the subscriber is not running")
        request = Request(self.draw_id(), kind, name, text)
        return request, *self.engine.ask(request)

    def list_subscriptions(self) -> list[Subscription]:
        """Return what we asked for, as our own store has it."""
        self.inbox.check_thread("subscriptions")
        if not self._is_started or self._is_closed:
            raise SubscriberError("subscriptions: the subscriber is not running")
        return self.engine.submit(self.store.list_subscriptions).result()

    def use_servers(self, servers: Iterable[str]) -> None:
        """Take other nodes: the app has walked."""
        found = self._parse_servers(servers)
        if not found:
            raise SubscriberError("no node is named: give at least one address")
        self.inbox.check_thread("use_servers")
        self.engine.use_servers(found)

    def _parse_servers(self, servers: Iterable[str]) -> list[Server]:
        """Read addresses; a password that would go in the clear is refused now, not later."""
        found = [parse_server(server) for server in servers]
        for server in found:
            self._identity.build_context(server)
        return found

    # The link's state ------------------------------------------------------------------------

    def watch(self, watcher: Watcher) -> None:
        """Call somebody, on the link's thread, whenever the link's state changes."""
        self._watchers.append(watcher)

    def wait_until_connected(self, timeout: float | None) -> bool:
        """Return whether a node serves us, at the latest after so many seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self.state.state is State.ONLINE or self._is_closed, timeout
            )

    def _tell(self, tell: Tell) -> None:
        log.info("%s %s %s", tell.state.value, tell.server, tell.reason)
        with self._changed:
            self.state = tell
            self._changed.notify_all()
        for watcher in list(self._watchers):
            try:
                watcher(tell)
            except Exception:
                log.exception("a watcher of the link's state failed")

    # Notes -----------------------------------------------------------------------------------

    def _dispatch(self, handler: Handler, promise: Promise) -> None:
        while self.inbox.wait():
            try:
                with self.inbox.take(promise) as taken:
                    if taken is not None:
                        handler(*taken)
            except sqlite3.Error:
                log.exception("a note could not be marked; it comes again")
                self._stopped.wait(_DISK_PAUSE)
            except TransactionError:
                log.exception("a handler broke its transaction; the note was not handled")
            except Exception:
                log.exception("a handler failed; nothing that it wrote has happened")


class FrontEnd:
    """What is alike for programs with threads and for asyncio. `subscriber.py` explains all."""

    def __init__(
        self,
        name: str,
        password: str | None = None,
        servers: Iterable[str] = ("mqtt://127.0.0.1:1883",),
        *,
        store: str | Path,
        tls: ssl.SSLContext | str | Path | bool | None = None,
        is_insecure: bool = False,
        on_note: Handler | None = None,
        promise: Promise = Promise.AT_LEAST_ONCE,
        on_state: Watcher | None = None,
        rng: random.Random | None = None,
        settings: Settings | None = None,
    ) -> None:
        identity = Identity(name, password, tls, is_insecure)
        parts = Session(identity, servers, store, rng or random.SystemRandom(), settings)
        self._session = parts
        self._promise = promise
        if on_state is not None:
            parts.watch(on_state)
        if on_note is not None:
            parts.handle(on_note, promise)

    @property
    def state(self) -> Tell:
        """What the link is doing, with which node, and why."""
        return self._session.state

    @property
    def now(self) -> Callable[[], int]:
        """The clock by which ages are told: ms since 1970, never falling."""
        return self._session.now

    def use_servers(self, servers: Iterable[str]) -> None:
        """Take other nodes, for instance those that are in range now."""
        self._session.use_servers(servers)


def find_name(wanted: str | Tree | Mapping[str, Any], name: str | None) -> tuple[str, str]:
    """Return the name of a subscription and its text: as said, as written in it, or derived."""
    text = write_text(wanted)
    if not text.strip():
        raise SubscriberError("an empty subscription")
    if name is None and text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            written = json.loads(text).get("name")
        except ValueError:
            written = None  # the node says what is wrong
        name = written if isinstance(written, str) and written.strip() else None
    return name or derive_name(text), text
