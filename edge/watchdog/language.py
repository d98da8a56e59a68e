"""What a language plug-in is on a device: how its subscriptions come, go, and judge samples.

MicroPython has no `abc`: what a plug-in must bring raises NotImplementedError here.
"""

from .sample import Sample


class Language:
    """One subscription language. The manager asks `accepts` before it hands over a frame."""

    number = 0  # its id, as a hello lists it
    capacity = 0  # bytes for subscriptions
    why = -1  # of the last judgement: attribute << 8 | degree, -1 if nobody asked

    def accepts(self, frame: bytes) -> bool:
        """Return whether the frame is a subscription of this language."""
        raise NotImplementedError

    def install(self, frame: bytes, now: int) -> str:
        """Add, replace or renew a subscription; say which: "added", "replaced", "same".

        A ValueError says why it is refused, and leaves everything as it was.
        """
        raise NotImplementedError

    def remove(self, handles: list[int]) -> int:
        """Drop subscriptions; return how many there were."""
        raise NotImplementedError

    def expire(self, now: int) -> int:
        """Drop what is no longer valid; return how many."""
        raise NotImplementedError

    def judge(self, sample: Sample, now: int) -> int:
        """Return the highest degree of the subscriptions that want this sample sent, or -1."""
        raise NotImplementedError
