"""The one error that a person who writes subscriptions or vocabularies can cause.

Every surface, the compiler and the plug-ins raise it; nothing else reaches a subscriber. It knows
the place in the source, so that an app can point at it and an MQTT reply can carry the column.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from denwatch.client.syntax import SourceSpan, SyntaxNode


class LanguageError(ValueError):
    """What is wrong, where, and what may have been meant.

    `at` is the column, counted in characters of the source from 1, None where there is no source
    text; `length` is how many characters are meant. `hint` is one sentence more; `suggestions` are
    names that exist, best first.
    """

    def __init__(
        self,
        message: str,
        at: int | None = None,
        length: int = 1,
        hint: str = "",
        suggestions: Iterable[str] = (),
    ) -> None:
        self.message = message
        self.at = at
        self.length = max(1, length)
        self.hint = hint
        self.suggestions = tuple(suggestions)
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
            words += f"; did you mean {join_choices(self.suggestions)}?"
        if self.hint:
            words += f" ({self.hint})"
        return words

    def to_reply(self) -> dict[str, object]:
        """Return the body of the reply to a subscriber; `at` is null where it is unknown."""
        return {"ok": False, "error": self.describe(), "at": self.at}

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
    """Return the names that look most like the wanted one, best first, three at most."""
    known = {name.casefold(): name for name in names}
    found = difflib.get_close_matches(wanted.casefold(), list(known), n=3, cutoff=0.6)
    return [known[name] for name in found]


def join_choices(names: Iterable[str]) -> str:
    """Return names as "a", "a or b", "a, b or c", quoted."""
    quoted = [f'"{name}"' for name in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"
