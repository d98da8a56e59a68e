"""A rescue app that dies: a process of its own, killed where its arguments say, or from outside.

    python -m tests.client.victim STORE URL[,URL…] WORDS [POINT:COUNT] [--break RULE]

Its handler writes each note's number into a table of the store, in the lent transaction. POINT is
where it kills itself with SIGKILL, at the COUNT-th time that it comes by. RULE is a rule of the
library that is switched off, to see that the tests would notice. The password is in the
environment, as VICTIM_PASSWORD.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from denwatch.client.subscriber import BackOff, Note, Settings, Subscriber, Transaction
from denwatch.client.subscriber.actions import Acknowledge
from denwatch.client.subscriber.engine import Engine
from denwatch.client.subscriber.inbox import Inbox
from denwatch.client.subscriber.link import Link
from denwatch.client.subscriber.store import Store

NAME = "medic7"
WORDS = "patient_temperature is very high"
POINTS = (
    "before-commit",  # a note arrived, nothing of it is on the disk
    "in-commit",  # its transaction is written, not committed
    "after-commit",  # committed, not acknowledged
    "after-ack",  # acknowledged, not reported
    "in-handler",  # the handler has written
    "before-mark",  # the handler is done, its transaction not committed
    "after-mark",  # all is done
    "in-request",  # a request is on the disk, not sent
)
QUICK = Settings(
    BackOff(50, 500), patience=1_000, probe_patience=500, report_delay=100, report_size=20
)


class Death:
    def __init__(self, order: str) -> None:
        self.point, _, count = order.partition(":")
        self.left = int(count or 0)

    def pass_by(self, point: str) -> None:
        if point == self.point:
            self.left -= 1
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def plant(death: Death) -> None:
    """Put the places to die into the library, around what it does and without changing it."""
    keep, keep_note, add = Store.keep, Store._keep_note, Store.add_request
    acknowledge, end, find = Link.acknowledge, Transaction.end, Inbox._find

    def dying_keep(self: Store, changes: Any) -> int:
        death.pass_by("before-commit")
        found = keep(self, changes)
        death.pass_by("after-commit")
        return found

    def dying_keep_note(self: Store, change: Any) -> int:
        found = keep_note(self, change)
        death.pass_by("in-commit")
        return found

    def dying_acknowledge(self: Link, mid: int) -> None:
        acknowledge(self, mid)
        death.pass_by("after-ack")

    def dying_add(self: Store, request: Any) -> None:
        add(self, request)
        death.pass_by("in-request")

    def dying_end(self: Transaction) -> None:
        end(self)
        death.pass_by("before-mark")
        handled.append(1)

    def dying_find(self: Inbox) -> Any:
        if handled:
            death.pass_by("after-mark")
        return find(self)

    handled: list[int] = []
    _replace(Store, "keep", dying_keep)
    _replace(Store, "_keep_note", dying_keep_note)
    _replace(Store, "add_request", dying_add)
    _replace(Link, "acknowledge", dying_acknowledge)
    _replace(Transaction, "end", dying_end)
    _replace(Inbox, "_find", dying_find)


def break_rule(rule: str) -> None:
    if rule == "ack-after-commit":
        perform = Engine._perform

        def hasty(self: Engine, actions: Any) -> None:
            actions = list(actions)
            for action in actions:
                if isinstance(action, Acknowledge):
                    self._do(action)
            perform(self, [a for a in actions if not isinstance(a, Acknowledge)])

        _replace(Engine, "_perform", hasty)
    elif rule == "mark-with-handler":

        def never(self: Inbox, sequence: int) -> None:
            """Mark nothing inside the handler's transaction."""

        _replace(Inbox, "_mark", never)
    elif rule == "known-ids":
        keep_note = Store._keep_note

        def forgetful(self: Store, change: Any) -> int:
            self._connection.execute(
                "DELETE FROM denwatch_inbox WHERE key = ? AND is_handled", (change.note.key,)
            )
            return keep_note(self, change)

        _replace(Store, "_keep_note", forgetful)
    else:
        raise SystemExit(f"no rule {rule}")


def read_number(note: Note) -> int:
    """The number of a note: as the scripted node says it, or as a watchdog read it."""
    if "index" in note.fields:
        return int(note.fields["index"])
    return int(note.values["east"]["value"])


def _replace(owner: type, name: str, function: Callable[..., Any]) -> None:
    setattr(owner, name, function)


def main(arguments: list[str]) -> None:
    rule = ""
    if "--break" in arguments:
        at = arguments.index("--break")
        rule = arguments[at + 1]
        del arguments[at : at + 2]
    store, urls, words, *orders = arguments
    death = Death(orders[0] if orders else "")
    plant(death)
    if rule:
        break_rule(rule)

    def handle(note: Note, transaction: Transaction) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS seen (number INTEGER)")
        transaction.execute("INSERT INTO seen VALUES (?)", (read_number(note),))
        death.pass_by("in-handler")

    with Subscriber(
        NAME,
        os.environ.get("VICTIM_PASSWORD"),
        urls.split(","),
        store=store,
        on_note=handle,
        settings=QUICK,
    ) as subscriber:
        subscriber.subscribe(words, "fever", wait=False)
        print("running", flush=True)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1:])
