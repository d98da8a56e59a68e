"""`denwatch console` on the command line: what it refuses before it serves anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from denwatch.cli.console import run
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError


def test_its_help_reads_like_a_manual_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(["--help"])
    assert end.value.code == 0
    told = capsys.readouterr().out
    for words in ("usage: denwatch console", "--listen HOST:PORT", "examples:", "exit status"):
        assert words in told


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1", ":8080", "127.0.0.1:http", "[::1]:99999"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(CommandError, match="HOST:PORT") as error:
        run(["--listen", listen])
    assert error.value.status == WRONG_USAGE


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "192.168.1.4:80", "tent.local:8080", "[::]:1"])
def test_beyond_the_loopback_nothing_is_served_in_the_clear(listen: str) -> None:
    with pytest.raises(CommandError, match="in the clear") as error:
        run(["--listen", listen])
    assert error.value.status == WRONG_USAGE


def test_a_certificate_needs_its_key_and_both_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="go together"):
        run(["--certificate", str(tmp_path / "x")])
    with pytest.raises(CommandError, match="no such file") as error:
        run(["--certificate", str(tmp_path / "x"), "--key", str(tmp_path / "y")])
    assert error.value.status == MISSING


def test_keys_do_not_go_in_the_clear_to_a_node_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="in the clear"):
        run(["--node", "mqtt://tent.example", "--store", str(tmp_path)])


def test_an_unknown_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match='no vocabulary "nautical"'):
        run(["--vocabulary", "nautical", "--store", str(tmp_path)])


@pytest.mark.parametrize(
    "plan",
    ["ward.png", "ward.png@1,2,3", "ward.png@9,0,1,5", "w.svg@0,0,9,9", "w.png@0,0,inf,9"],
)
def test_a_plan_is_a_picture_and_its_metres(plan: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="WEST,SOUTH,EAST,NORTH") as error:
        run(["--plan", plan, "--store", str(tmp_path)])
    assert error.value.status == WRONG_USAGE
    with pytest.raises(CommandError, match="no such file") as error:
        run(["--plan", f"{tmp_path}/ward.png@0,-5,120,80", "--store", str(tmp_path)])
    assert error.value.status == MISSING
