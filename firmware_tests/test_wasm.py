"""The device tests, unchanged, on WebAssembly MicroPython under node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from firmware_tests.device_files import DeviceFile, list_device_files
from firmware_tests.runtimes import find_wasm
from firmware_tests.support import check_file, require
from firmware_tests.wasm import run_module


@pytest.mark.parametrize("file", list_device_files(), ids=lambda file: file.path)
def test_file(file: DeviceFile, record_property: Callable[[str, object], None]) -> None:
    require(find_wasm)
    check_file(file, run_module, record_property)
