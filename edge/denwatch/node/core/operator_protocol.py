"""What operators, who see all nodes' logs, send to a node: signed items, or a plan for replication.

CBOR, deterministic: `["items", [[origin, epoch, sequence, kind, expires, body, signature], …]]` or
`["plan", strategy, why, at]` on `dens/1/operator/<node>`. An item says nothing that its signature
does not cover, so the node needs to trust the operator with nothing but the plan.

Items are treated as if a peer had carried them: verified by their origins' signatures, accepted
once, matched, delivered and passed on. Only subscriptions and notifications are accepted. A plan is
shown (status, `dens/1/plan/<node>`), and followed only where the node's configuration says so; it
survives restarts. Who is an operator is the server's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import cbor2
from denwatch.node.core.events import OPERATORS, PLANS, Message, Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    KINDS,
    LATEST,
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    check_item,
    load_cbor,
)
from denwatch.node.core.peers.item_exchange import KNOWN, NEW, OVER
from denwatch.node.replication.strategies import build_strategy
from denwatch.protocol.errors import ProtocolError

ITEMS, PLAN = "items", "plan"
MAX_ITEMS = 1_000  # of one frame
_TYPES = (str, int, int, int, int, bytes, bytes)
_LONGEST = 2_000  # characters of a plan's texts


@dataclass(frozen=True)
class Plan:
    """What an operator recommends: a strategy with its copies, why, and as of when (ms)."""

    strategy: str
    why: str
    at: int


def encode_items(items: Iterable[Item]) -> bytes:
    """Return a frame of items."""
    rows = [[*item.dot, item.kind, item.expires, item.body, item.signature] for item in items]
    return cbor2.dumps([ITEMS, rows], canonical=True)


def encode_plan(plan: Plan) -> bytes:
    """Return a frame with a plan; also how a plan is stored."""
    return cbor2.dumps([PLAN, plan.strategy, plan.why, plan.at], canonical=True)


def decode_frame(data: bytes) -> list[Item] | Plan:
    """Return what a frame holds; ProtocolError if it is none."""
    match load_cbor(data):
        case ["items", list(rows)] if 0 < len(rows) <= MAX_ITEMS:
            return [_read_item(row) for row in rows]
        case ["plan", str(strategy), str(why), int(at)] if type(at) is int and 0 <= at < LATEST:
            if max(len(strategy), len(why)) > _LONGEST:
                raise ProtocolError(f"a plan with more than {_LONGEST} characters")
            return Plan(strategy, why, at)
    raise ProtocolError("a frame has items or a plan")


def _read_item(row: object) -> Item:
    if not isinstance(row, list) or tuple(map(type, row)) != _TYPES:
        raise ProtocolError("an item is [origin, epoch, sequence, kind, expires, body, signature]")
    origin, epoch, sequence, kind, expires, body, signature = row
    item = Item(Dot(origin, epoch, sequence), kind, expires, body, signature)
    fault = check_item(item)
    if fault:
        raise ProtocolError(fault)
    return item


# The node's side -------------------------------------------------------------------------------

SPACE = "operator"
_KEY = b"plan"
_NOBODY = "operator"  # behind somebody else's broker the sender has no name
_ACCEPTED = (SUBSCRIPTION, NOTIFICATION)  # in this order: what a notification is for comes first


class OperatorProtocol:
    """Handles what operators send."""

    def __init__(
        self,
        item_store: ItemStore,
        judge: Callable[[Transaction, Item], tuple[str, str]],
        use_strategy: Callable[[str], None],
        *,
        is_following: bool = False,
    ) -> None:
        """`judge` decides about items of others, `use_strategy` about what goes to peers."""
        self._item_store = item_store
        self._judge = judge
        self._use_strategy = use_strategy
        self._is_following = is_following
        self._plan: Plan | None = None

    def restore(self, reader: Reader) -> None:
        """Load the plan that an earlier run received."""
        stored = reader.get(SPACE, _KEY)
        found = None if stored is None else decode_frame(stored)
        if isinstance(found, Plan):
            self._plan = found
            if self._is_following:
                self._use_strategy(found.strategy)

    def describe(self) -> dict[str, object] | None:
        """Return the plan for the node's status; None if there is none."""
        if self._plan is None:
            return None
        plan = self._plan
        return {"strategy": plan.strategy, "at": plan.at, "followed": self._is_following}

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Handle a frame."""
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
            self._accept_plan(transaction, found, sender)
        else:
            for item in sorted(found, key=_find_place):
                self._accept_item(transaction, item, sender)

    def _accept_item(self, transaction: Transaction, item: Item, sender: str) -> None:
        if item.kind not in _ACCEPTED:
            why = f"a {KINDS[item.kind]} does not come from operators"
            self._refuse(transaction, "item", why, sender, len(item.body))
            return
        verdict, reason = self._judge(transaction, item)
        if verdict == NEW:
            self._item_store.accept(transaction, item, sender)
            transaction.count("operator_items_taken", label=KINDS[item.kind])
        elif verdict in (KNOWN, OVER):
            transaction.count("operator_items_known", label=KINDS[item.kind])
        else:
            self._refuse(transaction, "item", reason, sender, len(item.body))

    def _accept_plan(self, transaction: Transaction, plan: Plan, sender: str) -> None:
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
                self._use_strategy(plan.strategy)
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
    return _ACCEPTED.index(item.kind) if item.kind in _ACCEPTED else len(_ACCEPTED)
