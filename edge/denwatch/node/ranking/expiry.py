"""When a delivered notification stops holding others back. Pure arithmetic on given times.

PrefSIENA's forms: an expiry by the publisher, a refresh time by the subscriber, and periods, which
are the expiry "end of the current period"; and its future work, the sliding window, by time here
and by number of matches in `topk.TopK`. The earliest of those in force holds, so that a
notification that says nothing any more never blocks one that does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """What a subscriber adds to the publisher's expiry; nothing by default. All in seconds.

    `period` starts top-k anew at every multiple of itself after `origin`; `span` is a sliding
    window over the time of delivery.
    """

    period: float | None = None
    origin: float = 0.0
    span: float | None = None

    def __post_init__(self) -> None:
        for name, length in (("period", self.period), ("span", self.span)):
            if length is not None and not 0.0 < length < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, not {length}")

    def find_expiry(
        self, now: float, by_publisher: float = math.inf, refreshes: Iterable[float | None] = ()
    ) -> float:
        """Return the earliest of: publisher's expiry, refresh times, end of period, window."""
        expiry = by_publisher
        for refresh in refreshes:
            if refresh is not None:
                expiry = min(expiry, now + refresh)
        if self.period is not None:
            expiry = min(expiry, find_period_end(now, self.period, self.origin))
        if self.span is not None:
            expiry = min(expiry, now + self.span)
        return expiry


def find_period_end(now: float, period: float, origin: float = 0.0) -> float:
    """Return the end of the period that `now` lies in; its start belongs to it, its end not."""
    number = math.floor((now - origin) / period)
    # The division rounds: the period found may be a neighbour of the true one.
    for count in (number, number + 1, number + 2):
        end = origin + count * period
        if end > now:
            break
    return end
