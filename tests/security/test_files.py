"""`keys.json` on the disk: permissions, whole replacement, changes noticed, mistakes told."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from denwatch.node.security import site
from denwatch.node.security.cards import make_node_keys
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.registrations import (
    Registrations,
    read_registrations,
    write_registrations,
)
from denwatch.node.security.site import KeyFile, read_secret_file, write_file

from tests.security.sites import make_authority, make_registries


def make_full_registry() -> Registrations:
    """Return a registry with everything in it."""
    registry = make_registries("node-a", "node-b")[0]
    registry = site.add_device(registry, "dog")
    registry = site.add_device(registry, "cat", make_node_keys(1).sign_secret, 7)
    registry, _, _ = site.rotate(registry, "dog")
    registry, _ = site.add_subscriber(registry, "ann", "medic")
    registry = site.revoke(registry, "device", "cat", 3, None)
    return site.revoke(registry, "node", "node-b", None, make_authority())


def test_a_registry_comes_back_from_its_text() -> None:
    registry = make_full_registry()
    again = read_registrations(write_registrations(registry))
    assert write_registrations(again) == write_registrations(registry)
    assert again.devices == registry.devices
    assert again.subscribers == registry.subscribers
    assert again.revoked == registry.revoked
    assert again.proofs == registry.proofs
    assert again.cards == registry.cards
    assert {n: k.sign_secret for n, k in again.own.items()} == {
        n: k.sign_secret for n, k in registry.own.items()
    }


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    old = os.umask(0)
    try:
        file.save(make_full_registry())
    finally:
        os.umask(old)
    assert file.path.stat().st_mode & 0o777 == 0o600
    file.load()
    for mode in (0o640, 0o604, 0o644, 0o660):
        file.path.chmod(mode)
        with pytest.raises(SecurityError, match=rf"mode {mode:04o}.*chmod 600"):
            file.load()


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    write_file(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SecurityError, match="No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["secret"]  # noqa: PTH208 - the temporary one is gone, too


def test_a_change_is_noticed_even_within_one_tick(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    registry = make_full_registry()
    file.save(registry)
    file.load()
    assert file.load_if_changed() is None
    file.save(registry)
    os.utime(file.path, ns=(1, 1))
    assert file.load_if_changed() is not None
    assert file.load_if_changed() is None


def test_what_is_not_there_or_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=r"keys\.json: No such file"):
        KeyFile(tmp_path).load()
    with pytest.raises(SecurityError, match=r"Is a directory|not a file"):
        read_secret_file(tmp_path)


def _spoil(change: str, document: dict[str, Any]) -> None:
    dog, cat = document["devices"]["dog"], document["devices"]["cat"]
    ann = document["subscribers"]["ann"]
    if change == "unknown key":
        document["colour"] = "red"
    elif change == "version":
        document["version"] = 2
    elif change == "equal keys":
        dog["keys"][0]["secret"] = cat["keys"][0]["secret"]
    elif change == "weak key":
        dog["keys"][0]["secret"] = "00" * 32
    elif change == "short key":
        dog["keys"][0]["secret"] = "0123456789"
    elif change == "no hex":
        dog["keys"][0]["secret"] = "key"
    elif change == "id twice":
        dog["keys"][1]["id"] = 1
    elif change == "id range":
        dog["keys"][0]["id"] = 65536
    elif change == "no keys":
        dog["keys"] = []
    elif change == "hash":
        ann["passwords"][0]["hash"] = "letmein"
    elif change == "role":
        ann["role"] = "me dic"
    elif change == "two kinds":
        document["subscribers"]["dog"] = ann
    elif change == "name":
        document["devices"]["d/g"] = document["devices"].pop("cat")
    elif change == "card":
        card = bytearray.fromhex(document["cards"][0])
        card[-20] ^= 1
        document["cards"][0] = card.hex()
    elif change == "own key":
        document["own"][0]["sign"] = "11" * 16 + "2233445566778899aabbccddeeff0123"
    elif change == "kind":
        document["revoked"][0]["kind"] = "ghost"
    elif change == "missing":
        del document["site"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("unknown key", "unknown field `colour`"),
        ("version", "version 2"),
        ("equal keys", "same key as"),
        ("weak key", "device dog, key 1: only 1 different"),
        ("short key", "device dog, key 1: 5 bytes"),
        ("no hex", "device dog, key 1: not hexadecimal"),
        ("id twice", "device dog: the id 1 appears twice"),
        ("id range", "65535"),
        ("no keys", "device dog: 0 keys"),
        ("hash", "subscriber ann, password 1: not a scrypt hash"),
        ("role", 'role of ann "me dic"'),
        ("two kinds", '"dog" is a device and a subscriber'),
        ("name", 'device "d/g"'),
        ("card", "not signed by this site"),
        ("own key", "no matching card"),
        ("kind", 'unknown kind "ghost"'),
        ("missing", "site"),
    ],
)
def test_mistakes_in_the_file_are_told(tmp_path: Path, change: str, words: str) -> None:
    document = json.loads(write_registrations(make_full_registry()))
    _spoil(change, document)
    file = KeyFile(tmp_path)
    write_file(file.path, json.dumps(document).encode())
    with pytest.raises(SecurityError, match=words) as caught:
        file.load()
    assert str(file.path) in str(caught.value)


def test_every_cut_of_the_file_is_refused(tmp_path: Path) -> None:
    text = write_registrations(make_full_registry()).rstrip()
    for end in range(0, len(text), 37):
        with pytest.raises(SecurityError):
            read_registrations(text[:end])
    assert not list(tmp_path.iterdir())


def _add_some(folder: str, start: int) -> None:
    file = KeyFile(Path(folder))
    for i in range(start, start + 10):
        with file.lock():
            file.save(site.add_device(file.load(), f"dog-{i}"))


def test_two_commands_at_once_lose_nothing(tmp_path: Path) -> None:
    KeyFile(tmp_path).save(make_registries("node-a")[0])
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add_some, args=(str(tmp_path), n)) for n in (0, 100)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(KeyFile(tmp_path).load().devices) == 20
