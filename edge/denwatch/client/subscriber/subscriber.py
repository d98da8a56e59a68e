"""The subscriber for programs with threads; `aio.py` is the one for asyncio.

with Subscriber("medic7", "secret", ["mqtts://tent:8883"], store="medic7.db") as subscriber:
    subscriber.subscribe("patient_temperature is very high", name="fever")
    for notification in subscriber.notifications():
        print(notification.event, notification.values, notification.degree)
"""

from __future__ import annotations

import json
import random
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denwatch.client.subscriber import core
from denwatch.client.subscriber.link import Identity
from denwatch.client.subscriber.messages import ReceivedNotification, Reply, UnconfirmedError
from denwatch.client.subscriber.session import Handler, StatusListener, SubscriberSession, find_name
from denwatch.client.subscriber.store import HandlerTransaction, Promise, SubscriptionStatus

if TYPE_CHECKING:
    from denwatch.client.syntax import SubscriptionTree as Tree


class SubscriberBase:
    """What both front ends have in common. `Subscriber` explains the arguments."""

    def __init__(
        self,
        name: str,
        password: str | None = None,
        servers: Iterable[str] = ("mqtt://127.0.0.1:1883",),
        *,
        store: str | Path,
        tls: ssl.SSLContext | str | Path | bool | None = None,
        is_insecure: bool = False,
        on_notification: Handler | None = None,
        promise: Promise = Promise.AT_LEAST_ONCE,
        on_status: StatusListener | None = None,
        rng: random.Random | None = None,
        settings: core.SubscriberOptions | None = None,
    ) -> None:
        identity = Identity(name, password, tls, is_insecure)
        self._session = SubscriberSession(
            identity, servers, store, rng or random.SystemRandom(), settings
        )
        self._promise = promise
        if on_status is not None:
            self._session.add_listener(on_status)
        if on_notification is not None:
            self._session.handle(on_notification, promise)

    @property
    def status(self) -> core.ConnectionStatus:
        """What the connection is doing, with which node, and why."""
        return self._session.status

    def explain_choice(self) -> list[str]:
        """Return why this node was chosen, one line for each that was asked; none if only one."""
        return self._session.explain_choice()

    @property
    def is_denied(self) -> bool:
        """Whether all nodes refuse this name with this password; they are asked again."""
        return self._session.is_denied

    @property
    def now(self) -> Callable[[], int]:
        """The clock to compute ages with: ms since 1970, never falling."""
        return self._session.now

    def use_servers(self, servers: Iterable[str]) -> None:
        """Use other nodes, for instance those that are in range now."""
        self._session.use_servers(servers)


class Subscriber(SubscriberBase):
    """Subscribes on behalf of an app, and hands over each notification once.

    `store` is this app's own SQLite file. A subscription is stored there before it is sent, and
    until a node has confirmed it; a notification is acknowledged after it was committed there.

    `on_notification(notification, transaction)` is called on a thread of its own, for one
    notification after the other. What it writes with `transaction.execute` happens exactly once,
    together with the mark that the notification is handled. For effects elsewhere `promise` says
    what a death in between does (see `store.py`). If the handler raises, it is called again later.

    `servers` are the nodes that may be in range. Of those that answer, the one is used to which our
    subscriptions add least (PrefSIENA's criteria), and another when it is lost.
    """

    def start(self) -> Subscriber:
        """Connect, now or when a node is in range."""
        self._session.start()
        return self

    def close(self) -> None:
        """Stop. Subscriptions stay at the nodes; unhandled notifications wait in the store."""
        self._session.close()

    def __enter__(self) -> Subscriber:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # Subscriptions ---------------------------------------------------------------------------

    def subscribe(
        self,
        wanted: str | Tree | Mapping[str, Any],
        name: str | None = None,
        timeout: float | None = 30.0,
        *,
        wait: bool = True,
    ) -> SubscriptionStatus:
        """Subscribe, in words, XML, JSON or with a tree; return when a node has accepted it.

        A second subscription under the same name replaces the first. RequestRefusedError has the
        column and a hint. LoginRefusedError: all nodes refuse the name or password
        (for `SubscriberOptions.login_patience`: they may have to hear of it first).
        UnconfirmedError: no node answered in time (seconds). After both, the request stays
        in the store and is sent when a node answers, also by a later run. `wait=False` returns as
        soon as the request is stored.
        """
        name, text = find_name(wanted, name)
        return build_status(name, text, self._ask("subscribe", name, text, timeout, wait))

    def unsubscribe(
        self, which: str | SubscriptionStatus, timeout: float | None = 30.0, *, wait: bool = True
    ) -> None:
        """End a subscription, by name."""
        name = which if isinstance(which, str) else which.name
        self._ask("unsubscribe", name, "", timeout, wait)

    def list(self, timeout: float | None = 30.0) -> Sequence[Mapping[str, Any]]:
        """Return the subscriptions that the node has for us, as it describes them."""
        return read_list(self._ask("list", "", "", timeout, True))

    def set_preference(
        self, wanted: str | int | Mapping[str, Any] | None, timeout: float | None = 30.0
    ) -> str:
        """Set how much of all subscriptions together is to be heard; return it in words.

        In words ("my top 3 of the last 20, by mean"), as a number, as JSON ({"top": 3, "within":
        "10 min"}); None: everything again. It follows the person from node to node.
        RequestRefusedError has the column; UnconfirmedError: no node answered in time.
        """
        return read_understood(self._ask("other", "", write_preference(wanted), timeout, True))

    def request(self, document: Mapping[str, Any]) -> Future[Reply]:
        """Send any other request, such as {"have": "bed-1"} or {"report": "patient: pain 6"}; the
        future has the node's reply.

        It is repeated while this process runs and nobody cancels the future, and not stored.
        """
        text = json.dumps(dict(document), ensure_ascii=False, allow_nan=False)
        request, _, answer = self._session.ask(
            "report" if "report" in document else "other", "", text
        )
        answer.add_done_callback(
            lambda done: self._session.drop(request.id) if done.cancelled() else None
        )
        return answer

    def listen(self, on_told: Callable[[Reply], object]) -> None:
        """Call `on_told`, on the link's thread, with what a node tells unasked: who has what."""
        self._session.on_told = on_told

    def subscriptions(self) -> Sequence[SubscriptionStatus]:
        """Return this app's subscriptions from its own store, also those not confirmed yet."""
        return self._session.list_subscriptions()

    def _ask(
        self, kind: str, name: str, text: str, timeout: float | None, wait: bool
    ) -> Reply | None:
        request, stored, answer = self._session.ask(kind, name, text)
        stored.result()
        if not wait:
            return None
        try:
            reply = answer.result(timeout)
        except FutureTimeoutError:
            answer.cancel()
            if not request.is_stored:
                self._session.drop(request.id)
            raise UnconfirmedError(describe_wait(request, self.status)) from None
        if not reply.is_ok:
            raise reply.build_error()
        return reply

    # Notifications ---------------------------------------------------------------------------

    def notifications(self, timeout: float | None = None) -> Iterator[ReceivedNotification]:
        """Yield notifications as they come; end when closed, or after `timeout` s without one.

        A notification counts as handled when the next is requested (promise AT_LEAST_ONCE: the
        current one comes again if the process dies or the loop is left) or before it is yielded
        (AT_MOST_ONCE).
        """
        inbox = self._session.inbox
        while inbox.wait(timeout):
            lent = inbox.lend(self._promise)
            if lent is None:
                continue
            is_handled = False
            try:
                yield lent[1]
                is_handled = True
            finally:
                if self._promise is Promise.AT_LEAST_ONCE:
                    (inbox.mark if is_handled else inbox.put_back)(lent[0])

    def take(
        self,
    ) -> AbstractContextManager[tuple[ReceivedNotification, HandlerTransaction] | None]:
        """Lend one notification with the transaction that marks it as handled; None if none waits.

        What is written with the transaction happens exactly once; if the block raises, not at all,
        and the notification comes again.
        """
        return self._session.inbox.take(self._promise)

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether a notification waits, at the latest after so many seconds."""
        return self._session.inbox.wait(timeout)

    def stored(self, limit: int = 1_000) -> Sequence[ReceivedNotification]:
        """Return notifications that are still in the store, handled or not, newest first."""
        return self._session.inbox.list_stored(limit)

    def count_waiting(self) -> int:
        """Return how many notifications are not handled."""
        return self._session.inbox.count_waiting()

    def wait_until_connected(self, timeout: float | None = None) -> bool:
        """Return whether a node serves us, at the latest after so many seconds."""
        return self._session.wait_until_connected(timeout)


def build_status(name: str, text: str, reply: Reply | None) -> SubscriptionStatus:
    """Return a subscription: active by a node's reply, pending without one."""
    if reply is None:
        return SubscriptionStatus(name, text, "pending")
    taken = reply.fields.get("taken")
    return SubscriptionStatus(
        name,
        text,
        "active",
        reply.fields.get("id"),
        notes=tuple(_list_notes(reply)),
        taken=tuple(map(str, taken)) if isinstance(taken, list) else (),
        understood=str(reply.fields.get("understood") or ""),
    )


def _list_notes(reply: Reply) -> Iterator[str]:
    """Yield what a node says of a subscription besides that it has it, in words."""
    devices = reply.fields.get("devices")
    if isinstance(devices, dict) and isinstance(devices.get("words"), str):
        yield devices["words"]
    approximations = reply.fields.get("approximations")
    yield from (str(note) for note in approximations or () if isinstance(approximations, list))


def write_preference(wanted: str | int | Mapping[str, Any] | None) -> str:
    """Return the request that sets what somebody prefers."""
    return json.dumps({"my_top": False if wanted is None else wanted}, ensure_ascii=False)


def read_understood(reply: Reply | None) -> str:
    """Return how a node understood a request."""
    return str(reply.fields.get("understood", "")) if reply is not None else ""


def read_list(reply: Reply | None) -> Sequence[Mapping[str, Any]]:
    """Return the subscriptions that a node lists."""
    found = reply.fields.get("subscriptions") if reply is not None else None
    return list(found) if isinstance(found, list) else []


def describe_wait(request: core.SubscriberRequest, status: core.ConnectionStatus) -> str:
    """Return a sentence that says that no node answered, and why that may be."""
    where = (
        f"{status.server}: {status.reason or status.state.value}" if status.server else "no node"
    )
    what = f'"{request.name}"' if request.name else request.kind
    stored = "; it is stored, and sent when a node answers" if request.is_stored else ""
    return f"{what} is not confirmed yet ({where}){stored}"
