"""Every mistake in `node.toml` gets its key, its line and a sentence that helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from denwatch.node.config import NodeConfigError, load_config, parse_config

# (text, key, line, words)
MISTAKES = [
    ("", "name", 0, "is missing"),
    ("name = 3", "name", 1, "a whole number instead of a text in quotes"),
    ('name = ""', "name", 1, "the name is empty"),
    ('name = "a b"', "name", 1, "letters, digits"),
    ('name = "a"\nname = "b"', "", 2, "not TOML"),
    ('name = "a\n', "", 1, "not TOML"),
    ('name = "a"\nnmae = 1', "nmae", 2, 'did you mean "name"?'),
    ('name = "a"\nrole = 1', "role", 2, 'did you mean "roles"?'),
    ('name = "a"\n\n[limit]\nqueue = 1', "limit", 3, 'did you mean "limits"?'),
    ('name = "a"\n[limits]\nqueues = 1', "limits.queues", 3, 'did you mean "queue"?'),
    ('name = "a"\n[limits]\nzzz = 1', "limits.zzz", 3, "known keys: packet_bytes, connect_bytes"),
    ('name = "a"\n[limits]\nqueue = "many"', "limits.queue", 3, "a text in quotes instead of"),
    ('name = "a"\n[limits]\nqueue = 0', "limits.queue", 3, "at least 1"),
    ('name = "a"\n[limits]\nqueue = 1.5', "limits.queue", 3, "with a fraction instead of a whole"),
    ('name = "a"\n[limits]\nqueue = true', "limits.queue", 3, "true or false instead of"),
    ('name = "a"\n[limits]\nwindow = 70000', "limits.window", 3, "at most 65,535"),
    ('name = "a"\n[limits]\nqueue_bytes = 1000', "limits.queue_bytes", 3, "less than packet_bytes"),
    (
        'name = "a"\n[limits]\ntotal_queue_bytes = 4000000',
        "limits.total_queue_bytes",
        3,
        "less than one client's",
    ),
    ('name = "a"\nlimits = 3', "limits", 2, "a whole number instead of a table"),
    ('name = "a"\nlisten = "mqtt://127.0.0.1:1883"', "listen", 2, "instead of a list"),
    ('name = "a"\nlisten = ["127.0.0.1:1883"]', "listen", 2, "is not mqtt://HOST:PORT"),
    ('name = "a"\nlisten = ["http://127.0.0.1:1883"]', "listen", 2, "is not mqtt://HOST:PORT"),
    ('name = "a"\nlisten = ["mqtt://127.0.0.1:70000"]', "listen", 2, "port 70000 does not exist"),
    (
        'name = "a"\nlisten = ["mqtt://0.0.0.0:1883"]',
        "listen",
        2,
        "beyond this machine without TLS",
    ),
    ('name = "a"\nlisten = ["mqtt://192.0.2.1:1883"]', "listen", 2, "write mqtts://"),
    ('name = "a"\nlisten = ["mqtt://[::]:1883"]', "listen", 2, "beyond this machine without TLS"),
    ('name = "a"\nlisten = ["mqtt://box.local"]', "listen", 2, "beyond this machine without TLS"),
    ('name = "a"\nlisten = []', "listen", 2, "nobody could reach the node"),
    (
        'name = "a"\nlisten = ["mqtt://127.0.0.1:1883", "mqtts://127.0.0.1:1883"]',
        "listen",
        2,
        "listed twice",
    ),
    ('name = "a"\ndata = " "', "data", 2, "is empty"),
    ('name = "a"\nvocabulary = []', "vocabulary", 2, "at least one"),
    ('name = "a"\nvocabulary = "rescue"', "vocabulary", 2, "instead of a list"),
    (
        'name = "a"\nlisten = ["mqtts://0.0.0.0:8883"]\n[access]\nanonymous = true',
        "access.anonymous",
        4,
        "on this machine only",
    ),
    ('name = "a"\n[access]\nanonymous = "no"', "access.anonymous", 3, "instead of true or false"),
    ('name = "a"\n[access]\nanonymous = true', "access.anonymous_role", 2, 'no role "observer"'),
    ('name = "a"\n[access]\nshared = ["dens/#"]', "access.shared", 3, "includes topics of dens/1/"),
    ('name = "a"\n[access]\nshared = ["a#"]', "access.shared", 3, "not a topic filter"),
    ('name = "a"\nlisten = ["ws://0.0.0.0:9001"]', "listen", 2, "without TLS"),
    ('name = "a"\nlisten = ["ws://127.0.0.1"]', "listen", 2, "has no port"),
    ('name = "a"\n[access]\norigins = ["map"]', "access.origins", 3, "is not https://HOST"),
    ('name = "a"\n[broker]\nurl = "ws://127.0.0.1:9"', "broker.url", 3, "for browsers"),
    ('name = "a"\n[limits]\nfull_queue = "burn"', "limits.full_queue", 3, "burn"),
    ('name = "a"\n[limits]\nconnect_bytes = 300000', "limits.connect_bytes", 3, "more than"),
    ('name = "a"\n[limits]\nbuffer_bytes = 99999999', "limits.buffer_limit_bytes", 2, "less"),
    ('name = "a"\n[access]\nunshared = ["a#"]', "access.unshared", 3, "not a topic filter"),
    ('name = "a"\n[access]\nshared = ["#/a"]', "access.shared", 3, "not a topic filter"),
    ('name = "a"\n[access]\nshared = ["$SYS/#"]', "access.shared", 3, "includes topics of"),
    ('name = "a"\n[[peers]]\nname = "b"', "peers[1].url", 2, "is missing"),
    (
        'name = "a"\n[[peers]]\nname = "b"\nurl = "mqtt://127.0.0.1:1"\n'
        '[[peers]]\nname = "c"\nurl = 5',
        "peers[2].url",
        7,
        "instead of a text",
    ),
    (
        'name = "a"\n[[peers]]\nname = "b"\nurl = "mqtt://b.local:1883"',
        "peers[1].url",
        4,
        "without TLS",
    ),
    (
        'name = "a"\n[[peers]]\nname = "a"\nurl = "mqtts://b:1"',
        "peers[1].name",
        3,
        "this node itself",
    ),
    (
        'name = "a"\n[[peers]]\nname = "b"\nurl = "mqtts://b:1"\n'
        '[[peers]]\nname = "b"\nurl = "mqtts://b:2"',
        "peers[2].name",
        6,
        "listed twice",
    ),
    ('name = "a"\n[[peers]]\nname = "b/c"\nurl = "mqtts://b:1"', "peers[1].name", 3, "letters"),
    ('name = "a"\n[[peers]]\nname = "b"\nurl = "mqtts://b:0"', "peers[1].url", 4, "port 0 is not"),
    ('name = "a"\n[broker]\nurl = "mqtt://broker:1883"', "broker.url", 3, "without TLS"),
    ('name = "a"\n[broker]\nuser = "x"', "broker.user", 3, "broker.url is empty"),
    (
        'name = "a"\n[broker]\nurl = "mqtts://broker"\nuser = "x"',
        "broker",
        2,
        "or neither",
    ),
    (
        'name = "a"\n[broker]\nurl = "mqtts://h"\nuser = "x"\npassword_file = "nothing"',
        "broker.password_file",
        5,
        "No such file",
    ),
    (
        'name = "a"\n[replication]\nstrategy = "epidemik"',
        "replication.strategy",
        3,
        'did you mean "epidemic"?',
    ),
    ('name = "a"\n[replication]\nstrategy = "spray"', "replication.strategy", 3, "spray:6"),
    ('name = "a"\n[replication]\nstrategy = "spray:1"', "replication.strategy", 3, "2 to 64"),
    ('name = "a"\n[replication]\nstrategy = "utility:x"', "replication.strategy", 3, "utility:6"),
    ('name = "a"\n[replication]\nstrategy = "epidemic:3"', "replication.strategy", 3, "no number"),
    ('name = "a"\n[metrics]\naddress = "9464"', "metrics.address", 3, "is not HOST:PORT"),
    ('name = "a"\n[metrics]\naddress = "0.0.0.0:9464"', "metrics.address", 3, "no password"),
    ('name = "a"\nroles = 3', "roles", 2, "instead of a table"),
    ('name = "a"\n[roles]\nmedic = 3', "roles.medic", 3, "instead of a table"),
    (
        'name = "a"\n[roles.medic]\nevent = ["x"]',
        "roles.medic.event",
        3,
        'did you mean "events"?',
    ),
    ('name = "a"\n[roles.medic]\nevents = "x"', "roles.medic.events", 3, "instead of a list"),
    (
        'name = "a"\n[roles.x]\nevents = ["*"]\n[roles.medic]\nattributes = ["heart_rate"]',
        "roles.medic.attributes",
        5,
        "event.attribute",
    ),
    ('name = "a"\n[roles."a b"]\nevents = []', "roles.a b", 2, "letters"),
    ('name = "a"\n[tls]\nkey = ""', "tls.key", 3, "is empty"),
]


@pytest.mark.parametrize(
    ("text", "key", "line", "words"), MISTAKES, ids=[one[1] + " " + one[3] for one in MISTAKES]
)
def test_a_mistake_is_told(text: str, key: str, line: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(NodeConfigError) as caught:
        parse_config(text, tmp_path)
    assert caught.value.key == key
    assert caught.value.line == line
    assert words in caught.value.what
    if line:
        assert f"line {line}" in str(caught.value)


def write(tmp_path: Path, text: str) -> Path:
    """Write a node.toml and return its path."""
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ('name = "a"\nvocabulary = ["rescued"]', "vocabulary", "is unknown; use rescue"),
        ('name = "a"\nvocabulary = ["ours.toml"]', "vocabulary", "does not exist"),
        ('name = "a"\nlisten = ["mqtts://0.0.0.0:8883"]', "tls.certificate", "does not exist"),
        ('name = "a"\n[[peers]]\nname = "b"\nurl = "mqtts://b"', "tls.ca", "does not exist"),
        ('name = "a"\n[broker]\nurl = "mqtts://h"\nca = "x.pem"', "broker.ca", "does not exist"),
    ],
)
def test_files_that_are_not_there_are_told(text: str, key: str, words: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(NodeConfigError) as caught:
        load_config(path)
    assert caught.value.key == key
    assert words in caught.value.what
    assert str(path) in str(caught.value)


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    for name in ("node.pem", "node.key"):
        (tmp_path / "tls" / name).write_text("x")
    (tmp_path / "tls" / "node.key").chmod(0o644)
    path = write(tmp_path, 'name = "a"\nlisten = ["mqtts://0.0.0.0:8883"]')
    with pytest.raises(NodeConfigError, match=r"tls\.key: .*other users may read it"):
        load_config(path)
    (tmp_path / "tls" / "node.key").chmod(0o600)
    assert load_config(path).listen[0].has_tls


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(NodeConfigError, match="No such file"):
        load_config(tmp_path / "node.toml")
    (tmp_path / "node.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(NodeConfigError, match="byte 8 is not UTF-8"):
        load_config(tmp_path / "node.toml")
