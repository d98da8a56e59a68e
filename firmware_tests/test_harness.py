"""The harness itself: a failing test must fail, on every runtime, and a missing tool must show."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from firmware_tests import support, unix, wasm
from firmware_tests.device_files import list_device_files, read_reason
from firmware_tests.outcome import Outcome, read_outcome
from firmware_tests.runtimes import MissingRuntimeError, find_microbit, find_unix, find_wasm

Run = Callable[[str, str], Outcome]

PASSING = """
import unittest
from tests.protocol.thing import double

class TestThing(unittest.TestCase):
    def setUp(self):
        self.value = 2

    def test_assertions(self):
        self.assertEqual(double(self.value), 4)
        self.assertNotEqual(1, 2)
        self.assertTrue([0])
        self.assertFalse([])
        self.assertIs(None, None)
        self.assertIsNot(None, 0)
        self.assertIsNone(None)
        self.assertIsNotNone(0)
        self.assertIn(1, (1, 2))
        self.assertNotIn(3, (1, 2))
        self.assertIsInstance(b"", bytes)
        self.assertLess(1, 2)
        self.assertLessEqual(2, 2)
        self.assertGreater(2, 1)
        self.assertGreaterEqual(2, 2)

    def test_raises(self):
        with self.assertRaises(ValueError) as context:
            raise ValueError("three")
        self.assertEqual(context.exception.args[0], "three")
        self.assertRaises(ZeroDivisionError, lambda x: x // 0, 1)

    def test_sub_tests(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertLess(number, 3)
"""

# Each line must make its test fail; together they are what the shim could let pass by mistake.
FAILING_LINES = [
    "self.assertEqual(double(1), 3)",
    "self.assertNotEqual(1, 1)",
    "self.assertTrue(0)",
    "self.assertFalse(1)",
    "self.assertIs([], [])",
    "self.assertIsNot(None, None)",
    "self.assertIsNone(0)",
    "self.assertIsNotNone(None)",
    "self.assertIn(3, (1, 2))",
    "self.assertNotIn(1, (1, 2))",
    "self.assertIsInstance(1, str)",
    "self.assertLess(2, 2)",
    "self.assertLessEqual(3, 2)",
    "self.assertGreater(2, 2)",
    "self.assertGreaterEqual(1, 2)",
    "self.assertRaises(ValueError, double, 1)",
    "self.assertRaises(ValueError, lambda: [][0])",
    "self.fail('on purpose')",
    "raise RuntimeError('on purpose')",
    "self.assertNoSuchThing()",
    "self.check_sub_tests()",
    "self.check_raises()",
]

FAILING = """
import unittest
from tests.protocol.thing import double

class TestThing(unittest.TestCase):
    def check_sub_tests(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)

    def check_raises(self):
        with self.assertRaises(ValueError):
            pass
""" + "".join(
    f"\n    def test_{number:02}(self):\n        {line}\n"
    for number, line in enumerate(FAILING_LINES)
)

SKIPPING = """
import unittest

class TestThing(unittest.TestCase):
    def test_run(self):
        pass

    @unittest.skip("never")
    def test_skip(self):
        self.fail()

    @unittest.skipIf(True, "if: so")
    def test_skip_if(self):
        self.fail()

    @unittest.skipIf(False, "not so")
    def test_skip_if_not(self):
        pass

    def test_skip_inside(self):
        self.skipTest("inside")

@unittest.skipUnless(False, "whole class")
class TestOther(unittest.TestCase):
    def test_other(self):
        self.fail()
"""

BROKEN_SET_UP = """
import unittest

class TestThing(unittest.TestCase):
    def setUp(self):
        raise RuntimeError("set-up")

    def test_run(self):
        pass

class TestOther(unittest.TestCase):
    def tearDown(self):
        raise RuntimeError("tear-down")

    def test_run(self):
        pass
"""

RUNTIMES: dict[str, tuple[Callable[[], object], Callable[[str, Path], Outcome]]] = {
    "unix64": (partial(find_unix, 64), lambda module, root: unix.run_module(module, 64, root)),
    "unix32": (partial(find_unix, 32), lambda module, root: unix.run_module(module, 32, root)),
    "wasm": (find_wasm, wasm.run_module),
}


def make_repository(root: Path) -> None:
    """Lay out a repository with a folder of tests, and one module for them to import."""
    for package in ("tests", "tests/protocol"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").touch()
    (root / "tests" / "protocol" / "thing.py").write_text("def double(x):\n    return 2 * x\n")


@pytest.fixture(params=sorted(RUNTIMES))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a text as a test file in a small repository of its own."""
    find, run_module = RUNTIMES[request.param]
    support.require(find)
    make_repository(tmp_path)

    def run_text(name: str, text: str) -> Outcome:
        (tmp_path / "tests" / "protocol" / f"{name}.py").write_text(text)
        return run_module(f"tests.protocol.{name}", tmp_path)

    return run_text


def test_passing_file_passes(run: Run) -> None:
    outcome = run("test_passing", PASSING)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (3, 0, 0), outcome.output
    assert outcome.is_ok


def test_every_failing_test_fails(run: Run) -> None:
    outcome = run("test_failing", FAILING)
    assert (outcome.passed, outcome.failed) == (0, len(FAILING_LINES)), outcome.output
    assert not outcome.is_ok
    assert "(number=1)" in outcome.output
    assert "2 != 3" in outcome.output


def test_skips_are_counted_and_say_why(run: Run) -> None:
    outcome = run("test_skipping", SKIPPING)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (2, 0, 4), outcome.output
    assert dict(outcome.skips) == {
        "TestThing.test_skip": "never",
        "TestThing.test_skip_if": "if: so",
        "TestThing.test_skip_inside": "inside",
        "TestOther.test_other": "whole class",
    }


def test_failing_set_up_or_tear_down_fails(run: Run) -> None:
    outcome = run("test_broken", BROKEN_SET_UP)
    assert (outcome.passed, outcome.failed) == (0, 2), outcome.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_module\n", "no_such_module"),
        ("def broken(:\n", "SyntaxError"),
        ("import unittest\n", "holds no test"),
        ("import sys\nsys.exit(0)\n", ""),
    ],
)
def test_file_that_cannot_run_fails(run: Run, text: str, words: str) -> None:
    outcome = run("test_broken", text)
    assert not outcome.is_ok
    assert words in outcome.output


def test_module_may_skip_itself(run: Run) -> None:
    outcome = run("test_absent", "import unittest\nraise unittest.SkipTest('no viper here')\n")
    assert outcome.is_ok
    assert outcome.skips == (("tests.protocol.test_absent", "no viper here"),)


def test_heap_limit_holds() -> None:
    support.require(partial(find_unix, 32))
    program = "b = bytearray(100000); print(len(b))"
    assert unix.run_code(program, 32, heap="160k") == ("100000\n", 0)
    output, exit_code = unix.run_code(program, 32, heap="40k")
    assert exit_code != 0
    assert "MemoryError" in output


def test_word_sizes_differ() -> None:
    program = "import sys; print(sys.maxsize)"
    for bits in (64, 32):
        support.require(partial(find_unix, bits))
        assert unix.run_code(program, bits)[0] == f"{2 ** (bits - 1) - 1}\n"


def test_reason_is_read_near_the_top_only() -> None:
    assert read_reason('"""Doc."""\n# cpython only: needs cbor2\nimport x\n') == "needs cbor2"
    assert read_reason("import x\n" * 100 + "# cpython only: late\n") is None
    assert read_reason("import x  # cpython only: not a line of its own\n") is None


def test_device_files_are_listed_with_their_reason(tmp_path: Path) -> None:
    make_repository(tmp_path)
    folder = tmp_path / "tests" / "protocol"
    (folder / "test_b.py").write_text("# cpython only: hypothesis\n")
    (folder / "test_a.py").write_text("import unittest\n")
    (folder / "golden.py").write_text("")
    files = list_device_files(tmp_path)
    assert [(file.path, file.cpython_only) for file in files] == [
        ("tests/protocol/test_a.py", None),
        ("tests/protocol/test_b.py", "hypothesis"),
    ]


def test_crash_or_contradiction_is_a_failure() -> None:
    assert not read_outcome("", 0).is_ok
    assert not read_outcome("Segmentation fault", -11).is_ok
    assert not read_outcome("3 passed, 0 failed, 0 skipped\n", 1).is_ok
    assert not read_outcome("3 passed, 1 failed, 0 skipped\n", 0).is_ok
    assert read_outcome("3 passed, 0 failed, 0 skipped\n", 0).is_ok


@pytest.mark.parametrize("find", [partial(find_unix, 64), find_wasm, find_microbit])
def test_missing_runtime_skips_here_and_fails_in_ci(
    find: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DENWATCH_CACHE", str(tmp_path))
    with pytest.raises(MissingRuntimeError, match=r"is missing: run scripts/get-runtimes\.sh"):
        find()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="is missing"):
        support.require(find)
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="is missing"):
        support.require(find)
