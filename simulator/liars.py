"""Those who lie with good keys: a member of the site, a device, a subscriber, an operator.

What they say is made in `generated_lies.py`; here it is signed, sealed and sent. `LiesTold` keeps
what was said of others, for the checks in `whole_checks.py`: that it changed nothing of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from denwatch.node.core.events import (
    DEVICES,
    NOTES,
    OPERATORS,
    REPLIES,
    REQUESTS,
    Listening,
    Message,
)
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import (
    BY,
    DELIVERED,
    KINDS,
    NEVER,
    NOTIFICATION,
    REMOVAL,
    REVOCATION,
    SUBSCRIPTION,
    DeliveredBody,
    Dot,
    Item,
    NotificationBody,
    RemovalBody,
    SubscriptionBody,
    decode_body,
    encode_body,
)
from denwatch.node.replication.dot_sets import Run, Spans
from denwatch.node.replication.wire import ITEMS, ItemBatch, SentItem, encode_item_batch
from denwatch.node.security import notices
from denwatch.node.security.cards import seal_box
from denwatch.node.store.interface import StoreError
from denwatch.protocol import frames, subscription
from denwatch.protocol.vectors import Predicate, SubscriptionVector

from simulator.device import seal_as_device
from simulator.evidence import list_honest
from simulator.generated_lies import (
    Facts,
    draw_dot,
    draw_expiry,
    make_body,
    make_frame,
    make_hello,
    make_operator_frame,
    make_registration,
    make_request,
    make_vector,
)
from simulator.hosted_node import HostedNode
from simulator.keyrings import hash_of
from simulator.keys import KEY_ID
from simulator.registry import fault
from simulator.whole_scenarios import MAD, MALLORY, OLGA, POST, WHOLE

if TYPE_CHECKING:
    from simulator.faults import Play

_MEET = 3_000  # ms from a contact to an open exchange
_AHEAD = 60  # numbers that a receipt runs ahead
_AGAIN = 1_500  # ms between two of the same requests: a node that fell is up again
_FLOOD = 400
_LONG_LIFE = 24 * 3_600_000  # ms; longer than a scenario
_TWIN = subscription.encode(SubscriptionVector(3, [Predicate(0, 1, 2)]))  # nobody asks for this


@dataclass
class LiesTold:
    """What was said of others, in one scenario."""

    received: set[tuple[str, int]] = field(default_factory=set)  # person and note, by id
    dead: set[int] = field(default_factory=set)  # items, by id
    replaced: set[int] = field(default_factory=set)  # subscriptions with a name, by id
    # Subscribers and devices that others registered, with the nodes that knew it before the lie:
    # elsewhere a name belongs to whoever speaks of it first, until the authority rules.
    names: dict[str, set[str]] = field(default_factory=dict)
    # Readings of a device that speaks elsewhere, with the nodes that knew that before the lie.
    readings: dict[Dot, set[str]] = field(default_factory=dict)
    count: int = 0


def find_lies(play: Play) -> LiesTold:
    """Return what was said so far."""
    lies: LiesTold = play.__dict__.setdefault("lies_told", LiesTold())
    return lies


# A member of the site -------------------------------------------------------------------------


def _find_liar(play: Play) -> HostedNode:
    """Return the node that lies; whoever is with it is lied to."""
    host = play.world.hosts[play.scenario.names[-1]]
    play.truth.liars.add(host.name)
    return host


def _find_facts(play: Play, host: HostedNode, device: str = MAD) -> Facts:
    lies = find_lies(play)
    lies.count += 1
    honest = [other for name, other in play.world.hosts.items() if name != host.name]
    return Facts(
        host.name,
        host.medium.epoch,
        20_000 + 10 * lies.count,
        host.time,
        play.world.vocabulary_hash,
        device,
        MALLORY,
        [other.name for other in honest],
        [other.medium.epoch for other in honest],
    )


def _tell_peers(play: Play, host: HostedNode, tell: Callable[[Any, Transaction], None]) -> None:
    """Let a node say something in all its exchanges; before, it meets somebody."""

    def act() -> None:
        def speak(transaction: Transaction) -> None:
            for session in list(host.peers.sessions.values()):
                tell(session, transaction)

        play.world.act(host.name, speak)

    if host.is_up and host.peers.sessions:
        act()
        return
    other = play.node(find_lies(play).count % (play.scenario.nodes - 1))
    play.world.meet(host.name, other, True)
    play.world.calendar.wait(_MEET, act)


def _sign(host: HostedNode, dot: Dot, kind: int, expires: int, body: bytes) -> Item:
    item = Item(dot, kind, expires, body)
    return Item(dot, kind, expires, body, host.keys.sign(item.signed))


def _send_items(
    play: Play,
    host: HostedNode,
    items: list[Item],
    dead: tuple[tuple[Run, Spans], ...] = (),
) -> None:
    play.truth.lies |= {item.dot.id for item in items}
    sent = tuple(SentItem(item, 0, 1) for item in items)
    body = encode_item_batch(ItemBatch(dead, (), sent))
    _tell_peers(
        play,
        host,
        lambda session, transaction: session.channel.send(transaction, ITEMS, body),
    )


@fault("lying-items")
def lie_in_items(play: Play, first: int, second: int) -> None:
    """Let a member make items of its own that are nearly right, and sign them."""
    rng = Random(first << 16 | second)
    host = _find_liar(play)
    items = []
    for _ in range(2 + second % 7):
        facts = _find_facts(play, host)
        kind = rng.choice((SUBSCRIPTION, *KINDS))
        dot, expires = draw_dot(rng, facts), draw_expiry(rng, facts)
        items.append(_sign(host, dot, kind, expires, make_body(rng, facts, kind)))
    _send_items(play, host, items)


@fault("lying-readings")
def lie_in_readings(play: Play, first: int, second: int) -> None:
    """Let a member make readings of a device that speaks through another node."""
    if not play.scenario.dial(WHOLE):
        return
    host = _find_liar(play)
    rng = Random(first << 16 | second)
    knew = {
        node.name
        for node in list_honest(play)
        if node.keyring._builder.list_places(POST)  # type: ignore[attr-defined]
    }
    facts = _find_facts(play, host)
    dot = Dot(host.name, facts.epoch, facts.sequence)
    vector = make_vector(rng, is_sound=True)
    body = NotificationBody(POST, 1, facts.sequence, host.time, 10, facts.vocabulary, vector)
    find_lies(play).readings[dot] = knew
    end = host.time + _LONG_LIFE
    _send_items(play, host, [_sign(host, dot, NOTIFICATION, end, encode_body(body))])


@fault("lying-frames")
def lie_in_frames(play: Play, first: int, second: int) -> None:
    """Let a member change what it says in an exchange, under a good tag."""
    rng = Random(first << 16 | second)
    host = _find_liar(play)
    facts = _find_facts(play, host)

    def twist(session: Any, transaction: Transaction) -> None:
        send, left = session.channel.send, [4]

        def lie(turn: Transaction, kind: int, body: bytes, *, is_flagged: bool = False) -> None:
            if left[0] and rng.random() < 0.5:
                left[0] -= 1
                body = make_frame(rng, facts, kind, body)
            send(turn, kind, body, is_flagged=is_flagged)

        session.channel.send = lie
        session.begin(transaction)

    _tell_peers(play, host, twist)


@fault("lying-receipts")
def lie_in_receipts(play: Play, first: int, second: int) -> None:
    """Let a member say that somebody has notes that do not exist yet."""
    host = _find_liar(play)
    facts = _find_facts(play, host)
    other = play.world.hosts[play.node(second % (play.scenario.nodes - 1))]
    person = play.person(first)
    run = (other.name, other.medium.epoch)
    seen = other.item_store.context.runs.get(run)
    start = 1 + (seen.base + seen.bitmap.bit_length() if seen else 0)
    dots = [Dot(*run, start + n) for n in range(_AHEAD)]
    find_lies(play).received |= {(person, dot.id) for dot in dots}
    body = encode_body(DeliveredBody(person, [list(dot) for dot in dots]))
    dot = Dot(host.name, facts.epoch, facts.sequence)
    _send_items(play, host, [_sign(host, dot, DELIVERED, NEVER, body)])


@fault("lying-deaths")
def lie_in_deaths(play: Play, first: int, second: int) -> None:
    """Let a member say that subscriptions of other nodes were removed."""
    host = _find_liar(play)
    live = host.item_store.live[SUBSCRIPTION]
    runs = sorted(run for run in live if run[0] != host.name)
    if runs:
        run = runs[(first + second) % len(runs)]
        numbers = sorted(live[run])
        find_lies(play).dead |= {Dot(*run, number).id for number in numbers}
        _send_items(play, host, [], ((run, _join(tuple((n, n) for n in numbers))),))


def _choose_others(play: Play, host: HostedNode, number: int) -> list[tuple[Dot, SubscriptionBody]]:
    """Return subscriptions that people made at another node, as a member knows them."""
    try:
        held = list(host.item_store.iterate(host.store, SUBSCRIPTION))
    except StoreError:
        return []  # its own disk does not let it read them
    others = sorted({item.dot.origin for item in held} - {host.name})
    node = others[number % len(others)] if others else ""
    bodies = [(item.dot, decode_body(SubscriptionBody, item.body)) for item in held]
    people = play.world.people
    return [each for each in bodies if each[0].origin == node and each[1].owner in people]


@fault("lying-removals")
def lie_in_removals(play: Play, first: int, second: int) -> None:
    """Let a member make removals of what people asked for elsewhere: unsigned, signed by itself."""
    host = _find_liar(play)
    for dot, body in _choose_others(play, host, first):
        find_lies(play).dead.add(dot.id)
        by = ("", body.options.get(BY, ""), "A" * 128)[second % 3]
        facts = _find_facts(play, host)
        own = Dot(host.name, facts.epoch, facts.sequence)
        removal = encode_body(RemovalBody([list(dot)], by))
        _send_items(play, host, [_sign(host, own, REMOVAL, NEVER, removal)])


@fault("lying-twins")
def lie_in_twins(play: Play, first: int, second: int) -> None:
    """Let a member subscribe in the name of people, to something else, by names that they use."""
    host = _find_liar(play)
    for dot, body in _choose_others(play, host, first):
        if "name" not in body.options:
            continue
        find_lies(play).replaced.add(dot.id)
        facts = _find_facts(play, host)
        by = body.options.get(BY, "")  # that of another subscription, or none
        options = {"name": body.options["name"]} | ({BY: by} if by and second & 1 else {})
        created = max(host.time, body.created + 1)
        twin = replace(body, created=created, language=0, vector=_TWIN, options=options)
        own = Dot(host.name, facts.epoch, facts.sequence)
        _send_items(play, host, [_sign(host, own, SUBSCRIPTION, NEVER, encode_body(twin))])


def _join(spans: Spans) -> Spans:
    """Return a set without neighbours."""
    joined: list[tuple[int, int]] = []
    for low, high in spans:
        if joined and joined[-1][1] + 1 >= low:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def _choose_name(play: Play, rng: Random, host: HostedNode) -> str:
    """Return a name that another node registered, "" if there is none."""
    homes: dict[str, str] = play.world.site.homes  # type: ignore[attr-defined]
    theirs = sorted(name for name, home in homes.items() if home != host.name and name != POST)
    name = rng.choice(theirs) if theirs else ""
    if name:
        knew = find_lies(play).names.setdefault(name, set())
        for node in list_honest(play):
            keyring = node.keyring  # type: ignore[attr-defined]
            if keyring.find_owner(name) == homes[name]:
                knew.add(node.name)
    return name


def _send_notices(play: Play, host: HostedNode, bodies: list[bytes]) -> None:
    items = []
    for body in bodies:
        facts = _find_facts(play, host)
        dot = Dot(host.name, facts.epoch, facts.sequence)
        items.append(_sign(host, dot, REVOCATION, NEVER, body))
    _send_items(play, host, items)


@fault("lying-registrations")
def lie_in_registrations(play: Play, first: int, second: int) -> None:
    """Let a member register names that other nodes registered, with keys of its own."""
    rng = Random(first << 16 | second)
    host = _find_liar(play)
    name = _choose_name(play, rng, host) if play.scenario.dial(WHOLE) else ""
    if not name:
        return
    is_device = play.world.site.find_kind(name) == "device"  # type: ignore[attr-defined]
    secret = rng.randbytes(32) if is_device else hash_of("mallory's choice")
    data = make_registration(rng, name, 2 - is_device, secret, "operator")
    bodies = []
    for node in play.scenario.names[:-1]:
        secrets = host.keyring._agree(node, "notices")  # type: ignore[attr-defined]
        if secrets:
            context = f"{host.name}\n{node}".encode()
            bodies.append(notices.make_sealed(node, seal_box(secrets[0], context, data)))
    _send_notices(play, host, bodies)


@fault("lying-revocations")
def lie_in_revocations(play: Play, first: int, second: int) -> None:
    """Let a member revoke names that other nodes registered."""
    rng = Random(first << 16 | second)
    host = _find_liar(play)
    name = _choose_name(play, rng, host) if play.scenario.dial(WHOLE) else ""
    if name:
        kind = play.world.site.find_kind(name)  # type: ignore[attr-defined]
        _send_notices(play, host, [notices.make_revocation(kind, name)])


@fault("flood")
def flood(play: Play, first: int, second: int) -> None:
    """Let a member speak of very many runs and notes of its own, and a subscriber ask a lot."""
    host = _find_liar(play)
    facts = _find_facts(play, host)
    if second & 1:
        dead = tuple(((host.name, 1_000 + n), ((1, 1),)) for n in range(_FLOOD))
        notes = [[host.name, 5_000 + n, 1] for n in range(_FLOOD)]
        body = encode_body(DeliveredBody(MALLORY, notes))
        dot = Dot(host.name, facts.epoch, facts.sequence)
        _send_items(play, host, [_sign(host, dot, DELIVERED, NEVER, body)], dead)
        return
    node = play.node(first)
    if play.scenario.dial(WHOLE) and play.world.hosts[node].is_up:
        whole = play.world.whole(node)  # type: ignore[attr-defined]
        whole.crowd(MALLORY, whole.config.limits.links_per_name + 8, play.world.now)
    for number in range(_FLOOD // 4):
        words = f'{{"subscribe": "carbon monoxide is above {number} ppm", "name": "n{number}"}}'
        play.world.give(node, Message(MALLORY, REQUESTS + MALLORY, words.encode()))


# A device, a subscriber, an operator ----------------------------------------------------------


@fault("lying-device")
def lie_as_device(play: Play, first: int, second: int) -> None:
    """Let a device with a good key send frames that are nearly right."""
    rng = Random(first << 16 | second)
    node = play.node(first)
    facts = _find_facts(play, play.world.hosts[node])
    link = frames.Link(MAD, node, KEY_ID, play.world.find_secret(MAD, node))
    for _ in range(1 + second % 4):
        epoch = rng.choice((1, 2, 3, 3, 0xFFFFFFFF))
        sequence = rng.choice((1, 2, 7, 0xFFFF, 0x10000, 0xFFFFFFFF))
        what, kind, body = "hello", frames.MESSAGE, make_hello(rng, facts, epoch)
        if rng.random() < 0.5:
            vectors = [make_vector(rng, sequence) for _ in range(rng.randrange(1, 4))]
            what, kind, body = "nv", frames.NOTIFICATIONS, frames.join_vectors(vectors)
        if len(body) > frames.MAX_LENGTH - frames.OVERHEAD:
            continue  # no frame holds it
        answer = play.world.hosts[node].find_answer(MAD)
        payload = seal_as_device(link, answer, kind, (epoch, sequence), body)
        play.world.give(node, Message(MAD, f"{DEVICES}{MAD}/{what}", payload))


@fault("lying-subscriber")
def lie_as_subscriber(play: Play, first: int, second: int) -> None:
    """Let a subscriber send requests that are nearly right, some of them again and again."""
    rng = Random(first << 16 | second)
    node = play.node(first)
    for topic in (REPLIES, NOTES)[: rng.randrange(3)]:
        play.world.give(node, Listening(topic + MALLORY, True))
    for _ in range(4 + second % 8):
        request = Message(MALLORY, REQUESTS + MALLORY, make_request(rng))
        for again in range(rng.choice((1, 1, 1, 6))):
            play.world.calendar.wait(again * _AGAIN, play.world.give, node, request)


@fault("lying-operator")
def lie_as_operator(play: Play, first: int, second: int) -> None:
    """Let an operator send plans and items that are nearly right."""
    if not play.scenario.dial(WHOLE):
        return
    rng = Random(first << 16 | second)
    node = play.node(first)
    for _ in range(1 + second % 6):
        facts = _find_facts(play, play.world.hosts[node])
        payload = make_operator_frame(rng, facts)
        play.world.give(node, Message(OLGA, OPERATORS + node, payload))
