"""Turns a failure of the parser into a helpful error: where, what may stand there, what was meant.

Only this file knows the parser's exceptions and the names of its terminals.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

from denwatch.client.errors import LanguageError, join_choices
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

_OPTIONS = (
    *("at least 0.7", "possible 0.6", "certain 0.2", "by harmonic mean", "top 5"),
    *("valid for 2 days", "recent"),
)
_OPTION_WORDS = (
    *("at least", "possible", "certain", "by", "top", "score", "valid for", "expires after"),
    *("recent", "prefer", "dead band", "relative band", "hysteresis", "heartbeat", "quiet for"),
    *("in the last", "event", "named", "rule", "why", "whole reading"),
)
_JOINTS = ("and", "or", "possible", "certain", "weight", "within", "to")
_VERBS = ("is", "are", "not", "above", "below", "between", "about", "around", "over", "under")
_HEDGES = ("very", "extremely", "somewhat", "more or less")
_KNOWN = frozenset(" ".join((*_JOINTS, *_VERBS, *_HEDGES)).split())


class _Situation(NamedTuple):
    """What may follow: known by terminals, told in a few words, with keywords that are likely."""

    terminals: frozenset[str]
    what: str
    choices: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()


# The first situation whose terminals are all possible decides what people are told, because a list
# of forty terminals tells them nothing.
_SITUATIONS = (
    _Situation(frozenset({"_PREFER"}), "an option is expected", _OPTIONS, _OPTION_WORDS),
    _Situation(frozenset({"$END", "_AND"}), "expected", ("and", "or", ",", "the end"), _JOINTS),
    _Situation(frozenset({"_IS", "_NOT", "LPAR", "NAME"}), "an attribute is expected"),
    _Situation(
        frozenset({"_IS", "_NOT", "GREATER"}),
        "expected",
        ("is", "is not", "above", "below", "between", "about"),
        _VERBS,
    ),
    _Situation(frozenset({"EXTREMELY", "NAME"}), "a term, a value or a comparison is expected"),
    _Situation(frozenset({"NAME", "NUMBER"}), "a value is expected"),
    _Situation(frozenset({"NAME"}), "a name is expected"),
    _Situation(frozenset({"NUMBER"}), "a number is expected"),
)
_WORD = re.compile("[^\\W\\d][\\w°'\u2019.-]*")
_NAME = re.compile(rf"{_WORD.pattern}(\s+{_WORD.pattern})*\s*$")
_BRACKET = re.compile(r'"(?:\\.|[^"\\\n])*"|["()]')  # or a whole text in quotes
_DECIMAL_COMMA = re.compile(r"\d(,)\d+\s*$")
_LOOK_BACK = 200  # characters: a longer name is no slip
_SHOWN = 30  # characters shown of what is not expected
_SAYINGS = {
    "COMMA": ",",
    "LPAR": "(",
    "RPAR": ")",
    "_AND": "and",
    "TO": "to",
    "OF": "of",
    "$END": "the end",
    "_END": ".",
    "PERCENT": "%",
}


def check_brackets(text: str) -> None:
    """Raise LanguageError for a bracket or a quote without its partner."""
    opened: list[int] = []
    for match in _BRACKET.finditer(text):
        place = match.start()
        if match.group() == '"':
            raise LanguageError("the quotes are never closed", place + 1)
        if match.group() == "(":
            opened.append(place)
        elif match.group() == ")":
            if not opened:
                raise LanguageError('this ")" has no matching "("', place + 1)
            opened.pop()
    if opened:
        raise LanguageError('this "(" is never closed', opened[-1] + 1)


def explain_failure(error: UnexpectedInput, text: str) -> LanguageError:
    """Return the parser's error in terms of the text."""
    start, wrong = _find_culprit(error, text)
    situation = _find_situation(_find_expected(error))
    comma = _DECIMAL_COMMA.search(text[:start]) or _DECIMAL_COMMA.search(text[: start + len(wrong)])
    if comma:
        return LanguageError("write decimals with a point, not a comma", comma.start(1) + 1)
    misspelt = _find_misspelt(text, start, situation)
    if misspelt:
        return misspelt
    what = situation.what
    if situation.choices:
        what += f": {join_choices(situation.choices)}"
    if not wrong:
        return LanguageError(f"the text ends too early; {what}", start + 1)
    shown = wrong if wrong.isprintable() else f"character {ord(wrong[0]):#06x}"
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    hint = ""
    if situation.keywords is _OPTION_WORDS and _WORD.match(wrong):
        hint = 'conditions are joined by "and" and "or"'
    return LanguageError(f'"{shown}" is not allowed here; {what}', start + 1, len(wrong), hint)


def _find_culprit(error: UnexpectedInput, text: str) -> tuple[int, str]:
    """Return where the unexpected begins, and what it is; "" for the end."""
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        assert error.token.start_pos is not None
        return error.token.start_pos, str(error.token)
    if isinstance(error, UnexpectedCharacters):
        start = error.pos_in_stream or 0
        word = _WORD.match(text, start)
        return start, word.group() if word else text[start : start + 1]
    return len(text.rstrip()), ""


def _find_expected(error: UnexpectedInput) -> frozenset[str]:
    parser = getattr(error, "interactive_parser", None)
    if parser is not None:
        return frozenset(parser.accepts())
    if isinstance(error, UnexpectedCharacters):
        return frozenset(error.allowed or ())
    return frozenset()


def _find_misspelt(text: str, start: int, situation: _Situation) -> LanguageError | None:
    """Return the error of a misspelt keyword, with what was meant, or None."""
    words = list(_WORD.finditer(text, start))
    if words and words[0].start() == start and situation.keywords:
        for word in reversed(words[:3]):  # "at leest", "in teh last"
            slip = _check_keyword(text[start : word.end()], start, situation.keywords)
            if slip:
                return slip
    return find_slip(text, start)


def find_slip(text: str, start: int) -> LanguageError | None:
    """Return the error of a keyword that is misspelt in the name that ends at `start`, or None.

    Names may have several words, so a misspelt keyword is first taken for a part of a name, and
    only what follows fails.
    """
    first = max(0, start - _LOOK_BACK)
    before = _NAME.search(text[first:start])
    words = list(_WORD.finditer(text, first + before.start(), start)) if before else []
    keywords = [place for place, word in enumerate(words) if word.group().casefold() in _KNOWN]
    for word in words[keywords[-1] + 2 if keywords else 1 :]:
        slip = _check_keyword(word.group(), word.start(), (*_VERBS, *_JOINTS, *_HEDGES))
        if slip:
            return slip
    return None


def _check_keyword(said: str, place: int, keywords: Iterable[str]) -> LanguageError | None:
    meant = _suggest_keywords(said, keywords)
    if not meant:
        return None
    message = f'"{said}" is not understood here'
    return LanguageError(message, place + 1, len(said), suggestions=meant)


def _suggest_keywords(said: str, keywords: Iterable[str]) -> list[str]:
    """Return the keywords that may have been meant; of short ones one letter or two swapped."""
    said = " ".join(said.casefold().split())
    known = list(keywords)
    if said in known:
        return []
    if len(said) > 3:
        return difflib.get_close_matches(said, known, n=2, cutoff=0.75)
    return [
        keyword
        for keyword in known
        if len(keyword) == len(said)
        and (
            sum(a != b for a, b in zip(keyword, said, strict=True)) == 1
            or sorted(keyword) == sorted(said)
        )
    ]


def _find_situation(expected: frozenset[str]) -> _Situation:
    for situation in _SITUATIONS:
        if situation.terminals <= expected:
            return situation
    sayings = [_SAYINGS.get(name, name.strip("_").lower().replace("_", " ")) for name in expected]
    return _Situation(expected, "expected", tuple(sorted(sayings)[:6]))
