"""Matching plug-ins: what every matching engine looks like, and which one serves which language.

A node keeps one matcher for each subscription language that is in use and gets it from
`MatcherPlugins` by the language's id (DENS paper, section 2). A site adds a language by registering
a plug-in; nothing else in a node depends on which languages exist. `S` is what a language calls a
subscription and `N` what it calls a notification: vectors in the fuzzy language, filters and typed
values in the content language.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

S = TypeVar("S", contravariant=True)
N = TypeVar("N", contravariant=True)

FUZZY = 0
CONTENT = 1


class SubscriptionMatch(NamedTuple):
    """One subscription that a notification matches."""

    id: int
    possible: int  # 0..255; equal to `certain` for exact readings
    certain: int
    attribute: int  # the attribute whose predicate decided; -1 where the language has none


class Matcher(Protocol[S, N]):
    """A set of subscriptions that answers which of them a notification matches."""

    def add(self, id: int, subscription: S) -> None:
        """Add a subscription, or replace the one with this id."""

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""

    def __len__(self) -> int:
        """Return the number of subscriptions."""

    def match(self, notification: N, age: int = 0) -> list[SubscriptionMatch]:
        """Return the matches by rising id; `age` is the notification's, in seconds."""


LAST_LANGUAGE = 255  # the id is one byte


@dataclass(frozen=True)
class MatcherPlugin:
    """A language and how to make its matcher."""

    language: int
    name: str
    make_matcher: Callable[[], Matcher[Any, Any]]


def _make_fuzzy() -> Matcher[Any, Any]:
    from denwatch.node.matching.index import FuzzyIndex  # numba: only where it is used

    return FuzzyIndex()


def _make_content() -> Matcher[Any, Any]:
    from denwatch.node.matching.content_index import ContentIndex

    return ContentIndex()


BUILT_IN = (
    MatcherPlugin(FUZZY, "fuzzy", _make_fuzzy),
    MatcherPlugin(CONTENT, "content", _make_content),
)


class MatcherPlugins:
    """The subscription languages that a node can match, by id."""

    def __init__(self, plugins: tuple[MatcherPlugin, ...] = BUILT_IN) -> None:
        self._plugins: dict[int, MatcherPlugin] = {}
        for plugin in plugins:
            self.register(plugin)

    def register(self, plugin: MatcherPlugin) -> None:
        """Add a language; its id and its name must be new."""
        if not 0 <= plugin.language <= LAST_LANGUAGE:
            raise ValueError(f"language id {plugin.language} is not in 0..{LAST_LANGUAGE}")
        for known in self._plugins.values():
            if plugin.language == known.language or plugin.name == known.name:
                raise ValueError(f"language {known.language} ({known.name}) is already registered")
        self._plugins[plugin.language] = plugin

    def find(self, language: int) -> MatcherPlugin:
        """Return the plug-in of a language; KeyError names an unknown one."""
        try:
            return self._plugins[language]
        except KeyError:
            raise KeyError(f"no plug-in for language id {language}") from None

    def make_matcher(self, language: int) -> Matcher[Any, Any]:
        """Return a new, empty matcher of a language."""
        return self.find(language).make_matcher()
