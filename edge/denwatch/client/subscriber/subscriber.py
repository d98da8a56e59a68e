"""The subscriber for programs with threads; `aio.py` is the one for asyncio.

with Subscriber("medic7", "secret", ["mqtts://tent:8883"], store="medic7.db") as subscriber:
    subscriber.subscribe("patient_temperature is very high", name="fever")
    for note in subscriber.notes():
        print(note.event, note.values, note.degree)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from denwatch.client.subscriber.actions import Request, Tell
from denwatch.client.subscriber.errors import UnconfirmedError
from denwatch.client.subscriber.inbox import Promise, Transaction
from denwatch.client.subscriber.messages import Note, Reply
from denwatch.client.subscriber.session import FrontEnd, find_name
from denwatch.client.subscriber.store import Subscription

if TYPE_CHECKING:
    from denwatch.client.syntax import SubscriptionTree as Tree


class Subscriber(FrontEnd):
    """Asks for what an app needs to know, and hands over each notification once.

    `store` is this app's own SQLite file. Whatever is asked for is kept there until a node has
    confirmed it; a note is acknowledged to the node after it was committed there.

    `on_note(note, transaction)` is called on a thread of its own, for one note after the other.
    What it writes with `transaction.execute` happens exactly once, together with the mark that the
    note is handled. For effects elsewhere `promise` says what a death in between does: see
    `denwatch.client.subscriber.inbox`. A handler that raises sees the note again later.

    `servers` are the nodes that may be in range; among those that answer, the one to which our
    subscriptions add least is taken (PrefSIENA's criteria), and another when it is lost.
    """

    def start(self) -> Subscriber:
        """Connect, now or when a node is in range."""
        self._session.start()
        return self

    def close(self) -> None:
        """Stop. Subscriptions stay with the nodes; notes that are not handled wait in the store."""
        self._session.close()

    def __enter__(self) -> Subscriber:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Asking ----------------------------------------------------------------------------------

    def subscribe(
        self,
        wanted: str | Tree | Mapping[str, Any],
        name: str | None = None,
        timeout: float | None = 30.0,
        *,
        wait: bool = True,
    ) -> Subscription:
        """Ask for notifications, in words, XML, JSON or as a tree; return when a node agreed.

        Asked again under the same name it replaces what was asked before. RefusedError has the
        column and a hint. UnconfirmedError: no node answered in time (seconds); the request is
        kept and sent when one is there, also by a later run. With `wait=False` that is not awaited.
        """
        name, text = find_name(wanted, name)
        reply = self._ask("subscribe", name, text, timeout, wait)
        if reply is None:
            return Subscription(name, text, "pending")
        return Subscription(name, text, "active", reply.fields.get("id"))

    def unsubscribe(
        self, which: str | Subscription, timeout: float | None = 30.0, *, wait: bool = True
    ) -> None:
        """End a subscription, by name."""
        name = which if isinstance(which, str) else which.name
        self._ask("unsubscribe", name, "", timeout, wait)

    def list(self, timeout: float | None = 30.0) -> Sequence[Mapping[str, Any]]:
        """Return the subscriptions that the node has for us, as it describes them."""
        reply = self._ask("list", "", "", timeout, True)
        found = reply.fields.get("subscriptions") if reply is not None else None
        return list(found) if isinstance(found, list) else []

    def subscriptions(self) -> Sequence[Subscription]:
        """Return what this app asked for, as its own store has it: also what is not confirmed."""
        return self._session.list_subscriptions()

    def _ask(
        self, kind: str, name: str, text: str, timeout: float | None, wait: bool
    ) -> Reply | None:
        request, kept, answer = self._session.ask(kind, name, text)
        kept.result()
        if not wait:
            return None
        try:
            reply = answer.result(timeout)
        except FutureTimeoutError:
            self._give_up(request, answer)
            raise UnconfirmedError(describe_wait(request, self.state)) from None
        if not reply.is_ok:
            raise reply.build_error()
        return reply

    def _give_up(self, request: Request, answer: Future[Reply]) -> None:
        answer.cancel()
        if request.kind == "list":
            self._session.engine.drop(request.id)

    # Notes -----------------------------------------------------------------------------------

    def notes(self, timeout: float | None = None) -> Iterator[Note]:
        """Yield notes as they come, and end after `timeout` seconds without one, or when closed.

        A note counts as handled when the next is asked for (promise AT_LEAST_ONCE: the one in hand
        when the process died, or the loop was left, comes again) or before it is yielded
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

    def take(self) -> AbstractContextManager[tuple[Note, Transaction] | None]:
        """Lend one note with the transaction that marks it as handled; None if none waits.

        What is written with the transaction happens exactly once; if the block raises, not at all,
        and the note comes again.
        """
        return self._session.inbox.take(self._promise)

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether a note waits, at the latest after so many seconds."""
        return self._session.inbox.wait(timeout)

    def held(self, limit: int = 1_000) -> Sequence[Note]:
        """Return notes that are still in the store, handled or not, newest first."""
        return self._session.inbox.list_held(limit)

    def count_waiting(self) -> int:
        """Return how many notes are not handled."""
        return self._session.inbox.count_waiting()

    # The link --------------------------------------------------------------------------------

    def wait_until_connected(self, timeout: float | None = None) -> bool:
        """Return whether a node serves us, at the latest after so many seconds."""
        return self._session.wait_until_connected(timeout)


def describe_wait(request: Request, state: Tell) -> str:
    """Say that nobody answered, and why that may be."""
    where = f"{state.server}: {state.reason or state.state.value}" if state.server else "no node"
    what = f'"{request.name}"' if request.name else request.kind
    kept = "" if request.kind == "list" else "; it is kept, and sent when a node answers"
    return f"{what} is not confirmed yet ({where}){kept}"
