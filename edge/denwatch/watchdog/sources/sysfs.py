"""Numbers in files of Linux: 1-wire (`w1`), the kernel's drivers (`iio`), any file (`sysfs`).

`w1`: DS18B20 and relatives through the kernel's driver; field n is sensor n in the order of their
addresses, in 0.001 degrees Celsius. A wrong checksum is a fault, and so are 85 degrees, which it
says without power. `iio`: `device` is the name that the driver gives it, `channels` such as
`in_temp`; field n is channel n in the kernel's units (milli-degrees, milli-percent, kPa) times
`scales[n]`. `sysfs`: field n is the number in file n of `paths`, times `scales[n]`.
"""

import os

from ...protocol.degrees import const
from . import Source

_POWER_ON = const(85_000)
_W1 = "/sys/bus/w1/devices"
_IIO = "/sys/bus/iio/devices"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def read_text(path: str) -> str:
    """Return what a file says now."""
    with open(path) as file:  # noqa: PTH123 - no pathlib on MicroPython
        return file.read().strip()


def _round(number: float) -> int:
    if not -1e9 < number < 1e9:  # NaN fails, too
        raise ValueError
    return int(number + 0.5) if number >= 0 else -int(0.5 - number)


class OneWireFiles(Source):
    """All temperature sensors of the kernel's 1-wire buses."""

    def __init__(self, count: int = 1, folder: str = _W1) -> None:
        self._count = count
        self._folder = folder
        self._names: list[str] = []

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """See which sensors there are; reading one takes its 750 ms."""
        families = ("10-", "22-", "28-", "3b-", "42-")
        names = os.listdir(self._folder)  # noqa: PTH208
        self._names = sorted([name for name in names if name[:3] in families])
        if len(self._names) != self._count:
            raise OSError  # not all of the sensors answer

    def read(self, field: int) -> int:
        """Return one sensor's temperature."""
        first, _, second = read_text(f"{self._folder}/{self._names[field]}/w1_slave").partition(
            "\n"
        )
        number = int(second[second.index("t=") + 2 :])
        if not first.endswith("YES") or number == _POWER_ON:
            raise OSError
        return number


class IioDevice(Source):
    """One sensor of the kernel's industrial I/O."""

    def __init__(
        self, device: str, channels: list[str], scales: list[int], folder: str = _IIO
    ) -> None:
        self._device = device
        self._channels = channels
        self._scales = scales
        self._folder = folder
        self._path = ""

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """Find the device: its number may change when the machine starts."""
        names = sorted(os.listdir(self._folder))  # noqa: PTH208
        for name in names:
            path = self._folder + "/" + name
            if name.startswith("iio:device") and read_text(path + "/name") == self._device:
                self._path = path
                return
        raise OSError

    def read(self, field: int) -> int:
        """Return a channel: the number that the driver made, or the raw one with its scale."""
        path = self._path + "/" + self._channels[field]
        try:
            number = float(read_text(path + "_input"))
        except OSError:
            number = float(read_text(path + "_raw"))
            try:  # noqa: SIM105 - no contextlib on MicroPython
                number += float(read_text(path + "_offset"))
            except OSError:
                pass  # most have none
            number *= float(read_text(path + "_scale"))
        return _round(number * self._scales[field])


class NumberFiles(Source):
    """Files that hold one number each."""

    def __init__(self, paths: list[str], scales: list[int]) -> None:
        self._paths = paths
        self._scales = scales

    def read(self, field: int) -> int:
        """Return the number of a file, scaled."""
        return _round(float(read_text(self._paths[field])) * self._scales[field])


def make(entry: "dict[str, Any]", board: object) -> Source:  # noqa: ARG001 - the interface
    """Make one by its `kind`."""
    if entry["kind"] == "w1":
        return OneWireFiles(entry.get("count", 1), entry.get("folder", _W1))
    if entry["kind"] == "iio":
        folder = entry.get("folder", _IIO)
        return IioDevice(entry["device"], entry["channels"], entry["scales"], folder)
    return NumberFiles(entry["paths"], entry["scales"])
