"""A sensor with registers on an I2C bus, described by a table instead of a driver.

A field is (register, bytes, signed, little-endian, shift): the number in those bytes, moved right
by `shift` bits. Enough for most digital sensors (LM75, TMP102, MPU6050).
"""

from . import Source, sign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from . import Board

    class I2cBus(Protocol):
        """A bus: `machine.I2C`."""

        def readfrom_mem_into(self, address: int, register: int, buf: bytearray) -> None:
            """Fill the buffer from a register on."""

        def writeto_mem(self, address: int, register: int, data: bytes) -> None:
            """Write bytes from a register on."""


class I2cRegisters(Source):
    """Registers of one chip; `setup` is written before the first measurement."""

    def __init__(
        self,
        bus: "I2cBus",
        address: int,
        fields: list[tuple[int, int, bool, bool, int]],
        setup: list[tuple[int, bytes]] | None = None,
    ) -> None:
        self._bus = bus
        self._address = address
        self._fields = fields
        self._setup = setup or []
        self._is_ready = False
        self._bytes = [bytearray(field[1]) for field in fields]

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """Read all fields; set the sensor up first, and again after it was gone."""
        bus = self._bus
        if not self._is_ready:
            for register, data in self._setup:
                bus.writeto_mem(self._address, register, data)
        self._is_ready = False
        i = 0
        while i < len(self._fields):
            bus.readfrom_mem_into(self._address, self._fields[i][0], self._bytes[i])
            i += 1
        self._is_ready = True

    def read(self, field: int) -> int:
        """Return a field of the last measurement."""
        _, size, is_signed, is_little, shift = self._fields[field]
        data = self._bytes[field]
        number = 0
        for i in range(size):
            number = number << 8 | data[size - 1 - i if is_little else i]
        return (sign(number, 8 * size) if is_signed else number) >> shift


def make(entry: "dict[str, Any]", board: "Board") -> I2cRegisters:
    """Make one: `bus`, `clock`, `data`, `address`, `fields`, `setup`."""
    bus = board.make_i2c(entry.get("bus", 0), entry["clock"], entry["data"])
    setup = [(register, bytes.fromhex(data)) for register, data in entry.get("setup", ())]
    return I2cRegisters(bus, entry["address"], entry["fields"], setup)
