"""A name belongs to the node that registered it: a stolen node cannot change names of others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from denwatch.cli import keys
from denwatch.cli.errors import CommandError
from denwatch.node.core.events import Log, Write
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import NEVER, REVOCATION, Dot, Item
from denwatch.node.core.trust import OWNERS, Trust
from denwatch.node.security import site
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.notices import make_revocation
from denwatch.node.security.registrations import (
    Registrations,
    read_registrations,
    write_registrations,
)
from denwatch.node.security.site import KeyFile, write_conflicts

from tests.security.sites import TODAY, make_authority, make_registries, make_site, tell


def make_three() -> tuple[Registrations, Registrations, Registrations]:
    """Return the node that registered ann and dog, a thief's node, and a third one."""
    honest, thief, third = make_registries("node-z", "node-a", "node-m")
    honest, _ = site.add_subscriber(honest, "ann", "observer")
    return site.add_device(honest, "dog", nodes=()), thief, third


def forge(thief: Registrations, name: str = "ann", version: int = 65535) -> Keyring:
    """Return a stolen node that registered a name of another node as an operator."""
    thief, _ = site.add_subscriber(thief, name, "operator")
    entry = replace(thief.subscribers[name], version=version)
    return Keyring(thief.with_subscriber(name, entry))


def test_a_stolen_node_takes_over_nobody_whatever_the_version() -> None:
    honest, thief, third = make_three()
    hearer = Keyring(third)
    tell(Keyring(honest), hearer)
    before = hearer.registrations.subscribers["ann"]
    tell(forge(thief), hearer)
    tell(forge(thief, "dog"), hearer)  # nor as something else
    assert hearer.registrations.subscribers["ann"] == before
    assert hearer.kind_of("dog") == "device"
    assert sorted(hearer.conflicts) == [
        f"{name} belongs to node-z, where it was registered first; what node-a says about it is "
        "ignored"
        for name in ("ann", "dog")
    ]
    changed = Keyring(site.change_role(honest, "ann", "medic"))
    tell(changed, hearer)  # its own node may
    assert hearer.role_of("ann") == "medic"


def test_what_came_with_the_invitation_belongs_to_its_node(tmp_path: Path) -> None:
    first, _ = make_site(tmp_path, ["node-z", "node-a"])
    file = KeyFile(first)
    registry, _ = site.add_subscriber(file.load(), "ann", "observer")
    file.save(registry)
    authority = site.load_authority(first)
    invitation = site.invite_node(first, authority, "node-m", [], {}, TODAY)
    third = read_registrations(invitation.registry.encode())
    assert third.find_owner("ann") == "node-z"
    assert replace(read_registrations(write_registrations(third)), own=third.own) == third
    hearer = Keyring(third)
    tell(forge(KeyFile(tmp_path / "node-a").load()), hearer)
    assert hearer.role_of("ann") == "observer"
    gone = site.revoke(registry, "node", "node-z", None, authority)
    proof = gone.proofs["node-z", 0]
    hearer.apply_notice("node-a", make_revocation("node", "node-z", None, proof))
    assert hearer.kind_of("ann") is None


def test_a_name_of_a_revoked_node_is_free_and_its_words_count_no_more() -> None:
    honest, thief, third = make_three()
    hearer = Keyring(third)
    tell(forge(thief), hearer)  # first seen: stays, and the conflict is shown
    hearer.apply_notice("node-a", make_revocation("subscriber", "unborn"))
    tell(Keyring(honest), hearer)
    assert hearer.role_of("ann") == "operator"
    assert "ann belongs to node-a" in hearer.conflicts[0]
    ended = site.revoke(third, "node", "node-a", None, make_authority())
    tell(Keyring(ended), hearer)
    assert hearer.role_of("ann") == "observer"
    assert not hearer.is_revoked("unborn")
    assert hearer.find_owner("ann") == "node-z"


def test_who_was_first_is_remembered_over_restarts() -> None:
    honest, thief, third = make_three()
    store: dict[tuple[str, bytes], bytes | None] = {}

    class Disk:
        def get(self, space: str, key: bytes) -> bytes | None:
            return store.get((space, key))

        def scan(self, space: str, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
            rows = [(k, v) for (s, k), v in store.items() if s == space and v is not None]
            return sorted(row for row in rows if row[0].startswith(prefix))

    def start(epoch: int) -> tuple[Keyring, ItemStore, Trust]:
        ring = Keyring(third)
        items = ItemStore("node-m", epoch, ring.sign, lambda _, time: time)
        trust = Trust(items, ring)
        items.restore(Disk())
        trust.restore(Disk())
        return ring, items, trust

    ring, items, trust = start(1)
    transaction = Transaction(0, Disk())
    for epoch, speaker in enumerate((Keyring(honest), forge(thief)), 1):
        for number, body in enumerate(speaker.list_notices(), 1):
            item = Item(Dot(speaker.name, epoch, number), REVOCATION, NEVER, body)
            items.accept(transaction, item, "peer")
            trust.apply_notice(transaction, item)
    for action in transaction.actions:
        if isinstance(action, Write):
            store[action.space, action.key] = action.value
    logged = [action for action in transaction.actions if isinstance(action, Log)]
    assert [log.fields["who"] for log in logged if log.kind == "refuse"] == ["node-a"]
    assert store[OWNERS, b"ann"] == b"node-z"
    assert ring.role_of("ann") == "observer"
    again, _, _ = start(2)  # node-a's notices are read before those of node-z
    assert again.role_of("ann") == "observer"


def test_only_its_node_revokes_a_name() -> None:
    honest, _, third = make_three()
    hearer = Keyring(third)
    tell(Keyring(honest), hearer)
    for kind in ("subscriber", "device"):
        hearer.apply_notice("node-a", make_revocation(kind, "ann"))
        hearer.apply_notice("node-a", make_revocation(kind, "dog", 1))
    assert hearer.role_of("ann") == "observer"
    assert hearer.list_key_ids("dog") == [1]
    assert len(hearer.conflicts) == 2
    tell(Keyring(site.revoke(honest, "subscriber", "ann", None, None)), hearer)
    assert hearer.is_revoked("ann")


def test_the_authority_revokes_restores_and_settles() -> None:
    authority = make_authority()
    honest, thief, third = make_three()
    hearer = Keyring(third)
    tell(Keyring(honest), hearer)
    with pytest.raises(SecurityError, match="revoke it at the node that registered it, or here"):
        site.revoke(third, "subscriber", "ann", None, None)
    ended = site.revoke(third, "subscriber", "ann", None, authority, now=1000)
    tell(Keyring(ended), hearer)
    owner = Keyring(honest)
    tell(Keyring(ended), owner)
    assert hearer.is_revoked("ann")
    assert owner.is_revoked("ann")
    again = site.restore(honest, "ann", authority, now=2000)
    assert replace(read_registrations(write_registrations(again)), own=again.own) == again
    for ring in (hearer, owner):
        tell(Keyring(again), ring)
        tell(Keyring(ended), ring)
        assert ring.role_of("ann") == "observer"
    for ring in (hearer, owner):  # its node may revoke it again; an old revocation does not count
        ring.apply_notice("node-z", make_revocation("subscriber", "ann"))
        assert not ring.is_revoked("ann")
    tell(Keyring(site.revoke(again, "subscriber", "ann", None, None)), hearer)
    assert hearer.is_revoked("ann")
    # Two nodes have one name: the authority says whose it is, and the other one follows.
    both, _ = site.add_subscriber(thief, "ann", "coordinator")
    other = Keyring(both)
    settled = Keyring(site.restore(honest, "ann", authority, now=3000))
    tell(settled, other)
    assert other.role_of("ann") == "observer"
    assert not any(body for body in other.list_notices() if body[1] == 3)


def test_a_ruling_needs_the_authority() -> None:
    honest, _, third = make_three()
    forged = make_authority("elsewhere").sign_ruling("ann", 9, is_revoked=True)
    hearer = Keyring(replace(third, rulings={"ann": forged}))
    body = next(body for body in hearer.list_notices() if body[1] == 4)
    with pytest.raises(SecurityError, match="authority"):
        Keyring(honest).apply_notice("node-m", body)
    with pytest.raises(SecurityError, match="another site"):
        site.restore(honest, "ann", make_authority("elsewhere"), now=1)
    with pytest.raises(SecurityError, match="restore it at"):
        site.restore(third, "ann", make_authority(), now=1)


def test_the_command_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = make_site(tmp_path, ["node-a", "node-b"])
    authority = f"--authority {first / 'authority.json'} "

    def run(folder: Path, line: str) -> str:
        keys.run(["--directory", str(folder), *line.split()])
        return capsys.readouterr().out

    run(first, "add device dog")
    with pytest.raises(CommandError, match="dog was not registered here: revoke it at the node"):
        run(second, "revoke dog --kind device")
    assert "dog is revoked" in run(second, authority + "revoke dog --kind device")
    run(first, "revoke dog")
    with pytest.raises(CommandError, match="restore it at"):
        run(second, authority + "restore dog")
    assert "dog is valid, and belongs to this node" in run(first, "restore dog")
    assert "revoked" not in run(first, "list")
    write_conflicts(first, ["dog belongs to node-a"])
    assert "conflict: dog belongs to node-a" in run(first, "list")


def test_files_of_older_versions_are_read() -> None:
    honest, thief, third = make_three()
    text = write_registrations(honest)
    assert b'"node"' not in text
    hearer = Keyring(third)
    tell(Keyring(honest), hearer)
    merged = hearer.registrations
    old = {name: replace(entry, node="") for name, entry in merged.subscribers.items()}
    again = Keyring(read_registrations(write_registrations(replace(merged, subscribers=old))))
    tell(Keyring(honest), again)  # the first node that says it has the name owns it
    tell(forge(thief), again)
    assert again.role_of("ann") == "observer"
