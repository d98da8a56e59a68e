"""The part of a node that listens to operators, who see all nodes' logs.

Items that an operator hands over are treated as if a peer had carried them: verified by their
origins' signatures, taken once, matched, delivered and passed on. Only subscriptions and
notifications are taken. A plan is shown (status, `dens/1/plan/<node>`), and followed only where the
node's configuration says so; it survives restarts. Who is an operator is the server's business.
"""

from __future__ import annotations

import json
from typing import Protocol

from denwatch.node.core.interface import OPERATORS, PLANS, Message, Reader
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import KINDS, NOTIFICATION, SUBSCRIPTION, Item
from denwatch.node.core.operators.frames import Plan, decode_frame, encode_plan
from denwatch.node.core.peers.item_validation import KNOWN, NEW, OVER
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.strategies import build_strategy
from denwatch.protocol.errors import ProtocolError

SPACE = "operator"
_KEY = b"plan"
_NOBODY = "operator"  # behind somebody else's broker the sender has no name
_TAKEN = (SUBSCRIPTION, NOTIFICATION)  # in this order: what a notification is for comes first


class Gate(Protocol):
    """What decides about items of others; `node.core.peers.acceptance` has the real one."""

    def judge(self, transaction: Transaction, item: Item) -> tuple[str, str]:
        """Return what to do with an item, and for a refusal the reason."""


class Strategist(Protocol):
    """Who hands notifications to peers."""

    def use_strategy(self, text: str) -> None:
        """Decide by another strategy from now on."""


class Operators:
    """Takes what operators send."""

    def __init__(
        self,
        item_store: ItemStore,
        gate: Gate,
        strategist: Strategist,
        *,
        is_following: bool = False,
    ) -> None:
        self._item_store = item_store
        self._gate = gate
        self._strategist = strategist
        self._is_following = is_following
        self._plan: Plan | None = None

    def restore(self, reader: Reader) -> None:
        """Take up the plan that an earlier run got."""
        stored = reader.get(SPACE, _KEY)
        found = None if stored is None else decode_frame(stored)
        if isinstance(found, Plan):
            self._plan = found
            if self._is_following:
                self._strategist.use_strategy(found.strategy)

    def describe(self) -> dict[str, object] | None:
        """Return the plan for the node's status; None if there is none."""
        if self._plan is None:
            return None
        plan = self._plan
        return {"strategy": plan.strategy, "at": plan.at, "followed": self._is_following}

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Take a frame."""
        sender = message.sender or _NOBODY
        if message.topic != OPERATORS + self._item_store.name:
            self._refuse(
                transaction, "frame", "a frame for another node", sender, len(message.payload)
            )
            return
        try:
            found = decode_frame(message.payload)
        except ProtocolError as error:
            self._refuse(transaction, "frame", str(error), sender, len(message.payload))
            return
        if isinstance(found, Plan):
            self._take_plan(transaction, found, sender)
        else:
            for item in sorted(found, key=_find_place):
                self._take_item(transaction, item, sender)

    def _take_item(self, transaction: Transaction, item: Item, sender: str) -> None:
        if item.kind not in _TAKEN:
            why = f"a {KINDS[item.kind]} does not come from operators"
            self._refuse(transaction, "item", why, sender, len(item.body))
            return
        verdict, reason = self._gate.judge(transaction, item)
        if verdict == NEW:
            self._item_store.accept(transaction, item, sender)
            transaction.count("operator_items_taken", label=KINDS[item.kind])
        elif verdict in (KNOWN, OVER):
            transaction.count("operator_items_known", label=KINDS[item.kind])
        else:
            self._refuse(transaction, "item", reason, sender, len(item.body))

    def _take_plan(self, transaction: Transaction, plan: Plan, sender: str) -> None:
        try:
            build_strategy(plan.strategy)
        except ValueError as error:
            self._refuse(transaction, "plan", str(error), sender, 0)
            return
        if plan == self._plan:
            return
        if self._plan is None or plan.strategy != self._plan.strategy:
            transaction.log(
                "plan", strategy=plan.strategy, by=sender, is_followed=self._is_following
            )
            if self._is_following:
                self._strategist.use_strategy(plan.strategy)
        self._plan = plan
        transaction.write(SPACE, _KEY, encode_plan(plan))
        transaction.count("plans_taken")
        shown = {"node": self._item_store.name, "by": sender, "why": plan.why}
        payload = json.dumps({**shown, **(self.describe() or {})}, ensure_ascii=False)
        transaction.publish(PLANS + self._item_store.name, payload.encode(), retain=True)

    def _refuse(self, transaction: Transaction, what: str, why: str, who: str, size: int) -> None:
        transaction.count("operator_frames_refused", label=what)
        transaction.log("refuse", what=what, why=why, who=who, bytes=size)


def _find_place(item: Item) -> int:
    return _TAKEN.index(item.kind) if item.kind in _TAKEN else len(_TAKEN)
