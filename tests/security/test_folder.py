"""Founding, inviting and joining; certificates that real TLS accepts, and those it does not."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from denwatch.node.security import site
from denwatch.node.security.cards import list_addresses
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.site import (
    CA_DER_FILE,
    CA_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    KeyFile,
    found_site,
    invite_node,
    join_site,
    load_authority,
    open_keyring,
    read_invitation,
    renew_certificate,
    rotate_own_keys,
    write_file,
    write_invitation,
)

from tests.security.sites import TODAY, add_subscriber, make_site, tell


def shake_hands(server: Path, client: Path, host: str) -> str:
    """Do a TLS handshake in memory; return "" or why the client refused."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server / CERTIFICATE_FILE, server / KEY_FILE)
    dialing = ssl.create_default_context(cafile=str(client / CA_FILE))
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = serving.wrap_bio(up, down, server_side=True)
    other = dialing.wrap_bio(down, up, server_hostname=host)
    for _ in range(10):
        done = 0
        for end in (other, one):
            try:
                end.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
        if done == 2:
            return ""
    return "no end"


def test_three_nodes_are_linked_by_two_commands_each(tmp_path: Path) -> None:
    folders = make_site(tmp_path, ["node-a", "node-b", "node-c"])
    a, b, c = (open_keyring(folder) for folder in folders)
    assert b.list_nodes() == ["node-a", "node-b"]  # it was invited before node-c
    tell(a, b, c)
    for one in (a, b, c):
        assert one.list_nodes() == ["node-a", "node-b", "node-c"]
    assert b.peer_secret("node-c") == c.peer_secret("node-b") != None  # noqa: E711 - both hold
    assert c.verify("node-b", b"x", b.sign(b"x"))


def test_tls_accepts_the_sites_servers_and_no_others(tmp_path: Path) -> None:
    first, second = make_site(tmp_path, ["node-a", "node-b"])
    stranger = tmp_path / "elsewhere"
    stranger.mkdir()
    found_site(stranger, "node-a", ["127.0.0.1"], TODAY)
    assert shake_hands(first, second, "node-a") == ""
    assert shake_hands(first, second, "127.0.0.1") == ""
    assert shake_hands(second, first, "node-b") == ""
    assert "mismatch" in shake_hands(second, first, "node-a")
    assert "certificate" in shake_hands(stranger, second, "node-a")


def test_a_certificate_is_renewed_for_other_addresses(tmp_path: Path) -> None:
    (folder,) = make_site(tmp_path, ["node-a"])
    authority = load_authority(folder)
    names = renew_certificate(folder, authority, ["a.example", "192.0.2.1"], TODAY)
    assert names == ["node-a", "a.example", "192.0.2.1"]
    assert renew_certificate(folder, authority, [], TODAY) == names
    assert list_addresses((folder / CERTIFICATE_FILE).read_bytes()) == names
    assert shake_hands(folder, folder, "a.example") == ""
    assert ssl.DER_cert_to_PEM_cert((folder / CA_DER_FILE).read_bytes()).split() == (
        (folder / CA_FILE).read_text().split()
    )
    with pytest.raises(SecurityError, match="not a host name"):
        renew_certificate(folder, authority, ["ü"], TODAY)


def test_secret_files_are_secret(tmp_path: Path) -> None:
    first, second = make_site(tmp_path, ["node-a", "node-b"])
    for path in (first / "keys.json", first / "authority.json", second / KEY_FILE):
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert not (second / "authority.json").exists()
    with pytest.raises(SecurityError, match="where the site was founded"):
        load_authority(second)


def test_an_invited_node_knows_who_was_registered_before(tmp_path: Path) -> None:
    (first,) = make_site(tmp_path, ["node-a"])
    add_subscriber(first, "ann", "medic")
    file = KeyFile(first)
    file.save(site.add_device(file.load(), "dog", nodes=()))
    second = tmp_path / "node-b"
    second.mkdir()
    path = tmp_path / "b.invite"
    invitation = invite_node(
        first, load_authority(first), "node-b", [], {"node-a": "mqtts://a:8883"}, TODAY
    )
    write_file(path, write_invitation(invitation))
    join_site(second, read_invitation(path))
    keyring = open_keyring(second)
    assert keyring.role_of("ann") == "medic"
    assert keyring.link_for("dog", 1) is not None
    tell(open_keyring(first), keyring)
    assert keyring.conflicts == []
    # What was made at the first node is told by the first node alone.
    assert all(body[1] != 3 for body in keyring.list_notices())
    path.chmod(0o644)
    with pytest.raises(SecurityError, match="other users may read"):
        read_invitation(path)


def test_a_node_is_not_overwritten(tmp_path: Path) -> None:
    first, second = make_site(tmp_path, ["node-a", "node-b"])
    before = (first / "keys.json").read_bytes()
    with pytest.raises(SecurityError, match="exists already"):
        found_site(first, "node-a", [], TODAY)
    invitation = invite_node(first, load_authority(first), "node-c", [], {}, TODAY)
    with pytest.raises(SecurityError, match="node-c"):
        join_site(second, invitation)
    assert before != (first / "keys.json").read_bytes()  # the card of node-c was noted
    with pytest.raises(SecurityError, match="this node"):
        invite_node(first, load_authority(first), "node-a", [], {}, TODAY)


def test_nodes_rotate_their_keys(tmp_path: Path) -> None:
    first, second = make_site(tmp_path, ["node-a", "node-b"])
    a, b = open_keyring(first), open_keyring(second)
    authority = load_authority(first)
    assert rotate_own_keys(first, authority) == 2
    invitation = invite_node(first, authority, "node-b", [], {}, TODAY)
    assert sorted(join_site(second, invitation).own) == [1, 2]
    assert a.reload_if_changed()
    assert b.reload_if_changed()
    tell(a, b)
    assert len(a.peer_secrets("node-b")) == 4
    assert a.peer_secret("node-b") == b.peer_secret("node-a")
    file = KeyFile(first)
    registry, ended = site.retire(file.load(), "node-a", authority)
    registry, other = site.retire(registry, "node-b", authority)
    assert ended == other == [1]
    file.save(registry)
    assert a.reload_if_changed()
    tell(a, b)
    assert a.peer_secrets("node-b") == b.peer_secrets("node-a")
    assert len(a.peer_secrets("node-b")) == 1


def test_an_authority_of_another_site_is_refused(tmp_path: Path) -> None:
    (first,) = make_site(tmp_path, ["node-a"])
    other = tmp_path / "other"
    other.mkdir()
    found_site(other, "node-z", [], TODAY)
    authority = load_authority(other)
    with pytest.raises(SecurityError, match="another site"):
        invite_node(first, authority, "node-b", [], {}, TODAY)
    with pytest.raises(SecurityError, match="another site"):
        site.revoke(KeyFile(first).load(), "node", "node-b", None, authority)
    os.truncate(other / "authority.json", 50)
    with pytest.raises(SecurityError, match=r"authority\.json: not an authority"):
        load_authority(other)
