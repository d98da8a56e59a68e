"""`python -m simulator`: a short day, its figures, its picture, its logs, its contacts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from denwatch.cli.errors import CommandError
from denwatch.node.log import decode_records, read_segment

from simulator.__main__ import run
from simulator.traces import read_contacts

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
DAY = "--nodes 8 --hours 0.2 --seed 3 --mobility waypoint --reach 400 --period 60"


def test_a_day_leaves_figures_a_picture_and_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, logs, trace = tmp_path / "day.svg", tmp_path / "logs", tmp_path / "day.txt"
    words = f"{DAY} --json --map {picture}"
    assert run([*words.split(), "--logs", str(logs), "--write-contacts", str(trace)]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["nodes"] == 8
    assert figures["contacts"] > 0
    assert 0 < figures["delivered"] <= figures["wanted"]
    nodes = ElementTree.parse(picture).getroot().findall(f"{SVG}g[@transform]")
    moving = [node for node in nodes if node.find(f"{SVG}animateTransform") is not None]
    assert len(nodes) == len(moving) == 8
    assert {event.is_up for event in read_contacts(trace)} == {True, False}
    kinds: dict[str, int] = {}
    for file in sorted(logs.iterdir()):
        for block in read_segment(file.read_bytes(), is_closed=file.suffix == ".dlog").blocks:
            records, damages = decode_records(block)
            assert not damages
            for record in records:
                kinds[record.kind] = kinds.get(record.kind, 0) + 1
    assert kinds["start"] == kinds["stop"] == 8
    assert kinds["deliver"] == figures["delivered"]


def test_a_trace_takes_the_place_of_movement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "three.txt"
    trace.write_text("1 CONN 0 2 up\n200 CONN 0 2 down\n", encoding="ascii")
    assert run(["--contacts", str(trace), "--hours", "0.1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["nodes"], figures["contacts"]) == (3, 1)


def test_one_seed_is_one_day_byte_for_byte(tmp_path: Path) -> None:
    """Two processes with different orders of hashes write the same logs, map and contacts."""
    found = []
    for hash_seed in ("0", "12345"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        words = ["--map", folder / "day.svg", "--logs", folder / "logs"]
        words += ["--write-contacts", folder / "day.txt", "--strategy", "spray:4", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "simulator", *DAY.split(), *map(str, words)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        found.append(
            [done.stdout, *((path.relative_to(folder), path.read_bytes()) for path in files)]
        )
    assert found[0] == found[1]
    assert len(found[0]) == 1 + 2 + 8  # figures, map and contacts, a segment of each node


@pytest.mark.parametrize(
    "words",
    [
        *("--nodes 1", "--hours 0", "--strategy flood", "--contacts nowhere.txt"),
        *("--people -1", "--period 0"),
    ],
)
def test_what_cannot_be_is_refused(words: str) -> None:
    with pytest.raises(CommandError):
        run(words.split())
