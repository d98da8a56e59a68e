"""What must hold whatever anybody sends: checks of whole nodes and of those who lie with good keys.

They are made first, and the first that fails is the last: of a site whose nodes were stopped, whose
names were taken or whose people were silenced nothing else is worth asking.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from denwatch.node.core.items import KINDS, NOTIFICATION

from simulator.evidence import (
    FOREVER,
    AskedSubscription,
    has_equal,
    list_asked,
    list_honest,
)
from simulator.keyrings import hash_of, make_secret
from simulator.keys import KEY_ID
from simulator.liars import find_lies
from simulator.registry import CHECKS, FINAL, Violation, check
from simulator.whole_scenarios import MALLORY, POST, WHOLE

if TYPE_CHECKING:
    from simulator.faults import Play
    from simulator.person import Person
    from simulator.whole_node import WholeNode

_MOST_RUNS = 200  # of one node, as others know it
_SIGNED = 64
_PATIENCE = 10_000  # ms after which an item is set aside at which a node fails
FINAL |= {"understood", "unstopped", "damaged", "stores", "back", "own-voice", "unsilenced"}


def _list_whole(play: Play) -> list[WholeNode]:
    if not play.scenario.dial(WHOLE):
        return []
    return [play.world.whole(name) for name in play.scenario.names]  # type: ignore[attr-defined]


@check("damaged", order=-9)
def check_damaged(play: Play) -> None:
    """A node whose disk decays goes on without what decayed: nothing altered is ever used."""
    for host in play.world.hosts.values():
        for space, key in sorted(host.medium.served):
            raise Violation("damaged", f"{host.name} used {key.hex()} of {space}, altered")
        if host.medium.decayed and host.defects:
            spaces = sorted({space for space, _ in host.medium.decayed})
            fact = "at its start" if "at its start" in host.defects[0] else "while it runs"
            raise Violation("damaged", f"{host.name}, {spaces} decayed: {host.defects[0]}", fact)


@check("stores", order=-8)
def check_stores(play: Play) -> None:
    """Both stores hold and answer the same."""
    for host in play.world.hosts.values():
        for defect in host.defects:
            if defect.startswith("StoresDiffer"):
                raise Violation("stores", f"{host.name}: {defect}")


@check("unstopped", order=-7)
def check_unstopped(play: Play) -> Iterator[Violation]:
    """Nobody is stopped by bytes: no exception leaves a node's event loop, whatever was sent."""
    for host in play.world.hosts.values():
        for defect, count in Counter(host.defects).items():
            where = defect.removeprefix("at its start: ").partition(":")[0]  # in which function
            yield Violation("unstopped", f"{host.name}, {count} times: {defect}", where)


@check("set-aside", order=-7)
def check_set_aside(play: Play) -> None:
    """A node that fails at an item in its ticks goes on without it."""
    for host in _list_whole(play):
        for dot in host.poisoned if host.is_up else ():
            for kind in KINDS:
                item = host.item_store.get(host.store, kind, dot)
                if item is not None and item.expires + _PATIENCE < host.time:
                    what = f"{host.name} fails at {dot.id:016x} again and again"
                    raise Violation("set-aside", what)


@check("understood", order=-7)
def check_understood(play: Play) -> None:
    """A configuration that is accepted works: no server refuses the packets of another node."""
    if "oversized" in play.scenario.list_faults():
        return  # somebody speaks as a node, and too long
    for host in _list_whole(play):
        if host.is_up and host.server.counts["malformed"]:
            raise Violation("understood", f"{host.name} closes links: a packet is too long")


@check("back", order=-6)
def check_back(play: Play) -> Iterator[Violation]:
    """Nobody stays down: when there is room again, a node that had a full disk works."""
    for host in _list_whole(play):
        for ending in host.endings:
            where = ending.partition(":")[0]  # the exception, and in which function
            what = where.partition(" in ")[0]
            yield Violation("back", f"{host.name} gave up: {ending}", what, where)


@check("own-voice", order=-5)
def check_own_voice(play: Play) -> None:
    """Nobody speaks for another: names are what the node says that registered them, and readings
    come from nodes through which their device speaks."""
    for host in _list_whole(play):
        for dot, knew in sorted(find_lies(play).readings.items()):
            if host.name in knew and host.is_up and host.item_store.holds(NOTIFICATION, dot):
                what = f"{host.name} has a reading of {POST} that {dot.origin} made up"
                raise Violation("own-voice", what, "reading")
        for name, knew in sorted(find_lies(play).names.items()):
            what = _find_theft(play, host, name) if host.name in knew else ""
            if what:
                is_home = play.world.site.homes[name] == host.name  # type: ignore[attr-defined]
                fact = f"{what} at home" if is_home else what
                raise Violation("own-voice", f"{host.name}, of {name}: it is {what}", fact)


def _find_theft(play: Play, host: WholeNode, name: str) -> str:
    """Return what became of a name at a node by somebody else's word."""
    if host.keyring.is_revoked(name):
        return "revoked"
    app = host.keyring.registrations.subscribers.get(name)
    if app is not None:
        role, password = play.world.roster.roles[name], hash_of(name)
        return "" if (app.role, app.passwords.get(1)) == (role, password) else "registered anew"
    if name not in host.keyring.registrations.devices:
        return "unknown"
    return "" if _has_key(host, name) else "registered anew"


def _has_key(host: WholeNode, device: str) -> bool:
    if host.keyring.list_key_ids(device) != [KEY_ID]:
        return False
    return host.keyring._find_device_secret(device, KEY_ID) == make_secret(device, host.name)


@check("unsilenced", order=-4)
def check_unsilenced(play: Play) -> None:
    """Nobody is silenced: what is theirs stays, and comes, whatever somebody says of it."""
    lies = find_lies(play)
    lost = play.truth.find_lost()
    for person in play.world.people.values():
        for asked in list_asked(person):
            id = int(asked.id, 16)
            if id in lost or asked.until != FOREVER or not _is_left(person, asked):
                continue
            for ids, said in ((lies.dead, "forget"), (lies.replaced, "replace")):
                for host in list_honest(play) if id in ids else ():
                    if not has_equal(host, asked):
                        what = f"{person.name}: {host.name} was told to {said} {asked.id}"
                        raise Violation("unsilenced", what, said)
    claimed = {f"{name} never saw {id:016x}" for name, id in lies.received}
    for name in ("arrived", "best") if claimed else ():
        for violation in _find_broken(play, name):
            if any(claim in str(violation) for claim in claimed):
                raise Violation("unsilenced", f"a receipt came first, {violation}", "receipts")


def _is_left(person: Person, asked: AskedSubscription) -> bool:
    """Return whether somebody surely still wants what they asked for: nothing else names it."""
    name = asked.request.get("name")
    if name is None:
        return True
    named = (request.body for request in person.requests.values())
    return sum(name in json.dumps(body) or asked.id in json.dumps(body) for body in named) == 1


def _find_broken(play: Play, name: str) -> list[Violation]:
    try:
        return list(CHECKS[name][1](play) or ())
    except Violation as violation:
        return [violation]


@check("frugal")
def check_frugal(play: Play) -> Iterator[Violation]:
    """Resources are bounded: one name cannot make a node keep as much as it likes."""
    for host in play.world.hosts.values():
        if not host.is_up:
            continue
        origins = Counter(origin for origin, _ in host.item_store.context.runs)
        for origin, count in origins.items():
            if count > _MOST_RUNS:
                yield Violation("frugal", f"{host.name} keeps {count} runs of {origin}", "runs")
        rows = sum(1 for key in host.medium.spaces.get("sub.done", ()) if MALLORY.encode() in key)
        if rows > _MOST_RUNS:
            what = f"{host.name} keeps {rows} receipts of notes that nobody made"
            yield Violation("frugal", what, "receipts")
    for host in _list_whole(play):
        limits, sessions = host.config.limits, host.server.sessions
        owned = host.subscribers._subscriptions.subscribers.get(MALLORY)
        counts = {
            "sessions": (len(sessions.all), limits.sessions),
            "messages in a queue": (
                max((len(each.queue) for each in sessions.all.values()), default=0),
                limits.queue + limits.window,
            ),
            "bytes in queues": (sessions.bytes, limits.total_queue_bytes),
            "links of one name": (host.server.budget.count(MALLORY), limits.links_per_name),
            "retained messages": (sessions.retained.count, limits.retained),
            # What a member signed for somebody counts besides what that one asked for here.
            "subscriptions of one name": (
                len(owned.subscriptions) if owned else 0,
                limits.requests_per_subscriber + _SIGNED,
            ),
        }
        for what, (count, most) in counts.items():
            if count > most:
                yield Violation("frugal", f"{host.name}: {count} {what}, {most} are allowed", what)
