"""Sensors with commands, calibrations, interrupts and sentences, by examples of their makers."""

import sys
import unittest

from denwatch.watchdog.sources.bme280 import Bme280
from denwatch.watchdog.sources.commands import CommandChip, sum_word
from denwatch.watchdog.sources.driver import Driver, make
from denwatch.watchdog.sources.nmea import Nmea, read_gga
from denwatch.watchdog.sources.pins import Adc, Gpio, Pulses

from tests.watchdog.test_sources import Pin, take


class Scd4x:
    """Answers as the data sheet's example does, once it was started and 5 s are over."""

    def __init__(self):
        self.answer = bytes.fromhex("01f4336667a25eb93c")  # 500 ppm, 25 degrees, 37 %
        self.written = []
        self.is_there = True

    def writeto(self, address, data):
        if not self.is_there:
            raise OSError(19)
        self.written.append((address, data))

    def readfrom_into(self, address, data):
        assert address == 0x62
        assert self.written[-1] == (0x62, b"\xec\x05")
        data[:] = self.answer


class CommandTest(unittest.TestCase):
    def test_the_checksum_of_the_data_sheet(self):
        self.assertEqual(sum_word(bytearray(b"\xbe\xef"), 0), 0x92)

    def test_scd4x_example_of_the_data_sheet(self):
        bus = Scd4x()
        source = CommandChip("scd4x", bus)
        self.assertEqual(source.prepare(0), 5000)
        self.assertEqual(take(source, 4999, 3), "waiting")
        self.assertEqual(take(source, 5000, 3), [500, 2500, 3700])
        self.assertEqual(take(source, 9000, 3), "waiting")  # the next one is 5 s after that
        self.assertEqual(take(source, 10_000, 3), [500, 2500, 3700])
        starts = [data for _, data in bus.written if data == b"\x21\xb1"]
        self.assertEqual(len(starts), 1)

    def test_scd4x_that_was_gone_is_started_again(self):
        bus = Scd4x()
        source = CommandChip("scd4x", bus)
        source.prepare(0)
        bus.is_there = False
        self.assertEqual(take(source, 5000, 3), "broken")
        bus.is_there = True
        self.assertEqual(take(source, 6000, 3), "waiting")
        self.assertEqual(bus.written[-1], (0x62, b"\x21\xb1"))
        bus.answer = bytes.fromhex("01f4346667a25eb93c")
        self.assertEqual(take(source, 11_000, 3), "broken")  # a wrong checksum


def write_word(number):
    return bytes([number & 255, number >> 8 & 255])


class Bme:
    """A chip with the calibration and the raw numbers of the BMP280's data sheet, section 3.12."""

    T = (27504, 26435, -1000)
    P = (36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000)
    H = (75, 370, 0, 313, 50, 30)  # of a BME280; the sheet has no example

    def __init__(self):
        h = self.H
        words = b"".join([write_word(number) for number in self.T + self.P])
        self.memory = {
            0x88: words + bytes([0, h[0]]),
            0xE1: write_word(h[1])
            + bytes([h[2], h[3] >> 4, h[3] & 15 | (h[4] & 15) << 4, h[4] >> 4, h[5]]),
            0xF7: bytes([415148 >> 12, 415148 >> 4 & 255, (415148 & 15) << 4])
            + bytes([519888 >> 12, 519888 >> 4 & 255, (519888 & 15) << 4])
            + bytes([30_000 >> 8, 30_000 & 255]),
        }
        self.written = []
        self.is_there = True

    def readfrom_mem_into(self, address, register, data):
        if not self.is_there or address != 0x76:
            raise OSError(19)
        data[:] = self.memory[register]

    def writeto_mem(self, address, register, data):
        assert address == 0x76
        self.written.append((register, data))


def find_humidity(raw, fine, h):
    """The data sheet's formula in floating point, in %."""
    x = fine - 76800.0
    x = (raw - (h[3] * 64.0 + h[4] / 16384.0 * x)) * (
        h[1] / 65536.0 * (1.0 + h[5] / 67108864.0 * x * (1.0 + h[2] / 67108864.0 * x))
    )
    return min(max(x * (1.0 - h[0] * x / 524288.0), 0.0), 100.0)


class BmeTest(unittest.TestCase):
    def test_the_example_of_the_data_sheet(self):
        bus = Bme()
        source = Bme280(bus)
        self.assertEqual(source.prepare(0), 10)
        self.assertEqual(take(source, 9, 3), "waiting")
        temperature, pressure, humidity = take(source, 10, 3)
        self.assertEqual((temperature, pressure), (2508, 100653))  # 25.08 degrees, 100653.27 Pa
        self.assertTrue(0 <= humidity <= 10_000)
        self.assertEqual(bus.written, [(0xF2, b"\x01"), (0xF4, b"\x25")])

    def test_humidity_is_that_of_the_formula_in_floating_point(self):
        source = Bme280(Bme())
        source.prepare(0)
        for raw in range(20_000, 45_000, 500):
            for fine in (0, 51_200, 102_400, 128_422, 256_000):
                expected = find_humidity(raw, fine, Bme.H)
                found = source.find_humidity(raw, fine) / 100
                self.assertTrue(abs(found - expected) < 0.1, (raw, fine, found, expected))

    def test_calibrations_with_signs(self):
        source = Bme280(Bme())
        high = bytes([0x0E, 0x01, 0x00, 0xF0, 0x2F, 0x03, 0xE2])
        source.set_calibration(bytes(24) + b"\x00\x4b", high)
        self.assertEqual(source._h, [75, 270, 0, -241, 50, -30])

    def test_a_chip_that_was_gone_or_did_not_measure(self):
        bus = Bme()
        source = Bme280(bus)
        source.prepare(0)
        bus.is_there = False
        self.assertEqual(take(source, 10, 3), "broken")
        bus.is_there = True
        self.assertEqual(take(source, 20, 3), "waiting")
        bus.memory[0xF7] = bytes([0x80, 0, 0, 0x80, 0, 0, 0x80, 0])
        self.assertEqual(take(source, 30, 3), "broken")


class Counter:
    count = 0


class Volts:
    """A converter with a calibration."""

    def read_uv(self):
        return 1_650_999


class Line:
    """A serial line: what comes with each read."""

    def __init__(self, *parts):
        self.parts = list(parts)

    def read(self, size):
        assert size
        return self.parts.pop(0) if self.parts else None


# The example of NMEA 0183's handbooks: 48° 07.038' N, 11° 31.000' E, 545.4 m, 8 satellites.
GGA = b"$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n"


def seal(body):
    """Return a sentence with its checksum."""
    total = 0
    for byte in body:
        total ^= byte
    return b"$" + body + b"*%02X\r\n" % total


NO_FIX = seal(b"GPGGA,123520,,,,,0,00,99.9,,M,,M,,")
SOUTH = seal(b"GNGGA,001043.00,4404.14036,S,12118.85961,W,1,12,0.98,-11.3,M,-21.3,M,,")


class Thermometer:
    """A driver as people write them: a bus, an option, a method and a property."""

    def __init__(self, bus, oversample=1):
        self.bus = bus
        self.oversample = oversample
        self.measured = 0

    def start(self):
        self.measured += 1

    def temperature(self):
        return 21.46 * self.measured

    @property
    def pressure(self):
        if self.measured > 2:
            raise OSError
        return -3.5


class OtherTest(unittest.TestCase):
    def test_pulses_since_the_start_and_since_the_last_round(self):
        counter = Counter()
        source = Pulses(counter)
        counter.count = 7
        self.assertEqual(take(source, 0, 2), [7, 7])
        self.assertEqual(take(source, 0, 2), [7, 0])
        counter.count = 3  # after 65,535 come 0, 1, ...
        self.assertEqual(take(source, 0, 2), [3, 65_532])

    def test_a_door_that_opened_and_closed_between_two_rounds(self):
        counter = Counter()
        source = Gpio(Pin([1, 1]), counter=counter)
        self.assertEqual(take(source, 0, 2), [1, 0])
        counter.count = 2
        self.assertEqual(take(source, 0, 2), [1, 2])

    def test_a_converter_with_a_calibration_says_millivolts(self):
        self.assertEqual(take(Adc(Volts(), is_voltage=True), 0, 1), [1650])

    def test_a_position_with_its_accuracy(self):
        source = Nmea(Line(b"\x00$GPG", GGA[:30], GGA[30:] + b"$GPRMC,1*00\r\n"))
        source._rest = b""
        self.assertEqual(take(source, 0, 5), "waiting")  # its beginning was lost
        source = Nmea(Line(GGA[:30], GGA[30:]))
        self.assertEqual(take(source, 0, 5), [4_811_730, 1_151_667, 5454, 8, 22])
        self.assertEqual(take(source, 0, 5), "waiting")

    def test_positions_in_the_south_and_west_and_below_the_sea(self):
        fields = take(Nmea(Line(SOUTH)), 0, 5)
        self.assertEqual(fields, [-4_406_901, -12_131_433, -113, 12, 22])

    def test_a_receiver_without_a_fix_is_a_fault_and_noise_is_nothing(self):
        self.assertEqual(take(Nmea(Line(NO_FIX)), 0, 5), "broken")
        self.assertEqual(take(Nmea(Line(GGA.replace(b"4807", b"4808"))), 0, 5), "waiting")
        self.assertEqual(read_gga(b""), None)
        self.assertEqual(read_gga(b"$GPGGA,*76"), None)

    def test_any_driver(self):
        source = Driver(Thermometer(None), ["temperature", "pressure"], [10, 10], "start", 20)
        self.assertEqual(source.prepare(0), 20)
        self.assertEqual(take(source, 19, 2), "waiting")
        self.assertEqual(take(source, 20, 2), [215, -35])
        source.prepare(100)
        self.assertEqual(take(source, 120, 2), [429, -35])
        source.prepare(200)
        source.start_round(220)
        self.assertRaises(OSError, source.read, 1)
        self.assertRaises(AttributeError, Driver, Thermometer(None), ["humidity"], [1])

    def test_a_driver_is_made_from_a_configuration(self):
        class Boards:
            def make_i2c(self, number, clock, data):
                return number, clock, data

        entry = {"module": __name__, "class": "Thermometer", "clock": 22, "data": 21}
        entry.update(
            fields=["temperature"], scales=[100], measure="start", options={"oversample": 4}
        )
        source = make(entry, Boards())
        self.assertEqual(source._target.bus, (0, 22, 21))
        self.assertEqual(source._target.oversample, 4)
        self.assertEqual(take(source, 0, 1), [2146])
        self.assertTrue(__name__ in sys.modules)
