# What the emulated boards' firmware has frozen in: the watchdog as boards get it, asyncio, and
# stand-ins for what the emulator lacks (`machine.py`; AES, from the tests).
# mypy: ignore-errors
# ruff: noqa: F821 - include and module are MicroPython's tools, which run this file
import os

include("$(MPY_DIR)/extmod/asyncio")
# mpy-cross 1.25 cannot compile the machine code for uncertain readings for a Cortex-M0: too long.
part = "doubt" if os.environ.get("BOARD") == "MICROBIT" else ""
# The emulated boards have no pins for sensors, and Debian's sources no micropython-lib.
include("../../edge/denwatch/watchdog/manifest.py", without=part, drivers=False)
module("machine.py")
module("aes.py", base_path="../../tests/protocol")
