"""A durable node: core, MQTT server and store; what comes in, commit, what goes out.

THE RULE OF DURABILITY. Inputs are fed one by one; their writes and log records go to the store at
once, in the open group. Everything that would leave the node waits in `Effects` until `commit` has
returned. So nothing is acknowledged, answered or sent before it is on the disk.

    listener ── receive_input ──► server ──► core ──► store.apply
    connections ── receive_event ──────────►  │
    commit ──► store.commit ──► Effects: outputs (listener), outgoing (connections), committed

ONE BAD EVENT IS ONE REFUSED EVENT. An event that comes from outside is a transaction of its own.
Its writes and records reach the store after the core has handled all of it, so an exception (of the
core, or of encoding its log records) leaves the disk as it was. It leaves the core's memory in
doubt, so the core is built again from the store, in place: links, sessions and the server stay, and
the new core is told who listens (`_told`). The event counts as handled: it is logged, counted and
acknowledged, and does not come again. Who causes this repeatedly is put in `Quarantine`.

ONE BAD PART OF A TICK IS ONE SKIPPED PART. What fails in a tick is rolled back likewise, and the
tick is repeated part by part, each a transaction of its own. The part that fails is skipped for a
while, longer each time (`Pauses`); the others go on. If it fails twice at the same item, that item
is set aside (`mending.py`): it was accepted, and nobody can use it. Only what the store raises ends
the run.

No sockets and no clock here.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from traceback import format_tb

from denwatch.node.core import events
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import KINDS, Dot
from denwatch.node.core.mending import find_culprit, set_aside
from denwatch.node.core.node import TICK_PARTS, Node
from denwatch.node.core.requests import read_reference
from denwatch.node.log import encode_record
from denwatch.node.mqtt.budgets import RefusalSums, WorkBudget
from denwatch.node.mqtt.interface import DEFECT, Input, Output, ServerRefusal, describe_defect
from denwatch.node.mqtt.server import MqttServer
from denwatch.node.store import Storage, StoreError

_log = logging.getLogger("denwatch.node")
_REFUSALS = 5  # records of refused events in a second, each a commit; others are summed
_WARNINGS = 10  # lines in the process's log in a minute about one client
_WARNED = 100  # clients that have lines of their own in a minute; others share theirs
_PAUSE = 1_000  # ms that a part of a tick is skipped after it failed; twice as long each time
_LONGEST = 60_000  # ms
_SET_ASIDE = 10  # items in an hour: if it does not help, it is not the items
_MINUTE = 60_000  # ms
_GROUP = 8  # ms that those who are done wait for one commit with those who need further turns
UNRATIONED = 1_000_000_000  # ms of the thread in a second


class Quarantine:
    """Who made the core fail, when, and until when their events are refused unread.

    Building a core again takes time, so nobody may cause it at will: `failures` within a minute
    begin a quarantine, the first of a minute if, for all names together, there were `total` of
    them. Each quarantine is twice as long as the one before, up to an hour; an hour without a
    failure forgets a name.
    """

    def __init__(self, failures: int = 3, total: int = 10, most_names: int = 1_000) -> None:
        self._failures = failures
        self._most_names = most_names
        self._recent: deque[int] = deque(maxlen=total)  # times of the last failures of anybody
        self._names: dict[str, tuple[list[int], int, int]] = {}  # times, until, next length

    def note_failure(self, who: str, now: int) -> int:
        """Note that an event of somebody failed; return for how many ms theirs are refused now."""
        times, until, length = self._names.pop(who, ([], 0, _MINUTE))
        if times and now - max(times[-1], until) > 60 * _MINUTE:
            length = _MINUTE
        times = [*(time for time in times if now - time < _MINUTE), now]
        is_busy = len(self._recent) == self._recent.maxlen and now - self._recent[0] < _MINUTE
        self._recent.append(now)
        delay = 0
        if len(times) >= (1 if is_busy else self._failures):
            delay, until, length = length, now + length, min(2 * length, 60 * _MINUTE)
        self._names[who] = (times, until, length)
        while len(self._names) > self._most_names:
            del self._names[next(iter(self._names))]
        return delay

    def find_wait(self, who: str, now: int) -> int:
        """Return for how many ms somebody's events are still refused; 0 if they are not."""
        return max(0, self._names[who][1] - now) if who in self._names else 0


class Pauses:
    """Which parts of a tick failed, and until when each is skipped."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[int, int]] = {}  # until when, and the next pause
        self._culprits: dict[str, Dot] = {}  # at which item a part failed last
        self._set_aside: deque[int] = deque(maxlen=_SET_ASIDE)  # when

    @property
    def has_core_parts(self) -> bool:
        """Whether the core's ticks are done in parts."""
        return any(part in self._parts for part in TICK_PARTS)

    def begin(self, part: str, now: int) -> int:
        """Skip a part that failed; return for how many ms."""
        _, pause = self._parts.get(part, (0, _PAUSE))
        self._parts[part] = (now + pause, min(2 * pause, _LONGEST))
        return pause

    def is_due(self, part: str, now: int) -> bool:
        """Return whether a part is to be done now."""
        return part not in self._parts or now >= self._parts[part][0]

    def end(self, part: str) -> None:
        """Note that a part was done."""
        self._parts.pop(part, None)
        self._culprits.pop(part, None)

    def blame(self, part: str, dot: Dot, now: int) -> bool:
        """Note the item at which a part failed; return whether it is to be set aside."""
        if self._culprits.get(part) != dot:
            self._culprits[part] = dot
            return False
        is_often = len(self._set_aside) == _SET_ASIDE and now - self._set_aside[0] < 60 * _MINUTE
        if not is_often:
            self._set_aside.append(now)
        return not is_often


@dataclass
class Effects:
    """What to do after the commit: outputs of our server, messages for connections, callbacks."""

    outputs: list[Output] = field(default_factory=list)
    outgoing: list[events.Publish] = field(default_factory=list)
    committed: list[Callable[[], None]] = field(default_factory=list)
    has_more: bool = False  # somebody waits for the next turn


class DurableNode:
    """One node between its links and its disk. Without a server it uses somebody else's broker.

    `rebuild` returns a new core with what is in the store; without it a failure is raised.
    """

    def __init__(
        self,
        node: Node,
        store: Storage,
        server: MqttServer | None,
        count: Callable[[events.Count], None],
        stamp: Callable[[int], int] = lambda now: now,
        rebuild: Callable[[], Node] | None = None,
    ) -> None:
        self.node = node
        self.store = store
        self.server = server
        self.peers: dict[str, int] = {}  # links to each peer, whoever opened them
        self._connected: set[str] = set()  # peers whose link we opened
        self._count = count
        self._stamp = stamp
        self._effects = Effects()
        self._waits_since = -1  # when the first turn ended that is not committed
        self.budget = WorkBudget(UNRATIONED)  # `build_node` gives it another
        self.refusals = RefusalSums()
        self._refusals = (0, 0)  # the second, and how many in it
        self._warnings: tuple[int, dict[str, int]] = (0, {})  # the minute, and how many about whom
        self._pauses = Pauses()
        self._rebuild = rebuild
        self._quarantine = Quarantine()
        self._has_failed = False  # a part of the tick that is being done
        self._told: dict[events.Event, None] = {}  # who listens and is linked, as the core knows

    def restore(self, now: int) -> None:
        """Load what an earlier run saved."""
        if self.server is not None:
            self.server.restore(self.store, now)
        self.node.restore()

    @property
    def has_core(self) -> bool:
        """Whether there is a core; for a moment there is none, while it is built again."""
        return hasattr(self, "node")

    # In -------------------------------------------------------------------------------------

    def receive_input(self, event: Input, now: int) -> None:
        """Receive what the listener of our server reports."""
        assert self.server is not None, "there is no listener without a server"
        self._pass_on(self.server.take(event, now), now)

    def receive_event(
        self, event: events.Event, now: int, committed: Callable[[], None] | None = None
    ) -> None:
        """Receive an event of a connection that we opened; call `committed` after the commit."""
        if isinstance(event, events.PeerUp):
            self._connected.add(event.name)
        elif isinstance(event, events.PeerDown):
            self._connected.discard(event.name)
        self._feed(event, now)
        if committed is not None:
            self._effects.committed.append(committed)

    def tick(self, now: int) -> None:
        """Do what is due."""
        if self.server is not None:
            # What it was about to send or write when it failed stays queued in it.
            server = self.server
            self.attempt("server", lambda: self._pass_on(server.tick(now), now), now)
        if not self._pauses.has_core_parts:
            self._feed(events.Tick(), now)
        else:
            for part in TICK_PARTS:
                self.attempt(part, partial(self._feed, events.Tick(part), now), now)
        self._report_refusals(now)

    def attempt(self, part: str, work: Callable[[], None], now: int) -> None:
        """Do a part of what is due every tick, unless it is skipped because it failed.

        What it raises itself, and not the core in an event, must have changed nothing.
        """
        if not self._pauses.is_due(part, now):
            return
        self._has_failed = False
        try:
            work()
        except (StoreError, MemoryError, OSError):
            raise
        except Exception as error:
            if self._rebuild is None:
                raise
            self._skip(part, error, now)
        if not self._has_failed:
            self._pauses.end(part)

    def go_on(self, now: int) -> None:
        """Let those go on who waited for the next turn."""
        if self.server is not None:
            self._pass_on(self.server.resume(now), now)

    def set_clock(self, offset: int, now: int) -> None:
        """Tell the core that somebody set the machine's clock."""
        self._feed(events.ClockSet(offset), now)

    def publish(self, message: events.Publish, now: int) -> None:
        """Publish a message of the process itself: its status."""
        self._route(deque(), message, now)

    def log(self, kind: str, fields: Mapping[str, object], now: int) -> None:
        """Write a record of the process itself: its start, its end."""
        self.store.apply((), [encode_record(kind, fields, now, self._stamp(now))])

    def report_server(self, now: int) -> None:
        """Publish the server's counts under $SYS."""
        if self.server is not None:
            self._pass_on(self.server.report(now), now)

    def say_goodbye(self, now: int) -> None:
        """Tell clients that the node stops, as far as their protocol has a word for it."""
        if self.server is not None:
            self._pass_on(self.server.say_goodbye(), now)

    def list_users(self) -> list[str]:
        """Return the names of those who are connected."""
        return [] if self.server is None else self.server.list_users()

    def expel(self, user: str, now: int) -> None:
        """Close the links of somebody whose key was revoked."""
        if self.server is not None:
            self._pass_on(self.server.expel(user, now), now)

    def forget_device(self, name: str, now: int) -> bool:
        """Let a device begin anew; it is disconnected, so that it says hello. False: unknown."""
        devices = self.node.protocols.devices
        found: list[bool] = []

        def forget(transaction: Transaction) -> None:
            found.append(devices is not None and devices.forget_device(transaction, name))

        publishes, _ = self._apply(self.node.perform(forget, now), now)
        arrived: deque[events.Event] = deque()
        for publish in publishes:
            self._route(arrived, publish, now)
        self._drain(arrived, now)
        self.expel(name, now)
        return found[0]

    # Out ------------------------------------------------------------------------------------

    def commit(self) -> Effects:
        """Make everything durable; return what is to be done now."""
        self._waits_since = -1
        self.store.commit()
        effects, self._effects = self._effects, Effects()
        effects.has_more = self.budget.is_turn_over
        self.budget.end_turn()
        return effects

    def end_turn(self, now: int) -> Effects:
        """Commit; if somebody waits for the next turn, let a few of them share one commit."""
        if self._waits_since < 0:
            self._waits_since = now
        if self.budget.is_turn_over and now - self._waits_since < _GROUP:
            self.budget.end_turn()
            return Effects(has_more=True)
        return self.commit()

    # Inside ---------------------------------------------------------------------------------

    def _pass_on(self, outputs: list[Output], now: int) -> None:
        """Keep what is for the listener, and pass the rest to the core."""
        arrived: deque[events.Event] = deque()
        self._sort_out(outputs, arrived, now)
        while arrived:
            event = arrived.popleft()
            if type(event) is events.Acknowledged:
                event = _join_acknowledged(event, arrived)
            elif type(event) is events.Message:
                event = _join_frames(event, arrived)
            self._drain(deque((event,)), now)

    def _sort_out(self, outputs: list[Output], arrived: deque[events.Event], now: int) -> None:
        writes: list[events.Write] = []
        for output in outputs:
            kind = type(output)
            if kind is events.Message or kind is events.Listening or kind is events.Acknowledged:
                self._queue(arrived, output)  # type: ignore[arg-type]
            elif kind is events.Write:
                writes.append(output)  # type: ignore[arg-type]
            elif isinstance(output, ServerRefusal):
                self._count(events.Count("refused_by_server"))
                if output.why.startswith(DEFECT):
                    client = output.user or "a stranger"
                    self._warn(now, client, f"closed a link of {client}: {output.why}")
                self.refusals.add(output, now)
            else:
                self._effects.outputs.append(output)
        if writes:
            self.store.apply(writes, ())

    def _report_refusals(self, now: int) -> None:
        """Write what was refused as sums: lines that a person reads, records of what has none."""
        for refused in self.refusals.take_due(now):
            times = refused.times - refused.logged
            if times:
                fields = {"what": refused.what, "why": refused.why, "who": refused.user}
                optional = {"times": times, "address": refused.address}
                self.log("refuse", {**fields, **optional}, now)
            self._warn(now, refused.user or refused.address, refused.describe())

    def _may_log_refusal(self, now: int) -> bool:
        second = now // 1000
        if second != self._refusals[0]:
            self._refusals = (second, 0)
        self._refusals = (second, self._refusals[1] + 1)
        return self._refusals[1] <= _REFUSALS

    def _feed(self, event: events.Event, now: int) -> None:
        """Let the core handle an event, and everything that follows from it at once."""
        arrived: deque[events.Event] = deque()
        self._queue(arrived, event)
        self._drain(arrived, now)

    def _drain(self, arrived: deque[events.Event], now: int) -> None:
        while arrived:
            event = arrived.popleft()
            who = find_sender(event)
            wait = self._quarantine.find_wait(who, now)
            if wait and not _is_leaving(event):
                self._refuse_unread(arrived, event, who, wait, now)
                continue
            before = self.budget.read_cpu()
            try:
                publishes, counts = self._handle(event, now)
                is_failed = False
            except (StoreError, MemoryError):
                raise
            except Exception as error:
                if self._rebuild is None:
                    raise
                if not who:
                    self._skip_failed(arrived, event, error, now)
                    continue
                if isinstance(event, events.Message) and event.others:
                    self._split(arrived, event, error)
                    continue
                self._refuse_failed(arrived, event, who, error, now)
                publishes, counts, is_failed = [], [], True
            if who and not isinstance(event, events.Acknowledged):
                # A report of what an app received is as many small events as were delivered.
                parts, is_refused = _sum_up(counts)
                messages = 1 + len(event.others) if isinstance(event, events.Message) else 1
                cost = self.budget.read_cpu() - before
                is_refused = is_refused or is_failed
                self.budget.charge(who, cost, is_refused, now, max(messages, parts), messages)
            for publish in publishes:
                self._route(arrived, publish, now)

    def _handle(
        self, event: events.Event, now: int
    ) -> tuple[list[events.Publish], list[events.Count]]:
        """Let the core handle one event; store what follows, return what is to be published, and
        what was counted.

        If it raises, nothing has been stored.
        """
        if _is_leaving(event):
            self._told.pop(_find_coming(event), None)
        # Nobody tells a device's owner what a person is told in a reply: the node's log does.
        is_device = isinstance(event, events.Message) and event.topic.startswith(events.DEVICES)
        stored = self._apply(self.node.handle(event, now), now, is_device=is_device)
        if type(event) is events.PeerUp or (type(event) is events.Listening and event.is_up):
            self._told[event] = None
        return stored

    def _apply(
        self, actions: list[events.Action], now: int, *, is_device: bool = False
    ) -> tuple[list[events.Publish], list[events.Count]]:
        """Store what the core decided; return what is to be published, and what was counted."""
        writes: list[events.Write] = []
        logs: list[bytes] = []
        publishes: list[events.Publish] = []
        counts: list[events.Count] = []
        for action in actions:
            kind = type(action)
            if kind is events.Write:
                writes.append(action)  # type: ignore[arg-type]
            elif kind is events.Publish:
                publishes.append(action)  # type: ignore[arg-type]
            elif kind is events.Log:
                assert isinstance(action, events.Log)
                if action.kind == "refuse":
                    is_logged = self._may_log_refusal(now)
                    if is_device or not is_logged:
                        text = {key: str(value) for key, value in action.fields.items()}
                        refusal = ServerRefusal(0, text["who"], text["what"], text["why"])
                        self.refusals.add(refusal, now, is_logged=is_logged)
                    if not is_logged:
                        continue
                logs.append(encode_record(action.kind, action.fields, now, self._stamp(now)))
            else:
                counts.append(action)  # type: ignore[arg-type]
        if writes or logs:
            self.store.apply(writes, logs)
        for count in counts:
            self._count(count)
        return publishes, counts

    # Refusing an event ----------------------------------------------------------------------

    def _refuse_failed(
        self,
        arrived: deque[events.Event],
        event: events.Event,
        who: str,
        error: Exception,
        now: int,
    ) -> None:
        """Refuse an event that made the core fail, and build the core again."""
        why = describe_defect(error)
        delay = self._quarantine.note_failure(who, now)
        if delay:
            why += f"; refusing all from here for {delay // 1000} s"
        self._warn(now, who, f"refused {_name_event(event)} of {who}: {why}", error)
        self._build_again(arrived, error)
        self._count(events.Count("events_failed", label=type(error).__name__))
        self._log_refusal(event, who, why, now)
        self._answer(arrived, event, f"the node could not handle this: {why}", now)

    def _skip_failed(
        self, arrived: deque[events.Event], event: events.Event, error: Exception, now: int
    ) -> None:
        """Skip what the node was to do by itself and failed at; a whole tick is done in parts."""
        if event == events.Tick():
            arrived.extendleft(events.Tick(part) for part in reversed(TICK_PARTS))
        else:
            part = event.part if isinstance(event, events.Tick) else _name_event(event)
            culprit = find_culprit(error, self.store)
            self._skip(part, error, now, "" if culprit is None else _name_item(*culprit))
            if culprit is not None and self._pauses.blame(part, culprit[1], now):
                self.store.apply(set_aside(self.store, *culprit, now), ())
                self._warn(now, part, f"set aside {_name_item(*culprit)}")
                self._count(events.Count("items_set_aside", label=KINDS[culprit[0]]))
        self._build_again(arrived, error)

    def _skip(self, part: str, error: Exception, now: int, item: str = "") -> None:
        """Skip a part of the ticks for a while, and report why."""
        self._has_failed = True
        pause = self._pauses.begin(part, now)
        why = describe_defect(error) + (f" at {item}" if item else "")
        text = f"skipping {part} for {pause // 1000} s: {why}"
        self._warn(now, part, text, error)
        self._count(events.Count("ticks_failed", label=part))
        self.log("trouble", {"what": f"tick: {part}", "detail": why}, now)

    def _split(self, arrived: deque[events.Event], event: events.Message, error: Exception) -> None:
        """Let the core handle one by one what failed together: only the bad one is refused."""
        alone = [event._replace(payload=each, others=()) for each in (event.payload, *event.others)]
        arrived.extendleft(reversed(alone))
        self._build_again(arrived, error)

    def _build_again(self, arrived: deque[events.Event], error: Exception) -> None:
        """Build the core again from the store; it is told first who listens."""
        assert self._rebuild is not None
        error.__traceback__ = None  # it holds the old core, which has to go before the new one
        del self.node
        self.node = self._rebuild()
        arrived.extendleft(reversed(self._told))
        self._told.clear()

    def _refuse_unread(
        self, arrived: deque[events.Event], event: events.Event, who: str, wait: int, now: int
    ) -> None:
        why = f"in quarantine for {-(-wait // 1000)} s: the node failed at earlier messages"
        self._count(events.Count("events_unread"))
        if self._may_log_refusal(now):
            self._log_refusal(event, who, why, now)
        self._answer(arrived, event, why, now)

    def _log_refusal(self, event: events.Event, who: str, why: str, now: int) -> None:
        fields: dict[str, object] = {"what": _name_event(event), "why": why, "who": who}
        if isinstance(event, events.Message):
            fields["bytes"] = len(event.payload)
        self.log("refuse", fields, now)

    def _answer(
        self, arrived: deque[events.Event], event: events.Event, why: str, now: int
    ) -> None:
        """Answer a request that was refused."""
        asked = events.REQUESTS, events.REPORTS
        if not isinstance(event, events.Message) or not event.topic.startswith(asked):
            return
        name = event.topic.rpartition("/")[2]
        if event.sender in ("", name) and event.topic in [prefix + name for prefix in asked]:
            body = {"ok": False, "error": why, "at": None}
            reference = read_reference(event.payload)
            if reference is not None:
                body["request"] = reference
            payload = json.dumps(body).encode()
            topic = event.response or events.REPLIES + name
            reply = events.Publish(topic, payload, correlation=event.correlation)
            self._route(arrived, reply, now)

    def _warn(self, now: int, who: str, text: str, error: Exception | None = None) -> None:
        """Warn in the process's own log, a few times a minute about each client."""
        if self._warnings[0] != now // _MINUTE:
            self._warnings = (now // _MINUTE, {})
        counts = self._warnings[1]
        who = who if who in counts or len(counts) < _WARNED else ""
        counts[who] = counts.get(who, 0) + 1
        if counts[who] <= _WARNINGS:
            trace = "" if error is None else "".join(format_tb(error.__traceback__))
            _log.warning("%s%s", text, trace and "\n" + trace)  # its text may be a stranger's

    def _route(self, arrived: deque[events.Event], publish: events.Publish, now: int) -> None:
        topic = publish.topic
        is_outgoing = self.server is None or (
            topic.startswith(events.PEERS) and topic.removeprefix(events.PEERS) in self._connected
        )
        if is_outgoing:
            self._effects.outgoing.append(publish)
        elif self.server is not None:
            self._sort_out(self.server.publish(publish, now), arrived, now)

    def _queue(self, arrived: deque[events.Event], event: events.Event) -> None:
        """Queue an event for the core; a peer comes and goes once, however many links there are."""
        if isinstance(event, events.Listening) and event.topic.startswith(events.PEERS):
            name = event.topic.removeprefix(events.PEERS)
            event = events.PeerUp(name) if event.is_up else events.PeerDown(name)
        if isinstance(event, events.PeerUp):
            self.peers[event.name] = self.peers.get(event.name, 0) + 1
            if self.peers[event.name] > 1:
                return
        elif isinstance(event, events.PeerDown):
            left = self.peers.pop(event.name, 0) - 1
            if left > 0:
                self.peers[event.name] = left
            if left:
                return
        arrived.append(event)


# Events ------------------------------------------------------------------------------------


def find_sender(event: events.Event) -> str:
    """Return whom an event comes from; "" for what a node does by itself."""
    if isinstance(event, events.PeerUp | events.PeerDown):
        return event.name
    if isinstance(event, events.Message) and event.sender:
        return event.sender
    if isinstance(event, events.Message | events.Listening | events.Acknowledged):
        # The fourth level of a topic is a name; a topic without one is its own.
        return "".join(event.topic.split("/")[3:4]) or event.topic
    return ""


def _sum_up(counts: list[events.Count]) -> tuple[int, bool]:
    """Return how many notifications were delivered, and whether anything was refused."""
    delivered, is_refused = 0, False
    for name, amount, _ in counts:
        if name == "notes_delivered":
            delivered += amount
        elif name.endswith("_refused"):
            is_refused = True
    return delivered, is_refused


def _join_acknowledged(
    first: events.Acknowledged, arrived: deque[events.Event]
) -> events.Acknowledged:
    """Return an acknowledgement with those of the same topic that came right after it."""
    others = []
    while arrived:
        event = arrived[0]
        if type(event) is not events.Acknowledged or event.topic != first.topic:
            break
        others.append(event.token)
        arrived.popleft()
    return events.Acknowledged(first.topic, first.token, tuple(others)) if others else first


def _join_frames(first: events.Message, arrived: deque[events.Event]) -> events.Message:
    """Return a device's frame of notifications with those that came right after it."""
    if not (first.topic.startswith(events.DEVICES) and first.topic.endswith("/nv")):
        return first
    others = []
    while arrived:
        event = arrived[0]
        if type(event) is not events.Message or event[:2] != first[:2]:
            break
        others.append(event.payload)
        arrived.popleft()
    return first._replace(others=tuple(others)) if others else first


def _name_event(event: events.Event) -> str:
    """Return what the log calls an event."""
    return event.topic if isinstance(event, events.Message) else type(event).__name__.lower()


def _name_item(kind: int, dot: Dot) -> str:
    """Return what the log calls an item."""
    return f"the {KINDS[kind]} {dot.id:016x} of {dot.origin}"


def _is_leaving(event: events.Event) -> bool:
    return type(event) is events.PeerDown or (type(event) is events.Listening and not event.is_up)


def _find_coming(event: events.Event) -> events.Event:
    """Return the coming of whoever leaves by an event."""
    if isinstance(event, events.PeerDown):
        return events.PeerUp(event.name)
    assert isinstance(event, events.Listening)
    return events.Listening(event.topic, True)
