"""Who gets in: devices, subscribers, nodes, and nobody else."""

from __future__ import annotations

import pytest
from denwatch.node.security import site
from denwatch.node.security.access import Access
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.registrations import (
    Registrations,
    derive_device_password,
    derive_device_secret,
)

from tests.security.sites import make_authority, make_keyrings, make_registries, make_registry

KEY = b"k" * 32


def find_password(registry: Registrations, device: str, key_id: int) -> bytes:
    """Return what a device sends as its MQTT password."""
    key = registry.devices[device].keys[key_id]
    secret = derive_device_secret(key, device, registry.name, key_id)
    return derive_device_password(secret).encode()


def test_a_subscriber_needs_its_password() -> None:
    registry, password = site.add_subscriber(make_registry(), "ann", "medic")
    access = Access(Keyring(registry), KEY)
    assert access.authenticate("ann", password.encode(), "c") == 0
    assert access.authenticate("ann", b"wrong", "c") == 4
    assert access.authenticate("ann", None, "c") == 4
    assert access.authenticate("bob", password.encode(), "c") == 4
    assert access.authenticate("", b"", "c") == 5
    assert Access(Keyring(registry), KEY, "observer").authenticate("", None, "c") == 0


def test_both_passwords_are_good_between_rotation_and_retirement() -> None:
    registry, old = site.add_subscriber(make_registry(), "ann", "medic")
    registry, key_id, new = site.rotate(registry, "ann")
    access = Access(Keyring(registry), KEY)
    assert key_id == 2
    assert [access.authenticate("ann", one.encode(), "c") for one in (old, new)] == [0, 0]
    registry, ended = site.retire(registry, "ann", None)
    access = Access(Keyring(registry), KEY)
    assert ended == [1]
    assert [access.authenticate("ann", one.encode(), "c") for one in (old, new)] == [4, 0]


def test_a_device_connects_with_what_its_key_gives() -> None:
    registry = site.add_device(site.add_device(make_registry(), "dog"), "cat")
    access = Access(Keyring(registry), KEY)
    assert access.authenticate("dog", find_password(registry, "dog", 1), "c") == 0
    assert access.authenticate("cat", find_password(registry, "dog", 1), "c") == 4
    registry, _, _ = site.rotate(registry, "dog")
    access = Access(Keyring(registry), KEY)
    for key_id in (1, 2):
        assert access.authenticate("dog", find_password(registry, "dog", key_id), "c") == 0


def test_a_revoked_name_is_out_at_once() -> None:
    registry, password = site.add_subscriber(make_registry(), "ann", "medic")
    current = [registry]
    keyring = Keyring(registry, lambda: current.pop() if current else None)
    access = Access(keyring, KEY)
    assert keyring.reload_if_changed()
    assert access.authenticate("ann", password.encode(), "c") == 0
    assert access.may_publish("ann", "dens/1/sub/ann")
    assert access.is_welcome("ann")
    current.append(site.revoke(registry, "subscriber", "ann", None, None))
    assert keyring.reload_if_changed()
    assert access.authenticate("ann", password.encode(), "c") == 5
    assert not access.may_publish("ann", "dens/1/sub/ann")
    assert not access.may_subscribe("ann", "dens/1/note/ann")
    assert not access.is_welcome("ann")
    assert access.role_of("ann") is None


def test_a_node_proves_its_name() -> None:
    listener, dialer = make_keyrings("node-a", "node-b")
    user, password = dialer.make_credentials("node-a") or ("", "")
    assert Access(listener, KEY).authenticate(user, password.encode(), "c") == 0
    assert dialer.make_credentials("node-b") is None  # itself
    assert dialer.make_credentials("node-c") is None  # a stranger


def test_a_node_that_joined_later_is_let_in_by_its_card() -> None:
    old, new = make_registries("node-a", "node-b")
    ignorant = Keyring(Registrations(old.name, old.site, old.own, {"node-a": old.cards["node-a"]}))
    access = Access(ignorant, KEY)
    user, password = Keyring(new).make_credentials("node-a") or ("", "")
    assert not ignorant.knows_node("node-b")
    assert access.authenticate(user, password.encode(), "c") == 0
    assert ignorant.knows_node("node-b")
    assert ignorant.peer_secret("node-b") == Keyring(new).peer_secret("node-a")
    assert access.may_publish("node-b", "dens/1/peer/node-a")


def test_a_card_of_another_site_or_for_another_listener_is_refused() -> None:
    listener, dialer, third = make_keyrings("node-a", "node-b", "node-c")
    access = Access(listener, KEY)
    user, password = dialer.make_credentials("node-c") or ("", "")
    assert access.authenticate(user, password.encode(), "c") == 4  # a proof for node-c
    assert access.authenticate("node-c", password.encode(), "c") == 4  # under another name
    assert access.authenticate(user, password[:-5].encode(), "c") == 4
    user, password = dialer.make_credentials("node-a") or ("", "")
    for at in range(0, len(password), 7):
        changed = password[:at] + ("A" if password[at] != "A" else "B") + password[at + 1 :]
        assert access.authenticate(user, changed.encode(), "c") == 4, at
    foreign = make_registry("node-b", "elsewhere")
    card = listener.registrations.cards["node-a"]
    foreign = Registrations(
        foreign.name, foreign.site, foreign.own, {**foreign.cards, "node-a": card}
    )
    user, password = Keyring(foreign).make_credentials("node-a") or ("", "")
    assert access.authenticate(user, password.encode(), "c") == 4
    assert third.knows_node("node-b")


def test_a_revoked_node_is_refused_even_with_its_card() -> None:
    old, new = make_registries("node-a", "node-b")
    old = site.revoke(old, "node", "node-b", None, make_authority())
    user, password = Keyring(new).make_credentials("node-a") or ("", "")
    assert Access(Keyring(old), KEY).authenticate(user, password.encode(), "c") == 5


def test_who_was_right_before_is_recognised() -> None:
    registry, password = site.add_subscriber(make_registry(), "ann", "medic")
    access = Access(Keyring(registry), KEY)
    assert not access.recognises("ann", password.encode())
    assert access.authenticate("ann", b"guess", "c") == 4
    assert access.authenticate("ann", password.encode(), "c") == 0
    assert access.recognises("ann", password.encode())
    assert not access.recognises("ann", b"guess")
    assert not access.recognises("ann", None)
    assert not access.recognises("bob", password.encode())


def test_shared_topics_stay_outside_of_dens() -> None:
    registry, _ = site.add_subscriber(make_registry(), "ann", "medic")
    access = Access(Keyring(registry), KEY, shared=["chat/#"])
    assert access.may_publish("ann", "chat/north")
    assert access.may_subscribe("ann", "chat/+")
    assert not access.may_subscribe("ann", "#")
    for wrong in ("dens/#", "dens/1/+/ann", "dens/1/status/x", "$SYS/#"):
        with pytest.raises(SecurityError):
            Access(Keyring(registry), KEY, shared=[wrong])


def test_everything_may_be_shared_and_is_still_outside_of_dens() -> None:
    """A leading wildcard does not match topics of dens/: tests/mqtt/test_topics.py."""
    registry, _ = site.add_subscriber(make_registry(), "ann", "medic")
    access = Access(Keyring(registry), KEY, shared=["#"], unshared=["secret/#"])
    for name in ("#", "+/+", "chat/north", "+/1/note/bob"):
        assert access.may_subscribe("ann", name)
    for name in ("dens/1/note/bob", "dens/#", "dens/+/+/+", "$SYS/broker", "secret/a", "secret/#"):
        assert access.may_subscribe("ann", name) is (name == "$SYS/broker")
        assert not access.may_publish("ann", name)
    assert access.may_publish("ann", "chat/north")
