"""What one person prefers, of all their subscriptions: how many, of which window, ranked how. Pure.

The default wants everything, and ranks by the best of the matching subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from denwatch.node.ranking.rank import MAXIMUM
from denwatch.node.ranking.topk import TopK


@dataclass(frozen=True)
class PersonPreference:
    """Times are in ms; 0 is for no limit."""

    top: int = 0
    last: int = 0  # matches
    within: int = 0
    fading: int = 0
    combination: str = MAXIMUM
    is_specific: bool = False  # only the most specific of the matching subscriptions count
    weights: Mapping[str, float] = field(default_factory=dict)  # by name, 1 for others

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> PersonPreference:
        """Return what checked options say."""
        return cls(
            options.get("top", 0),
            options.get("last", 0),
            int(1000 * options.get("within", 0)),
            int(1000 * options.get("fading", 0)),
            options.get("by", MAXIMUM),
            options.get("specific", False),
            options.get("weights", {}),
        )

    def make_top_k(self, before: TopK | None) -> TopK | None:
        """Return an empty top-k, or one with what counts already; None if everything is wanted."""
        if not self.top:
            return None
        return TopK(
            self.top,
            self.last or None,
            fading=self.fading or None,
            turn=before.turn if before else 0,
            entries=before.list_entries() if before else (),
        )
