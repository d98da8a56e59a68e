"""Notifications as the page shows them: ranked, each with its reasons, as JSON. Pure.

REASONS. The node sends which predicate limits the degree; here all predicates are evaluated again
with the vocabulary, so that people see the others, too.
FEED. Notifications of a muted subscription are hidden and counted; those of an ended subscription
are not shown. Top k of a subscription are the best k of its valid notifications.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from denwatch.client.console import preview
from denwatch.client.errors import LanguageError
from denwatch.client.language import parse
from denwatch.client.language.localisation import Locale
from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.subscriber.display import describe_value
from denwatch.client.vocabulary import Vocabulary

_FULL = 0.995


@dataclass(frozen=True)
class Reason:
    """One predicate: its words, the value read, how well it matches (0..1, from worst to best)."""

    words: str
    value: str
    low: float
    high: float
    is_limit: bool = False

    @property
    def fit(self) -> str:
        """The degree in percent."""
        return describe_fit(self.low, self.high)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        shown = {"words": self.words, "value": self.value, "is_limit": self.is_limit}
        return shown | {"fit": self.fit, "percent": round(100 * self.high)}


def describe_fit(low: float, high: float) -> str:
    """Return one percentage, or from the worst to the best where a reading is in doubt."""
    worst, best = round(100 * low), round(100 * high)
    return f"{best} %" if worst >= best else f"{worst}–{best} %"  # noqa: RUF001 - a range


def list_reasons(
    notification: ReceivedNotification, text: str, vocabulary: Vocabulary
) -> list[Reason]:
    """Return the predicates of a subscription that a notification matches; the limit is marked.

    Of a story they are its parts: who measured what.
    """
    story = notification.fields.get("story")
    if isinstance(story, Mapping):
        return [_read_part(part) for part in read_list(story.get("parts"))]
    try:
        event, meanings = preview.list_meanings(parse(text), vocabulary)
    except LanguageError:
        return []
    if event.name != notification.event:
        return []
    limit = notification.why.get("attribute") if isinstance(notification.why, Mapping) else None
    found = []
    for meaning in meanings:
        value = notification.values.get(meaning.attribute.name)
        codes = preview.read_codes(meaning.attribute, value)
        if codes is not None:
            words = meaning.words.replace("_", " ")
            found.append(Reason(words, format_value(value), *preview.find_range(meaning, codes)))
    return _mark_limit(found, meanings, limit)


def _read_part(part: object) -> Reason:
    """Return one part of a story; a node may send anything."""
    fields = part if isinstance(part, Mapping) else {}
    degrees = [fields.get(key) for key in ("certain", "degree")]
    low, high = (float(d) if isinstance(d, int | float) else 0.0 for d in degrees)
    values = ", ".join(str(value).replace("_", " ") for value in read_list(fields.get("values")))
    return Reason(str(fields.get("device") or ""), values, low, high)


def format_value(value: object) -> str:
    """Return a delivered value for people: no meaningless digits, a range where in doubt."""
    return describe_value(value, " to ", _format_number)


def _format_number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _mark_limit(
    reasons: list[Reason], meanings: list[preview.PredicateMeaning], limit: object
) -> list[Reason]:
    """Mark the weakest predicate on the attribute that the node names."""
    if not isinstance(limit, str) or len(reasons) < 2:
        return reasons
    own = {m.words.replace("_", " ") for m in meanings if m.attribute.name == limit}
    weak = [r for r in reasons if r.words in own and r.high < _FULL]
    if not weak:
        return reasons
    weakest = min(weak, key=lambda r: r.high)
    return [replace(r, is_limit=True) if r is weakest else r for r in reasons]


def summarise(notification: ReceivedNotification, reasons: list[Reason]) -> str:
    """Return the reason in one sentence or two."""
    if not reasons:
        why = notification.why
        why = why.get("words") if isinstance(why, Mapping) else why
        return f"{_begin(str(why).replace('_', ' '))}." if why else "It matches your subscription."
    story = notification.fields.get("story")
    if isinstance(story, Mapping) and story.get("kind") != "absence":
        joint = ", then " if story.get("kind") == "sequence" else " and "
        return joint.join(f"{reason.words}: {reason.value}" for reason in reasons) + "."
    if isinstance(story, Mapping):
        last = f"{reasons[0].words}: {reasons[0].value}"
        return f"Nothing like it since the last one ({last}). More may be on its way."
    weakest = next((r for r in reasons if r.is_limit), min(reasons, key=lambda r: r.high))
    if notification.certain < notification.possible - 0.005:
        fit = describe_fit(notification.certain, notification.possible)
        may = f"It may be so, by {fit}: the sensor is in doubt"
        if notification.is_certain:
            may = f"It fits wherever the value is in its range, by {fit}"
        return f"{may}. {_begin(weakest.words)}: {weakest.value}."
    if weakest.high >= _FULL:
        return _begin(" and ".join(f"{r.words} ({r.value})" for r in reasons)) + "."
    decides = ", and that decides" if len(reasons) > 1 else ""
    return f"{_begin(weakest.words)} by {weakest.fit} ({weakest.value}){decides}."


def _begin(words: str) -> str:
    return words[:1].upper() + words[1:]


# The feed ------------------------------------------------------------------------------------

_DERIVED = re.compile("s[0-9a-f]{10}")  # by `denwatch.client.subscriber.messages.derive_name`


@dataclass(frozen=True)
class FeedSubscription:
    """A subscription, as far as the feed needs it."""

    name: str
    text: str
    is_muted: bool = False

    @property
    def top(self) -> int | None:
        """Its top k; None for all."""
        return preview.find_top(self.text)

    @property
    def label(self) -> str:
        """Its name, or its words if the library derived the name."""
        is_derived = not self.name or _DERIVED.fullmatch(self.name)
        return preview.shorten(self.text) if is_derived else self.name


@dataclass(frozen=True)
class FeedEntry:
    """A notification to show, and for what: labels of subscriptions, the text of the first."""

    notification: ReceivedNotification
    labels: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True)
class Feed:
    """The notifications to show, best first, and how many are not among them."""

    entries: tuple[FeedEntry, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  # by subscription, shown or not
    hidden: int = 0  # of muted subscriptions
    beyond: int = 0  # of the top k


Explain = Callable[[ReceivedNotification, str], dict[str, Any]]


def explain(
    notification: ReceivedNotification, text: str, vocabulary: Vocabulary
) -> dict[str, Any]:
    """Return why a notification matches one subscription, as JSON."""
    reasons = list_reasons(notification, text, vocabulary)
    return {
        "summary": summarise(notification, reasons),
        "reasons": [reason.to_dict() for reason in reasons],
    }


def build_feed(
    ranked: Iterable[ReceivedNotification],
    subscriptions: Iterable[FeedSubscription],
    ended: Iterable[str],
) -> Feed:
    """Return the feed of notifications that are ranked and valid.

    Notifications for subscriptions of another app of the same subscriber are shown, too.
    """
    known = {subscription.name: subscription for subscription in subscriptions}
    gone = set(ended) - set(known)
    tops = {name: subscription.top for name, subscription in known.items()}
    counts: dict[str, int] = {}
    entries: list[FeedEntry] = []
    hidden = beyond = 0
    for notification in ranked:
        names = [name for name in notification.subscriptions if name not in gone]
        if notification.subscriptions and not names:
            continue
        loud = [name for name in names if not (name in known and known[name].is_muted)]
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        if names and not loud:
            hidden += 1
            continue
        within = [n for n in loud if (tops.get(n) or counts[n]) >= counts[n]]
        if loud and not within:
            beyond += 1
            continue
        chosen = next((n for n in within if n in known), "")
        labels = tuple(known[name].label if name in known else name for name in within)
        entries.append(FeedEntry(notification, labels, known[chosen].text if chosen else ""))
    return Feed(tuple(entries), counts, hidden, beyond)


def build_row(entry: FeedEntry, explain: Explain, locale: Locale) -> dict[str, Any]:
    """Return one notification with its reasons, as JSON."""
    notification = entry.notification
    worst = min(notification.certain, notification.possible)
    reasons = explain(notification, entry.text)
    return {
        "key": notification.key,
        "certainty": "certain" if notification.is_certain else "possible",
        "fit": describe_fit(worst, notification.possible),
        "percent": round(100 * notification.degree),
        "worst": round(100 * worst),
        "event": notification.event,
        "device": str(notification.fields.get("device") or ""),
        "node": str(notification.fields.get("node") or ""),
        "values": [
            {"name": name.replace("_", " "), "value": format_value(value)}
            for name, value in notification.values.items()
        ],
        "faults": [
            str(name).replace("_", " ") for name in read_list(notification.fields.get("faults"))
        ],
        # A score that equals the degree is no information.
        "score": round(notification.score, 2)
        if abs(notification.score - notification.degree) > 0.02
        else 0,
        "at": notification.at,
        "expires": notification.expires,
        "subscriptions": list(entry.labels),
        "reasons": reasons["reasons"],
        "summary": locale.translate(reasons["summary"]),
    }


def read_list(found: object) -> list[Any]:
    """Return what may be a list as one."""
    return found if isinstance(found, list) else []
