"""What else happens at a site: sleeping, erased and changed devices, odd clients, other words.

Each happening is one function of a play and two numbers; `faults.py` has the others. What is still
wrong when the trouble ends is mended by `mend_life`.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

from denwatch.node.core.events import DEVICES, REPORTS, REQUESTS, Message
from denwatch.node.core.item_store import Transaction
from denwatch.protocol import frames, notification
from denwatch.protocol.vectors import NotificationVector, Reading

from simulator.calendar import START
from simulator.device import seal_as_device
from simulator.keys import KEY_ID, make_device_secret
from simulator.person import BROKEN
from simulator.registry import dial, fault, on_heal, ordinary
from simulator.setup import load_vocabulary
from simulator.world import CLOSED, SILENT

if TYPE_CHECKING:
    from simulator.faults import Play

_OPERATOR = 8_000  # ms until an operator has dealt with a device
_PROBE = 20_000  # ms between two looks at who is said to be there
_RESTLESS, _PAUSE = 12, 900  # reconnections, ms between them


# People ---------------------------------------------------------------------------------------


@ordinary("ask", weight=3)
def ask(play: Play, first: int, _: int, body: str) -> None:
    """Let somebody ask for what was drawn from the grammar."""
    request = json.loads(body)
    if first >> 8 & 3 == 0:
        request["name"] = f"asked-{first >> 10 & 1}"
    play.world.ask(play.person(first), request)


@ordinary("report")
def report(play: Play, first: int, second: int) -> None:
    """Let somebody report in words what they see of a patient; no report of theirs is like another.

    Who has no answer yet when they walk reports the same at the next node.
    """
    name = play.person(first)
    rate = 20 + len(play.world.people[name].requests) % 220
    pulse = (f"about {rate}", f"{rate} to {rate + 9}", f"{rate}±4")[second % 3]
    more = ("", ", temperature is high", ", temp somewhat high", ", triage at least red")
    play.world.ask(name, {"report": f"patient: pulse {pulse}{more[second >> 2 & 3]}"})


@fault("vanish")
def vanish(play: Play, first: int, second: int) -> None:
    """Let somebody walk out of range without a word, and turn up at another node later."""
    name = play.person(first)
    play.world.move_person(name, "", SILENT)
    play.world.calendar.wait(second % 60_000, play.world.move_person, name, play.node(second >> 8))


@fault("restless")
def reconnect_often(play: Play, first: int, second: int) -> None:
    """Let a client reconnect again and again."""
    name = play.person(first)

    def reconnect() -> None:
        play.world.move_person(name, play.world.people[name].node, (CLOSED, SILENT)[second & 1])

    for number in range(_RESTLESS):
        play.world.calendar.wait(number * _PAUSE, reconnect)


@fault("garbage")
def send_garbage(play: Play, first: int, second: int) -> None:
    """Let a client send what is no request."""
    person, rng = play.world.people[play.person(first)], Random(second)
    if not person.node:
        return
    noise = rng.randbytes(rng.randrange(1, 200))
    for payload in (
        noise,
        b"",
        b"{" * (second % 3_000),
        b'{"subscribe": {"when": ' * (second % 300),
        b"\xa1\x67content\x81\x83\x61x" + noise,
        json.dumps({"received": [f"{rng.getrandbits(64):016x}"] * 9}).encode(),
        json.dumps({"content": [["event", "=", "patient"], ["heart_rate", ">", 1e999]]}).encode(),
        json.dumps({"subscribe": "heart rate is high, valid for 1e300 d"}).encode(),
    ):
        for topic in (REQUESTS, REPORTS):
            play.world.give(person.node, Message(person.name, topic + person.name, payload))


@fault("demoted")
def demote(play: Play, first: int, _: int) -> None:
    """Give somebody a role that sees less."""
    name = play.person(first)
    play.world.roster.roles[name] = "helper"
    play.truth.demoted.setdefault(name, play.world.now)


# Devices --------------------------------------------------------------------------------------


@ordinary("nap")
def nap(play: Play, first: int, second: int) -> None:
    """Let a device sleep deeply."""
    play.world.put_to_sleep(play.device(first), 5_000 + second % 60_000)


@fault("device-killed")
def kill_device(play: Play, first: int, second: int) -> None:
    """Let a device be dead for minutes; its connection may stay open."""
    way = (CLOSED, SILENT)[second & 1]
    play.world.kill_device(play.device(first), 30_000 + second * 4, way)


@fault("reflash")
def reflash(play: Play, first: int, second: int) -> None:
    """Erase a device's memory with a new firmware; an operator lets it begin anew a bit later."""
    name = play.device(first)
    play.world.kill_device(name, 2_000 + second % 4_000)
    device = play.world.devices[name]
    device.erase((first * 40_503 + device.life * 2_654_435_761) % (1 << 28))
    play.forget_heard(name)  # its key is a new one: what was overheard is worth nothing
    wait = _OPERATOR * (1, 1, 4, 16)[second >> 12 & 3]
    play.world.calendar.wait(wait, forget_device, play, name)


def forget_device(play: Play, name: str) -> None:
    """Let all nodes that are up forget what they know of a device that began anew."""
    device = play.world.devices[name]
    for host in play.world.hosts.values():
        if not host.is_up or play.truth.heard.get((host.name, name), device.life) == device.life:
            continue

        def forget(transaction: Transaction, protocol: object = host.devices) -> None:
            protocol.forget_device(transaction, name)  # type: ignore[attr-defined]

        play.truth.forgotten[host.name, name] = device.life
        play.world.act(host.name, forget)
        if device.node == host.name:
            play.world.move_device(name, host.name)


@fault("other-sensors")
def change_sensors(play: Play, first: int, second: int) -> None:
    """Put other sensors on a device: its next hello says so."""
    name = play.device(first)
    number = int(name.rpartition("-")[2])
    device = play.world.devices[name]
    device.senses = play.list_senses(number, 1 + second % 3)
    play.world.kill_device(name, 2_000)


@fault("broken-sensor")
def break_sensor(play: Play, first: int, second: int) -> None:
    """Let a sensor fail for a while."""
    device = play.world.devices[play.device(first)]
    sense = device.senses[second % len(device.senses)]
    broken = (sense.event, sense.attributes[second // 7 % len(sense.attributes)])
    device.broken.add(broken)
    play.later(device.broken.discard, broken)


@fault("revoked-device")
def revoke_device(play: Play, first: int, second: int) -> None:
    """Take a device's rights away, and give them back later; a thief uses its key meanwhile."""
    name, world = play.device(first), play.world
    if name in play.truth.revoked:
        return
    node = world.devices[name].node
    world.move_device(name, "")
    world.roster.devices.pop(name, None)
    play.truth.revoked[name] = world.now

    def register() -> None:
        if play.truth.revoked.pop(name, None) is not None:
            world.roster.devices[name] = None
            world.move_device(name, node)

    def steal(sequence: int) -> None:
        vector = notification.encode(
            NotificationVector(1, [Reading(1, (200,) * 4)], sequence=sequence)
        )
        body = frames.join_vectors([vector])
        link = frames.Link(name, node, KEY_ID, make_device_secret(name))
        if name in play.truth.revoked and node:
            answer = world.hosts[node].find_answer(name)
            payload = seal_as_device(link, answer, frames.NOTIFICATIONS, (1 << 28, sequence), body)
            world.give(node, Message(name, f"{DEVICES}{name}/nv", payload))

    play.returns[name] = register
    world.calendar.wait(3_000, steal, 1 + second % 1_000)
    world.calendar.wait(8_000 + second % 60_000, register)


# Sites ----------------------------------------------------------------------------------------


@fault("upgrade")
def upgrade(play: Play, first: int, second: int) -> None:
    """Start a node again with another version of the vocabulary."""
    host = play.world.hosts[play.node(first)]
    host.vocabulary = load_vocabulary(2)
    play.world.kill(host.name, "upgrade", 1_000 + second % 3_000)


@dial("stroll")
def draw_stroll(rng: Random) -> int:
    """Let people walk about when all is well, in some scenarios."""
    return rng.randrange(1, 1 << 8) if rng.random() < 0.4 else 0


@dial("recent")
def draw_recent(rng: Random) -> int:
    """Let people want no old news of one kind, in some scenarios."""
    return int(rng.random() < 0.2)


@dial("sure")
def draw_sure(rng: Random) -> int:
    """Let somebody want to be sure of more than they want to hear of, in some scenarios."""
    return int(rng.random() < 0.1)


@dial("my-top")
def draw_my_top(rng: Random) -> int:
    """Let people want only the k best of all they asked for, in some scenarios."""
    return rng.randrange(1, 3) if rng.random() < 0.25 else 0


@on_heal.append
def mend_life(play: Play) -> None:
    """Let everything be well."""
    for register in list(play.returns.values()):
        register()
    for device in play.world.devices.values():
        device.broken.clear()
        if not device.is_up:
            play.world.start_device(device.name)
        play.world.calendar.wait(_OPERATOR, forget_device, play, device.name)
    top = play.scenario.dial("my-top")
    for person in play.world.people.values() if top else ():
        play.world.ask(person.name, {"my_top": top})
    stroll = play.scenario.dial("stroll")
    for number, person in enumerate(play.world.people.values()):
        if stroll >> number & 1 and person.client != BROKEN:
            for step, wait in enumerate((70_000, 115_000), start=1):
                node = play.node(play.scenario.names.index(play.home(number)) + step)
                play.world.calendar.wait(wait, play.world.move_person, person.name, node)


def probe(play: Play) -> None:
    """Look at who is said to be there, now and from time to time."""
    play.truth.look_at_presence()
    if play.world.now - START < play.scenario.trouble + play.scenario.calm - _PROBE:
        play.world.calendar.wait(_PROBE, probe, play)


__all__ = ["mend_life", "probe"]
