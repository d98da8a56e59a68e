"""An analogue input in counts of 0..65535, the median of a few conversions.

A converter that sticks to one of its rails is a wire that is broken or shorted: say so with the
channel's `lowest` and `highest`.
"""

from array import array

from . import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from . import Board

    class Converter(Protocol):
        """An analogue input: `machine.ADC`."""

        def read_u16(self) -> int:
            """Convert once; 0..65535."""

        def read_uv(self) -> int:
            """Convert once; microvolts, by the calibration in the chip."""


class Adc(Source):
    """The median of an odd number of conversions."""

    def __init__(self, converter: "Converter", times: int = 5, is_voltage: bool = False) -> None:
        if times < 1 or not times & 1:
            raise ValueError("no median of " + str(times))  # choose an odd number
        self._converter = converter
        self._is_voltage = is_voltage
        self._counts = array("H", [0] * times)

    def measure(self, now: int) -> None:  # noqa: ARG002 - the interface
        """Convert a few times and keep the counts in order."""
        counts = self._counts
        for i in range(len(counts)):
            is_voltage = self._is_voltage
            count = self._converter.read_uv() // 1000 if is_voltage else self._converter.read_u16()
            j = i
            while j and counts[j - 1] > count:
                counts[j] = counts[j - 1]
                j -= 1
            counts[j] = count

    def read(self, field: int) -> int:  # noqa: ARG002 - one field
        """Return the median."""
        return self._counts[len(self._counts) >> 1]


def make(entry: "dict[str, Any]", board: "Board") -> Adc:
    """Make one: `kind`, `pin`."""
    return Adc(board.make_adc(entry["pin"]), is_voltage=entry["kind"] == "adc_mv")
