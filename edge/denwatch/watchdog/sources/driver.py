"""Any driver that MicroPython has a class for: an adapter between its methods and fields.

`module` and `class` are imported; the class is made with an I2C bus (`clock`, `data`, `bus`) or a
pin (`pin`), and then `options`. `measure` is a method to call first, if the driver has one. Each of
`fields` is an attribute, a property or a method without arguments; field n is its number times
`scales[n]`, rounded. `wait` is how many ms a measurement takes after `measure`.
"""

from . import NotReadyError, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import Board


class Driver(Source):
    """An object with methods that measure."""

    def __init__(
        self, target: "Any", fields: list[str], scales: list[int], measure: str = "", wait: int = 0
    ) -> None:
        for name in fields:
            getattr(type(target), name, None) or getattr(target, name)  # an AttributeError names it
        self._target = target
        self._fields = fields
        self._scales = scales
        self._measure = measure
        self._wait = wait
        self._started = -1

    def prepare(self, now: int) -> int:
        """Start a measurement, unless one is under way."""
        if self._started < 0:
            if self._measure:
                getattr(self._target, self._measure)()
            self._started = now
        return self._wait - now + self._started

    def measure(self, now: int) -> None:
        """See that the measurement is over."""
        if self.prepare(now) > 0:
            raise NotReadyError
        self._started = -1

    def read(self, field: int) -> int:
        """Return a field, scaled; what the driver raises is a fault."""
        value = getattr(self._target, self._fields[field])
        number = (value() if callable(value) else value) * self._scales[field]
        if not -1e9 < number < 1e9:  # NaN fails, too
            raise ValueError
        return int(number + 0.5) if number >= 0 else -int(0.5 - number)


def make(entry: "dict[str, Any]", board: "Board") -> Driver:
    """Make one: `module`, `class`, `fields`, `scales`, a bus or a pin, `options`, `measure`."""
    maker = getattr(__import__(entry["module"], None, None, [entry["class"]]), entry["class"])
    wires: list[Any] = []
    if "clock" in entry or "bus" in entry:
        bus = board.make_i2c(entry.get("bus", 0), entry.get("clock", 0), entry.get("data", 0))
        wires.append(bus)
    elif "pin" in entry:
        wires.append(board.make_pin(entry["pin"]))
    target = maker(*wires, **entry.get("options", {}))
    measure, wait = entry.get("measure", ""), entry.get("wait", 0)
    return Driver(target, entry["fields"], entry["scales"], measure, wait)
