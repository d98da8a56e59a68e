# Where MicroPython's ESP32 port has its file system.
from esp32 import Partition

bdev: Partition
