"""The sources, on stand-ins for the calls of `machine` and of MicroPython's drivers that they make.

What a sensor's bytes mean is taken from its data sheet's examples.
"""

import os
import time
import unittest

from denwatch.watchdog.execution import Sample
from denwatch.watchdog.sources import Channel, sign
from denwatch.watchdog.sources.commands import CommandChip
from denwatch.watchdog.sources.csv_file import CsvFile
from denwatch.watchdog.sources.dht import Dht
from denwatch.watchdog.sources.ds18x20 import Ds18x20
from denwatch.watchdog.sources.i2c import I2cRegisters
from denwatch.watchdog.sources.pins import Adc, Gpio

FILE = f"watchdog-test-{time.time_ns()}.csv"  # several runtimes may run at once


def take(source, now, fields):
    """Run a round; return the fields, "broken" or "waiting"."""
    source.start_round(now)
    if source.is_waiting:
        return "waiting"
    return "broken" if source.is_broken else [source.read(field) for field in range(fields)]


class Pin:
    def __init__(self, levels):
        self.levels = levels

    def value(self):
        return self.levels.pop(0)


class Converter:
    def __init__(self, counts):
        self.counts = counts

    def read_u16(self):
        return self.counts.pop(0)


class DhtDriver:
    def __init__(self, frames):
        self.frames = frames
        self.buf = bytearray(5)

    def measure(self):
        frame = self.frames.pop(0)
        if frame is None:
            raise OSError(110)
        self.buf[:] = frame
        if sum(frame[:4]) & 255 != frame[4]:
            raise Exception("checksum error")  # what the driver raises


class Bus:
    """1-wire: conversions take effect when they are asked for; scratchpads by address."""

    def __init__(self, numbers):
        self.numbers = numbers
        self.conversions = 0

    def scan(self):
        return [bytearray(rom) for rom in self.numbers]

    def convert_temp(self):
        self.conversions += 1

    def read_scratch(self, rom):
        number = self.numbers[bytes(rom)]
        if number is None:
            raise Exception("CRC error")  # what the driver raises
        return bytes([number & 255, number >> 8 & 255, 0, 0, 0, 0, 0, 0, 0])


class I2c:
    def __init__(self):
        self.registers = {}
        self.is_there = True
        self.written = []

    def readfrom_mem_into(self, address, register, data):
        if not self.is_there or address != 0x48:
            raise OSError(19)
        data[:] = self.registers[register]

    def writeto_mem(self, address, register, data):
        if not self.is_there:
            raise OSError(19)
        self.written.append((address, register, data))


class Chip:
    """An SHT3x: answers a command with two words, each with its checksum."""

    def __init__(self):
        self.answer = bytes([0x66, 0x66, 0x93, 0x7F, 0xFF, 0x8F])  # 25 degrees, 50 %
        self.written = []

    def writeto(self, address, data):
        self.written.append((address, data))

    def readfrom_into(self, address, data):
        assert address == 0x44
        data[:] = self.answer


class SourceTest(unittest.TestCase):
    def test_gpio_levels_and_changes(self):
        source = Gpio(Pin([1, 1, 0, 1]), inverted=True)
        self.assertEqual([take(source, 0, 2) for _ in range(4)], [[0, 0], [0, 0], [1, 1], [0, 2]])

    def test_adc_takes_the_median(self):
        source = Adc(Converter([50, 65535, 40, 0, 45, 7, 7, 9, 9, 9]))
        self.assertEqual(take(source, 0, 1), [45])
        self.assertEqual(take(source, 0, 1), [9])
        self.assertRaises(ValueError, Adc, None, 4)

    def test_adc_at_its_rail_is_broken(self):
        channel = Channel(Adc(Converter([65535] * 5)), 0, 2, 0, 65535, highest=65000)
        sample = Sample(1)
        channel.source.start_round(0)
        channel.read_into(sample)
        self.assertEqual((sample.present, sample.faults), (0, 4))

    def test_dht22_data_sheet_examples(self):
        warm = bytes([0x02, 0x8C, 0x01, 0x5F, 0xEE])  # 65.2 %, 35.1 degrees
        cold = bytes([0x02, 0x8C, 0x80, 0x65, 0x73])  # -10.1 degrees
        wrong = bytes([0x02, 0x8C, 0x80, 0x65, 0x74])
        source = Dht(DhtDriver([warm, cold, None, wrong, warm]))
        self.assertEqual(take(source, 0, 2), [351, 652])
        self.assertEqual(take(source, 1000, 2), [351, 652])  # too early to ask again
        self.assertEqual(take(source, 2000, 2), [-101, 652])
        self.assertEqual(take(source, 4000, 2), "broken")
        self.assertEqual(take(source, 5000, 2), "broken")
        self.assertEqual(take(source, 6000, 2), "broken")
        self.assertEqual(take(source, 8000, 2), [351, 652])

    def test_dht11_has_whole_numbers(self):
        source = Dht(DhtDriver([bytes([0x35, 0, 0x18, 0, 0x4D])]), tenths=False)
        self.assertEqual(take(source, 0, 2), [240, 530])

    def test_ds18b20_reads_the_conversion_of_its_own_round(self):
        bus = Bus({b"a": 0x0191, b"b": 0xFF5E})  # 25.0625 and -10.125 degrees
        source = Ds18x20(bus, 2)
        self.assertEqual(source.prepare(0), 750)
        self.assertEqual(take(source, 749, 2), "waiting")
        self.assertEqual(take(source, 750, 2), [401, -162])
        self.assertEqual(bus.conversions, 1)
        self.assertEqual(source.prepare(60_000), 750)  # no reading is a period old

    def test_ds18b20_of_which_one_fails_leaves_the_other(self):
        bus = Bus({b"a": None, b"b": 0x0550})  # a wrong checksum; 85 degrees: without power
        source = Ds18x20(bus, 3)
        self.assertEqual(take(source, 0, 3), "broken")  # one is missing
        bus.numbers[b"c"] = 16
        self.assertEqual(take(source, 1000, 3), "waiting")
        source.start_round(2000)
        self.assertRaises(OSError, source.read, 0)
        self.assertRaises(OSError, source.read, 1)
        self.assertEqual(source.read(2), 16)

    def test_i2c_fields_and_set_up_again_after_it_was_gone(self):
        bus = I2c()
        bus.registers = {0: b"\xe7\x00", 5: b"\x34\x12"}  # TMP102: -25 degrees
        fields = [(0, 2, True, False, 4), (5, 2, False, True, 0)]
        source = I2cRegisters(bus, 0x48, fields, [(1, b"\x60")])
        self.assertEqual(take(source, 0, 2), [-400, 0x1234])
        take(source, 1, 2)
        self.assertEqual(bus.written, [(0x48, 1, b"\x60")])
        bus.is_there = False
        self.assertEqual(take(source, 2, 2), "broken")
        bus.is_there = True
        self.assertEqual(take(source, 3, 2), [-400, 0x1234])
        self.assertEqual(len(bus.written), 2)

    def test_sht3x_data_sheet_checksum_and_faults(self):
        bus = Chip()
        source = CommandChip("sht3x", bus)
        self.assertEqual(source.prepare(0), 16)
        self.assertEqual(take(source, 15, 2), "waiting")
        self.assertEqual(take(source, 16, 2), [2500, 4999])
        self.assertEqual(bus.written, [(0x44, b"\x24\x00")])  # one command a measurement
        bus.answer = bytes([0xBE, 0xEF, 0x93, 0x80, 0x00, 0xA2])
        source.prepare(100)
        self.assertEqual(take(source, 200, 2), "broken")  # 0xBEEF has the checksum 0x92
        bus.answer = bytes([0xBE, 0xEF, 0x92, 0x80, 0x00, 0xA2])
        source.prepare(300)
        self.assertEqual(take(source, 400, 2), [8552, 5000])

    def test_sign(self):
        self.assertEqual([sign(n, 8) for n in (0, 127, 128, 255)], [0, 127, -128, -1])


class CsvTest(unittest.TestCase):
    def tearDown(self):
        try:  # noqa: SIM105 - MicroPython has no contextlib
            os.remove(FILE)  # noqa: PTH107 - nor pathlib
        except OSError:
            pass

    def write(self, text, how="w"):
        with open(FILE, how) as file:  # noqa: PTH123
            file.write(text)

    def test_a_line_a_round(self):
        self.write("date, temp_max,wind\n2012-01-01,12.8,4.7\n2012-01-02,-10.65,4.5\n")
        source = CsvFile(FILE, ["wind", "temp_max"], [10, 10])
        self.assertEqual(take(source, 0, 2), [47, 128])
        self.assertEqual(take(source, 0, 2), [45, -107])
        self.assertEqual(take(source, 0, 2), "waiting")
        source.close()

    def test_follows_a_file_that_grows_line_by_line(self):
        self.write("a,b\n1,2\n3,")
        source = CsvFile(FILE, ["a", "b"], [1, 1])
        self.assertEqual(take(source, 0, 2), [1, 2])
        self.assertEqual(take(source, 0, 2), "waiting")
        self.write("4\n", "a")
        self.assertEqual(take(source, 0, 2), [3, 4])
        source.close()

    def test_cell_that_is_no_number_is_a_broken_sensor(self):
        self.write("a,b,c\n1,,3\n1,x,3\n1,nan,3\n1\n")
        source = CsvFile(FILE, ["a", "b"], [1, 1])
        channels = [Channel(source, 0, 0, 0, 9), Channel(source, 1, 1, 0, 9)]
        for _ in range(4):
            sample = Sample(1)
            source.start_round(0)
            for channel in channels:
                channel.read_into(sample)
            self.assertEqual((sample.present, sample.faults), (1, 2))
        source.close()

    def test_missing_column_is_named(self):
        self.write("a,b\n")
        with self.assertRaises(ValueError) as caught:
            CsvFile(FILE, ["a", "wind"], [1, 1])
        self.assertIn("wind", str(caught.exception))
