"""Notices: one command at one node counts everywhere, in any order, and cannot be forged."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from denwatch.node.security import site
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.notices import (
    make_introduction,
    make_revocation,
    read_notice,
)
from denwatch.node.security.registrations import Registrations, derive_device_secret
from denwatch.node.security.site import KeyFile, invite_node, load_authority
from denwatch.protocol import cbor
from hypothesis import given
from hypothesis import strategies as st

from tests.security.sites import (
    TODAY,
    make_authority,
    make_keyrings,
    make_registries,
    make_registry,
    make_site,
    tell,
)


def make_busy_node() -> tuple[Registrations, list[Registrations]]:
    """Return a node with names of all kinds and revocations, and two other nodes."""
    first, *others = make_registries("node-a", "node-b", "node-c")
    for name in ("dog", "cat", "lost"):
        first = site.add_device(first, name, nodes=())
    for name in ("ann", "bob"):
        first, _ = site.add_subscriber(first, name, "medic")
    first, _, _ = site.rotate(first, "dog")
    first = site.revoke(first, "device", "lost", None, None)
    first = site.revoke(first, "device", "cat", 7, None)
    return first, others


def test_what_is_registered_at_one_node_is_good_at_the_others() -> None:
    first, others = make_busy_node()
    speaker = Keyring(first)
    for registry in others:
        hearer = Keyring(registry)
        tell(speaker, hearer)
        assert hearer.role_of("ann") == "medic"
        assert hearer.list_password_hashes("ann") == speaker.list_password_hashes("ann")
        assert hearer.list_key_ids("dog") == [1, 2]
        key = first.devices["dog"].keys[2]
        secret = derive_device_secret(key, "dog", hearer.name, 2)
        assert hearer.registrations.devices["dog"].keys[2].secret == secret
        assert hearer.is_revoked("lost")
        assert hearer.link_for("lost", 1) is None
        assert hearer.conflicts == []


def test_a_node_learns_no_other_nodes_keys_of_a_device() -> None:
    first, (b, c) = make_busy_node()
    speaker = Keyring(first)
    hearers = [Keyring(b), Keyring(c)]
    tell(speaker, *hearers)
    held = [hearer.registrations.devices["dog"].keys[1].secret for hearer in hearers]
    assert held[0] != held[1]
    master = first.devices["dog"].keys[1].secret
    assert master not in held
    everything = b"".join(speaker.list_notices())
    for secret in (master, *held):
        assert secret not in everything


@given(st.randoms(use_true_random=False))
def test_the_order_does_not_matter_and_repetition_neither(rng: random.Random) -> None:
    notices = [(_SPEAKER.name, body) for body in _SPEAKER.list_notices()]
    notices += [(_OTHER.name, body) for body in _OTHER.list_notices()]
    shuffled = [*notices, *rng.sample(notices, 3)]
    rng.shuffle(shuffled)
    hearer = Keyring(_ALONE)
    for origin, body in shuffled:
        hearer.apply_notice(origin, body)
        if rng.random() < 0.3:
            assert hearer.registrations.name == "node-b"  # settle in between
    assert hearer.registrations == _expect()
    assert sorted(hearer.conflicts) == sorted(_EXPECTED[1])


_FIRST, (_ALONE, _THIRD) = make_busy_node()
_THIRD, _ = site.add_subscriber(_THIRD, "eve", "observer")
_SPEAKER, _OTHER = Keyring(_FIRST), Keyring(_THIRD)
_EXPECTED: list[object] = []


def _expect() -> Registrations:
    if not _EXPECTED:
        hearer = Keyring(_ALONE)
        tell(_SPEAKER, hearer)
        tell(_OTHER, hearer)
        _EXPECTED.extend([hearer.registrations, hearer.conflicts])
    assert isinstance(_EXPECTED[0], Registrations)
    return _EXPECTED[0]


def test_the_newest_version_wins() -> None:
    first, (second, _) = make_busy_node()
    hearer = Keyring(second)
    newer = site.change_role(first, "ann", "observer")
    tell(Keyring(newer), hearer)
    tell(Keyring(first), hearer)
    assert hearer.role_of("ann") == "observer"


def test_what_was_made_here_is_not_changed_from_elsewhere() -> None:
    first, (second, _) = make_busy_node()
    second, _ = site.add_subscriber(second, "ann", "observer")
    hearer = Keyring(second)
    tell(Keyring(site.change_role(first, "ann", "coordinator")), hearer)
    assert hearer.role_of("ann") == "observer"
    assert len(hearer.conflicts) == 1
    assert "ann" in hearer.conflicts[0]


def test_sealed_notices_wait_for_the_card_of_their_origin() -> None:
    first, (second, _) = make_busy_node()
    cards = {"node-b": second.cards["node-b"]}
    hearer = Keyring(Registrations(second.name, second.site, second.own, cards))
    tell(Keyring(first), hearer)  # with its own card among the notices
    assert hearer.role_of("ann") == "medic"


def test_whom_a_stolen_node_let_in_is_out() -> None:
    first, (second, third) = make_busy_node()
    hearer = Keyring(second)
    tell(Keyring(first), hearer)
    assert hearer.kind_of("ann") == "subscriber"
    third = site.revoke(third, "node", "node-a", None, make_authority())
    tell(Keyring(third), hearer)
    assert not hearer.knows_node("node-a")
    assert hearer.kind_of("ann") is None
    assert hearer.kind_of("lost") is None


def test_a_revoked_node_is_not_revived_by_its_card_nor_invited_again(tmp_path: Path) -> None:
    first, second = make_site(tmp_path, ["node-a", "node-b"])
    file = KeyFile(first)
    file.save(site.revoke(file.load(), "node", "node-b", None, load_authority(first)))
    keyring = Keyring(file.load())
    card = KeyFile(second).load().cards["node-b"][1]
    keyring.apply_notice("node-a", make_introduction(card))
    assert not keyring.knows_node("node-b")
    assert keyring.conflicts == []
    with pytest.raises(SecurityError, match="revoked"):
        invite_node(first, load_authority(first), "node-b", [], {}, TODAY)


def test_a_device_that_was_revoked_elsewhere_stays_out() -> None:
    first, (second, _) = make_busy_node()
    hearer = Keyring(site.revoke(second, "device", "dog", None, make_authority()))
    tell(Keyring(first), hearer)
    assert hearer.kind_of("dog") is None
    assert hearer.conflicts == []


def test_only_the_authority_revokes_a_node() -> None:
    a, b = make_keyrings("node-a", "node-b")
    for proof in (b"", bytes(64), a.sign(b"x")):
        with pytest.raises(SecurityError, match="authority"):
            b.apply_notice("node-a", make_revocation("node", "node-b", None, proof))
    foreign = make_authority("elsewhere").sign_revocation("node-b", None)
    with pytest.raises(SecurityError, match="authority"):
        b.apply_notice("node-a", make_revocation("node", "node-b", None, foreign))
    # Nor by calling a node something else.
    b.apply_notice("node-a", make_revocation("device", "node-a"))
    assert b.knows_node("node-a")
    assert b.kind_of("node-a") == "node"
    right = make_authority().sign_revocation("node-a", None)
    assert b.apply_notice("node-b", make_revocation("node", "node-a", None, right))
    assert not b.knows_node("node-a")
    with pytest.raises(SecurityError):  # a signature for one name is none for another
        b.apply_notice("node-b", make_revocation("node", "node-b", None, right))


def test_a_forged_card_is_refused() -> None:
    keyring = Keyring(make_registry("node-b"))
    forged = make_registry("node-x", "elsewhere").cards["node-x"][1]
    with pytest.raises(SecurityError, match="not signed by this site"):
        keyring.apply_notice("node-a", make_introduction(forged))
    real = make_registry("node-x").cards["node-x"][1]
    for field in ("name", "serial", "sign", "agree"):
        changed = {
            "name": "node-y",
            "serial": 2,
            "sign": bytes([real.sign[0] ^ 1]) + real.sign[1:],
            "agree": bytes([real.agree[0] ^ 1]) + real.agree[1:],
        }[field]
        with pytest.raises(SecurityError):
            keyring.apply_notice("node-a", make_introduction(real._replace(**{field: changed})))
    assert keyring.apply_notice("node-a", make_introduction(real))
    assert not keyring.apply_notice("node-a", make_introduction(real))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_notice_or_an_error(body: bytes) -> None:
    with contextlib.suppress(SecurityError):
        read_notice(body, _SPEAKER.registrations.site)


@given(
    st.lists(
        st.none() | st.integers(-5, 70000) | st.text(max_size=5) | st.binary(max_size=80),
        max_size=6,
    )
)
def test_any_list_is_a_notice_or_an_error(fields: list[object]) -> None:
    hearer = Keyring(_ALONE)
    for kind in (1, 2, 3):
        try:
            hearer.apply_notice("node-a", cbor.encode([kind, *fields]))
        except SecurityError:
            continue
        assert hearer.registrations


def test_a_sealed_notice_is_opened_by_nobody_else_and_not_after_a_change() -> None:
    first, (second, _) = make_busy_node()
    bodies = Keyring(first).list_notices()
    hearer = Keyring(second)
    for body in bodies:
        hearer.apply_notice("node-c", body)  # under another origin's name
    assert hearer.kind_of("ann") is None
    spoiled = [body[:-1] + bytes([body[-1] ^ 1]) for body in bodies if body[1] == 3]
    for body in spoiled:
        hearer.apply_notice("node-a", body)
    assert hearer.kind_of("ann") is None
    assert hearer.kind_of("dog") is None


def test_a_node_tells_the_same_until_something_changes() -> None:
    first, _ = make_busy_node()
    again = Keyring(first)
    assert again.list_notices() == Keyring(first).list_notices()
    changed = Keyring(site.revoke(first, "subscriber", "ann", None, None))
    assert set(changed.list_notices()) != set(again.list_notices())
    assert make_revocation("subscriber", "ann") in changed.list_notices()


def test_a_key_given_at_one_node_stays_there() -> None:
    first, (second, _) = make_busy_node()
    given_key = site.add_device(first, "old", make_registry().own[1].sign_secret)
    hearer = Keyring(second)
    tell(Keyring(given_key), hearer)
    assert hearer.kind_of("old") is None
    assert Keyring(given_key).link_for("old", 1) is not None
