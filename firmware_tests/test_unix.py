"""The device tests, unchanged, on unix MicroPython: 64 bit, 32 bit, and within a device's heap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from firmware_tests.device_files import DeviceFile, list_device_files
from firmware_tests.runtimes import find_unix
from firmware_tests.support import check_file, require
from firmware_tests.unix import run_module

FILES = pytest.mark.parametrize("file", list_device_files(), ids=lambda file: file.path)

# Less than an ESP32 without PSRAM leaves to a program; the tests and their vectors share it.
DEVICE_HEAP = "160k"


@pytest.mark.parametrize("bits", [64, 32])
@FILES
def test_file(file: DeviceFile, bits: int, record_property: Callable[[str, object], None]) -> None:
    require(partial(find_unix, bits))
    check_file(file, partial(run_module, bits=bits), record_property)


@FILES
def test_file_within_device_heap(
    file: DeviceFile, record_property: Callable[[str, object], None]
) -> None:
    require(partial(find_unix, 32))
    check_file(file, partial(run_module, bits=32, heap=DEVICE_HEAP), record_property)
