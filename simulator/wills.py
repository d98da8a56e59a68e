"""Wills with a delay, and acknowledgements that come together: what whole nodes promise apps.

When all is well two apps of MQTT 5 break off at a node, which is killed right after. One comes back
in time. The will of the other is published when its delay is over, once; that of the first is not.
Clients of whole nodes may say two acknowledgements in one write (`Client.is_joining`): both count,
and nothing stays in flight that was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, cast

from denwatch.node.mqtt.wills import Wills
from denwatch.node.runtime import durable_node

from simulator.clients import Client
from simulator.evidence import SETTLED, SLACK, list_working
from simulator.faults import Play
from simulator.keyrings import make_password
from simulator.registry import RULES, Rule, Violation, check, dial, on_heal
from simulator.whole_scenarios import WHOLE

if TYPE_CHECKING:
    from simulator.whole_world import WholeWorld

_USER = "person-0"
_LOST, _BACK = "chat/lost", "chat/back"
_DELAY = 20  # s
_KILLED, _DOWN, _RETURN = 2_000, 3_000, 9_000  # ms after which, for how long, after which
_TICKS = 16_000  # ms between two looks of a quiet node at what is due
_TWO = 25_000  # ms after the apps broke off
_ANSWERED = 30_000  # ms after which an acknowledgement has come


@dial("wills")
def draw_wills(rng: Random) -> int:
    """Let apps break off, in some scenarios; at which node."""
    return rng.randrange(1, 1 << 8) if rng.random() < 0.4 else 0


@on_heal.append
def plan_wills(play: Play) -> None:
    """Let two apps break off when all is well, and one come back."""
    if play.scenario.dial(WHOLE) and play.scenario.dial("wills"):
        play.world.calendar.wait(SETTLED, _break_off, play)
        # Two notifications at once, so that there are two acknowledgements at once.
        play.world.calendar.wait(SETTLED, play.world.ask, _USER, {"subscribe": "pain above 0"})
        for pain in (3, 4):
            body = {"report": f"patient: pain {pain}"}
            play.world.calendar.wait(SETTLED + _TWO, play.world.ask, _USER, body)


def _break_off(play: Play) -> None:
    world = cast("WholeWorld", play.world)
    host = world.whole(play.node(play.scenario.dial("wills")))
    apps = [_make_app(topic) for topic in (_LOST, _BACK)]
    for app in apps:
        world.act_as(host.name, host.join, app)
    if not all(app.is_accepted for app in apps):
        return  # the node has no room for them, or does not know them
    for app in apps:
        world.act_as(host.name, host.lose, app)
    play.truth.wills = (host.name, world.now)
    world.calendar.wait(_KILLED, world.kill, host.name, "apps broke off", _DOWN)
    listener = Client(_USER, make_password(_USER))
    listener.app, listener.filters = "listener", ["chat/#"]
    for app in (listener, apps[1]):
        world.calendar.wait(_RETURN, world.act_as, host.name, host.join, app)


def _make_app(topic: str) -> Client:
    app = Client(_USER, make_password(_USER), is_persistent=True)
    app.level, app.app = 5, topic.replace("/", "-")
    app.will, app.will_delay = (topic, b"gone"), _DELAY
    return app


@check("wills")
def check_wills(play: Play) -> Iterator[Violation]:
    """A will with a delay is published once, in its time, over a restart; not if who left is back.

    If the node was down or not to be joined when the one who listens came, nobody can say.
    """
    if play.truth.wills is None:
        return
    node, lost = play.truth.wills
    world = cast("WholeWorld", play.world)
    if not {"listener", _BACK.replace("/", "-")} <= world.whole(node).joined:
        return
    times: dict[str, list[int]] = {_LOST: [], _BACK: []}
    for time, where, topic in world.chat:
        if where == node and topic in times:
            times[topic].append(time)
    due = lost + 1000 * _DELAY
    if times[_BACK]:
        yield Violation("wills", f"{node} published the will of an app that was back in time")
    if len(times[_LOST]) != 1:
        yield Violation("wills", f"{node} published a will {len(times[_LOST])} times")
    for time in times[_LOST]:
        if not due - SLACK < time < due + _TICKS + SLACK:
            yield Violation("wills", f"{node} published a will {time - due} ms after its time")


@check("in-flight")
def check_in_flight(play: Play) -> Iterator[Violation]:
    """What somebody acknowledged is not waited for: nothing shown long ago is in flight."""
    for person in list_working(play):
        host = play.world.hosts[person.node]
        if host.name in play.truth.liars or person.is_mute:
            continue
        shown = {note.id: note.time for note in person.notes.values() if note.node == host.name}
        shown |= {id: time for id, node, time in person.again if node == host.name}
        subscriber = host.subscribers._subscriptions.find_subscriber(person.name)
        for code in subscriber.in_flight.values():
            id = f"{host.subscribers._pending.decode(code).id:016x}"
            if shown.get(id, play.world.now) < play.world.now - _ANSWERED:
                yield Violation("in-flight", f"{host.name} waits for {person.name} to have {id}")


def _do_nothing(_: object) -> object:
    return lambda *_: None


def _lose_others(join: Callable[..., Any]) -> Callable[..., Any]:
    """Let the first of several acknowledgements count alone."""

    def take_first(first: Any, arrived: Any) -> Any:
        join(first, arrived)
        return first

    return take_first


RULES["stored-wills"] = Rule(
    Wills,
    "restore",
    _do_nothing,
    "a will that is due later is kept over a restart",
    dials={"whole": 1, "limits": 0, "wills": 1},
)
RULES["cancelled-wills"] = Rule(
    Wills,
    "cancel",
    _do_nothing,
    "who is back in time has no will",
    dials={"whole": 1, "limits": 0, "wills": 1},
)
RULES["joined-acknowledgements"] = Rule(
    durable_node,
    "_join_acknowledged",
    _lose_others,
    "of acknowledgements that come together each counts",
    dials={"whole": 1, "limits": 0, "wills": 1, "clients": 0, "my-top": 0},
)
