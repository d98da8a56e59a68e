"""Each safety rule, taken out: the check that guards it must then find a breach.

A check that finds nothing with its rule removed would prove nothing with the rule in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from denwatch.node.replication import wire
from denwatch.node.security import access as access_module
from denwatch.node.security import cards, keyring, notices, site
from denwatch.node.security.credentials import SecurityError, find_weakness
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.registrations import Registrations

from tests.security.sites import make_authority, make_keyrings, make_registries, make_registry, tell
from tests.security.test_topics import find_trespasses, make_access

Check = Callable[[], list[str]]


def find_forged_frames() -> list[str]:
    """Return forged peer frames that were opened."""
    right, wrong = bytes(range(1, 33)), bytes(range(2, 34))
    sealed = wire.seal(right, "a", "b", b"", wire.ITEMS, 1, b"body")
    tries = {
        "another key": wire.seal(wrong, "a", "b", b"", wire.ITEMS, 1, b"body"),
        "turned around": wire.seal(right, "b", "a", b"", wire.ITEMS, 1, b"body"),
        "changed body": sealed.replace(b"body", b"bodX"),
    }
    return [what for what, frame in tries.items() if _is_opened(right, frame)]


def _is_opened(secret: bytes, frame: bytes) -> bool:
    return wire.read_frame(frame, 1000).is_from([secret], "a", "b", b"")


def find_forged_signatures() -> list[str]:
    """Return what passes for a node's signature and is not."""
    a, b = make_keyrings("node-a", "node-b")
    found = []
    if b.verify("node-a", b"other", a.sign(b"data")):
        found.append("other data")
    if b.verify("node-b", b"data", a.sign(b"data")):
        found.append("other name")
    return found


def find_forged_notices() -> list[str]:
    """Return notices that a stolen node can make and others obey."""
    found = []
    b = make_keyrings("node-a", "node-b")[1]
    for what, body in {
        "revokes a node": notices.make_revocation("node", "node-b", None, bytes(64)),
        "adds a node": notices.make_introduction(
            make_registry("evil", "elsewhere").cards["evil"][1]
        ),
    }.items():
        try:
            b.apply_notice("node-a", body)
        except SecurityError:
            continue
        if b.is_revoked("node-b") or b.knows_node("evil"):
            found.append(what)
    return found


def find_taken_names() -> list[str]:
    """Return what a stolen node can change of a name that another node registered."""
    owner, thief, third = make_registries("node-a", "node-b", "node-c")
    owner, _ = site.add_subscriber(owner, "ann", "medic")
    thief, _ = site.add_subscriber(thief, "ann", "operator")
    entry = replace(thief.subscribers["ann"], version=9)
    hearer = Keyring(third)
    tell(Keyring(owner), hearer)
    tell(Keyring(thief.with_subscriber("ann", entry)), hearer)
    found = ["the role"] if hearer.role_of("ann") != "medic" else []
    hearer.apply_notice("node-b", notices.make_revocation("subscriber", "ann"))
    return [*found, "the name"] if hearer.is_revoked("ann") else found


def find_revived_names() -> list[str]:
    """Return what a revoked device or node may still do."""
    registry = site.add_device(make_registries("node-a", "node-b")[0], "dog")
    registry = site.revoke(registry, "device", "dog", None, None)
    registry = site.revoke(registry, "node", "node-b", None, make_authority())
    ring = Keyring(registry)
    found = []
    if ring.link_for("dog", 1) is not None:
        found.append("a link")
    if ring.peer_secret("node-b") is not None:
        found.append("a peer secret")
    if ring.kind_of("dog") is not None:
        found.append("a name")
    return found


def find_trespassers() -> list[str]:
    """Return filters that reach somebody else's topics."""
    return [" ".join(one) for one in find_trespasses(make_access())]


def find_weak_keys() -> list[str]:
    """Return keys that nobody should have and that are taken."""
    found = []
    for secret in (bytes(32), bytes(range(32)), b"sixteen letters!"):
        try:
            site.add_device(make_registry(), "dog", secret)
        except SecurityError:
            continue
        found.append(secret.hex())
    return found


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _tag_without_names(
    secret: bytes, _sender: str, _receiver: str, head: bytes, body: bytes
) -> bytes:
    return _REAL_TAG(secret, "", "", head, body)


_REAL_TAG = wire.tag_peer

RULES: list[tuple[str, Check, object, str, object]] = [
    ("tag is compared", find_forged_frames, wire.hmac, "compare_digest", _always),
    ("tag covers direction", find_forged_frames, wire, "tag_peer", _tag_without_names),
    ("signature is checked", find_forged_signatures, keyring, "verify_signature", _always),
    ("authority revokes nodes", find_forged_notices, notices, "verify_signature", _always),
    ("authority signs cards", find_forged_notices, cards, "verify_signature", _always),
    (
        "a name belongs to a node",
        find_taken_names,
        notices.RegistrationsBuilder,
        "find_owner",
        lambda *_: "",
    ),
    ("revocation counts", find_revived_names, Registrations, "is_revoked", _never),
    (
        "filters are covered whole",
        find_trespassers,
        access_module,
        "covers",
        access_module.overlaps,
    ),
    ("weak keys are refused", find_weak_keys, find_weakness, "__code__", (lambda _: "").__code__),
]


@pytest.mark.parametrize("rule", RULES, ids=[rule[0] for rule in RULES])
def test_every_rule_is_needed(
    rule: tuple[str, Check, object, str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, check, owner, name, instead = rule
    assert check() == []
    monkeypatch.setattr(owner, name, instead)
    assert check() != []
