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

from denwatch.client.subscriber import (
    BackOff,
    HandlerTransaction,
    ReceivedNotification,
    Subscriber,
    SubscriberOptions,
)
from denwatch.client.subscriber.core import AcknowledgeMessage
from denwatch.client.subscriber.link import MqttLink
from denwatch.client.subscriber.session import SubscriberSession
from denwatch.client.subscriber.store import Inbox, SubscriberStore

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
QUICK = SubscriberOptions(
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
    """Put the points to die into the library, around what it does and without changing it."""
    keep, keep_note, add = (
        SubscriberStore.apply,
        SubscriberStore._store_notification,
        SubscriberStore.add_request,
    )
    acknowledge, end, find = MqttLink.acknowledge, HandlerTransaction.end, Inbox._find

    def dying_keep(self: SubscriberStore, changes: Any) -> int:
        death.pass_by("before-commit")
        found = keep(self, changes)
        death.pass_by("after-commit")
        return found

    def dying_keep_note(self: SubscriberStore, change: Any) -> int:
        found = keep_note(self, change)
        death.pass_by("in-commit")
        return found

    def dying_acknowledge(self: MqttLink, mid: int) -> None:
        acknowledge(self, mid)
        death.pass_by("after-ack")

    def dying_add(self: SubscriberStore, request: Any) -> None:
        add(self, request)
        death.pass_by("in-request")

    def dying_end(self: HandlerTransaction) -> None:
        end(self)
        death.pass_by("before-mark")
        handled.append(1)

    def dying_find(self: Inbox) -> Any:
        if handled:
            death.pass_by("after-mark")
        return find(self)

    handled: list[int] = []
    _replace(SubscriberStore, "apply", dying_keep)
    _replace(SubscriberStore, "_store_notification", dying_keep_note)
    _replace(SubscriberStore, "add_request", dying_add)
    _replace(MqttLink, "acknowledge", dying_acknowledge)
    _replace(HandlerTransaction, "end", dying_end)
    _replace(Inbox, "_find", dying_find)


def break_rule(rule: str) -> None:
    if rule == "ack-after-commit":
        perform = SubscriberSession._perform

        def hasty(self: SubscriberSession, actions: Any) -> None:
            actions = list(actions)
            for action in actions:
                if isinstance(action, AcknowledgeMessage):
                    self._do(action)
            perform(self, [a for a in actions if not isinstance(a, AcknowledgeMessage)])

        _replace(SubscriberSession, "_perform", hasty)
    elif rule == "mark-with-handler":

        def never(self: Inbox, sequence: int) -> None:
            """Mark nothing inside the handler's transaction."""

        _replace(Inbox, "_mark", never)
    elif rule == "known-ids":
        keep_note = SubscriberStore._store_notification

        def forgetful(self: SubscriberStore, change: Any) -> int:
            self._connection.execute(
                "DELETE FROM denwatch_inbox WHERE key = ? AND is_handled",
                (change.notification.key,),
            )
            return keep_note(self, change)

        _replace(SubscriberStore, "_store_notification", forgetful)
    else:
        raise SystemExit(f"no rule {rule}")


def read_number(note: ReceivedNotification) -> int:
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

    def handle(note: ReceivedNotification, transaction: HandlerTransaction) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS seen (number INTEGER)")
        transaction.execute("INSERT INTO seen VALUES (?)", (read_number(note),))
        death.pass_by("in-handler")

    with Subscriber(
        NAME,
        os.environ.get("VICTIM_PASSWORD"),
        urls.split(","),
        store=store,
        on_notification=handle,
        settings=QUICK,
    ) as subscriber:
        subscriber.subscribe(words, "fever", wait=False)
        print("running", flush=True)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1:])
