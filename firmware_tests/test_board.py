"""The emulated micro:bit's driver: what it sends arrives, what fails shows, what hangs ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firmware_tests.bundle import bundle
from firmware_tests.core import list_mismatches, start_parts, store_parts
from firmware_tests.microbit import BoardError, BoardStuckError, Microbit, Name
from firmware_tests.runtimes import find_microbit
from firmware_tests.support import require

KERNEL = """
SCALE = const(3)

def scale(value: int) -> int:
    return SCALE * value

def add(buf, at, value):
    return buf[at] + scale(value)
"""


@pytest.fixture(scope="module")
def board() -> Iterator[Microbit]:
    require(find_microbit)
    with Microbit() as running:
        yield running


@pytest.fixture(autouse=True)
def _empty_heap(board: Microbit) -> None:
    board.reset()


def test_it_is_the_old_interpreter_in_a_small_heap(board: Microbit) -> None:
    version = board.exec("import sys\nprint(sys.implementation[1], sys.platform)")
    assert version == "(1, 9, 2) microbit\n"
    assert 8000 < board.read_free_heap() < 10000


def test_output_comes_back_whole(board: Microbit) -> None:
    text = board.exec("for i in range(3):\n    print('>>> ', i)\n\n    print('=== ')")
    assert text == "".join(f">>>  {i}\n=== \n" for i in range(3))
    assert board.exec("") == ""


def test_error_is_raised_with_its_traceback_and_the_board_goes_on(board: Microbit) -> None:
    for code, words in [
        ("1 // 0", "ZeroDivisionError"),
        ("def broken(:", "SyntaxError"),
        ("bytearray(20000)", "MemoryError"),
        ("import sys\nprint('before')\nsys.exit()", "before"),
    ]:
        with pytest.raises(BoardError, match=words):
            board.exec(code)
    assert board.exec("print(1)") == "1\n"


def test_file_arrives_byte_for_byte(board: Microbit) -> None:
    data = bytes(range(256)) * 2 + b"'\"\\\r\n"
    board.put("data.bin", data)
    code = (
        "f = open('data.bin', 'rb')\nd = f.read()\nprint(len(d), sum(d))\nprint(d[-6:])\nf.close()"
    )
    assert board.exec(code) == f"{len(data)} {sum(data)}\n{data[-6:]!r}\n"


def test_vectors_run_and_a_wrong_answer_shows(board: Microbit) -> None:
    parts = bundle([KERNEL], ["add"])
    store_parts(board, parts)
    start_parts(board, parts, buffer=3)
    board.call([("fill", (0, b"abc"))])
    vectors = [
        ("add", (Name("buffer"), index, value), b"abc"[index] + 3 * value)
        for index in range(3)
        for value in range(20)
    ]
    assert list_mismatches(board, vectors) == []
    wrong = ("add", (b"\x01", 0, 1), 5)
    assert list_mismatches(board, [*vectors, wrong]) == [
        "add(b'\\x01', 0, 1) is 4 on the board, not 5"
    ]


def test_program_that_never_ends_is_stopped() -> None:
    require(find_microbit)
    with Microbit() as board:
        board.exec("def spin():\n    while True:\n        pass")
        board.silence = 1.0
        with pytest.raises(BoardStuckError, match="silent for 1"):
            board.exec("spin()")


def test_program_that_prints_for_ever_is_stopped() -> None:
    require(find_microbit)
    with Microbit() as board:
        board.limit = 1.0
        with pytest.raises(BoardStuckError, match="not done after 1"):
            board.exec("while True:\n    print(1)")


def test_firmware_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator, _ = require(find_microbit)
    (tmp_path / "runtimes" / "microbit").mkdir(parents=True)
    (tmp_path / "runtimes" / "microbit" / "qemu-system-arm").symlink_to(emulator)
    (tmp_path / "runtimes" / "microbit" / "firmware.hex").write_text("not a firmware")
    monkeypatch.setenv("DENWATCH_CACHE", str(tmp_path))
    with pytest.raises(BoardStuckError, match="the emulator ended"), Microbit() as board:
        board.exec("")
