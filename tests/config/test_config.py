"""What `node.toml` says is what the node gets; the written file has every default."""

from __future__ import annotations

import contextlib
import re
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest
from denwatch.client.vocabulary import load_shipped
from denwatch.node.config import NodeConfigError, ServerAddress, load_config, parse_config
from denwatch.node.config.loading import find_line, is_loopback, parse_document, read_url
from denwatch.node.config.model import Document, Section, write_config
from denwatch.node.mqtt.interface import Limits
from denwatch.node.runtime.build import read_limits
from denwatch.node.security.access import RoleTable
from hypothesis import given
from hypothesis import strategies as st

HERE = Path("/site")


def test_the_least_that_a_file_can_say() -> None:
    config = parse_config('name = "node-a"', HERE)
    assert config.listen == (ServerAddress("127.0.0.1", 1883),)
    assert config.data == HERE / "data"
    assert config.anonymous_role is None
    assert config.broker is None
    assert config.metrics is None
    assert not config.has_zeroconf
    assert config.replication.strategy == "auto"


def test_the_written_file_has_every_key_with_its_default() -> None:
    text = write_config("node-a", ["mqtt://127.0.0.1:1883"], {})
    written, least = parse_document(text), parse_document('name = "node-a"')
    assert msgspec.structs.replace(written, roles={}) == least
    for path in list_keys(Document):
        if path[0] not in ("roles", "peers"):
            assert find_line(text, path), path
            assert is_explained(text, find_line(text, path)), path


def list_keys(section: type[msgspec.Struct]) -> list[tuple[str, ...]]:
    """Return the paths of all keys of a section."""
    found: list[tuple[str, ...]] = []
    for field in msgspec.structs.fields(section):
        if isinstance(field.type, type) and issubclass(field.type, Section):
            found += [(field.name, *rest) for rest in list_keys(field.type)]
        else:
            found.append((field.name,))
    return found


def is_explained(text: str, line: int) -> bool:
    """Return whether a comment stands above a key, its group of keys, or its table."""
    lines = text.splitlines()
    at = line - 1
    while at > 0 and re.match(r"[a-z_]+ =|\[[a-z]+\]", lines[at]):
        at -= 1
    return lines[at].startswith("#")


def test_the_written_file_takes_addresses_and_peers() -> None:
    text = write_config("node-b", ["mqtts://0.0.0.0:8883"], {"node-a": "mqtts://a.local:8883"})
    config = parse_config(text, HERE)
    assert config.name == "node-b"
    assert config.listen == (ServerAddress("0.0.0.0", 8883, True),)
    assert config.peers[0].name == "node-a"
    assert config.peers[0].address == ServerAddress("a.local", 8883, True)


def test_the_roles_of_the_written_file_know_the_shipped_events() -> None:
    config = parse_config(write_config("a", ["mqtt://127.0.0.1"], {}), HERE)
    roles = RoleTable(config.roles)
    rescue = load_shipped("rescue")
    for role, section in config.roles.items():
        for event in rescue.events.values():
            names = [attribute.name for attribute in event.attributes.values()]
            is_open = roles.check(role, event.name, []) is None
            is_listed = "*" in section.events or event.name in section.events
            assert is_open == is_listed
            assert bool(roles.keep_visible(role, event.name, names)) == is_listed
        for pattern in section.deny:
            event_name, _, attribute = pattern.partition(".")
            assert attribute in [one.name for one in rescue.events[event_name].attributes.values()]
    assert roles.check("observer", "patient", ["heart_rate"]) is not None
    assert roles.check("medic", "patient", ["heart_rate"]) is None


def test_limits_are_those_of_the_server() -> None:
    """Every limit of the server is in the file, with the server's own default."""
    assert read_limits(parse_config('name = "a"', HERE)) == Limits()


def test_every_limit_of_the_server_can_be_set() -> None:
    for name, value in [("hold_seconds", 7), ("keep_alive_seconds", 9), ("topic_levels", 11)]:
        server = read_limits(parse_config(f'name = "a"\n[limits]\n{name} = {value}', HERE))
        changed = {
            field.name: getattr(server, field.name)
            for field in fields(Limits)
            if getattr(server, field.name) != getattr(Limits(), field.name)
        }
        ms = name.replace("hold_seconds", "hold_ms").replace("_seconds", "_s")
        assert changed == {ms: value * (1000 if ms.endswith("_ms") else 1)}
    text = 'name = "a"\n[limits]\nfull_queue = "drop"'
    assert read_limits(parse_config(text, HERE)).full_queue == "drop"


def test_everything_set(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    (tmp_path / "secret").chmod(0o600)
    config = parse_config(
        """
name = "a"
data = "/var/lib/denwatch"
vocabulary = ["rescue", "ours.toml"]
organisation = "fire brigade"
listen = ["mqtt://[::1]:0", "mqtts://example.org", "wss://example.org:8884"]
[access]
shared = ["chat/#"]
unshared = ["chat/secret"]
origins = ["https://map.example.org"]
[broker]
url = "mqtts://broker.example:8884"
user = "a"
password_file = "secret"
ca = "ca.pem"
[replication]
strategy = "spray:6"
[metrics]
address = "[::1]:9464"
[discovery]
zeroconf = true
""",
        tmp_path,
    )
    assert config.data == Path("/var/lib/denwatch")
    assert config.vocabulary == ("rescue", str(tmp_path / "ours.toml"))
    assert config.listen == (
        ServerAddress("::1", 0),
        ServerAddress("example.org", 8883, True),
        ServerAddress("example.org", 8884, True, True),
    )
    assert (config.unshared, config.origins) == (("chat/secret",), ("https://map.example.org",))
    assert config.broker is not None
    assert config.broker.password == "hush"
    assert "hush" not in repr(config)
    assert config.broker.ca == tmp_path / "ca.pem"
    assert (config.replication.strategy, config.replication.copies) == ("spray", 6)
    assert config.metrics == ServerAddress("::1", 9464)
    assert config.organisation == "fire brigade"
    assert config.has_zeroconf


def test_anonymous_on_the_loopback() -> None:
    text = 'name = "a"\n[access]\nanonymous = true\nanonymous_role = "guest"\n[roles.guest]\n'
    assert parse_config(text, HERE).anonymous_role == "guest"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("::ffff:192.0.2.1", False),
    ],
)
def test_what_is_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


@given(st.text(max_size=30))
def test_any_text_is_a_url_or_a_complaint(text: str) -> None:
    for url in (text, f"mqtt://{text}", f"mqtts://{text}:1"):
        found = read_url(url)
        assert isinstance(found, (str, ServerAddress))


@given(st.text(max_size=120))
def test_any_file_is_a_configuration_or_a_config_error(text: str) -> None:
    for start in ("", 'name = "a"\n'):
        with contextlib.suppress(NodeConfigError):
            assert parse_config(start + text, HERE).name


_values = st.sampled_from(['"x"', "3", "-1", "1.5", "true", "[]", "[1]", '["x"]', "{}", "{a=1}"])


@given(st.sampled_from(list_keys(Document)), _values)
def test_any_value_for_any_key_is_taken_or_told_with_its_line(
    path: tuple[str, ...], value: str
) -> None:
    lines = [f"{path[-1]} = {value}"]
    if len(path) > 1:
        lines.insert(0, f"[{path[0]}]")
    text = "\n".join(['name = "a"', *lines] if path != ("name",) else lines)
    error = find_mistake(text)
    if error is not None:
        assert error.line
        assert error.key


def find_mistake(text: str) -> NodeConfigError | None:
    """Return what is wrong with a text."""
    try:
        parse_config(text, HERE)
    except NodeConfigError as error:
        return error
    return None


def test_a_file_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(write_config("a", ["mqtt://127.0.0.1:1883"], {}))
    config = load_config(path)
    assert config.folder == tmp_path
    assert config.data == tmp_path / "data"


def test_lines_are_found_in_any_layout() -> None:
    text = (
        '# x\n\n  a = 1\n[ b ]\n"c" = 2\nd.e = 3\n[[f]]\ng = """\nh = 1\n"""\n[[f]]\ng = 2\nh = 5'
    )
    assert find_line(text, ("a",)) == 3
    assert find_line(text, ("b",)) == 4
    assert find_line(text, ("b", "c")) == 5
    assert find_line(text, ("b", "d", "e")) == 6
    assert find_line(text, ("f", 0)) == 7
    assert find_line(text, ("f", 0, "g")) == 8
    assert find_line(text, ("f", 0, "h")) == 7  # only inside a text: the table around it
    assert find_line(text, ("f", 1, "g")) == 12
    assert find_line(text, ("f", 1, "h")) == 13
    assert find_line(text, ("z",)) == 0
