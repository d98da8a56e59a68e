"""`denwatch subscribe` and `denwatch status` as people and scripts run them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simulator.site import REPOSITORY, wait_for
from tests.client.sites import PATIENCE, ScriptedSite, build_note, find_dead_url
from tests.client.victim import NAME, WORDS

_RUN = """
import sys
from denwatch import cli
for name in ("subscribe", "status"):
    cli.COMMANDS.setdefault(name, cli.Command(f"denwatch.cli.{name}:run", ""))
sys.exit(cli.main())
"""
SOON = 4_102_444_800_000  # the year 2100


class Shell:
    """Runs denwatch with its own home, so that nothing of ours is touched."""

    def __init__(self, folder: Path, site: ScriptedSite | None = None) -> None:
        self.folder = folder
        self.environment = {**os.environ, "XDG_DATA_HOME": str(folder), "COLUMNS": "140"}
        self.environment.pop("DENWATCH_PASSWORD", None)
        self.node = ["--node", site.url] if site else []

    def build(self, *arguments: str) -> list[str]:
        command, *rest = arguments
        named = [] if "--as" in rest or command == "status" else ["--as", NAME]
        return [sys.executable, "-c", _RUN, command, *rest, *named, *self.node]

    def run(self, *arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            self.build(*arguments),
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            self.build(*arguments),
            cwd=REPOSITORY,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


class Terminal:
    """A command on a terminal of its own, and what stands on it."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self._end, child = pty.openpty()
        environment = {**shell.environment, "TERM": "xterm", "LINES": "30"}
        self.process = subprocess.Popen(
            shell.build(*arguments),
            cwd=REPOSITORY,
            env=environment,
            stdin=child,
            stdout=child,
            stderr=child,
            # A test run that was started in the background ignores Ctrl-C, and would pass that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(child)
        self.text = ""

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.text, re.DOTALL):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text!r}"
            self._read()

    def _read(self) -> None:
        if select.select([self._end], [], [], 0.1)[0]:
            try:
                self.text += os.read(self._end, 65_536).decode(errors="replace")
            except OSError:  # the other end is closed
                time.sleep(0.05)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self._read()
        self._read()
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


@pytest.fixture
def shell(site: ScriptedSite, tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home", site)


@contextmanager
def open_terminal(shell: Shell, *arguments: str) -> Iterator[Terminal]:
    terminal = Terminal(shell, *arguments)
    try:
        yield terminal
    finally:
        terminal.close()


def emit_when_subscribed(site: ScriptedSite, *indices: int) -> None:
    wait_for("the subscription", lambda: site.node.subscriptions)
    site.node.emit(NAME, *(build_note(i, expires=SOON, device=f"bed{i}") for i in indices))


# subscribe ---------------------------------------------------------------------------------------


def test_lines_for_scripts(site: ScriptedSite, shell: Shell) -> None:
    with shell.start("subscribe", WORDS, "--count", "2") as process:
        emit_when_subscribed(site, 1, 2)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    lines = out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("possible 0.40..0.90 | patient bed1 | patient_temperature 40.1 °C")
    assert "the subscription stays; to end it:\n  denwatch subscribe --as medic7 --node " in err
    wait_for("the reports", lambda: not site.node.outbox[NAME])


def test_json_for_programs_and_each_note_in_one_run_only(site: ScriptedSite, shell: Shell) -> None:
    with shell.start("subscribe", WORDS, "--json", "--once") as process:
        emit_when_subscribed(site, 1, 2)
        out, _ = process.communicate(timeout=60)
    first = [json.loads(line)["index"] for line in out.splitlines()]
    status, out, _ = shell.run("subscribe", "--json", "--for", "2")
    assert status == 0
    assert first + [json.loads(line)["index"] for line in out.splitlines()] == [1, 2]


def test_a_mistake_is_shown_with_a_caret(shell: Shell) -> None:
    status, out, err = shell.run("subscribe", "the lottery is high")
    assert (status, out) == (1, "")
    assert err.splitlines()[-3:] == [
        'column 5: "lottery" is no attribute; did you mean "temperature"?',
        "  the lottery is high",
        "      ^^^^^^^",
    ]
    status, out, _ = shell.run("subscribe", "the lottery is high", "--json")
    assert status == 1
    assert json.loads(out)["at"] == 5


def test_ending(site: ScriptedSite, shell: Shell) -> None:
    assert shell.run("subscribe", WORDS, "--name", "fever", "--for", "0")[0] == 0
    assert (NAME, "fever") in site.node.subscriptions
    status, _, err = shell.run("subscribe", "--unsubscribe")
    assert (status, site.node.subscriptions) == (0, {})
    assert '"fever" has ended' in err
    status, _, err = shell.run("subscribe", "--unsubscribe")
    assert status == 2
    assert "which one?" in err


def test_nobody_there(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.node = ["--node", find_dead_url()]
    status, out, err = shell.run("subscribe", WORDS, "--once", "--timeout", "1")
    assert (status, out) == (3, "")
    assert "not confirmed yet" in err
    assert "refused" in err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--as", "a/b"), 1, "is not a name"),
        (("--node", "http://x"), 1, "not the address of a node"),
        (("--node", "mqtt://192.0.2.1", "--password-file", "PASSWORD"), 1, "in the clear"),
        (("--password-file", "/no/such"), 3, "No such file"),
        (("--count", "0"), 2, "not a count"),
        (("--for", "nan"), 2, "not a number of seconds"),
        (("--store", "/proc/x/y"), 3, "/proc/x"),
    ],
)
def test_wrong_arguments_are_told_in_a_line(
    arguments: tuple[str, ...], status: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("secret\n")
    shell = Shell(tmp_path)
    given = [str(tmp_path / "password") if a == "PASSWORD" else a for a in arguments]
    found, _, err = shell.run("subscribe", WORDS, *given, "--once", "--timeout", "1")
    assert message in err
    assert found == status
    assert "Traceback" not in err


def test_nothing_asked_for(shell: Shell) -> None:
    status, _, err = shell.run("subscribe")
    assert status == 2
    assert "there is no subscription yet" in err


def test_the_live_table(site: ScriptedSite, shell: Shell) -> None:
    with open_terminal(shell, "subscribe", WORDS, "--name", "fever") as terminal:
        emit_when_subscribed(site, 3)
        terminal.wait_for("medic7: fever.*valid for.*possible.*patient bed3.*40.1 °C")
        terminal.wait_for(f"connected {re.escape(site.url)}")
        terminal.text = ""
        site.broker.kill()
        terminal.wait_for("connecting|lost|unreachable")
        site.broker.start()
        terminal.text = ""
        site.node.emit(NAME, build_note(4, expires=SOON, device="bed4", certain=0.9, score=1))
        terminal.wait_for("certain.*bed4.*possible.*bed3")  # ranked
        assert terminal.interrupt() == 0
        assert "the subscription stays" in terminal.text
    assert (NAME, "fever") in site.node.subscriptions
    with open_terminal(shell, "subscribe") as terminal:
        terminal.wait_for("bed4.*bed3")  # what still counts is shown again
        assert terminal.interrupt() == 0


def test_what_a_sensor_says_is_not_taken_for_markup(site: ScriptedSite, shell: Shell) -> None:
    with open_terminal(shell, "subscribe", WORDS) as terminal:
        wait_for("the subscription", lambda: site.node.subscriptions)
        site.node.emit(NAME, build_note(1, device="[bold]bed[/]", event="[/nonsense]"))
        terminal.wait_for(r"\[/nonsense\]")
        assert terminal.interrupt() == 0


def test_sigterm_ends_it_like_ctrl_c(site: ScriptedSite, shell: Shell) -> None:
    with shell.start("subscribe", WORDS) as process:
        wait_for("the subscription", lambda: site.node.subscriptions)
        assert process.stderr is not None
        while "is active" not in process.stderr.readline():
            pass
        time.sleep(0.2)
        process.terminate()
        assert process.wait(30) == 0


# status ------------------------------------------------------------------------------------------


def test_status_prints_what_is_retained(site: ScriptedSite, shell: Shell) -> None:
    site.node.tell_status(
        subscriptions=12, peers=["truck"], lag_ms=1500, clock_ms=-61_000, queue=0, devices=3
    )
    status, out, _ = shell.run("status", "--once")
    assert status == 0
    titles, row = (re.split(r"  +", line) for line in out.splitlines())
    assert dict(zip(titles, row, strict=True)) == {
        "node": "tent",
        "subscriptions": "12",
        "queue": "0",
        "devices": "3",
        "peers": "truck",
        "lag": "1 s",
        "clock": "-1 min 1 s",
        "heard": row[-1],
    }
    status, out, _ = shell.run("status", "--once", "--json")
    assert json.loads(out)["subscriptions"] == 12


def test_status_says_which_node_is_missing(
    site: ScriptedSite, shell: Shell, tmp_path: Path
) -> None:
    site.node.tell_status(subscriptions=1)
    dead = find_dead_url()
    status, out, err = shell.run("status", "--once", "--node", dead)
    assert status == 0
    assert "tent" in out
    assert dead in err
    lonely = Shell(tmp_path)
    status, out, err = lonely.run("status", "--once", "--node", dead)
    assert (status, out) == (3, "")
    assert "refused" in err


def test_status_lives_on_a_terminal(site: ScriptedSite, shell: Shell) -> None:
    site.node.tell_status(subscriptions=12)
    with open_terminal(shell, "status") as terminal:
        terminal.wait_for("subscriptions.*tent.*12")
        site.node.tell_status(subscriptions=13)
        terminal.wait_for("tent.*13")
        assert terminal.interrupt() == 0
