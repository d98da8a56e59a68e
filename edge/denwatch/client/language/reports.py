"""Compiles what sensors and people report: readings, exact or uncertain.

    [EVENT] ATTRIBUTE=VALUE [UNIT] ...    patient heart_rate=160 bpm patient_temperature=39.5±0.2
    [EVENT:] ATTRIBUTE [is] VALUE, ...    patient: temperature is very high, pulse about 120,
                                          pain 6 to 8, triage at least yellow

Names are the vocabulary's, or an organisation's synonyms. A number may have a unit and an accuracy
(±, +-), a text is one of the attribute's symbols, dates and times are ISO 8601, and `broken` is a
sensor without a reading. In words a value may also be a term with hedges, "about", a range, or one
side of the domain. What is not understood so is tried as everyday words (`understanding`), in
English or another language. Pure; every error has its place in the text.

THEORY. What somebody says of a value is a fuzzy set, and as a reading a set of possible values: a
trapezoid (A-ToPSS, "publications"). A range is one with upright sides, "about" a triangle. A term's
curve is not straight under hedges: its trapezoid has the same core and the same half, the values
that are at least half possible, which is what a subscription asks for unless it says otherwise.
"Not" is possible where the rest is one piece: *not high* is everything below, *not normal* is two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import Hedge, Moment, Name, Quantity, SourceSpan, Text
from denwatch.client.vocabulary.attributes import Attribute, EventType, ValueKind, fold_name
from denwatch.client.vocabulary.values import read_value, read_width
from denwatch.client.vocabulary.vocabulary import Vocabulary
from denwatch.protocol.vectors import NotificationVector, Reading

Points = tuple[int, int, int, int]
BROKEN = "broken"
_EMPTY = "the reading is empty: EVENT ATTRIBUTE=VALUE ..., or EVENT: ATTRIBUTE is VALUE, ..."

_EQUALS = re.compile(r"[^\s<>=]\s*=")
_EVENT = re.compile(r"\s*([^\W\d][^\d:,;=]*?)\s*:")
_NEXT = re.compile(r"[,;]|\band\b(?!\s*[-+.\d])|$", re.I)  # ends an item; not in "6 and 8"
_WORD = re.compile(r"\S+")
_FIRST_WORDS = re.compile(r"(?:(?:is|are|was|=|the)\s+)*", re.IGNORECASE)
_MAX_NAME_WORDS = 5
_QUANTITY = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(.*?)"
_ABOUT = re.compile(
    rf"(?:about|around|roughly|~)\s*{_QUANTITY}(?:\s*\bwithin\s+{_QUANTITY})?", re.I
)
_RANGE = re.compile(rf"(?:(?:between|from)\s+)?{_QUANTITY}\s*(?:to|and|\.\.)\s*{_QUANTITY}", re.I)
_SIDE = re.compile(
    r"(above|over|more than|at least|>=?|below|under|less than|at most|up to|<=?)\s*(.+)", re.I
)
_BELOW = ("below", "under", "less than", "at most", "up to", "<", "<=")
_HEDGES = sorted(Hedge, key=len, reverse=True)
_POWERS = {Hedge.VERY: 2.0, Hedge.EXTREMELY: 3.0, Hedge.MORE_OR_LESS: 0.5, Hedge.SOMEWHAT: 0.5}
_FULL, _NONE = 0.998, 0.002  # less than half a step of a degree from 1 and 0

_ACCURACY = re.compile(r"([-+]?\d[\d.,]*)\s*(?:±|\+/?-)\s*(?=\d)")  # everyday words have "about"
_OTHER = re.compile(r" or |\(")  # a sentence that is no report

_TOKEN = re.compile(r"""("[^"]*"|'[^']*'|[^\s="']+)(\s*=\s*)?""")
_NUMBER = re.compile(
    r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"(?:\s*(?:±|\+/?-)\s*((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))?\s*(.*)"
)


@dataclass
class _Pair:
    """One attribute and what was written for it."""

    name: Name
    value: str
    span: SourceSpan
    words: list[str] = field(default_factory=list)  # further words: a unit that stands apart
    is_words: bool = False  # "pulse about 120", not "pulse=120"

    @property
    def text(self) -> str:
        return " ".join([self.value, *self.words])


def parse_reading(
    text: str, vocabulary: Vocabulary, organisation: str | None = None
) -> NotificationVector:
    """Return the notification vector of a reading; LanguageError has the place of an error."""
    vocabulary = vocabulary.prefer(organisation)
    event_name, pairs = _split(text) if _EQUALS.search(text) else _split_words(text, vocabulary)
    if event_name is not None:
        event = vocabulary.find_event(event_name)
    else:
        names = [pair.name for pair in pairs]
        event = vocabulary.find_common_event(names, "begin with one of them:")
    readings: dict[int, Reading] = {}
    faults = 0
    for pair in pairs:
        (attribute,) = vocabulary.find_attributes(pair.name, event)
        if attribute.bit in readings or faults >> attribute.bit & 1:
            raise LanguageError.at_node(f"{attribute.name} has a value already", pair.name)
        points = _read_pair(pair, attribute, vocabulary)
        if points is None:
            faults |= 1 << attribute.bit
        else:
            readings[attribute.bit] = Reading(attribute.bit, points, attribute.wide)
    ordered = [readings[bit] for bit in sorted(readings)]
    return NotificationVector(event.number, ordered, faults=faults)


def _read_pair(pair: _Pair, attribute: Attribute, vocabulary: Vocabulary) -> Points | None:
    """Return the points of a value; None: there is no reading."""
    if pair.text == BROKEN and vocabulary.find_symbol(attribute, BROKEN) is None:
        return None
    points = _read_words(pair, attribute, vocabulary) if pair.is_words else None
    return points or _read_points(pair, attribute, vocabulary)


def _split(text: str) -> tuple[Name | None, list[_Pair]]:
    """Return the event, if one is named, and the pairs."""
    event: Name | None = None
    pairs: list[_Pair] = []
    pending: Name | None = None  # an attribute without a value so far
    at = len(text) - len(text.lstrip())
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise LanguageError("expected a name or a value", at + 1)
        word, has_equals = token.group(1), token.group(2) is not None
        span = SourceSpan(token.start(1), token.end(1))
        if pending is not None:
            if has_equals:
                raise LanguageError.at_span("a value is followed by a space", span)
            pairs.append(_Pair(pending, word.strip("\"'"), span))
            pending = None
        elif has_equals:
            pending = Name(word.strip("\"'"), span=span)
        elif pairs:
            pairs[-1].words.append(word)
        elif event is None:
            event = Name(word.strip("\"'"), span=span)
        else:
            hint = "EVENT ATTRIBUTE=VALUE ..."
            raise LanguageError.at_span(f'"{word}" is not ATTRIBUTE=VALUE', span, hint)
        at = token.end()
        at += len(text[at:]) - len(text[at:].lstrip())
    if pending is not None:
        raise LanguageError.at_node(f'"{pending.text}" has no value', pending)
    if not pairs:
        raise LanguageError(_EMPTY)
    return event, pairs


def _read_points(pair: _Pair, attribute: Attribute, vocabulary: Vocabulary) -> Points:
    """Return the four points of a value: one if it is exact."""
    if attribute.kind is ValueKind.TEXT:
        code = vocabulary.find_symbol(attribute, pair.text)
        if code is None:
            known = vocabulary.list_choices(attribute)
            names = suggest_names(pair.text, known)
            hint = f"one of {attribute.describe_domain()}"
            raise LanguageError.at_span(
                f'{attribute.name} is never "{pair.text}"', pair.span, hint, names
            )
        return (code,) * 4
    if attribute.kind is not ValueKind.NUMBER:
        return (attribute.to_code(read_value(Moment(pair.text, span=pair.span), attribute)),) * 4
    number = _NUMBER.fullmatch(pair.text)
    if number is None:
        value = read_value(Text(pair.text, span=pair.span), attribute)  # raises the error
        return (attribute.to_code(value),) * 4
    unit = number.group(3) or None
    value = read_value(Quantity(float(number.group(1)), unit, span=pair.span), attribute)
    code = attribute.to_code(value)
    if number.group(2) is None or float(number.group(2)) == 0:
        return (code,) * 4
    accuracy = Quantity(float(number.group(2)), unit, span=pair.span)
    width = read_width(accuracy, attribute)
    return attribute.to_code(value - width), code, code, attribute.to_code(value + width)


# In words ------------------------------------------------------------------------------------


def _split_words(text: str, vocabulary: Vocabulary) -> tuple[Name | None, list[_Pair]]:
    """Return the event, if one is named, and what is said of each attribute."""
    if len(text.split()) < 2:  # nothing, or an event alone
        raise LanguageError(_EMPTY)
    named = _EVENT.match(text)
    event = None if named is None else Name(named[1], span=SourceSpan(*named.span(1)))
    known = None if event is None else vocabulary.find_event(event)
    pairs = []
    start = 0 if named is None else named.end()
    for end in _NEXT.finditer(text, start):
        if text[start : end.start()].strip():
            pairs += _read_items(text, start, end.start(), vocabulary, known)
        start = end.end()
    if not pairs:
        raise LanguageError(_EMPTY)
    return event, pairs


def _read_items(
    text: str, start: int, end: int, vocabulary: Vocabulary, event: EventType | None
) -> list[_Pair]:
    """Return what is said between two commas: one attribute, or several in everyday words."""
    try:
        pair = _read_item(text, start, end, vocabulary, event)
        for attribute in vocabulary.find_attributes(pair.name, event):
            _read_pair(pair, attribute, vocabulary)
        return [pair]
    except LanguageError:
        pairs = _restate(text, start, end, vocabulary, event)
        if pairs is None:
            raise
        return pairs


def _restate(
    text: str, start: int, end: int, vocabulary: Vocabulary, event: EventType | None
) -> list[_Pair] | None:
    """Return everyday words, in any language that there is, as the sentence that they stand for.

    None: they stand for none, or for one of several events.
    """
    from denwatch.client.language.understanding import understand  # loads a lexicon

    words = _ACCURACY.sub(r"~\1 ± ", text[start:end].strip())
    try:
        found = understand(words if event is None else f"{event.name} {words}", vocabulary)
    except LanguageError:
        return None
    known = found.compiled.event if event is None else event
    words = found.words.replace(" = ", " is ")
    if not found.is_restated or known is not found.compiled.event or _OTHER.search(words):
        return None
    said = SourceSpan(start + len(text[start:end]) - len(text[start:end].lstrip()), end)
    pairs, start = [], 0
    for stop in _NEXT.finditer(words):
        try:
            pair = _read_item(words, start, stop.start(), vocabulary, known)
            (attribute,) = vocabulary.find_attributes(pair.name, known)
            _read_pair(pair, attribute, vocabulary)
        except LanguageError:
            return None
        pairs.append(replace(pair, name=Name(pair.name.text, span=said), span=said))
        start = stop.end()
    return pairs


def _read_item(
    text: str, start: int, end: int, vocabulary: Vocabulary, event: EventType | None
) -> _Pair:
    """Return an attribute, the longest name that there is, and the words after it."""
    words = [SourceSpan(*word.span()) for word in _WORD.finditer(text, start, end)]
    if len(words) > 1 and text[words[0].start : words[0].end].casefold() == "the":
        del words[0]
    first, last = words[0], words[-1].end
    for count in range(min(len(words), _MAX_NAME_WORDS), 0, -1):
        span = SourceSpan(first.start, words[count - 1].end)
        name = Name(text[span.start : span.end].strip("\"'"), span=span)
        try:
            vocabulary.find_attributes(name, event)
        except LanguageError:
            short = _find_part(name.text, event)
            if short is None and count == 1:
                raise
            if short is None:
                continue
            name = Name(short, span=span)
        begin = words[count].start if count < len(words) else last
        said = _FIRST_WORDS.match(text, begin, last)
        begin = begin if said is None else said.end()
        if not text[begin:last].strip():
            raise LanguageError.at_node(f'"{name.text}" has no value', name)
        return _Pair(name, text[begin:last].strip("\"'"), SourceSpan(begin, last), is_words=True)
    raise AssertionError("one word is the last that is tried")


def _find_part(word: str, event: EventType | None) -> str | None:
    """Return the only attribute of an event with this word in its name: a patient's temperature."""
    names = [] if event is None else list(event.attributes)
    found = [name for name in names if fold_name(word) in name.split("_")]
    return found[0] if len(found) == 1 else None


def _read_words(pair: _Pair, attribute: Attribute, vocabulary: Vocabulary) -> Points | None:
    """Return the points of a value that only words have; None: it is a plain value."""
    side = _SIDE.fullmatch(pair.text)
    if side is not None:
        value = _read_points(replace(pair, value=side[2]), attribute, vocabulary)
        is_below = side[1].casefold() in _BELOW
        last = attribute.symbol_codes[-1] if attribute.symbols else attribute.last
        return (0, 0, value[2], value[3]) if is_below else (value[0], value[1], last, last)
    if attribute.kind is ValueKind.TEXT:
        ends = re.split(r"\s+(?:to|or)\s+", pair.text, flags=re.IGNORECASE)
        if len(ends) != 2:
            return _read_graded(pair, attribute, vocabulary) if attribute.is_graded else None
        codes = [_read_points(replace(pair, value=end), attribute, vocabulary)[0] for end in ends]
        first, last = sorted(codes)
        skipped = [code for code in attribute.symbol_codes if first < code < last]
        if " or " in pair.text.casefold() and (skipped or first == last):
            raise LanguageError.at_span("these are not neighbours", pair.span, "report one of them")
        return first, first, last, last
    if attribute.kind is not ValueKind.NUMBER:
        return None
    about, between = _ABOUT.fullmatch(pair.text), _RANGE.fullmatch(pair.text)
    if about is not None:
        return _spread(pair, attribute, about)
    if between is not None:
        low, high = (_measure(pair, attribute, *between.group(n, n + 1)) for n in (1, 3))
        if not between[2]:  # "6 to 8 bpm": the unit is of both
            low = _measure(pair, attribute, between[1], between[4])
        if low > high:
            raise LanguageError.at_span(f"{between[1]} is above {between[3]}", pair.span)
        return attribute.to_code(low), attribute.to_code(low), *(attribute.to_code(high),) * 2
    return None if _NUMBER.fullmatch(pair.text) else _read_term(pair, attribute, vocabulary)


def _read_graded(pair: _Pair, attribute: Attribute, vocabulary: Vocabulary) -> Points | None:
    """Return the points of "about" a symbol, or of a term; None: it is a symbol."""
    if vocabulary.find_symbol(attribute, pair.text) is not None:
        return None
    about = re.fullmatch(r"about\s+(.+)", pair.text, re.IGNORECASE)
    if about is None:
        return _read_term(pair, attribute, vocabulary)
    code = _read_points(replace(pair, value=about[1]), attribute, vocabulary)[0]
    value, width = attribute.to_value(code), attribute.about
    return attribute.to_code(value - width), code, code, attribute.to_code(value + width)


def _measure(pair: _Pair, attribute: Attribute, number: str, unit: str) -> float:
    return read_value(Quantity(float(number), unit or None, span=pair.span), attribute)


def _spread(pair: _Pair, attribute: Attribute, about: re.Match[str]) -> Points:
    value = _measure(pair, attribute, about[1], about[2])
    width = attribute.about
    if about[3]:
        unit = about[4] or about[2] or None
        width = read_width(Quantity(float(about[3]), unit, span=pair.span), attribute)
    elif not width:
        raise LanguageError.at_span("about: within what?", pair.span, "about 120 within 10")
    code = attribute.to_code(value)
    return attribute.to_code(value - width), code, code, attribute.to_code(value + width)


def _read_term(pair: _Pair, attribute: Attribute, vocabulary: Vocabulary) -> Points:
    """Return the trapezoid of a term under its hedges."""
    rest, power = " ".join(pair.text.split()), 1.0
    is_negated = rest.casefold().startswith("not ")
    rest = rest[4:] if is_negated else rest
    while hedge := next((one for one in _HEDGES if rest.casefold().startswith(f"{one} ")), None):
        rest, power = rest[len(hedge) + 1 :], power * _POWERS[hedge]
    term = vocabulary.find_term(attribute, Name(rest))
    if term is None:
        known = vocabulary.list_choices(attribute)
        raise LanguageError.at_span(
            f'{attribute.name} has no term "{rest}"',
            pair.span,
            "a number, about, a range, or a term",
            suggest_names(rest, known),
        )
    membership = term.membership.hedged(power)
    cuts = [attribute.find_cut(membership, t) for t in (_FULL, 0.5, _NONE)]
    core, half, foot = (cut or (0, -1) for cut in cuts)
    last = attribute.last
    if core[0] > core[1]:  # narrower than a code
        core = (half[0] + half[1]) // 2, (half[0] + half[1]) // 2
    if not is_negated:
        left, right = 2 * half[0] - core[0], 2 * half[1] - core[1]
        return max(0, left), *core, last if core[1] == last else min(last, right)
    if half[0] == 0 and foot[1] < last:
        return max(0, 2 * half[1] - foot[1]), foot[1] + 1, last, last
    if half[1] == last and foot[0] > 0:
        return 0, 0, foot[0] - 1, min(last, 2 * half[0] - foot[0])
    raise LanguageError.at_span(
        f'"not {rest}" is two ranges; a report has one', pair.span, "above or below a value"
    )
