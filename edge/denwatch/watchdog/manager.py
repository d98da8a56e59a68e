"""The Manager: what a DENS node may ask of a device, and what the device says of itself.

Frames come in authenticated (`seal.py`) but not trusted: each goes to the language plug-in that
accepts it, and what that refuses is counted and changes nothing. MicroPython has no `abc`: what a
plug-in must bring is written down for readers and type checkers only.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .execution import Sample
    from .interest import Interest

COUNTS = ("added", "replaced", "same", "removed", "expired", "refused")


class UnknownLanguageError(ValueError):
    """A frame in a language that this device does not have."""


class Language:
    """One subscription language. The manager asks `accepts` before it hands over a frame."""

    number = 0  # its id, as a hello lists it
    capacity = 0  # bytes for subscriptions
    why = -1  # of the last judgement: attribute << 8 | degree, -1 if nobody asked
    interest: "Interest | None" = None  # what is sent of a sample; None: all of it

    if TYPE_CHECKING:

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

        def judge(self, sample: "Sample", now: int) -> int:
            """Return the highest degree of the subscriptions that want this sample sent, or -1."""
            raise NotImplementedError


class Manager:
    """Registers subscriptions with the languages of the device. `senses` is as in hello."""

    def __init__(self, languages: list[Language], senses: dict[int, tuple[int, int]]) -> None:
        self.languages = languages
        self.senses = senses
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)

    def install(self, frame: bytes, now: int) -> str:
        """Install one subscription vector: "added", "replaced" or "same".

        Raises ValueError (ProtocolError, SenseError, CapacityError, LanguageError) with the reason.
        """
        try:
            outcome = self._choose(frame).install(frame, now)
        except ValueError:
            self.counts["refused"] += 1
            raise
        self.counts[outcome] += 1
        return outcome

    def remove(self, handles: list[int]) -> int:
        """Drop subscriptions by handle; return how many there were."""
        count = 0
        for language in self.languages:
            count += language.remove(handles)
        self.counts["removed"] += count
        return count

    def expire(self, now: int) -> None:
        """Drop subscriptions that are no longer valid."""
        for language in self.languages:
            gone = language.expire(now)
            if gone:
                self.counts["expired"] += gone

    def describe(self) -> dict[int, object]:
        """Return the fields of a hello that are known here, by their keys in protocol/README.md."""
        return {
            4: self.senses,
            5: sum([language.capacity for language in self.languages]),
            6: [language.number for language in self.languages],
        }

    def _choose(self, frame: bytes) -> Language:
        for language in self.languages:
            if language.accepts(frame):
                return language
        raise UnknownLanguageError(repr(frame[:4]))
