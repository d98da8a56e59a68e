"""Sources made small for boards mean what they meant."""

# cpython only: it runs the PC's commands

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from denwatch.cli.devices.images import build_role, shrink
from denwatch.protocol.subscription import encode

from firmware_tests.runtimes import REPOSITORY, MissingRuntimeError, find_unix
from tests.protocol.samples import Dice, draw_subscription
from tests.watchdog.test_doubt import draw_sample

LIBRARY = '''
from denwatch.protocol.degrees import const

LIMIT = const(3 * 5)

def keep(value: int) -> int:
    """Say something."""
    return value

def forget(value):
    return value
'''
MODULE = '''
from typing import Any

from denwatch.protocol.library import LIMIT, const, keep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from denwatch.protocol.library import forget

_WIDTH = const(1 << 4)

class Box:
    """A box."""

    def __init__(self, size, colour="red"):
        self._content = [0] * size
        self.colour = colour

    def measure_twice(self, what: "Any", factor) -> int:
        return factor * len(self._content) + LIMIT + keep(what)

def find_box(fields):
    return Box(**fields)
'''
PROGRAM = """
import json
from denwatch.watchdog.fuzzy import Fuzzy
from denwatch.watchdog.execution import Sample

with open({path!r}) as file:
    for line in file:
        event, wides, frame, readings = json.loads(line)
        language = Fuzzy(400, {{event: (65535, wides)}})
        language.install(bytes.fromhex(frame), 0)
        sample = Sample(event)
        sample.wides = wides
        for attribute, points in readings:
            sample.set_doubtful(attribute, *points)
        print(language.judge(sample, 1000), language.judge(sample, 3000), language.why)
"""


def shrink_both() -> tuple[str, str]:
    sources = {"denwatch/protocol/library.py": LIBRARY, "denwatch/watchdog/module.py": MODULE}
    library, module = shrink(sources).values()
    return library, module


def test_what_only_readers_need_is_gone() -> None:
    library, module = shrink_both()
    for text in ("const", "LIMIT", "Any", "TYPE_CHECKING", "Say", "forget"):
        assert text not in library + module
    assert "+ 15 +" in module
    assert "def keep" in library


def test_private_names_and_arguments_are_short_and_public_ones_stay() -> None:
    _, module = shrink_both()
    assert "_content" not in module
    assert "def measure_twice(self, a, b)" in module  # the module is no inner one
    assert "def __init__(self, size, colour='red')" in module  # somebody says Box(**fields)
    names: dict[str, object] = {"keep": lambda value: value}
    exec(module.replace("from denwatch.protocol.library import keep", ""), names)
    box = names["find_box"]({"size": 2, "colour": "blue"})  # type: ignore[operator]
    assert (box.measure_twice(7, 10), box.colour) == (42, "blue")


def test_a_name_that_is_looked_up_by_a_text_stays() -> None:
    text = "class A:\n    def _run(self):\n        return getattr(self, '_name')\n"
    small = shrink({"edge/denwatch/watchdog/a.py": text + "    def _name(self):\n        pass\n"})
    assert "_name" in small["edge/denwatch/watchdog/a.py"]
    assert "_run" not in small["edge/denwatch/watchdog/a.py"]


def test_a_build_judges_as_the_sources_do(tmp_path: Path) -> None:
    """Every kind of vector, exact and uncertain readings: check, rater, doubt, significance."""
    try:
        interpreter = find_unix(64)
    except MissingRuntimeError as error:
        pytest.skip(str(error))
    dice = Dice(404)
    lines = []
    for _ in range(400):
        s = draw_subscription(dice)
        sample, notification = draw_sample(dice, s)
        wides = sum({1 << p.attribute for p in s.predicates if p.wide})
        readings = [(reading.attribute, reading.points) for reading in notification.readings]
        lines.append(json.dumps([sample.event, wides, encode(s).hex(), readings]))
    path = tmp_path / "pairs"
    path.write_text("\n".join(lines) + "\n")
    build_role("full", "x64", tmp_path / "lib")
    outputs = []
    for command, folder in (
        (str(interpreter), tmp_path / "lib"),
        (sys.executable, REPOSITORY),
    ):
        code = PROGRAM.format(path=str(path))
        environment = {"MICROPYPATH": ".:.frozen"}
        done = subprocess.run(
            [command, "-c", code], cwd=folder, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout.split())
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 3 * len(lines)
    assert len(set(outputs[0])) > 30
