"""One reading of one event: values by attribute, their doubt, their faults. Allocated once."""

from array import array


class Sample:
    """What the sources said about an event just now; the same object for every round."""

    def __init__(self, event: int) -> None:
        self.event = event
        self.present = 0  # attributes with a value
        self.wides = 0  # attributes of 16 bits
        self.doubt = 0  # attributes whose value is uncertain
        self.faults = 0  # attributes whose sensor is broken
        self.values = array("H", [0] * 16)
        self.points = array("H", [0] * 64)  # four of each uncertain attribute

    def clear(self) -> None:
        """Forget the last round."""
        self.present = self.doubt = self.faults = 0

    def set(self, attribute: int, value: int) -> None:
        """Note an exact value."""
        self.present |= 1 << attribute
        self.values[attribute] = value

    def set_doubtful(self, attribute: int, a: int, b: int, c: int, d: int) -> None:
        """Note a trapezoid; where its points are one, the value is exact after all."""
        self.set(attribute, (b + c) >> 1)
        if a == d:
            return
        self.doubt |= 1 << attribute
        at = 4 * attribute
        points = self.points
        points[at] = a
        points[at + 1] = b
        points[at + 2] = c
        points[at + 3] = d

    def fail(self, attribute: int) -> None:
        """Note that the attribute's sensor is broken: it has no value."""
        self.faults |= 1 << attribute
