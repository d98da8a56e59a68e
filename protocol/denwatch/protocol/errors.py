"""How bytes from outside are refused: one exception, and the cursor that decoders read with.

Every decoder of this package reads its frame through a `Cursor`, so that what is wrong is always a
ProtocolError that names the byte.
"""


class ProtocolError(ValueError):
    """Bytes or fields that break the protocol: what is wrong, and at which byte where known."""

    def __init__(self, what: str, at: int = -1) -> None:
        super().__init__(what if at < 0 else f"byte {at}: {what}")
        self.what = what
        self.at = at


class Cursor:
    """Reads a frame from front to back; every refusal is a ProtocolError that names a byte."""

    def __init__(self, frame: bytes, limit: int) -> None:
        if len(frame) > limit:
            raise ProtocolError(f"longer than {limit} bytes", limit)
        self.frame = bytes(frame)
        self.at = 0

    def error(self, what: str) -> ProtocolError:
        """Return the error for the byte that was read last."""
        return ProtocolError(what, self.at - 1)

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes."""
        stop = self.at + count
        if stop > len(self.frame):
            raise ProtocolError("ends inside " + what, len(self.frame))
        taken = self.frame[self.at : stop]
        self.at = stop
        return taken

    def byte(self, what: str) -> int:
        """Return the next byte."""
        return self.take(1, what)[0]

    def pair(self, what: str) -> int:
        """Return the next two bytes, the higher first."""
        taken = self.take(2, what)
        return taken[0] << 8 | taken[1]

    def limited(self, what: str, last: int) -> int:
        """Return the next byte, which is at most `last`."""
        value = self.byte(what)
        if value > last:
            raise self.error(f"{what} {value} is above {last}")
        return value

    def positive(self, what: str) -> int:
        """Return the next byte, which is not zero."""
        value = self.byte(what)
        if not value:
            raise self.error(what + " of zero")
        return value

    def mask(self, what: str, allowed: int) -> int:
        """Return the next two bytes: bits among `allowed`, at least one."""
        value = self.pair(what)
        if not value or value & ~allowed:
            raise self.error(f"{what}: mask 0x{value:04x} is not among 0x{allowed:04x}")
        return value

    def locate(self, error: ProtocolError) -> ProtocolError:
        """Return the error with a byte: the one that was read last, if it names none."""
        return error if error.at >= 0 else self.error(error.what)

    def end(self) -> None:
        """Refuse bytes that follow."""
        if self.at < len(self.frame):
            raise ProtocolError("bytes that follow the end", self.at)
