"""`denwatch keys` and `denwatch node --init` as an operator types them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from denwatch.cli import keys
from denwatch.cli.devices.schema import check_config
from denwatch.cli.errors import CommandError
from denwatch.cli.node import add_init_arguments, init_node, run_init
from denwatch.node.config import load_config
from denwatch.node.security.access import Access
from denwatch.node.security.site import KeyFile, end_forgetting, list_forgotten, open_keyring
from denwatch.watchdog.config import read_nodes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A founded site."""
    return init_node(tmp_path / "a", "node-a").parent


def run(capsys: pytest.CaptureFixture[str], folder: Path, line: str) -> str:
    """Run one command line and return what it printed."""
    assert keys.run(["--directory", str(folder), *line.split()]) == 0
    return capsys.readouterr().out


def list_states(capsys: pytest.CaptureFixture[str], folder: Path) -> dict[str, tuple[str, str]]:
    """Return (key ids, state) by name."""
    rows = json.loads(run(capsys, folder, "list --json"))
    return {row["name"]: (row["keys"], row["state"]) for row in rows}


def test_a_subscriber_gets_a_password_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = run(capsys, folder, "add subscriber medic7 --role medic")
    password = text.split("shown this once: ")[1].split()[0]
    access = Access(open_keyring(folder), b"k" * 32)
    assert access.authenticate("medic7", password.encode(), "c") == 0
    shown = run(capsys, folder, "show medic7 --secrets") + run(capsys, folder, "list")
    assert password not in shown
    assert "mosquitto_pub -h 127.0.0.1 -p 1883 -u medic7" in shown


def test_a_password_goes_to_a_file_if_asked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "password"
    text = run(capsys, folder, f"add subscriber ann --role medic --output {path}")
    password = path.read_text().strip()
    assert password not in text
    assert path.stat().st_mode & 0o777 == 0o600
    chosen = tmp_path / "chosen"
    chosen.write_text("stretcher-7-north\n")
    chosen.chmod(0o600)
    run(capsys, folder, f"rotate ann --password-file {chosen}")
    access = Access(open_keyring(folder), b"k" * 32)
    assert access.authenticate("ann", password.encode(), "c") == 0
    assert access.authenticate("ann", b"stretcher-7-north", "c") == 0
    with pytest.raises(CommandError, match="ann has this password"):
        run(capsys, folder, f"add subscriber bob --role medic --password-file {chosen}")


def test_a_device_config_is_one_that_a_watchdog_takes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, folder, f"invite node-b --output {tmp_path / 'b.invite'}")
    text = run(capsys, folder, "add device dog-1 --nodes node-a node-b")
    hidden = run(capsys, folder, "show dog-1")
    path = tmp_path / "dog-1.json"
    run(capsys, folder, f"show dog-1 --secrets --output {path}")
    config = json.loads(path.read_text())
    for node in config["nodes"]:
        assert node["key"] not in text + hidden
        assert node["password"] not in text + hidden
    assert [node["name"] for node in config["nodes"]] == ["node-a", "node-b"]
    assert path.stat().st_mode & 0o777 == 0o600
    channel = {"source": "pin", "field": 0, "attribute": 0, "low": 0, "high": 1}
    senses = {
        "sources": {"pin": {"kind": "gpio", "pin": 4}},
        "events": [{"event": 1, "period": 1000, "channels": [channel]}],
    }
    check_config({**config, **senses, "vocabulary": "00" * 8, "spool": {"file": "spool.bin"}})
    servers, by_node = read_nodes({**config, "nodes": config["nodes"][:1]})
    access = Access(open_keyring(folder), b"k" * 32)
    assert access.authenticate("dog-1", config["nodes"][0]["password"].encode(), "c") == 0
    assert len(servers) == 1
    frame = by_node["node-a"].seal(3, 1, 1, b"x")
    link = open_keyring(folder).link_for("dog-1", 1)
    assert link is not None
    from denwatch.protocol.frames import UP, open_frame

    assert open_frame(link, UP, frame).body == b"x"


def test_rotate_retire_revoke(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, folder, "add device dog-1")
    run(capsys, folder, "rotate dog-1")
    assert list_states(capsys, folder)["dog-1"] == ("1 2", "")
    assert "key 1 ends" in run(capsys, folder, "retire dog-1")
    assert "nothing was changed" in run(capsys, folder, "retire dog-1")
    assert list_states(capsys, folder)["dog-1"] == ("2", "")
    run(capsys, folder, "revoke dog-1")
    assert list_states(capsys, folder)["dog-1"] == ("", "revoked")
    with pytest.raises(CommandError, match="already"):
        run(capsys, folder, "add device dog-1")
    with pytest.raises(CommandError, match="--kind"):
        run(capsys, folder, "revoke cat")
    run(capsys, folder, "revoke cat --kind device")
    assert list_states(capsys, folder)["cat"] == ("", "revoked")
    assert "key 2" in run(capsys, folder, "rotate node-a")
    assert "key 1 ends" in run(capsys, folder, "retire node-a")


def test_a_device_speaks_through_its_own_node_unless_others_are_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, folder, f"invite node-b --output {tmp_path / 'b.invite'}")

    def list_nodes(name: str) -> list[str]:
        return [node["name"] for node in json.loads(run(capsys, folder, f"show {name}"))["nodes"]]

    run(capsys, folder, "add device bed-1")
    assert list_nodes("bed-1") == ["node-a"]
    made = json.loads(run(capsys, folder, "--json add device bed-2"))
    assert made["nodes"] == ["node-a"]
    run(capsys, folder, "add device dog-1 --nodes any")
    assert list_nodes("dog-1") == ["node-a", "node-b"]
    [row] = [line for line in run(capsys, folder, "list").splitlines() if "dog-1" in line]
    assert row.endswith("through any node")
    assert run(capsys, folder, "nodes dog-1 node-b").startswith("dog-1 speaks through node-b;")
    assert list_nodes("dog-1") == ["node-b"]
    assert run(capsys, folder, "nodes dog-1 any").startswith("dog-1 speaks through any node;")
    assert list_nodes("dog-1") == ["node-a", "node-b"]
    with pytest.raises(CommandError, match='no node "any"'):
        run(capsys, folder, "nodes dog-1 any node-b")


def test_a_device_is_forgotten_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, folder, "add device dog-1")
    assert list_forgotten(folder) == []
    assert "rotate dog-1" in run(capsys, folder, "forget dog-1")
    run(capsys, folder, "forget dog-1")
    assert list_forgotten(folder) == ["dog-1"]
    end_forgetting(folder, "dog-1")
    end_forgetting(folder, "dog-1")
    assert list_forgotten(folder) == []
    for name in ("cat", "node-a", "../dog-1"):
        with pytest.raises(CommandError, match="no device that is registered here"):
            run(capsys, folder, f"forget {name}")


def test_three_nodes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("node-b", "node-c"):
        invite = tmp_path / f"{name}.invite"
        run(capsys, folder, f"invite {name} --address {name}.local --output {invite}")
        assert invite.stat().st_mode & 0o777 == 0o600
        path = init_node(tmp_path / name, listen=["mqtts://0.0.0.0:8883"], invitation=invite)
        config = load_config(path)
        assert config.name == name
        assert [peer.name for peer in config.peers] == ["node-a"]
        assert "valid" in run(capsys, path.parent, "check")
    with pytest.raises(CommandError, match="where the site was founded"):
        run(capsys, tmp_path / "node-b", f"invite x --output {tmp_path / 'x'}")
    with pytest.raises(CommandError, match="authority"):
        run(capsys, tmp_path / "node-b", "revoke node-c --kind node")
    elsewhere = f"--authority {folder / 'authority.json'} revoke node-c --kind node"
    run(capsys, tmp_path / "node-b", elsewhere)
    assert open_keyring(tmp_path / "node-b").is_revoked("node-c")


def test_renew_join_role_acl_and_show(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "a.example" in run(capsys, folder, "renew --address a.example")
    run(capsys, folder, "add subscriber ann --role medic")
    run(capsys, folder, "role ann observer")
    assert open_keyring(folder).role_of("ann") == "observer"
    assert "pattern write dens/1/sub/%u" in run(capsys, folder, "acl")
    assert "node-a key 1" in run(capsys, folder, "show node-a")
    with pytest.raises(CommandError, match='"ghost" is not registered here'):
        run(capsys, folder, "show ghost")
    with pytest.raises(CommandError, match="--init"):
        run(capsys, tmp_path, f"join {tmp_path / 'x'}")
    invite = tmp_path / "b.invite"
    run(capsys, folder, f"invite node-b --output {invite}")
    init_node(tmp_path / "b", invitation=invite)
    again = tmp_path / "b2.invite"
    run(capsys, folder, f"invite node-b --output {again}")
    assert "keys 1, 2" in run(capsys, tmp_path / "b", f"join {again}")


def test_a_key_that_a_device_has_already(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "key"
    path.write_text("9f" + bytes(range(17)).hex() + "77a1c3\n")
    path.chmod(0o600)
    run(capsys, folder, f"add device old --key-file {path} --key-id 9")
    assert open_keyring(folder).list_key_ids("old") == [9]
    path.write_text("00" * 32)
    with pytest.raises(CommandError, match="only 1 different"):
        run(capsys, folder, f"add device weak --key-file {path}")


def test_init_refuses_to_overwrite_and_leaves_nothing_behind(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = KeyFile(folder).path.read_bytes()
    with pytest.raises(CommandError, match="exists already"):
        init_node(folder, "node-a")
    assert KeyFile(folder).path.read_bytes() == before
    other = tmp_path / "full"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(CommandError, match="not empty"):
        init_node(other, "node-a")
    with pytest.raises(CommandError, match="without TLS"):
        init_node(tmp_path / "open", "node-a", ["mqtt://0.0.0.0:1883"])
    with pytest.raises(CommandError, match="letters, digits"):
        init_node(tmp_path / "named", "node/a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "full"]
    assert capsys.readouterr().out == ""


def test_init_prints_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_init_arguments(parser)
    line = "--name node-a --listen mqtts://0.0.0.0:8883 --address a.local --peer b=mqtts://b:8883"
    assert run_init(tmp_path / "a", parser.parse_args(line.split())) == 0
    text = capsys.readouterr().out
    assert f"denwatch node {tmp_path / 'a'}\n" in text
    assert "authority.json" in text
    assert load_config(tmp_path / "a" / "node.toml").peers[0].name == "b"
    with pytest.raises(CommandError, match="NAME=URL"):
        run_init(tmp_path / "b", parser.parse_args(["--peer", "x"]))
    with pytest.raises(CommandError, match="invitation"):
        run_init(tmp_path / "b", parser.parse_args(["--join", "x", "--name", "y"]))


def test_where_a_node_is_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = init_node(tmp_path / "a", "node-a", ["mqtts://0.0.0.0:8883"], ["192.0.2.7"]).parent
    run(capsys, folder, "add subscriber ann --role medic")
    shown = run(capsys, folder, "show ann")
    assert f"-h 192.0.2.7 -p 8883 --cafile {folder}/tls/ca.pem" in shown
    assert "-h b.example -p 9000 " in run(capsys, folder, "show ann --url mqtts://b.example:9000")
    with pytest.raises(CommandError, match="--url"):
        run(capsys, folder, "show ann --url b.example")


def test_check_tells_what_does_not_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = folder / "node.toml"
    usual = config.read_text()
    with pytest.raises(CommandError, match='no role "nurse"; there is: coordinator, '):
        run(capsys, folder, "add subscriber ann --role nurse")
    config.write_text(usual.replace("[roles.medic]", "[roles.nurse]"))
    run(capsys, folder, "add subscriber ann --role nurse")
    config.write_text(usual)
    peer = '[[peers]]\nname = "node-z"\nurl = "mqtts://z:8883"\n'
    config.write_text(config.read_text() + peer)
    text = run(capsys, folder, "check")
    assert "node-z is not known here yet" in text
    assert "the role nurse, which is not in node.toml" in text
    config.write_text(config.read_text().replace('name = "node-a"', 'name = "node-q"'))
    with pytest.raises(CommandError, match=r"is for node-q, .* for node-a"):
        run(capsys, folder, "check")
    config.write_text("name = 3")
    with pytest.raises(CommandError, match="line 1: name"):
        run(capsys, folder, "check")
