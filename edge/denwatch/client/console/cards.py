"""One card for each patient, place or device: latest values, how severe they are, trends. Pure.

SEVERITY says how bad a value is, whatever was asked: 3 critical, 2 serious, 1 to watch, 0 calm.
The vocabulary's own terms decide: a term that stands for danger (`locales/common.toml`, table
`severity`) makes a value critical from the degree 0.5 on; a term that says that all is well makes
it calm from 0.95 on, to watch from 0.5 on, and serious below. A value without such a term is to
watch: nothing is called calm that is not known to be. Of a reading in doubt the worst that it may
be counts, and the card says that it is only possible.

A card's severity is the worst of its latest values. Cards are ordered by severity, then certainty,
then as their best notifications are ranked.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from denwatch.client.console import preview
from denwatch.client.console.feed import FeedEntry, build_row, format_value
from denwatch.client.language.localisation import DEFAULT, Locale, load_lexicon, load_severities
from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.vocabulary import Attribute, ValueKind, Vocabulary

SEVERITIES = ("calm", "watch", "serious", "critical")
_HALF, _FULL = 0.5, 0.95
_MOST_POINTS = 500  # of one line
_MOST_LINES = 2_000
_SHOWN_POINTS = 40  # of the small line on a card
_TREND = 3 * 3_600_000  # ms that the small line covers
_MOST_DETAILS = 8
MOST_CARDS = 200
_PLACE = ("east", "north")


@dataclass(frozen=True)
class Severity:
    """How bad a value is, by which term ("not normal" is one), and whether that is certain."""

    level: int
    term: str = ""
    is_certain: bool = True


def judge_value(attribute: Attribute, value: object) -> Severity | None:
    """Return how severe a value is; None for what cannot be judged, such as a position."""
    codes = preview.read_codes(attribute, value)
    if codes is None:
        return None
    danger, well = load_severities()
    found: list[Severity] = []
    is_judged = False
    for name, certain, possible in _fit_terms(attribute, codes, value):
        is_judged = is_judged or name in danger or name in well
        if name in danger and possible >= _HALF:
            found.append(Severity(3, name, certain >= _HALF))
        if name in well and certain >= _HALF:
            found.append(Severity(0 if certain >= _FULL else 1, name))
        elif name in well and name in attribute.terms:
            found.append(Severity(2, f"not {name}", possible < _HALF))
    if not is_judged:
        return None
    return max(found, key=lambda one: one.level, default=Severity(1))


def _fit_terms(
    attribute: Attribute, codes: preview.Codes, value: object
) -> Iterable[tuple[str, float, float]]:
    """Yield every term or symbol with how certainly and how possibly a value fits it."""
    if attribute.kind is ValueKind.TEXT:
        assert isinstance(value, Mapping), "what has codes is a mapping"
        among = value.get("among") or [value.get("value")]
        for symbol in attribute.symbols:
            yield symbol, float(among == [symbol]), float(symbol in among)
    for name, term in attribute.terms.items():
        fit = partial(_fit_term, attribute, term.membership.evaluate)
        meaning = preview.PredicateMeaning(attribute, name, fit)
        yield name, *preview.find_range(meaning, codes)


def _fit_term(attribute: Attribute, fit: Callable[[float], float], code: float) -> float:
    return fit(attribute.to_value(code))


# History -------------------------------------------------------------------------------------

Point = tuple[int, float, float, float]  # when (ms), the value, the least and the most it may be


class MeasuredHistory:
    """What devices measured, as far as it was received: a line for each attribute of a device.

    One thread adds, others read.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], list[Point]] = {}
        self._units: dict[str, str] = {}
        self._lock = threading.Lock()

    def add(self, notification: ReceivedNotification) -> None:
        """Add the numbers of a notification; the same moment is added once."""
        subject, at = find_subject(notification), notification.at
        if at is None:
            return
        with self._lock:
            for name, value in notification.values.items():
                point = _read_point(at, value)
                if point is None:
                    continue
                line = self._lines.setdefault((subject, name), [])
                place = bisect.bisect_left(line, (at,))
                if place == len(line) or line[place][0] != at:
                    line.insert(place, point)
                    del line[:-_MOST_POINTS]
                self._units[name] = str(value.get("unit") or "")
            while len(self._lines) > _MOST_LINES:
                del self._lines[next(iter(self._lines))]

    def find_line(self, subject: str, name: str) -> list[Point]:
        """Return what was measured, oldest first."""
        with self._lock:
            return list(self._lines.get((subject, name), ()))

    def list_lines(self, subject: str) -> list[dict[str, Any]]:
        """Return all lines of a device, for its chart."""
        with self._lock:
            return [
                {
                    "name": name,
                    "label": name.replace("_", " "),
                    "unit": self._units.get(name, ""),
                    "points": [list(point) for point in line],
                }
                for (owner, name), line in self._lines.items()
                if owner == subject and name not in _PLACE
            ]


def _read_point(at: int, value: object) -> Point | None:
    if not isinstance(value, Mapping):
        return None
    numbers = [value.get(key, value.get("value")) for key in ("value", "low", "high")]
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        return None
    return at, *(float(n) for n in numbers)  # type: ignore[return-value]


def find_trend(line: list[Point], about: float) -> str:
    """Return "rising" or "falling" if a straight line through the points changes by more than
    `about`, what the vocabulary calls about the same; "steady" if not; "" with fewer than three."""
    if len(line) < 3:
        return ""
    times = [point[0] for point in line]
    middle = sum(times) / len(times)
    mean = sum(point[1] for point in line) / len(line)
    spread = sum((at - middle) ** 2 for at in times)
    if not spread:
        return ""
    slope = sum((p[0] - middle) * (p[1] - mean) for p in line) / spread
    change = slope * (times[-1] - times[0])
    return "steady" if abs(change) <= about else "rising" if change > 0 else "falling"


# Cards ---------------------------------------------------------------------------------------


def find_subject(notification: ReceivedNotification) -> str:
    """Return what a notification is about: its device, else who reported it, else its event."""
    fields = notification.fields
    return str(fields.get("device") or fields.get("reporter") or notification.event)


Explain = Callable[[ReceivedNotification, str], dict[str, Any]]


class CardBuilder:
    """Builds the cards of one subscriber; a card whose notifications are the same is kept."""

    def __init__(self, vocabulary: Vocabulary, history: MeasuredHistory, explain: Explain) -> None:
        self._vocabulary = vocabulary
        self._history = history
        self._explain = explain
        self._kept: dict[tuple[str, str], tuple[object, dict[str, Any]]] = {}

    def build(
        self,
        entries: Iterable[FeedEntry],
        locale: Locale,
        claims: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the cards of a feed, the worst first; `claims` are who has what."""
        groups: dict[str, list[FeedEntry]] = {}
        for entry in entries:
            groups.setdefault(find_subject(entry.notification), []).append(entry)
        kept, self._kept = self._kept, {}
        cards = []
        for place, (subject, group) in enumerate(groups.items()):
            key = subject, locale.code
            claim = _find_claim(subject, group, claims or {})
            state = claim, tuple((entry.notification.key, entry.labels) for entry in group)
            found = kept.get(key)
            card = found[1] if found is not None and found[0] == state else None
            if card is None:
                card = {**self._build_card(subject, group, locale), "claim": claim}
            self._kept[key] = state, card
            cards.append((-card["severity"], card["certainty"] != "certain", place, card))
        self._kept = {**{k: v for k, v in kept.items() if k[1] != locale.code}, **self._kept}
        return [card for *_, card in sorted(cards, key=lambda each: each[:3])][:MOST_CARDS]

    def _build_card(self, subject: str, group: list[FeedEntry], locale: Locale) -> dict[str, Any]:
        newest = sorted(group, key=lambda entry: -(entry.notification.at or 0))
        values: dict[str, tuple[object, int | None]] = {}
        for entry in newest:
            for name, value in entry.notification.values.items():
                values.setdefault(name, (value, entry.notification.at))
        event = newest[0].notification.event
        judged = self._judge(event, values)
        worst = max(judged.items(), key=lambda pair: pair[1].level, default=("", Severity(1)))
        rows = [build_row(entry, self._explain, locale) for entry in newest[:_MOST_DETAILS]]
        best = build_row(group[0], self._explain, locale)
        main = worst[0] or next(iter(values), "")
        severity = worst[1]
        expiries = [entry.notification.expires for entry in group]
        return {
            "key": subject,
            "title": subject,
            "event": self._label(event, locale),
            "node": best["node"],
            "severity": severity.level,
            "because": self._explain_severity(event, *worst, locale),
            "certainty": best["certainty"] if severity.is_certain else "possible",
            "values": [
                self._describe(subject, event, name, value, judged.get(name), locale)
                for name, (value, _) in values.items()
                if name not in _PLACE
            ],
            "place": ", ".join(
                f"{format_value(values[name][0])} {locale.translate(name)}"
                for name in _PLACE
                if name in values
            ),
            "faults": rows[0]["faults"],
            "percent": best["percent"],
            "fit": best["fit"],
            "summary": best["summary"],
            "reasons": best["reasons"],
            "subscriptions": list(dict.fromkeys(n for entry in group for n in entry.labels)),
            "count": len(group),
            "at": newest[0].notification.at,
            "expires": None if None in expiries else max(e for e in expiries if e is not None),
            "rows": rows,
            "line": self._draw(subject, main),
            "line_of": self._label(f"{event}.{main}", locale) if main else "",
            "keys": [entry.notification.key for entry in group],
        }

    def _judge(
        self, event: str, values: Mapping[str, tuple[object, int | None]]
    ) -> dict[str, Severity]:
        known = self._vocabulary.events.get(event)
        found = {}
        for name, (value, _) in values.items():
            attribute = known.attributes.get(name) if known is not None else None
            severity = judge_value(attribute, value) if attribute is not None else None
            if severity is not None:
                found[name] = severity
        return found

    def _describe(
        self,
        subject: str,
        event: str,
        name: str,
        value: object,
        severity: Severity | None,
        locale: Locale,
    ) -> dict[str, Any]:
        known = self._vocabulary.events.get(event)
        attribute = known.attributes.get(name) if known is not None else None
        line = self._history.find_line(subject, name)
        about = (attribute.about or 0.0) if attribute is not None else 0.0
        return {
            "name": self._label(f"{event}.{name}", locale),
            "value": format_value(value),
            "severity": None if severity is None else severity.level,
            "trend": find_trend(_cut(line), about),
        }

    def _explain_severity(self, event: str, name: str, severity: Severity, locale: Locale) -> str:
        if not severity.term:
            return ""
        lexicon = load_lexicon(locale.code, self._vocabulary)
        term = severity.term.replace("_", " ")
        if locale.code != DEFAULT:
            term = lexicon.find_term_label(f"{event}.{name}", severity.term)
        return f"{self._label(f'{event}.{name}', locale)}: {term}"

    def _draw(self, subject: str, name: str) -> list[list[float]]:
        """Return the points of the small line: newest last, thinned out."""
        line = _cut(self._history.find_line(subject, name))
        step = max(1, -(-len(line) // _SHOWN_POINTS))
        return [[point[0], point[1]] for point in line[::-1][::step][::-1]]

    def _label(self, path: str, locale: Locale) -> str:
        plain = path.rpartition(".")[2].replace("_", " ")
        if locale.code == DEFAULT:
            return plain
        if "." not in path:
            return locale.translate(plain)
        lexicon = load_lexicon(locale.code, self._vocabulary)
        return lexicon.find_label(path) if path in lexicon.attributes else plain


def _find_claim(
    subject: str, group: list[FeedEntry], claims: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return who has a device, or one of its notifications."""
    for name in (subject, *(str(entry.notification.id) for entry in group)):
        if name in claims:
            return claims[name]
    return None


def _cut(line: list[Point]) -> list[Point]:
    return [point for point in line if point[0] >= line[-1][0] - _TREND] if line else []


def list_places(notifications: Iterable[ReceivedNotification]) -> list[dict[str, Any]]:
    """Return where devices were last, in metres: for the plan."""
    found: dict[str, dict[str, Any]] = {}
    for notification in notifications:
        subject = find_subject(notification)
        points = [_read_point(0, notification.values.get(name)) for name in _PLACE]
        if None in points:
            continue
        at = notification.at or 0
        if subject not in found or at > found[subject]["at"]:
            east, north = (point[1] for point in points if point is not None)
            found[subject] = {"name": subject, "east": east, "north": north, "at": at}
    return sorted(found.values(), key=lambda place: str(place["name"]))
