"""The part of `unittest` that device test files may use, for MicroPython, which has none.

A test file says `import unittest` and runs unchanged: with pytest on CPython, where the standard
library answers, and on a device runtime, where this file does because its folder is on the path.
What is missing here fails loudly there (AttributeError), so keep to these names. Every skip is
printed with its reason, and the last line is always `N passed, N failed, N skipped`.

Only this file decides what a passing test is on a device. It must stay plain enough for every
MicroPython that runs whole test files (1.25 on).
"""

import sys

try:  # noqa: SIM105 - what would suppress the error is missing on MicroPython, too
    from typing import Any
except ImportError:  # never needed there: MicroPython does not evaluate annotations
    pass


class SkipTest(Exception):
    """Raised by a test, a decorator or a whole module that cannot run here; says why."""


class _ExpectedError:
    """What `assertRaises` returns: passes if the block raises, keeps the exception."""

    def __init__(self, expected: Any) -> None:
        self.expected = expected
        self.exception: Any = None

    def __enter__(self) -> "_ExpectedError":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if kind is None:
            raise AssertionError(f"{self.expected!r} was not raised")
        if not issubclass(kind, self.expected):
            return False
        self.exception = error
        return True


class _SubTest:
    """What `subTest` returns: notes a failure with its parameters, and lets the test go on."""

    def __init__(self, case: "TestCase", words: str) -> None:
        self.case = case
        self.words = words

    def __enter__(self) -> "_SubTest":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        if issubclass(kind, SkipTest):
            self.case._skips.append((self.words, str(error)))
        else:
            self.case._failures.append((self.words, error))
        return True


class TestCase:
    """A class of tests: each method named `test...` is one."""

    def __init__(self) -> None:
        self._failures: list[tuple[str, Exception]] = []
        self._skips: list[tuple[str, str]] = []

    def setUp(self) -> None:
        """Run before each test."""

    def tearDown(self) -> None:
        """Run after each test, whether it passed or not."""

    def subTest(self, msg: Any = None, **parameters: Any) -> _SubTest:
        words = [] if msg is None else [str(msg)]
        words += [f"{key}={parameters[key]!r}" for key in sorted(parameters)]
        return _SubTest(self, ", ".join(words))

    def skipTest(self, reason: str) -> None:
        raise SkipTest(reason)

    def fail(self, msg: Any = None) -> None:
        raise AssertionError(msg or "fail() was called")

    def _check(self, holds: Any, text: str, values: tuple[Any, ...], msg: Any) -> None:
        """Raise unless it holds; the text is only made then, since most checks hold."""
        if not holds:
            text = text % values
            raise AssertionError(text if msg is None else f"{text} : {msg}")

    def assertTrue(self, value: Any, msg: Any = None) -> None:
        self._check(value, "%r is not true", (value,), msg)

    def assertFalse(self, value: Any, msg: Any = None) -> None:
        self._check(not value, "%r is not false", (value,), msg)

    def assertEqual(self, first: Any, second: Any, msg: Any = None) -> None:
        self._check(first == second, "%r != %r", (first, second), msg)

    def assertNotEqual(self, first: Any, second: Any, msg: Any = None) -> None:
        self._check(first != second, "%r == %r", (first, second), msg)

    def assertIs(self, first: Any, second: Any, msg: Any = None) -> None:
        self._check(first is second, "%r is not %r", (first, second), msg)

    def assertIsNot(self, first: Any, second: Any, msg: Any = None) -> None:
        self._check(first is not second, "%r is %r", (first, second), msg)

    def assertIsNone(self, value: Any, msg: Any = None) -> None:
        self._check(value is None, "%r is not None", (value,), msg)

    def assertIsNotNone(self, value: Any, msg: Any = None) -> None:
        self._check(value is not None, "%r is None", (value,), msg)

    def assertIn(self, member: Any, container: Any, msg: Any = None) -> None:
        self._check(member in container, "%r not found in %r", (member, container), msg)

    def assertNotIn(self, member: Any, container: Any, msg: Any = None) -> None:
        self._check(member not in container, "%r found in %r", (member, container), msg)

    def assertIsInstance(self, value: Any, kind: Any, msg: Any = None) -> None:
        self._check(isinstance(value, kind), "%r is not a %r", (value, kind), msg)

    def assertLess(self, first: Any, second: Any, msg: Any = None) -> None:
        self._check(first < second, "%r is not less than %r", (first, second), msg)

    def assertLessEqual(self, first: Any, second: Any, msg: Any = None) -> None:
        self._check(first <= second, "%r is greater than %r", (first, second), msg)

    def assertGreater(self, first: Any, second: Any, msg: Any = None) -> None:
        self._check(first > second, "%r is not greater than %r", (first, second), msg)

    def assertGreaterEqual(self, first: Any, second: Any, msg: Any = None) -> None:
        self._check(first >= second, "%r is less than %r", (first, second), msg)

    def assertRaises(self, expected: Any, call: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Without a call: a context manager, whose `exception` is there after the block."""
        context = _ExpectedError(expected)
        if call is None:
            return context
        with context:
            call(*args, **kwargs)
        return None


def skip(reason: str) -> Any:
    """Decorate a test or a class of tests that never runs, and say why."""

    def decorate(item: Any) -> Any:
        if isinstance(item, type):
            marked: Any = item
            marked._why_skipped = reason
            return marked

        # MicroPython's functions have no attributes, so the mark is another function.
        def skipped(*_: Any) -> None:
            raise SkipTest(reason)

        return skipped

    return decorate


def skipIf(condition: Any, reason: str) -> Any:
    return skip(reason) if condition else _keep


def skipUnless(condition: Any, reason: str) -> Any:
    return _keep if condition else skip(reason)


def _keep(item: Any) -> Any:
    return item


class TestResult:
    """Counts what happened, and prints each skip and each failure when it happens."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self.skipped = 0

    def wasSuccessful(self) -> bool:
        return self.failed == 0

    def add_pass(self) -> None:
        self.passed += 1

    def add_skip(self, name: str, reason: str) -> None:
        self.skipped += 1
        print(f"skip {name}: {reason}")

    def add_failure(self, name: str, errors: list[tuple[str, Exception]]) -> None:
        """One failed test may hold several errors: one for each failing subTest."""
        self.failed += 1
        for words, error in errors:
            print("FAIL", f"{name} ({words})" if words else name)
            sys.print_exception(error)  # type: ignore[attr-defined]  # MicroPython's

    def print_summary(self) -> None:
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")


def _run_test(case: TestCase, method: str, name: str, result: TestResult) -> None:
    """Run one test: setUp, the test, tearDown; tearDown runs even if the test failed."""
    try:
        case.setUp()
        try:
            getattr(case, method)()
        finally:
            case.tearDown()
    except SkipTest as error:
        case._skips.append(("", str(error)))
    except Exception as error:  # noqa: BLE001 - any error is a failed test
        case._failures.append(("", error))
    if case._failures:
        result.add_failure(name, case._failures)
    elif case._skips:
        for words, reason in case._skips:
            result.add_skip(f"{name} ({words})" if words else name, reason)
    else:
        result.add_pass()


def _run_class(kind: Any, result: TestResult) -> None:
    why = getattr(kind, "_why_skipped", None)
    if why is None and hasattr(kind, "setUpClass"):
        kind.setUpClass()
    for method in sorted(set(dir(kind))):
        if method.startswith("test"):
            name = f"{kind.__name__}.{method}"
            if why is None:
                _run_test(kind(), method, name, result)
            else:
                result.add_skip(name, why)
    if why is None and hasattr(kind, "tearDownClass"):
        kind.tearDownClass()


def run_module(name: str, result: TestResult) -> None:
    """Import a module and run its tests; one that cannot be imported is one failure."""
    try:
        __import__(name)
        module = sys.modules[name]
        for item in sorted(dir(module)):
            kind = getattr(module, item)
            if isinstance(kind, type) and issubclass(kind, TestCase) and kind is not TestCase:
                _run_class(kind, result)
    except SkipTest as error:
        result.add_skip(name, str(error))
    except Exception as error:  # noqa: BLE001 - any error is a failed test
        result.add_failure(name, [("", error)])
    if not (result.passed or result.failed or result.skipped):
        result.add_failure(name, [("", AssertionError("the file holds no test"))])


class main:
    """Run a module's tests, like CPython's `unittest.main`; exits with 1 if one failed."""

    def __init__(self, module: str = "__main__", exit: bool = True) -> None:
        self.result = TestResult()
        run_module(module, self.result)
        self.result.print_summary()
        if exit:
            sys.exit(0 if self.result.wasSuccessful() else 1)
