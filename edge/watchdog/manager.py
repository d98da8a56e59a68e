"""The Manager: what a DENS node may ask of a device, and what the device says of itself.

Frames come in authenticated (`protocol.frames`) but not trusted: each goes to the language plug-in
that accepts it, and what that refuses is counted and changes nothing.
"""

from .language import Language

COUNTS = ("added", "replaced", "same", "removed", "expired", "refused")


class LanguageError(ValueError):
    """A frame in a language that this device does not have."""


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

    def describe(self, device: str, epoch: int, vocabulary: bytes) -> dict[str, object]:
        """Return the fields of a hello message that are known here."""
        return {
            "device": device,
            "epoch": epoch,
            "vocabulary": vocabulary,
            "senses": {event: list(self.senses[event]) for event in self.senses},
            "capacity": sum([language.capacity for language in self.languages]),
            "languages": [language.number for language in self.languages],
        }

    def _choose(self, frame: bytes) -> Language:
        for language in self.languages:
            if language.accepts(frame):
                return language
        raise LanguageError(f"no language of this device reads {frame[:4]!r}")
