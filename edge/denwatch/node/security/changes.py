"""What an operator does to a registry: add, rotate, retire, revoke. Returns a new registry.

New keys come from the machine's random source, so this file is for commands, not for the core.
"""

from __future__ import annotations

from dataclasses import replace

from denwatch.node.security.authority import Authority
from denwatch.node.security.errors import SecurityError
from denwatch.node.security.names import check_secret, make_secret
from denwatch.node.security.passwords import (
    COST_MADE,
    check_chosen,
    make_hash,
    make_password,
    verify_password,
)
from denwatch.node.security.registry import Device, DeviceKey, Kind, Registry, Subscriber


def add_device(
    registry: Registry, name: str, secret: bytes | None = None, key_id: int = 1
) -> Registry:
    """Return the registry with a new device.

    Without a secret it gets one from which each node's key is derived; a given one, from a device
    that has it already, is for this node alone.
    """
    _refuse_known(registry, name)
    key = DeviceKey(make_secret(), is_master=True)
    if secret is not None:
        key = DeviceKey(check_secret(secret, f"device {name}"))
    return registry.with_device(name, Device({key_id: key}, is_ours=True))


def add_subscriber(
    registry: Registry, name: str, role: str, chosen: str | None = None
) -> tuple[Registry, str]:
    """Return the registry with a new subscriber, and the password."""
    _refuse_known(registry, name)
    password, text = _hash_new(registry, name, chosen)
    return registry.with_subscriber(name, Subscriber(role, {1: text})), password


def change_role(registry: Registry, name: str, role: str) -> Registry:
    """Return the registry with another role for a subscriber; from its next request on."""
    found = registry.subscribers.get(name)
    if found is None:
        raise SecurityError(f'there is no subscriber "{name}" here')
    _refuse_foreign(name, found.is_ours)
    return registry.with_subscriber(name, replace(found, role=role, version=found.version + 1))


def rotate(registry: Registry, name: str, chosen: str | None = None) -> tuple[Registry, int, str]:
    """Return the registry with one key more for a name, its id, and a subscriber's password.

    The old keys stay good until `retire` or `revoke`.
    """
    device, subscriber = registry.devices.get(name), registry.subscribers.get(name)
    if device is not None:
        _refuse_foreign(name, device.is_ours)
        key_id = max(device.keys) + 1
        keys = {**device.keys, key_id: DeviceKey(make_secret(), is_master=True)}
        changed = replace(device, keys=keys, version=device.version + 1)
        return registry.with_device(name, changed), key_id, ""
    if subscriber is not None:
        _refuse_foreign(name, subscriber.is_ours)
        key_id = max(subscriber.passwords) + 1
        password, text = _hash_new(registry, name, chosen)
        entry = replace(
            subscriber,
            passwords={**subscriber.passwords, key_id: text},
            version=subscriber.version + 1,
        )
        return registry.with_subscriber(name, entry), key_id, password
    raise SecurityError(f'there is no device or subscriber "{name}" here')


def retire(
    registry: Registry, name: str, authority: Authority | None
) -> tuple[Registry, list[int]]:
    """Return the registry with all keys of a name but the newest revoked, and their ids."""
    kind = registry.kind_of(name)
    if kind is None:
        raise SecurityError(f'there is nobody called "{name}" here')
    old = [
        key_id
        for key_id in _list_ids(registry, kind, name)[:-1]
        if not registry.is_revoked(kind, name, key_id)
    ]
    for key_id in old:
        registry = revoke(registry, kind, name, key_id, authority)
    return _drop_revoked(registry, name), old


def _list_ids(registry: Registry, kind: Kind, name: str) -> list[int]:
    if kind == "node":
        return sorted(registry.cards[name])
    if kind == "device":
        return sorted(registry.devices[name].keys)
    return sorted(registry.subscribers[name].passwords)


def _drop_revoked(registry: Registry, name: str) -> Registry:
    """Return the registry without revoked keys of a name that was registered here.

    So that there is always room for the next rotation. Cards stay: they are few, and public.
    """
    device, subscriber = registry.devices.get(name), registry.subscribers.get(name)
    if device is not None and device.is_ours:
        keys = {i: k for i, k in device.keys.items() if not registry.is_revoked("device", name, i)}
        if len(keys) < len(device.keys):
            changed = replace(device, keys=keys, version=device.version + 1)
            return registry.with_device(name, changed)
    if subscriber is not None and subscriber.is_ours:
        passwords = {
            key_id: text
            for key_id, text in subscriber.passwords.items()
            if not registry.is_revoked("subscriber", name, key_id)
        }
        if len(passwords) < len(subscriber.passwords):
            entry = replace(subscriber, passwords=passwords, version=subscriber.version + 1)
            return registry.with_subscriber(name, entry)
    return registry


def revoke(
    registry: Registry, kind: Kind, name: str, key_id: int | None, authority: Authority | None
) -> Registry:
    """Return the registry with a name, or one key of it, revoked. A node needs the authority."""
    proof = b""
    if kind == "node":
        if authority is None:
            raise SecurityError(f"to revoke the node {name}, the site's authority is needed")
        if authority.public != registry.site:
            raise SecurityError("this authority is another site's")
        proof = authority.sign_revocation(name, key_id)
    return registry.revoke(kind, name, key_id, proof)


def _hash_new(registry: Registry, name: str, chosen: str | None) -> tuple[str, str]:
    """Return a password and its hash: a new one, or the one that a person chose."""
    if chosen is None:
        password = make_password()
        return password, make_hash(password, COST_MADE)
    check_chosen(chosen, name)
    for other, subscriber in registry.subscribers.items():
        if any(verify_password(text, chosen.encode()) for text in subscriber.passwords.values()):
            raise SecurityError(f"{name}: {other} has this password already")
    return chosen, make_hash(chosen)


def _refuse_known(registry: Registry, name: str) -> None:
    kind = registry.kind_of(name)
    if kind is not None:
        raise SecurityError(f'there is a {kind} called "{name}" already')


def _refuse_foreign(name: str, is_ours: bool) -> None:
    if not is_ours:
        raise SecurityError(f"{name} was registered at another node; change it there")
