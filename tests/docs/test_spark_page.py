"""The commands of docs/spark.md print what it shows; they share one small folder of logs.

`denwatch analyze` runs as a process of its own, as a user runs it. The page's other commands on
Spark run in this process, with the session that all tests of the backend share: starting Spark four
more times would take longer than what they do.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from multiprocessing.connection import Client, Listener
from pathlib import Path
from threading import Thread

import pytest
from denwatch.cli import main
from denwatch.cli import spark as commands
from pyspark.sql import SparkSession

from tests.docs.pages import ROOT, list_steps, read_page
from tests.docs.session import Session, play
from tests.spark.conftest import spark  # noqa: F401 — the fixture

STAND_IN = """#!{python}
import os, sys
from multiprocessing.connection import Client
if sys.argv[1] == "analyze":
    os.execv(sys.executable, [sys.executable, "-m", "denwatch.cli", *sys.argv[1:]])
with Client({address!r}) as door:
    door.send((os.getcwd(), sys.argv[1:]))
    status, told, errors = door.recv()
sys.stdout.write(told)
sys.stderr.write(errors)
sys.exit(status)
"""


def run_here(words: list[str]) -> tuple[int, str, str]:
    """Run a command in this process; return its status, and what it prints."""
    told, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(errors):
        try:
            status = main(words)
        except SystemExit as stop:
            status = int(stop.code or 0)
    return status, told.getvalue(), errors.getvalue()


def test_commands_print_what_the_page_shows(
    spark: SparkSession,  # noqa: F811 — the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.contextmanager
    def lend(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(commands, "open_session", lend)
    page = ROOT / "docs" / "spark.md"
    place = tmp_path / "page"
    place.mkdir()
    address = str(tmp_path / "door")
    session = Session(tmp_path, place, page.read_text(encoding="utf-8"))
    (tmp_path / "bin" / "denwatch").write_text(
        STAND_IN.format(python=sys.executable, address=address)
    )
    wrong = ["the page was not played to its end"]

    def play_page() -> None:
        try:
            wrong[:] = play(session, list_steps(read_page(page)))
        finally:
            with Client(address) as door:
                door.send(None)

    with Listener(address) as listener:
        player = Thread(target=play_page)
        player.start()
        asked = 0
        while True:
            with listener.accept() as door:
                request = door.recv()
                if request is None:
                    break
                folder, words = request
                monkeypatch.chdir(folder)
                door.send(run_here(words))
                asked += 1
        player.join()
    session.close()
    assert not wrong, "\n".join(wrong)
    assert asked == 4  # sql, trace twice, stream
