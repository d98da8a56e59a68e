"""The one error that a person who writes subscriptions or vocabularies can cause.

Every surface, the compiler and the plug-ins raise it; nothing else reaches a subscriber. It knows
the place in the source, so that an app can point at it and an MQTT reply can carry the column.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Mapping

from denwatch.client.syntax import SourceSpan, SyntaxNode

# Syllables that make the contrary of a word; what differs by one is never suggested.
_NEGATIONS = (
    "un",
    "non",
    "non-",
    "non_",
    "in",
    "im",
    "ir",
    "ab",
    "dis",
    "a",
    "not ",
    "not_",
    "no ",
)
_OPPOSITES = (("hypo", "hyper"), ("in", "de"), ("brady", "tachy"), ("sub", "super"))
_LONGEST = 64  # characters of a name that others may look like
_COMPARED = 32  # names that are compared letter by letter
_ALIKE = 0.6  # of 1: how much two names look like each other


class LanguageError(ValueError):
    """What is wrong, where, and what may have been meant.

    `at` is the column, counted in characters of the source from 1, None where there is no source
    text; `length` is how many characters are meant. `hint` is one sentence more; `suggestions` are
    names that exist, best first; `hints` are whole subscriptions that compile, best first.
    """

    is_question = False  # several meanings fit: whoever knows more may decide
    phrases: Mapping[str, str] = {
        "did_you_mean": "did you mean {}?",
        "try": "try {}",
        "or": "or",
    }

    def __init__(
        self,
        message: str,
        at: int | None = None,
        length: int = 1,
        hint: str = "",
        suggestions: Iterable[str] = (),
        hints: Iterable[str] = (),
        phrases: Mapping[str, str] | None = None,
    ) -> None:
        """`phrases` are those of another language."""
        self.message = message
        self.at = at
        self.length = max(1, length)
        self.hint = hint
        self.suggestions = tuple(suggestions)
        self.hints = tuple(hints)
        if phrases is not None:
            self.phrases = phrases
        super().__init__(self.describe())

    @classmethod
    def at_node(
        cls, message: str, node: SyntaxNode | None, hint: str = "", suggestions: Iterable[str] = ()
    ) -> LanguageError:
        """Return the error at the place where a node was written."""
        span = node.span if node is not None else None
        return cls.at_span(message, span, hint, suggestions)

    @classmethod
    def at_span(
        cls, message: str, span: SourceSpan | None, hint: str = "", suggestions: Iterable[str] = ()
    ) -> LanguageError:
        """Return the error at a span of the source."""
        if span is None:
            return cls(message, None, 1, hint, suggestions)
        return cls(message, span.start + 1, span.end - span.start, hint, suggestions)

    @classmethod
    def of_unknown(
        cls, what: str, name: str, known: Iterable[str], node: SyntaxNode | None = None
    ) -> LanguageError:
        """Return the error of a name that does not exist, with those that look like it."""
        return cls.at_node(f'{what} "{name}"', node, suggestions=suggest_names(name, known))

    def describe(self) -> str:
        """Return message, suggestions and hint as sentences, without the place."""
        words = self.message
        if self.suggestions:
            choices = join_choices(self.suggestions, self.phrases["or"])
            words += f"; {self.phrases['did_you_mean'].format(choices)}"
        if self.hint:
            words += f" ({self.hint})"
        return words

    def to_reply(self) -> dict[str, object]:
        """Return the body of the reply to a subscriber; `at` is null where it is unknown."""
        reply: dict[str, object] = {"ok": False, "error": self.describe(), "at": self.at}
        if self.hints:
            reply["hints"] = list(self.hints)
        return reply

    def locate(self, source: str) -> tuple[int, int]:
        """Return (line, column), both from 1, of the place in a source of several lines."""
        before = source[: (self.at or 1) - 1]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1

    def point(self, source: str) -> str:
        """Return the source line with a caret under the place, then the message."""
        if self.at is None:
            return self.describe()
        line, column = self.locate(source)
        lines = source.split("\n")
        text = lines[line - 1]
        carets = "^" * max(1, min(self.length, len(text) - column + 1))
        return f"{text}\n{' ' * (column - 1)}{carets}\n{self.describe()}"


def suggest_names(wanted: str, names: Iterable[str]) -> list[str]:
    """Return the names that look most like the wanted one, best first, three at most.

    Whoever asks may have chosen both, so the work is bounded: names are compared letter by letter
    only if they are among the few that have most letters in common.
    """
    if len(wanted) > _LONGEST:
        return []
    known = {name.casefold(): name for name in names}
    said = wanted.casefold()
    contraries, starts = _list_contraries(said)
    likely = [name for name in known if name not in contraries and not name.startswith(starts)]
    if len(likely) > _COMPARED:
        matcher = difflib.SequenceMatcher(b=said)
        rated = []
        for name in likely:
            matcher.set_seq1(name)
            if matcher.real_quick_ratio() >= _ALIKE:
                rated.append((matcher.quick_ratio(), name))
        likely = [name for _, name in heapq.nlargest(_COMPARED, rated)]
    found = difflib.get_close_matches(said, likely, n=3, cutoff=_ALIKE)
    return [known[name] for name in found]


def _list_contraries(said: str) -> tuple[set[str], tuple[str, ...]]:
    """Return the names, and how names begin, that look like a word and are its contrary."""
    names = {f"{syllable}{said}" for syllable in _NEGATIONS}
    names |= {said[len(each) :] for each in _NEGATIONS if said.startswith(each)}
    starts = [b for a, b in _OPPOSITES if said.startswith(a)]
    return names, (*starts, *(a for a, b in _OPPOSITES if said.startswith(b)))


def join_choices(names: Iterable[str], joint: str = "or") -> str:
    """Return names as "a", "a or b", "a, b or c", quoted."""
    quoted = [f'"{name}"' for name in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {joint} {quoted[-1]}"
