"""Look-ups: links, signatures, secrets between nodes, rotation, reloading."""

from __future__ import annotations

from dataclasses import replace

import pytest
from denwatch.node.security import site
from denwatch.node.security.cards import make_node_keys
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.registrations import (
    DeviceKey,
    DeviceRegistration,
    Registrations,
    derive_device_secret,
)
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import DOWN, MESSAGE, UP, Frame, open_frame, read_key_id, seal
from denwatch.watchdog.seal import FrameKey as DeviceSeal
from hypothesis import given
from hypothesis import strategies as st

from tests.security.sites import make_authority, make_keyrings, make_registries, make_registry

_A, _B = make_keyrings("node-a", "node-b")


def make_seal(registry: Registrations, device: str, key_id: int) -> DeviceSeal:
    """Return what the device itself has of a key."""
    key = registry.devices[device].keys[key_id]
    secret = derive_device_secret(key, device, registry.name, key_id)
    return DeviceSeal(device, registry.name, key_id, secret)


def test_a_link_opens_what_the_device_sealed() -> None:
    registry = site.add_device(make_registry(), "dog")
    link = Keyring(registry).link_for("dog", 1)
    assert link is not None
    frame = make_seal(registry, "dog", 1).seal(MESSAGE, 1, 2, b"body")
    assert open_frame(link, UP, frame).body == b"body"
    down = seal(link, DOWN, Frame(MESSAGE, 1, 2, b"answer"))
    assert make_seal(registry, "dog", 1).open(down)[3] == b"answer"


def test_there_is_no_link_for_strangers_and_other_key_ids() -> None:
    keyring = Keyring(site.add_device(make_registry(), "dog"))
    assert keyring.link_for("cat", 1) is None
    assert keyring.link_for("dog", 2) is None
    assert keyring.link_for("node-a", 1) is None


def test_rotation_has_no_gap() -> None:
    registry = site.add_device(make_registry(), "dog")
    seals = [make_seal(registry, "dog", 1)]
    good = []
    for key_id in (2, 3, 4):
        registry, made, _ = site.rotate(registry, "dog")
        assert made == key_id
        seals.append(make_seal(registry, "dog", key_id))
        keyring = Keyring(registry)
        for one in seals[-2:]:  # the old device image and the new one both get through
            frame = one.seal(MESSAGE, 1, 1, b"")
            link = keyring.link_for("dog", read_key_id(frame))
            assert link is not None
            open_frame(link, UP, frame)
        registry, ended = site.retire(registry, "dog", None)
        good.append(ended)
        assert Keyring(registry).list_key_ids("dog") == [key_id]
        assert Keyring(registry).link_for("dog", key_id - 1) is None
    assert good == [[1], [2], [3]]


def test_rotation_never_runs_out_of_room() -> None:
    registry = site.add_device(make_registry(), "dog")
    for _ in range(20):
        registry, _, _ = site.rotate(registry, "dog")
        registry, _ = site.retire(registry, "dog", None)
    assert Keyring(registry).list_key_ids("dog") == [21]


def test_a_device_has_another_key_at_every_node() -> None:
    key = DeviceKey(make_node_keys(1).sign_secret, is_master=True)
    secrets = {
        derive_device_secret(key, device, node, key_id)
        for device in ("dog", "cat")
        for node in ("node-a", "node-b")
        for key_id in (1, 2)
    }
    assert len(secrets | {key.secret}) == 9


@given(st.binary(max_size=200), st.integers(0, 511), st.integers(0, 1599))
def test_a_changed_bit_spoils_a_signature(data: bytes, in_signature: int, in_data: int) -> None:
    signature = _A.sign(data)
    assert _B.verify("node-a", data, signature)
    assert not _B.verify("node-b", data, signature)
    spoiled = bytearray(signature)
    spoiled[in_signature // 8] ^= 1 << in_signature % 8
    assert not _B.verify("node-a", data, bytes(spoiled))
    if data:
        changed = bytearray(data)
        changed[in_data // 8 % len(data)] ^= 1 << in_data % 8
        assert not _B.verify("node-a", bytes(changed), signature)


@pytest.mark.parametrize("signature", [b"", b"x", bytes(64), b"\xff" * 64, bytes(65)])
def test_what_is_no_signature_is_false_and_no_error(signature: bytes) -> None:
    assert not _B.verify("node-a", b"data", signature)
    assert not _B.verify("nobody", b"data", signature)


def test_two_nodes_agree_and_a_third_cannot() -> None:
    a, b, c = make_keyrings("node-a", "node-b", "node-c")
    assert a.peer_secret("node-b") == b.peer_secret("node-a")
    others = {a.peer_secret("node-c"), b.peer_secret("node-c"), c.peer_secret("node-a")}
    assert a.peer_secret("node-b") not in others
    assert a.peer_secret("node-a") is None
    assert a.peer_secret("stranger") is None
    assert a.list_nodes() == ["node-a", "node-b", "node-c"]


def rotate_node(
    registry: Registrations, others: list[Registrations]
) -> tuple[Registrations, list[Registrations]]:
    """Return a node's registry with new keys, and the others' with its new card."""
    keys = make_node_keys(2)
    card = make_authority().sign_card(registry.name, keys)
    registry = replace(registry.with_card(card), own={**registry.own, 2: keys})
    return registry, [other.with_card(card) for other in others]


def test_nodes_keep_agreeing_while_one_rotates() -> None:
    a, b = make_registries("node-a", "node-b")
    new_a, (new_b,) = rotate_node(a, [b])
    for one in (a, new_a):
        for other in (b, new_b):
            here, there = Keyring(one), Keyring(other)
            assert here.peer_secret("node-b") in there.peer_secrets("node-a")
            assert there.peer_secret("node-a") in here.peer_secrets("node-b")
            assert there.verify("node-a", b"x", here.sign(b"x"))
    ended, _ = site.retire(new_a, "node-a", make_authority())
    heard = site.revoke(new_b, "node", "node-a", 1, make_authority())
    here, there = Keyring(ended), Keyring(heard)
    assert here.peer_secrets("node-b") == there.peer_secrets("node-a")
    assert there.verify("node-a", b"x", here.sign(b"x"))
    assert not there.verify("node-a", b"x", Keyring(a).sign(b"x"))


def test_a_node_whose_keys_are_all_revoked_signs_nothing() -> None:
    registry = site.revoke(make_registry(), "node", "node-a", None, make_authority())
    with pytest.raises(SecurityError, match="revoked"):
        Keyring(registry).sign(b"x")


def test_reload_takes_what_is_new_and_keeps_the_old_if_it_is_wrong() -> None:
    before = site.add_device(make_registry(), "dog")
    after = site.add_device(before, "cat")
    answers: list[Registrations | Exception | None] = [None, after, SecurityError("spoiled")]

    def load() -> Registrations | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    keyring = Keyring(before, load)
    assert not keyring.reload_if_changed()
    first = keyring.generation
    assert keyring.reload_if_changed()
    assert keyring.generation > first
    assert keyring.link_for("cat", 1) is not None
    with pytest.raises(SecurityError, match="spoiled"):
        keyring.reload_if_changed()
    assert keyring.link_for("cat", 1) is not None


def test_another_nodes_file_is_not_taken() -> None:
    keyring = Keyring(make_registry("node-a"), lambda: make_registry("node-b"))
    with pytest.raises(SecurityError, match="node-b"):
        keyring.reload_if_changed()


def test_one_name_is_one_thing() -> None:
    registry = site.add_device(make_registries("node-a", "node-b")[0], "dog")
    for name in ("dog", "node-a", "node-b"):
        with pytest.raises(SecurityError, match="already"):
            site.add_subscriber(registry, name, "medic")
        with pytest.raises(SecurityError, match="already"):
            site.add_device(registry, name)


def test_a_revoked_name_is_not_given_again() -> None:
    registry = site.revoke(make_registry(), "device", "dog", None, make_authority())
    with pytest.raises(SecurityError, match="revoked"):
        site.add_device(registry, "dog")


def test_equal_and_weak_keys_are_refused_when_added() -> None:
    secret = make_node_keys(1).sign_secret
    registry = site.add_device(make_registry(), "dog", secret)
    with pytest.raises(SecurityError, match="same key as device dog"):
        site.add_device(registry, "cat", secret)
    with pytest.raises(SecurityError, match="count"):
        site.add_device(registry, "cat", bytes(range(32)))
    with pytest.raises(SecurityError, match="65536"):
        registry.with_device(
            "cat", DeviceRegistration({65536: DeviceKey(make_node_keys(1).sign_secret)})
        )


def test_a_link_of_another_device_does_not_open() -> None:
    registry = site.add_device(site.add_device(make_registry(), "dog"), "cat")
    frame = make_seal(registry, "dog", 1).seal(MESSAGE, 1, 1, b"")
    link = Keyring(registry).link_for("cat", 1)
    assert link is not None
    with pytest.raises(ProtocolError, match="tag"):
        open_frame(link, UP, frame)


def test_no_secret_is_in_a_representation() -> None:
    registry = site.add_device(make_registry(), "dog")
    registry, password = site.add_subscriber(registry, "ann", "medic")
    shown = repr(registry) + repr(registry.devices) + repr(registry.subscribers)
    for _, secret in registry.list_secrets():
        assert secret.hex() not in shown
        assert repr(secret) not in shown
    assert password not in shown
