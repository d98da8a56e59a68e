"""MicroPython's driver as the data sheet has it: 85 degrees without a conversion of 750 ms."""

import time

from machine import read


class DS18X20:
    def __init__(self, bus):
        self.started = None

    def scan(self):
        return [bytearray(b"sensor-1")]

    def convert_temp(self):
        self.started = time.ticks_ms()

    def read_scratch(self, rom):
        number = 85 * 16
        if self.started is not None and time.ticks_diff(time.ticks_ms(), self.started) >= 750:
            numbers = read("sixteenths", [0])
            number = numbers[min(read("boots", 0), len(numbers) - 1)]
        return bytes([number & 255, number >> 8, 0, 0, 0, 0, 0, 0, 0])
