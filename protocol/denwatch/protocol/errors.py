"""The one exception that bytes from outside can cause."""


class ProtocolError(ValueError):
    """Bytes or fields that break the protocol: what is wrong, and at which byte where known."""

    def __init__(self, what: str, at: int = -1) -> None:
        super().__init__(what if at < 0 else f"byte {at}: {what}")
        self.what = what
        self.at = at
