# What board.py uses of MicroPython's `onewire`.
from machine import Pin

class OneWire:
    def __init__(self, pin: Pin) -> None: ...
