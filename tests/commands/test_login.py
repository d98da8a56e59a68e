"""Logins are remembered: no command needs a name, a node or a password again."""

from __future__ import annotations

import json
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.cli import main
from denwatch.cli.common import need_extra
from denwatch.cli.errors import INTERRUPTED, MISSING, WRONG_INPUT, WRONG_USAGE, CommandError

from simulator.site import ENVIRONMENT, REPOSITORY, Site, run_denwatch

# A shell that knows `denwatch` as this Python's, also where it is not among the commands.
COMMAND = ("sh", "-ec", f'denwatch() {{ {sys.executable} -m denwatch.cli "$@"; }}; eval "$0"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A node with two subscribers and a device."""
    made = Site(tmp_path_factory.mktemp("site"))
    made.add_node("north")
    for name in ("medic7", "medic8"):
        password = made.add_subscriber(name)
        (made.folder / f"{name}.key").write_text(password, encoding="utf-8")
        (made.folder / f"{name}.key").chmod(0o600)
    made.add_device("tester")
    with made:
        yield made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings and data of nobody."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DENWATCH_PASSWORD", raising=False)
    monkeypatch.delenv("DENWATCH_PROFILE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log_in(site: Site, name: str, *words: str) -> int:
    key = str(site.folder / f"{name}.key")
    return main(["login", name, "--node", site.first.url, "--password-file", key, *words])


def test_after_a_login_commands_need_nothing_else(
    site: Site, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["subscribe", "heart_rate above 20"]) == WRONG_USAGE
    assert "denwatch login NAME" in capsys.readouterr().err
    assert log_in(site, "medic7") == 0
    assert f"{site.first.url} accepts it" in capsys.readouterr().out
    secret = home / "config" / "denwatch" / "medic7.key"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_text().strip() == site.passwords["medic7"]
    assert main(["status", "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["node"] == "north"
    assert main(["find", "heart_rate", "--json"]) == 0
    assert main(["publish", "patient: pulse 150", "--json"]) == 0
    capsys.readouterr()
    assert main(["subscribe", "heart_rate above 20", "--name", "pulse", "--for", "0"]) == 0
    hint = re.findall(r"^  (denwatch .*)$", capsys.readouterr().err, re.M)
    assert hint == ["denwatch subscribe --name pulse --unsubscribe"]
    assert main(shlex.split(hint[0])[1:]) == 0


def test_several_logins_live_side_by_side(
    site: Site, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log_in(site, "medic7") == 0
    assert log_in(site, "medic8", "--profile", "night", "--json") == 0
    capsys.readouterr()
    assert main(["profile", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(one["profile"], one["as"], one["current"]) for one in found} == {
        ("medic7", "medic7", False),
        ("night", "medic8", True),
    }
    from denwatch.cli.find import _parse

    assert _parse(["x"]).name == "medic8"
    assert _parse(["x", "--as", "medic7"]).password_file.endswith("medic7.key")
    assert _parse(["x", "--as", "medic8"]).password_file.endswith("night.key")
    assert _parse(["x", "--profile", "medic7"]).node == [site.first.url]
    monkeypatch.setenv("DENWATCH_PROFILE", "medic7")
    assert _parse(["x"]).name == "medic7"
    monkeypatch.setenv("DENWATCH_PASSWORD", "secret")
    assert _parse(["x"]).password_file is None  # the variable goes first
    assert _parse(["x", "--node", "mqtt://other"]).node == ["mqtt://other"]
    monkeypatch.delenv("DENWATCH_PROFILE")
    assert main(["find", "x", "--as", "medic8", "--profile", "medic7"]) == WRONG_USAGE
    assert main(["profile", "use", "medic7"]) == 0
    assert main(["profile", "remove", "medic7"]) == 0
    assert not (home / "config" / "denwatch" / "medic7.key").exists()
    assert main(["profile", "show"]) == MISSING
    assert main(["profile", "use", "nobody"]) == MISSING


def test_a_wrong_password_and_an_absent_node_are_not_remembered(
    site: Site, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = home / "bad.key"
    bad.write_text("wrong", encoding="utf-8")
    words = ["login", "medic7", "--password-file", str(bad)]
    assert main([*words, "--node", site.first.url]) == WRONG_INPUT
    assert "wrong name or password" in capsys.readouterr().err
    assert main([*words, "--node", "mqtt://127.0.0.1:9", "--json"]) == MISSING
    assert json.loads(capsys.readouterr().out)["status"] == MISSING
    assert main(["profile", "list"]) == 0
    assert "no profiles yet" in capsys.readouterr().out
    assert main([*words, "--node", "mqtt://127.0.0.1:9", "--offline"]) == 0
    assert main(["doctor"]) == WRONG_INPUT
    assert "WRONG profile medic7" in capsys.readouterr().out


def test_a_damaged_list_of_profiles_is_named(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config" / "denwatch").mkdir(parents=True)
    for text in ("{", "[]", '{"current": null, "profiles": {"a": 3}}'):
        (home / "config" / "denwatch" / "profiles.json").write_text(text)
        assert main(["profile", "list"]) == WRONG_INPUT
        assert "profiles.json: no list of profiles" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_the_table_of_exit_statuses_holds(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    key = str(site.folder / "tester.json")
    folder = str(site.first.folder)
    log_in(site, "medic7")
    cases = {
        0: [
            "compile 'heart_rate is high'",
            "help compile",
            "--version",
            "profile show",
            f"publish --key {key} 'patient heart_rate=150'",
        ],
        WRONG_INPUT: [
            "compile 'hart_rate is high'",
            "explain 00",
            f"publish --key {key} 'patient heart_rat=150'",
            "subscribe 'the lottery is high'",
            f"keys --directory {folder} add subscriber x --role nobody",
            f"keys --directory {folder} show nobody",
            "vocabulary search qqqq",
        ],
        WRONG_USAGE: ["", "nonsense", "compile --nonsense", "keys", "console --listen x"],
        MISSING: [
            "compile --vocabulary nothing 'x'",
            "compile --file nothing",
            "watchdog nothing.json",
            "status --once --node mqtt://127.0.0.1:9 --timeout 1",
            "find heart_rate --node mqtt://127.0.0.1:9 --timeout 1",
            "publish 'patient: pulse 150' --node mqtt://127.0.0.1:9 --timeout 1",
            "node nothing",
            "node --check nothing",
            "keys --directory nothing list",
            "doctor nothing",
            "profile use nobody",
        ],
    }
    for status, lines in cases.items():
        for line in lines:
            try:
                found: object = main(shlex.split(line))
            except SystemExit as ended:
                found = ended.code or 0
            assert found == status, f"{line}: {found}, not {status}: {capsys.readouterr()}"
    capsys.readouterr()
    main(["--help"])
    table = re.findall(r"^  (\d+)  ", capsys.readouterr().out.partition("exit status:")[2], re.M)
    assert [int(one) for one in table] == [*cases, INTERRUPTED]


@pytest.mark.usefixtures("home")
def test_every_hint_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    """Run commands that print hints, and then their hints, as a person would paste them."""
    waiting = [
        "denwatch node --init 'my north' --name north",
        "denwatch vocabulary new garden.toml",
        "denwatch keys --directory 'my north' add device dog-2",
        "denwatch keys --directory 'my north' rotate dog-2",
        "denwatch keys --directory 'my north' add subscriber ann --role medic --output ann.key",
    ]
    done: list[str] = []
    while waiting:
        line = waiting.pop(0)
        if line in done:
            continue
        done.append(line)
        if re.fullmatch(r"denwatch node ('my north'|south)", line):
            line += " --check"  # without it, it would serve
        status = main(shlex.split(line)[1:])
        told = capsys.readouterr()
        assert status == 0, f"{line}\n{told.out}{told.err}"
        waiting += re.findall(r"^  (denwatch .*)$", told.out + told.err, re.M)
    assert any("add subscriber medic7" in line for line in done)
    assert any("invite south" in line for line in done)
    assert any("--init south --join south.invite" in line for line in done)
    assert any(" retire dog-2" in line for line in done)
    assert any("--secrets --output dog-1.json" in line for line in done)
    assert any(line.startswith("denwatch plot") for line in done)


@pytest.mark.usefixtures("home")
def test_the_doctors_advice_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    """Advice that begins with a command mends what it is about, also where a path has a space."""
    run_denwatch("node", "--init", "my north", "--name", "north")
    run_denwatch("keys", "--directory", "my north", "add", "subscriber", "ann", "--role", "medic")
    keys = json.loads(Path("my north/keys.json").read_text(encoding="utf-8"))
    keys["subscribers"]["ann"]["role"] = "pilot"
    Path("my north/keys.json").write_text(json.dumps(keys), encoding="utf-8")
    Path("my north/authority.json").chmod(0o644)

    def find_wrong(*more: str) -> list[dict[str, str]]:
        main(["doctor", "my north", "--json", *more])
        found = json.loads(capsys.readouterr().out)
        return [one for one in found if one["state"] == "wrong"]

    first = find_wrong()
    assert len(first) == 2
    for one in first:
        subprocess.run([*COMMAND, one["advice"]], check=True, env=ENVIRONMENT)
    assert find_wrong() == []
    Path("my north/keys.json").chmod(0o644)
    refused = find_wrong()[0]["what"]
    subprocess.run([*COMMAND, re.findall(r"`(.*)`", refused)[0]], check=True, env=ENVIRONMENT)
    last = find_wrong("--running")[0]["advice"]
    subprocess.run([*COMMAND, f"{last} --check"], check=True, env=ENVIRONMENT)
    Path("my south").mkdir()
    assert main(["doctor", "my south"]) == MISSING
    hint = re.findall(r"`(.*)`", capsys.readouterr().err)[0]
    subprocess.run([*COMMAND, f"{hint} --name south"], check=True, env=ENVIRONMENT)


def test_hints_name_extras_that_are_there() -> None:
    """`need_extra` prints a line for pip: with an extra of ours that is not about to go."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name for name, needs in project["optional-dependencies"].items() if needs}
    named = set()
    for path in (REPOSITORY / "edge/denwatch/cli").glob("*.py"):
        named |= set(re.findall(r'need_extra\("(\w+)"', path.read_text(encoding="utf-8")))
    assert {"node", "spark", "alerts"} <= named <= extras
    with pytest.raises(CommandError) as told, need_extra("node"):
        raise ImportError("no", name="numpy")
    _, _, hint = str(told.value).partition(": ")
    assert shlex.split(hint) == ["pip", "install", "denwatch[node]"]
    for needs in project["optional-dependencies"].values():
        assert not any(need.startswith("denwatch[client]") for need in needs)


def test_the_version_has_the_commit() -> None:
    told = run_denwatch("--version")
    assert re.fullmatch(r"denwatch \d\S+( \([0-9a-f]{12}\+?\))?\n", told), told
