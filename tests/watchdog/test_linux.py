"""Sensors of a Raspberry Pi: a tree of files as the kernel shows it, i2c-dev, a serial port."""

import os
import unittest

from denwatch.watchdog.config import ConfigError, make_source
from denwatch.watchdog.linux import LinuxI2c
from denwatch.watchdog.sources.commands import CommandChip
from denwatch.watchdog.sources.sysfs import IioDevice, NumberFiles, OneWireFiles

from tests.watchdog.test_sources import take
from tests.watchdog.test_update import remove
from tests.watchdog.updates import write

ROOT = "linux-test.tmp"
GOOD = "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57 t=23125\n"
BAD = "72 01 4b 46 7f ff 0e 10 57 : crc=58 NO\n72 01 4b 46 7f ff 0e 10 57 t=23125\n"
COLD = "50 05 4b 46 7f ff 0c 10 1c : crc=1c YES\n50 05 4b 46 7f ff 0c 10 1c t=85000\n"
FROST = "5e ff 4b 46 7f ff 02 10 af : crc=af YES\n5e ff 4b 46 7f ff 02 10 af t=-10125\n"


class TreeTest(unittest.TestCase):
    def setUp(self):
        try:  # noqa: SIM105
            remove(ROOT)
        except OSError:
            pass
        os.mkdir(ROOT)  # noqa: PTH102

    def tearDown(self):
        remove(ROOT)

    def put(self, path, text):
        write(ROOT + "/" + path, text.encode())

    def test_1_wire_sensors_in_the_order_of_their_addresses(self):
        self.put("w1_bus_master1/w1_master_name", "w1_bus_master1")
        self.put("28-0b/w1_slave", FROST)
        self.put("28-0a/w1_slave", GOOD)
        source = OneWireFiles(2, ROOT)
        self.assertEqual(take(source, 0, 2), [23_125, -10_125])
        for text in (BAD, COLD):
            self.put("28-0a/w1_slave", text)
            source.start_round(0)
            self.assertRaises(OSError, source.read, 0)
            self.assertEqual(source.read(1), -10_125)
        self.assertEqual(take(OneWireFiles(3, ROOT), 0, 3), "broken")

    def test_the_kernels_sensor_drivers(self):
        self.put("iio:device0/name", "adc\n")
        self.put("iio:device1/name", "bme280\n")
        self.put("iio:device1/in_temp_input", "21370\n")
        self.put("iio:device1/in_pressure_input", "101.325000000\n")
        self.put("iio:device0/in_voltage0_raw", "2048\n")
        self.put("iio:device0/in_voltage0_offset", "-48\n")
        self.put("iio:device0/in_voltage0_scale", "1.25\n")
        self.put("iio:device0/in_temp_raw", "30\n")
        self.put("iio:device0/in_temp_scale", "100\n")
        source = IioDevice("bme280", ["in_temp", "in_pressure"], [1, 1000], ROOT)
        self.assertEqual(take(source, 0, 2), [21_370, 101_325])
        source = IioDevice("adc", ["in_voltage0", "in_temp"], [1, 1], ROOT)
        self.assertEqual(take(source, 0, 2), [2500, 3000])
        self.assertEqual(take(IioDevice("bmp085", ["in_temp"], [1], ROOT), 0, 1), "broken")

    def test_any_number_in_a_file(self):
        self.put("thermal_zone0/temp", "48312\n")
        paths = [ROOT + "/thermal_zone0/temp", ROOT + "/gone"]
        source = NumberFiles(paths, [1, 1])
        source.start_round(0)
        self.assertEqual(source.read(0), 48_312)
        self.assertRaises(OSError, source.read, 1)
        self.put("gone", "nan")
        self.assertRaises(ValueError, source.read, 1)

    def test_they_are_made_from_a_configuration_of_a_pi(self):
        self.put("28-0a/w1_slave", GOOD)
        self.put("one", "-2.5")
        source = make_source({"kind": "w1", "count": 1, "folder": ROOT}, None)
        self.assertEqual(take(source, 0, 1), [23_125])
        entry = {"kind": "sysfs", "paths": [ROOT + "/one"], "scales": [10]}
        self.assertEqual(take(make_source(entry, None), 0, 1), [-25])
        with self.assertRaises(ConfigError) as caught:
            make_source({"kind": "oracle"}, None)
        self.assertIn("oracle", str(caught.exception))


class File:
    """/dev/i2c-1 with one chip: what is written, and what it answers."""

    def __init__(self):
        self.address = 0
        self.written = []
        self.answer = b""

    def control(self, file, request, address):
        assert file is self
        assert request == 0x0703
        self.address = address

    def write(self, data):
        if self.address != 0x44:
            raise OSError(121)
        self.written.append(bytes(data))
        return len(data)

    def readinto(self, buf):
        buf[:] = self.answer[: len(buf)]
        return len(buf)


class I2cTest(unittest.TestCase):
    def test_a_chip_on_i2c_dev(self):
        file = File()
        file.answer = bytes([0x66, 0x66, 0x93, 0x7F, 0xFF, 0x8F])
        source = CommandChip("sht3x", LinuxI2c(file, file.control))
        source.prepare(0)
        self.assertEqual(take(source, 16, 2), [2500, 4999])
        self.assertEqual(file.written, [b"\x24\x00"])
        other = CommandChip("sht3x", LinuxI2c(file, file.control), 0x45)
        self.assertEqual(take(other, 0, 2), "broken")

    def test_registers(self):
        file = File()
        bus = LinuxI2c(file, file.control)
        bus.writeto_mem(0x44, 0xF4, b"\x25")
        file.answer = b"\x12\x34"
        data = bytearray(2)
        bus.readfrom_mem_into(0x44, 0x88, data)
        self.assertEqual((file.written, bytes(data)), ([b"\xf4\x25", b"\x88"], b"\x12\x34"))
