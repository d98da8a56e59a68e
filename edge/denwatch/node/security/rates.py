"""How often a client may do something: token buckets. Pure: the time is an argument.

A bucket holds `burst` tokens and fills at `rate` tokens a second. Whoever finds it empty is told
how long to wait. Idle clients' buckets are full again and forgotten, so memory is bounded.
"""

from __future__ import annotations

_CLEAN_EVERY = 1024  # new buckets between two rounds of forgetting


class RateLimit:
    """One limit for many clients, each with its own bucket. Times are milliseconds."""

    def __init__(self, rate: float, burst: int) -> None:
        if not (rate > 0 and burst >= 1):
            raise ValueError("a rate above 0 and a burst of 1 or more")
        self._per_ms = rate / 1000
        self._burst = float(burst)
        self._buckets: dict[str, tuple[float, int]] = {}  # tokens, when they were counted
        self._cleaned_at = 0

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, client: str, now: int, amount: int = 1) -> int:
        """Take tokens; return 0, or how many milliseconds to wait (then nothing was taken).

        More than a full bucket is asked for: it is granted when the bucket is full, and owed.
        """
        tokens = self._count(client, now)
        needed = min(float(amount), self._burst)
        if tokens < needed:
            return max(1, int((needed - tokens) / self._per_ms) + 1)
        if client not in self._buckets and len(self._buckets) >= self._cleaned_at + _CLEAN_EVERY:
            self._forget_idle(now)
        self._buckets[client] = (tokens - amount, now)
        return 0

    def delay(self, user: str, size: int, now: int) -> int:  # noqa: ARG002 - the server's interface
        """Take one token for a message of any size: the server's `Pace`."""
        return self.take(user, now)

    def forget(self, client: str) -> None:
        """Forget a client that is gone for good."""
        self._buckets.pop(client, None)

    def _count(self, client: str, now: int) -> float:
        tokens, at = self._buckets.get(client, (self._burst, now))
        return min(self._burst, tokens + max(0, now - at) * self._per_ms)

    def _forget_idle(self, now: int) -> None:
        full = [name for name in self._buckets if self._count(name, now) >= self._burst]
        for name in full:
            del self._buckets[name]
        self._cleaned_at = len(self._buckets)
