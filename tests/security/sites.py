"""Sites for tests: several nodes of one authority, in memory or in folders."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from denwatch.node.security import site
from denwatch.node.security.cards import Authority, make_node_keys
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.registrations import Registrations
from denwatch.node.security.site import KeyFile, found_site, invite_node, join_site, load_authority

TODAY = datetime(2026, 1, 1, tzinfo=UTC)


def make_authority(site: str = "site") -> Authority:
    """Return the authority of a site, the same each time."""
    return _make_authority(site)


@cache
def _make_authority(site: str) -> Authority:
    return Authority.make(site, TODAY)


def make_registry(name: str = "node-a", site: str = "site") -> Registrations:
    """Return the registry of a node that knows nobody."""
    authority = make_authority(site)
    keys = make_node_keys(1)
    card = authority.sign_card(name, keys)
    return Registrations(name, authority.public, {1: keys}, {name: {1: card}})


def make_registries(*names: str) -> list[Registrations]:
    """Return the registries of nodes that know each other's cards."""
    alone = [make_registry(name) for name in names]
    return [
        _introduce(registry, [other for other in alone if other is not registry])
        for registry in alone
    ]


def _introduce(registry: Registrations, others: list[Registrations]) -> Registrations:
    for other in others:
        registry = registry.with_card(other.cards[other.name][1])
    return registry


def make_keyrings(*names: str) -> list[Keyring]:
    """Return keyrings of nodes that know each other."""
    return [Keyring(registry) for registry in make_registries(*names)]


def make_site(folder: Path, names: list[str]) -> list[Path]:
    """Return the folders of nodes of one site on the disk; the first one founded it."""
    folders = [folder / name for name in names]
    for one in folders:
        one.mkdir()
    found_site(folders[0], names[0], ["127.0.0.1"], TODAY)
    for one in folders[1:]:
        peers = {names[0]: "mqtt://127.0.0.1:1883"}
        authority = load_authority(folders[0])
        join_site(one, invite_node(folders[0], authority, one.name, [], peers, TODAY))
    return folders


def add_subscriber(folder: Path, name: str, role: str) -> str:
    """Register a subscriber in a folder and return the password."""
    file = KeyFile(folder)
    registry, password = site.add_subscriber(file.load(), name, role)
    file.save(registry)
    return password


def tell(speaker: Keyring, *hearers: Keyring) -> None:
    """Hand over all notices of one node, as items do."""
    for body in speaker.list_notices():
        for hearer in hearers:
            hearer.apply_notice(speaker.name, body)
