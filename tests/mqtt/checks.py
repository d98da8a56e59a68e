"""What must hold in a server after every step, whatever happened before."""

from __future__ import annotations

from denwatch.node.core.events import Listening
from denwatch.node.mqtt.packets import MqttSession
from denwatch.node.mqtt.server import MqttServer
from denwatch.node.mqtt.topics import is_listened

from tests.mqtt.wire import World


def check_all(world: World, heard: dict[str, bool]) -> None:
    """Check everything; `heard` is what the node knows of listeners."""
    check_accounts(world)
    check_bounds(world)
    check_links(world)
    check_index(world)
    check_listeners(world, heard)
    check_store(world)


def check_accounts(world: World) -> None:
    """Bytes are those of the messages that are there."""
    total = 0
    for session in world.server.sessions.all.values():
        deliveries = [*session.in_flight.values(), *session.queue]
        assert session.bytes == sum(delivery.message.size for delivery in deliveries)
        total += session.bytes
    assert world.server.sessions.bytes == total


def check_bounds(world: World) -> None:
    """No limit is passed."""
    limits = world.limits
    retained = world.server.sessions.retained
    assert retained.count <= limits.retained
    assert len(world.server.sessions.all) <= limits.sessions
    assert len(world.server._wills) <= limits.wills
    for session in world.server.sessions.all.values():
        assert len(session.in_flight) <= limits.window
        assert len(session.queue) <= limits.queue + limits.retained
        assert len(session.inbound) <= limits.inbound
        assert len(session.subscriptions) <= limits.subscriptions
        assert session.link or session.is_persistent


def check_links(world: World) -> None:
    """Links and sessions agree; closed ones are gone; who is held has something that waits."""
    links, waiting = world.server._links, world.server._waiting
    for number, link in links.items():
        assert link.number == number
        assert number not in world.closed
        if link.session is not None:
            assert link.session.link == number
        assert (link.waiting is not None) == (number in waiting)
        if link.waiting is None:
            assert not link.is_paused
    for key, session in world.server.sessions.all.items():
        assert key == (session.user, session.client)
        if session.link:
            assert links[session.link].session is session
        else:
            assert not any(d.is_directed for d in (*session.in_flight.values(), *session.queue))


def check_index(world: World) -> None:
    """Everybody is found by their filters, and nobody else."""
    sessions = world.server.sessions
    exact: dict[str, dict[MqttSession, int]] = {}
    shared: dict[str, dict[MqttSession, int]] = {}
    for session in sessions.all.values():
        for name, grant in session.subscriptions.items():
            if name.startswith("$share/"):
                shared.setdefault(name, {})[session] = grant
            elif "+" not in name and "#" not in name:
                exact.setdefault(name, {})[session] = grant
    found: dict[str, dict[MqttSession, int]] = {}
    for name, subscribers in sessions.index._exact.items():
        for one, grant in subscribers.items():
            if isinstance(one, MqttSession):
                found.setdefault(name, {})[one] = grant
    assert found == exact
    assert {name: group.members for name, group in sessions.groups._groups.items()} == shared


def check_listeners(world: World, heard: dict[str, bool]) -> None:
    """The node knows who listens."""
    live = {
        name
        for session in world.server.sessions.all.values()
        if session.link
        for name in session.subscriptions
        if is_listened(name)
    }
    assert {topic for topic, is_up in heard.items() if is_up} == live


def hear(world: World, heard: dict[str, bool]) -> None:
    """Take the events in; up and down must alternate."""
    for event in world.take_events(Listening):
        assert isinstance(event, Listening)
        assert heard.get(event.topic, False) is not event.is_up, "said twice"
        heard[event.topic] = event.is_up


def check_store(world: World) -> None:
    """A server that starts now has the same persistent state."""
    other = MqttServer(world.rules, world.limits)
    other.restore(world.store, world.now)
    assert describe(other) == describe(world.server)


def describe(server: MqttServer) -> object:
    sessions = {}
    for key, session in server.sessions.all.items():
        if session.is_persistent:
            kept = [d for d in (*session.in_flight.values(), *session.queue) if not d.is_directed]
            messages = sorted(
                (d.number, d.message.topic, d.message.payload, d.qos, d.retain, d.is_released)
                for d in kept
            )
            numbers = {d.number: d.id for d in kept if d.qos == 2}
            sessions[key] = (session.subscriptions, set(session.inbound), messages, numbers)
    retained = {p.topic: (p.payload, p.qos) for p in server.sessions.retained.find_all("#")}
    return sessions, retained
