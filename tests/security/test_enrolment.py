"""What other nodes registered: who is first, and what contradicts."""

from __future__ import annotations

from itertools import permutations

import pytest
from denwatch.node.security import site
from denwatch.node.security.cards import Card, make_node_keys
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.notices import (
    RegistrationsBuilder,
    make_introduction,
    write_registration,
)
from denwatch.node.security.registrations import DeviceKey, DeviceRegistration, Registrations
from denwatch.protocol import cbor

from tests.security.sites import make_authority, make_registries, make_registry, tell


def test_one_name_as_two_things_is_the_one_that_came_first() -> None:
    a, b, c, d = make_registries("node-a", "node-b", "node-c", "node-d")
    a = site.add_device(a, "x", nodes=())
    b, _ = site.add_subscriber(b, "x", "medic")
    c, _ = site.add_subscriber(c, "x", "observer")
    found = {"node-a": ("device", None), "node-b": ("subscriber", "medic")}
    found["node-c"] = ("subscriber", "observer")
    for order in permutations((a, b, c)):
        hearer = Keyring(d)
        for registry in order:
            tell(Keyring(registry), hearer)
            assert hearer.registrations.name == "node-d"
        assert (hearer.kind_of("x"), hearer.role_of("x")) == found[order[0].name]
        assert len(hearer.conflicts) == 2


def test_a_nodes_name_is_not_taken_by_anybody_else_in_any_order() -> None:
    a, b, c = make_registries("node-a", "node-b", "node-c")
    alone = Registrations(
        c.name, c.site, c.own, {"node-a": a.cards["node-a"], "node-c": c.cards["node-c"]}
    )
    thief = Keyring(
        site.add_device(
            Registrations(
                a.name, a.site, a.own, {"node-a": a.cards["node-a"], "node-c": c.cards["node-c"]}
            ),
            "node-b",
            nodes=(),
        )
    )
    for is_first in (True, False):
        hearer = Keyring(alone)
        for speaker in (thief, Keyring(b)) if is_first else (Keyring(b), thief):
            tell(speaker, hearer)
            assert hearer.registrations.name == "node-c"
        assert hearer.kind_of("node-b") == "node"
        assert hearer.conflicts == ['"node-b" is a node already']


def test_one_key_for_two_names_is_refused() -> None:
    secret = make_node_keys(1).sign_secret
    builder = RegistrationsBuilder(make_registry())
    builder.register(cbor.encode([1, "dog", 1, [[1, secret]]]), "node-b")
    with pytest.raises(SecurityError, match="cat: has the same key as dog"):
        builder.register(cbor.encode([1, "cat", 1, [[1, secret]]]), "node-b")
    builder.register(cbor.encode([1, "dog", 2, [[2, make_node_keys(1).sign_secret]]]), "node-b")
    builder.register(cbor.encode([1, "cat", 1, [[1, secret]]]), "node-b")  # dog has another one now
    own = builder.registrations.own[1].sign_secret
    with pytest.raises(SecurityError, match="same key as this node"):
        builder.register(cbor.encode([1, "bird", 1, [[1, own]]]), "node-b")


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [0, "dog", 1, []],
        [1, "dog", 1, []],
        [1, "d/g", 1, [[1, bytes(range(7, 200, 6))]]],
        [1, "dog", 1, [[1, bytes(32)]]],
        [1, "dog", 0, [[1, b"\x9f" * 8 + bytes(range(9, 40, 3)) + b"\x01\x07"]]],
        [1, "dog", 1, [[1, "text"]]],
        [1, "dog", 1, [5]],
        [2, "ann", 1, "medic", [[1, "no hash"]]],
        [2, "ann", 1, "me dic", [[1, "no hash"]]],
    ],
)
def test_registrations_that_cannot_be_are_refused(fields: list[object]) -> None:
    builder = RegistrationsBuilder(make_registry())
    with pytest.raises(SecurityError):
        builder.register(cbor.encode(fields), "node-b")
    assert not builder.registrations.devices
    assert not builder.registrations.subscribers


def test_the_registry_below_stays_as_it_is() -> None:
    base = site.add_device(make_registry(), "dog")
    builder = RegistrationsBuilder(base)
    builder.register(cbor.encode([1, "cat", 1, [[1, make_node_keys(1).sign_secret]]]), "node-b")
    assert set(base.devices) == {"dog"}
    assert set(builder.registrations.devices) == {"cat", "dog"}


def test_two_cards_with_one_serial_are_a_conflict() -> None:
    keyring = Keyring(make_registry("node-a"))
    cards = [make_registry("node-x").cards["node-x"][1] for _ in range(2)]
    for card in cards:
        keyring.apply_notice("node-b", make_introduction(card))
    assert keyring.knows_node("node-x")
    assert "two cards" in keyring.conflicts[0]


def test_a_card_without_a_usable_key_makes_no_secret() -> None:
    keys = make_node_keys(1)
    empty = Card("node-x", 1, keys.sign_public, bytes(32), b"")
    with pytest.raises(SecurityError, match="no usable key"):
        keys.agree("node-a", empty, "frames")


def test_what_came_from_elsewhere_is_changed_there() -> None:
    registry = make_registry()
    device = DeviceRegistration({1: DeviceKey(make_node_keys(1).sign_secret)}, is_ours=False)
    registry = registry.with_device("dog", device)
    with pytest.raises(SecurityError, match="another node"):
        site.rotate(registry, "dog")
    with pytest.raises(SecurityError, match="no device or subscriber"):
        site.rotate(registry, "cat")
    with pytest.raises(SecurityError, match="no subscriber"):
        site.change_role(registry, "dog", "medic")
    with pytest.raises(SecurityError, match="nobody"):
        site.retire(registry, "cat", None)
    with pytest.raises(SecurityError, match="needs the site's authority"):
        site.revoke(registry, "node", "node-b", None, None)


def test_a_revocation_of_the_whole_name_outlasts_one_of_a_key() -> None:
    registry = site.revoke(site.add_device(make_registry(), "dog"), "device", "dog", 1, None)
    registry = site.revoke(registry, "device", "dog", None, None)
    registry = site.revoke(registry, "device", "dog", 2, None)
    assert registry.is_revoked("device", "dog", 3)


def test_a_registration_is_for_the_node_that_it_names() -> None:
    registry: Registrations = site.add_device(make_registries("node-a", "node-b")[0], "dog")
    one, other = (write_registration(registry, "dog", node) for node in ("node-b", "node-c"))
    assert one != other
    assert make_authority().public == registry.site
