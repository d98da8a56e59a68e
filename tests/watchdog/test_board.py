# cpython only: reads source files
"""Only `board.py` imports the hardware's modules; what it does with them, on stand-ins."""

from __future__ import annotations

import ast
import importlib
import sys
import types
import unittest
from pathlib import Path
from typing import Any, ClassVar

PACKAGE = Path(__file__).resolve().parents[2] / "edge" / "denwatch" / "watchdog"
HARDWARE = {"machine", "network", "dht", "onewire", "ds18x20"}


def list_imports(path: Path) -> set[str]:
    """Return what a file imports on a device: not what is for type checkers."""
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


class Recorder:
    """A class of the hardware: notes how it is made and called."""

    PULL_UP = 2
    IN = 1
    ATTN_11DB = 3
    calls: ClassVar[list[tuple[Any, ...]]] = []
    kept = b""
    longest = 1 << 30
    IRQ_FALLING, IRQ_RISING = 4, 8

    def irq(self, handler: Any, trigger: int) -> None:
        self.calls.append(("irq", trigger))
        Recorder.handler = handler

    handler: Any = None

    def __init__(self, *args: Any, **options: Any) -> None:
        if options.get("timeout", 0) > self.longest:
            raise ValueError("timeout exceeds 8388")
        self.calls.append(("made", *args, *sorted(options.items())))

    def feed(self) -> None:
        self.calls.append(("fed",))

    def atten(self, level: int) -> None:
        self.calls.append(("atten", level))

    def active(self, is_on: bool) -> None:
        self.calls.append(("active", is_on))

    def connect(self, *names: str) -> None:
        self.calls.append(("connect", *names))

    def disconnect(self) -> None:
        self.calls.append(("disconnect",))

    def isconnected(self) -> bool:
        return True

    def status(self, what: str) -> int:
        assert what == "rssi"
        return -61

    def memory(self, data: bytes | None = None) -> bytes:
        if data is not None and len(data) > 2048:
            raise ValueError("buffer too long")
        if data is not None:
            Recorder.kept = data
        return self.kept


class HardwareTest(unittest.TestCase):
    def setUp(self) -> None:
        Recorder.calls = []
        self.cause = 0
        machine: Any = types.ModuleType("machine")
        machine.PWRON_RESET, machine.WDT_RESET, machine.DEEPSLEEP_RESET = 10, 30, 40
        machine.reset_cause = lambda: self.cause
        machine.WDT = machine.ADC = machine.Pin = machine.RTC = machine.I2C = Recorder
        machine.UART = Recorder
        machine.lightsleep = lambda duration: Recorder.calls.append(("doze", duration))
        machine.deepsleep = lambda duration: Recorder.calls.append(("sleep", duration))
        network: Any = types.ModuleType("network")
        network.WLAN, network.STA_IF = Recorder, 7
        sys.modules.update(machine=machine, network=network)
        self.board: Any = importlib.import_module("denwatch.watchdog.board")

    def tearDown(self) -> None:
        for name in ("machine", "network", "denwatch.watchdog.board"):
            del sys.modules[name]

    def test_reset_reasons_have_the_same_numbers_on_every_board(self) -> None:
        answers = []
        for self.cause in (10, 30, 40, 99):
            answers.append(self.board.read_reset_reason())
        self.assertEqual(answers, [1, 3, 4, 0])  # power on, watchdog, deep sleep, unknown

    def test_the_watchdog_is_started_and_fed(self) -> None:
        feed = self.board.start_watchdog(8000)
        feed()
        self.assertEqual(Recorder.calls, [("made", ("timeout", 8000)), ("fed",)])

    def test_bytes_are_kept_over_a_sleep(self) -> None:
        self.board.keep(b"abc")
        self.board.doze(750)
        self.board.sleep_deeply(5000)
        self.assertEqual(self.board.read_kept(), b"abc")
        self.assertFalse(self.board.keep(bytes(2049)))  # an ESP32 has 2 KB
        self.assertIn(("sleep", 5000), Recorder.calls)

    def test_parts_are_made(self) -> None:
        self.board.make_adc(34)
        self.board.make_pin(4)
        self.board.make_i2c(0, 22, 21)
        names = [call[0] for call in Recorder.calls]
        self.assertEqual(names.count("made"), 6)  # with a pin for the converter, two for the bus
        self.assertIn(("atten", 3), Recorder.calls)

    def test_edges_are_counted_by_interrupt_without_their_bouncing(self) -> None:
        ticks = iter([0, 5, 100, 104, 108, 130, 131])
        time: Any = types.SimpleNamespace(
            ticks_ms=lambda: next(ticks), ticks_diff=lambda a, b: a - b
        )
        self.board.time = time
        counter = self.board.make_counter(4, 10, True)
        self.assertEqual(Recorder.calls[-1], ("irq", 12))
        for _ in range(6):
            Recorder.handler(None)
        self.assertEqual(counter.count, 2)  # at 100 and at 130

    def test_a_serial_port_does_not_wait(self) -> None:
        self.board.make_serial(1, 16, 9600)
        made = Recorder.calls[-1]
        self.assertEqual(made[:4], ("made", 1, ("baudrate", 9600), ("rx", made[3][1])))
        self.assertEqual(made[4], ("timeout", 0))

    def test_a_network_is_joined_and_left(self) -> None:
        self.board.join_wifi("field", "secret")
        self.assertEqual(Recorder.calls[-1], ("connect", "field", "secret"))
        self.assertTrue(self.board.is_joined())
        self.assertEqual(self.board.read_signal(), 61)
        self.board.stop_wifi()
        self.assertEqual(Recorder.calls[-1], ("active", False))

    def test_a_watchdog_that_is_too_long_for_the_board_is_shorter(self) -> None:
        Recorder.longest = 8388
        try:
            self.board.start_watchdog(30_000)
        finally:
            Recorder.longest = 1 << 30
        self.assertEqual(Recorder.calls[-1], ("made", ("timeout", 8000)))


class BoardTest(unittest.TestCase):
    def test_only_the_board_imports_the_hardware(self) -> None:
        users = {
            path.relative_to(PACKAGE).as_posix()
            for path in PACKAGE.rglob("*.py")
            if list_imports(path) & HARDWARE
        }
        self.assertEqual(users, {"board.py"})

    def test_the_filter_role_imports_only_itself_and_the_arithmetic(self) -> None:
        for name in ("viper", "plain", "filter"):
            used = list_imports(PACKAGE / f"{name}.py")
            self.assertLessEqual(used, {"protocol", "array", "micropython"}, name)

    def test_nothing_on_a_device_imports_the_classes_of_vectors(self) -> None:
        """They take 10 KB: `check`, `rating` and `execution` do without."""
        heavy = ("vectors", "subscription", "notification", "matching", "cuts")
        for path in PACKAGE.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for name in heavy:
                self.assertNotIn(f"protocol.{name} import", text, path.name)


if __name__ == "__main__":
    unittest.main()
