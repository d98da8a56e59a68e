"""Notifications as the feed shows them: ranked, with their reasons, as JSON. Pure.

What a muted subscription brings is held back and counted; what one that was ended still brings is
not shown. The best k of a subscription are the best k of those that still count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from denwatch.client.console.preview import find_top, shorten
from denwatch.client.console.reasons import describe_fit, list_reasons, say_value, summarise
from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.vocabulary import Vocabulary

MOST_ROWS = 60
_DERIVED = re.compile("s[0-9a-f]{10}")  # by `denwatch.client.subscriber.messages.derive_name`


@dataclass(frozen=True)
class Wish:
    """A subscription as the feed needs it."""

    name: str
    text: str
    is_muted: bool = False

    @property
    def top(self) -> int | None:
        """How many it wants at most."""
        return find_top(self.text)

    @property
    def label(self) -> str:
        """What people call it: its name, or its words if it was given none."""
        return label(self.name, self.text)


@dataclass(frozen=True)
class Feed:
    """The rows, best first, and what is not among them."""

    rows: tuple[dict[str, Any], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  # by subscription, shown or not
    held_back: int = 0  # of muted subscriptions
    beyond: int = 0  # of the top k, or of the page


def label(name: str, text: str) -> str:
    """Return what people call a subscription; names that the library derived say nothing."""
    return shorten(text) if not name or _DERIVED.fullmatch(name) else name


Explain = Callable[[ReceivedNotification, str], dict[str, Any]]


def explain(
    note: ReceivedNotification, text: str, vocabulary: Vocabulary, organisation: str | None
) -> dict[str, Any]:
    """Return the reasons of a note for one subscription, as JSON."""
    reasons = list_reasons(note, text, vocabulary, organisation)
    return {
        "summary": summarise(note, reasons),
        "reasons": [
            {
                "words": reason.words,
                "value": reason.value,
                "fit": reason.fit,
                "percent": round(100 * reason.high),
                "is_limit": reason.is_limit,
            }
            for reason in reasons
        ],
    }


def build_feed(
    ranked: Iterable[ReceivedNotification],
    wishes: Iterable[Wish],
    ended: Iterable[str],
    explain: Explain,
) -> Feed:
    """Return what to show of notes that are ranked already and count still.

    Notes of subscriptions that were made elsewhere, by another app of the same person, are shown.
    """
    known = {wish.name: wish for wish in wishes}
    gone = set(ended) - set(known)
    tops = {name: wish.top for name, wish in known.items()}
    counts: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    held_back = beyond = 0
    for note in ranked:
        names = [name for name in note.subscriptions if name not in gone]
        if note.subscriptions and not names:
            continue
        loud = [name for name in names if not (name in known and known[name].is_muted)]
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        if names and not loud:
            held_back += 1
            continue
        within = [n for n in loud if (tops.get(n) or counts[n]) >= counts[n]]
        if (loud and not within) or len(rows) >= MOST_ROWS:
            beyond += 1
            continue
        chosen = next((n for n in within if n in known), "")
        reasons = explain(note, known[chosen].text if chosen else "")
        rows.append(_build_row(note, len(rows) + 1, [known.get(n) or n for n in within], reasons))
    return Feed(tuple(rows), counts, held_back, beyond)


def _build_row(
    note: ReceivedNotification, rank: int, wishes: list[Wish | str], reasons: dict[str, Any]
) -> dict[str, Any]:
    labels = [wish if isinstance(wish, str) else wish.label for wish in wishes]
    return {
        "key": note.key,
        "rank": rank,
        "sure": "certain" if note.is_certain else "possible",
        "fit": describe_fit(min(note.certain, note.possible), note.possible),
        "percent": round(100 * note.degree),
        "worst": round(100 * min(note.certain, note.possible)),
        "event": note.event,
        "device": str(note.fields.get("device") or ""),
        "node": str(note.fields.get("node") or ""),
        "values": [
            {"name": name.replace("_", " "), "value": say_value(value)}
            for name, value in note.values.items()
        ],
        "faults": [str(name).replace("_", " ") for name in _list(note.fields.get("faults"))],
        # A score that is only the fit again says nothing new.
        "score": round(note.score, 2) if abs(note.score - note.degree) > 0.02 else 0,
        "at": note.at,
        "expires": note.expires,
        "subscriptions": labels,
        **reasons,
    }


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []
