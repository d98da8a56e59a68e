"""Why a notification is here, in plain words: each part of what was asked, and how well it fits.

Pure. The node says which part decided; here every part is looked at again with the vocabulary, so
that people see the others, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from denwatch.client.console.meanings import Meaning, find_range, list_meanings, read_codes
from denwatch.client.errors import LanguageError
from denwatch.client.language import parse
from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.vocabulary import Vocabulary

_FULL = 0.995


@dataclass(frozen=True)
class Reason:
    """One part: what was asked, what was read, how well it fits (0..1, from worst to best)."""

    words: str
    value: str
    low: float
    high: float
    is_limit: bool = False

    @property
    def fit(self) -> str:
        """The fit in percent."""
        return describe_fit(self.low, self.high)


def describe_fit(low: float, high: float) -> str:
    """Return one percentage, or from the worst to the best where a reading is in doubt."""
    worst, best = round(100 * low), round(100 * high)
    return f"{best} %" if worst >= best else f"{worst}–{best} %"  # noqa: RUF001 - a range


def list_reasons(
    note: ReceivedNotification, text: str, vocabulary: Vocabulary, organisation: str | None = None
) -> list[Reason]:
    """Return the parts of a subscription that a notification answers; what decided is marked."""
    try:
        event, meanings = list_meanings(parse(text), vocabulary, organisation)
    except LanguageError:
        return []
    if event.name != note.event:
        return []
    limit = note.why.get("attribute") if isinstance(note.why, Mapping) else None
    found = []
    for meaning in meanings:
        value = note.values.get(meaning.attribute.name)
        codes = read_codes(meaning.attribute, value)
        if codes is not None:
            words = meaning.words.replace("_", " ")
            found.append(Reason(words, say_value(value), *find_range(meaning, codes)))
    return _mark_limit(found, meanings, limit)


def say_value(value: object) -> str:
    """Return a delivered value as people say it: no digits that pretend, a range where in doubt."""
    if not isinstance(value, Mapping):
        return _say_number(value)
    unit = f" {value['unit']}" if value.get("unit") else ""
    if "low" in value and "high" in value:
        low, high = _say_number(value["low"]), _say_number(value["high"])
        return f"{low} to {high}{unit}"
    if isinstance(value.get("among"), list):
        return " or ".join(map(str, value["among"]))
    return f"{_say_number(value.get('value', value.get('code', '?')))}{unit}"


def _say_number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _mark_limit(reasons: list[Reason], meanings: list[Meaning], limit: object) -> list[Reason]:
    """Mark the weakest part about the attribute that the node names."""
    if not isinstance(limit, str) or len(reasons) < 2:
        return reasons
    own = {m.words.replace("_", " ") for m in meanings if m.attribute.name == limit}
    weak = [r for r in reasons if r.words in own and r.high < _FULL]
    if not weak:
        return reasons
    weakest = min(weak, key=lambda r: r.high)
    return [Reason(r.words, r.value, r.low, r.high, True) if r is weakest else r for r in reasons]


def summarise(note: ReceivedNotification, reasons: list[Reason]) -> str:
    """Return the reason in one sentence or two."""
    if not reasons:
        why = note.why.get("words") if isinstance(note.why, Mapping) else note.why
        return f"{_begin(str(why).replace('_', ' '))}." if why else "It is what you asked for."
    weakest = next((r for r in reasons if r.is_limit), min(reasons, key=lambda r: r.high))
    if note.certain < note.possible - 0.005:
        may = "It surely fits" if note.is_certain else "It may be so"
        fit = describe_fit(note.certain, note.possible)
        return f"{may}, by {fit}: the sensor is in doubt. {_begin(weakest.words)}: {weakest.value}."
    if weakest.high >= _FULL:
        return _begin(" and ".join(f"{r.words} ({r.value})" for r in reasons)) + "."
    decides = ", and that decides" if len(reasons) > 1 else ""
    return f"{_begin(weakest.words)} by {weakest.fit} ({weakest.value}){decides}."


def _begin(words: str) -> str:
    return words[:1].upper() + words[1:]
