"""Typed content at the source: devices send whatever may match, and the node refines it."""

from __future__ import annotations

from random import Random
from typing import Any

import cbor2
import pytest
from denwatch.client.vocabulary import Attribute, ValueKind, load_shipped
from denwatch.node.core.languages import lower_content
from denwatch.node.core.notifications import (
    Notification,
    describe_content_values,
    list_sensed,
)
from denwatch.node.matching.content_index import ContentIndex
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.node.ranking.content import ContentFilter, matches
from denwatch.protocol.frames import CONTENT
from denwatch.protocol.matching import match
from denwatch.protocol.subscription import decode
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.covering.doubt import find_possibility
from tests.devices.device_node import DeviceNode, Watchdog, meet, settle
from tests.ranking import oracle

RESCUE = load_shipped("rescue")
PATIENT = RESCUE.events["patient"]
Triples = list[tuple[str, str, Any]]


def read_content(vector: NotificationVector, device: str = "dog-1") -> dict[str, object]:
    notification = Notification.__new__(Notification)
    notification.vector, notification.device = vector, device
    notification.event = RESCUE.find_number(vector.event)
    return describe_content_values(notification)


def lower(*triples: tuple[str, str, Any], event: str = "patient") -> bytes | None:
    return lower_content(ContentFilter.of(("event", "=", event), *triples), RESCUE)


def test_a_content_subscription_is_installed_and_removed() -> None:
    node = DeviceNode()
    hash = node.vocabularies.own_hash
    sensed = node.vocabularies.known[hash] = list_sensed(RESCUE)
    watchdog = Watchdog(senses={PATIENT.number: sensed[PATIENT.number]}, vocabulary=hash)
    meet(node, watchdog)
    triples = [["event", "=", "patient"], ["heart_rate", ">", 100.5]]
    item = node.subscribe(cbor2.dumps(triples), vocabulary=hash, language=CONTENT)
    settle(node, watchdog)
    assert len(watchdog.list_installed()) == 1
    pulse = PATIENT.attributes["heart_rate"]
    assert watchdog.read(PATIENT.number, {pulse.bit: pulse.to_code(102)})
    assert not watchdog.read(PATIENT.number, {pulse.bit: pulse.to_code(99)})
    node.reopen()
    watchdog.restart()
    meet(node, watchdog)
    assert len(watchdog.list_installed()) == 1
    node.unsubscribe(item)
    settle(node, watchdog)
    assert not watchdog.list_installed()


def draw_triples(rng: Random, attributes: list[Attribute]) -> Triples:
    triples: Triples = []
    for attribute in rng.choices(attributes, k=rng.choice((1, 1, 2))):
        code = rng.randrange(attribute.last + 1)
        if attribute.kind is ValueKind.TEXT:
            word = rng.choice(attribute.symbols)
            cut = rng.randrange(1, len(word) + 1)
            choices = [("=", word), ("!=", word), ("<", word), ("prefix", word[:cut])]
            choices += [("suffix", word[-cut:]), ("substring", word[cut // 2 : cut])]
        else:
            (value,) = read_content(exact(attribute, code)).keys() & {attribute.name}
            shown = read_content(exact(attribute, code))[value]
            nudged = shown + attribute.step / 2 if isinstance(shown, float) else shown
            choices = [
                (op, rng.choice((shown, nudged))) for op in ("<", ">", "<=", ">=", "=", "!=")
            ]
        triples.append((attribute.name, *rng.choice(choices)))
    return triples


def exact(attribute: Attribute, code: int) -> NotificationVector:
    event = RESCUE.events[attribute.event]
    return NotificationVector(event.number, [Reading(attribute.bit, (code,) * 4, attribute.wide)])


@pytest.mark.parametrize("seed", range(4))
def test_whatever_can_match_is_sent(seed: int) -> None:
    """Exact and uncertain readings; possibility is by definition, over all codes."""
    rng = Random(seed)
    wanted = refused = 0
    for _ in range(60):
        event = rng.choice(list(RESCUE.events.values()))
        attributes = list(event.attributes.values())
        triples = draw_triples(rng, attributes)
        content = ContentFilter.of(("event", "=", event.name), *triples)
        vector = lower_content(content, RESCUE)
        for _ in range(15):
            readings, options = [], {}
            for attribute in sorted(attributes, key=lambda one: one.bit):
                a = rng.randrange(attribute.last + 1)
                points = [a]
                for _ in range(3 if rng.randrange(2) else 0):
                    points.append(min(attribute.last, points[-1] + rng.randrange(9)))
                points = points if len(points) == 4 else [a] * 4
                readings.append(Reading(attribute.bit, (*points,), attribute.wide))
                options[attribute.name] = (attribute, tuple(points))
            n = NotificationVector(event.number, readings)
            is_wanted = all(
                is_possible(*options[name], [t for t in triples if t[0] == name])
                for name in {triple[0] for triple in triples}
            )
            assert matches(content, read_content(n)) == is_wanted
            found = None if vector is None else match(decode(vector), n)
            is_sent = found is not None and found.matched
            assert is_sent or not is_wanted, (triples, readings)
            wanted += is_wanted
            refused += not is_sent
    assert wanted > 100
    assert refused > 100


def is_possible(attribute: Attribute, points: Any, triples: Triples) -> bool:
    best = 0
    for code in range(points[0], points[3] + 1):
        value = read_content(exact(attribute, code))[attribute.name]
        if all(oracle.satisfies(value, op, limit) for _, op, limit in triples):
            best = max(best, find_possibility(code, points))
    return best >= 128


def test_degrees_of_uncertain_values() -> None:
    index = ContentIndex()
    index.add(1, ContentFilter.of(("event", "=", "patient"), ("heart_rate", ">", 0)))
    index.add(2, ContentFilter.of(("heart_rate", ">", 100), ("heart_rate", "<", 99)))
    pulse = PATIENT.attributes["heart_rate"]
    code = pulse.to_code(100)
    limit = read_content(exact(pulse, code))["heart_rate"]
    index.add(3, ContentFilter.of(("heart_rate", "<=", limit)))
    points = (code - 10, code, code, code + 10)
    n = NotificationVector(PATIENT.number, [Reading(pulse.bit, points, pulse.wide)])
    found = index.match(read_content(n))
    assert found == [SubscriptionMatch(1, 255, 255, -1), SubscriptionMatch(3, 255, 25, -1)]


def test_what_no_sensor_can_serve_has_no_vector() -> None:
    assert lower() is None
    assert lower(("device", "=", "dog-1")) is None
    assert lower(("heart_rate", ">", 1e9)) is None
    assert lower(("heart_rate", ">", "many")) is None
    assert lower(("heart_rate", ">", 100), event="nothing") is None
