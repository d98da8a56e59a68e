"""What compiling gives: the vector, its bytes, what was approximated, and what the node keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from denwatch.client.errors import LanguageError
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary import EventType
from denwatch.protocol.vectors import SubscriptionVector


@dataclass(frozen=True)
class Approximation:
    """One place where the vector differs from what was written.

    `error` is the highest difference in degree (0..1); None where no degree is concerned, as for a
    duration.
    """

    subject: str
    message: str
    error: float | None = None
    span: SourceSpan | None = None

    def __str__(self) -> str:
        error = "" if self.error is None else f", at most {self.error:.1%} off"
        return f"{self.subject}: {self.message}{error}"


@dataclass(frozen=True)
class Options:
    """What the vector does not carry: the node's own business with a subscription."""

    name: str | None = None
    score: float | None = None  # 0..1
    top: int | None = None  # top k
    prefer: tuple[tuple[str, str], ...] = ()  # (better, worse), names of subscriptions
    expiry: float | None = None  # seconds that a delivered notification counts

    def to_dict(self) -> dict[str, Any]:
        """Return the options that are set, as JSON and CBOR take them."""
        values = {
            "name": self.name,
            "score": self.score,
            "top": self.top,
            "prefer": [list(pair) for pair in self.prefer] or None,
            "expiry": self.expiry,
        }
        return {key: value for key, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Options:
        """Return the options of a dictionary that `to_dict` may have made."""
        unknown = set(values) - set(cls.__dataclass_fields__)
        if unknown:
            raise LanguageError(f'unknown option "{min(unknown)}"')
        pairs = tuple((str(better), str(worse)) for better, worse in values.get("prefer", ()))
        return cls(**{**values, "prefer": pairs})


@dataclass(frozen=True)
class CompiledSubscription:
    """A subscription ready to send. `data` is the vector's encoding."""

    vector: SubscriptionVector
    data: bytes
    report: tuple[Approximation, ...]
    options: Options
    event: EventType
    vocabulary: str  # the content hash of the vocabulary that it was compiled with

    @property
    def error(self) -> float:
        """The highest error of a predicate's degree that was reported (0..1)."""
        return max((a.error for a in self.report if a.error is not None), default=0.0)
