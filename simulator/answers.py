"""What nodes answer in the emulated world: everyday words, and who can do something.

Two promises, each with a dial that turns its questions on for some scenarios:

- everyday words mean what their plain sentence means, to the byte, at whatever node;
- who is found can do it, and whoever is with the node that answers and can do it is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from denwatch.client.errors import LanguageError
from denwatch.client.language import understanding
from denwatch.node.core.device_finder import MAX_FOUND, DeviceFinder

from simulator.device import EmulatedDevice
from simulator.faults import Play
from simulator.person import Request
from simulator.registry import RULES, Rule, Violation, check, dial, on_heal, on_setup
from simulator.whole_scenarios import HIDDEN, MAD

# What people say, and what they mean.
_SAID = (
    ("patients with fever", "patient_temperature is high"),
    ("no fever", "patient_temperature is not high"),
    ("tell me about patients with a high fever", "patient_temperature is very high"),
    ("abnormal pulse", "heart_rate is not normal"),
    ("heart rate is abnormal", "heart_rate is not normal"),
)
_WANTED, _EVENT, _ATTRIBUTE = "heart_rate", 1, 1
_ASKED = 30_000  # ms before the end
_SETTLED = 60_000  # ms after which a device's node knows what it senses
_WHO = "person-0"
# After these nobody can say what a device senses, or a node understands.
_OTHERWISE = {
    "other-sensors",
    "upgrade",
    "forged-frame",
    "replayed-frame",
    "mad-device",
    "mad-node",
}


@dial("everyday")
def draw_everyday(rng: Random) -> int:
    """Let somebody speak as people do, in some scenarios."""
    return rng.randrange(1, 1 << 8) if rng.random() < 0.1 else 0


@dial("finding")
def draw_finding(rng: Random) -> int:
    """Let somebody look for those who can do something, in some scenarios."""
    return int(rng.random() < 0.15)


@on_setup.append
def say_it(play: Play) -> None:
    """Let somebody ask in everyday words, then for the same in plain ones."""
    number = play.scenario.dial("everyday")
    for words in _SAID[number % len(_SAID)] if number else ():
        play.world.ask(_WHO, {"subscribe": words})


@on_heal.append
def look_for(play: Play) -> None:
    """Let somebody look for those who can do something, when all is well."""
    if play.scenario.dial("finding"):
        body = {"find": [_WANTED], "limit": MAX_FOUND}
        play.world.calendar.wait(play.scenario.calm - _ASKED, play.world.ask, _WHO, body)


@check("everyday")
def check_everyday(play: Play) -> Iterator[Violation]:
    """Everyday words mean what their plain sentence means."""
    number = play.scenario.dial("everyday")
    if not number or "upgrade" in play.scenario.list_faults():
        return
    answered = [_find_answered(play, words) for words in _SAID[number % len(_SAID)]]
    said, meant = answered
    if said is None or meant is None or not meant.answer or not meant.answer["ok"]:
        return
    if said.node == meant.node and said.answer:
        fields = [(each.answer or {}).get("vector") for each in (said, meant)]
        if fields[0] != fields[1]:
            what = f"{said.body['subscribe']!r} is {said.answer} at {said.node}"
            yield Violation("everyday", f"{what}, and not {meant.body['subscribe']!r}")


def _find_answered(play: Play, words: str) -> Request | None:
    requests = play.world.people[_WHO].requests.values()
    found = [each for each in requests if each.body.get("subscribe") == words and each.answer]
    return found[0] if found else None


@check("found")
def check_found(play: Play) -> Iterator[Violation]:
    """Who is found can do it, and who is with the node and can do it is found."""
    if play.truth.liars or _OTHERWISE & set(play.scenario.list_faults()):
        return
    hidden = HIDDEN.get(play.world.roster.roles[_WHO], ())
    for request in play.world.people[_WHO].requests.values():
        if "find" not in request.body or not request.answer:
            continue
        if not request.answer["ok"] and f"patient.{_WANTED}" in hidden:
            continue  # as it must: the person's role has changed
        if not request.answer["ok"]:
            yield Violation("found", f"{request.node} does not look: {request.answer['error']}")
            continue
        names = {row["name"] for row in request.answer["found"] if row["has"]}
        for device in play.world.devices.values():
            can = any(s.event == _EVENT and _ATTRIBUTE in s.attributes for s in device.senses)
            if can and device.name not in names and _is_known(play, device, request):
                yield Violation("found", f"{request.node} does not find {device.name}")
            if not can and device.name in names and device.name != MAD:
                yield Violation("found", f"{request.node} finds {device.name}, which cannot do it")


def _is_known(play: Play, device: EmulatedDevice, request: Request) -> bool:
    """Return whether a device was with the node that answered, for long enough."""
    heard = play.truth.heard.get((request.node, device.name))
    return (
        device.is_up
        and device.node == request.node
        and heard == device.life
        and device.connected_at < request.made - _SETTLED
        and device.name not in play.truth.revoked
    )


def _understand_nothing(_: object) -> object:
    def refuse(*_: object) -> object:
        raise LanguageError("not understood")

    return refuse


RULES["everyday"] = Rule(
    understanding,
    "read_everyday",
    _understand_nothing,
    "everyday words are understood",
    dials={"everyday": 5},
)
RULES["find"] = Rule(
    DeviceFinder,
    "refresh",
    lambda _: lambda *_: None,
    "who can do something is found",
    ("carry",),
    {"finding": 1, "sensors": 0b01_01_01_01_01},
)
