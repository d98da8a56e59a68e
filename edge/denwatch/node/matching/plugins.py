"""Plug-ins: the matching engine of each subscription language, by its id (DENS paper, section 2).

A node keeps one matcher for each language it has subscriptions in, and asks this registry to make
it. A site adds a language by registering a plug-in; nothing else in a node depends on which exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from denwatch.node.matching.interface import CONTENT, FUZZY, Matcher

LAST_LANGUAGE = 255  # the id is one byte


@dataclass(frozen=True)
class Plugin:
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
    Plugin(FUZZY, "fuzzy", _make_fuzzy),
    Plugin(CONTENT, "content", _make_content),
)


class Plugins:
    """The languages that a node speaks."""

    def __init__(self, plugins: tuple[Plugin, ...] = BUILT_IN) -> None:
        self._plugins: dict[int, Plugin] = {}
        for plugin in plugins:
            self.register(plugin)

    def register(self, plugin: Plugin) -> None:
        """Add a language; its id and its name must be new."""
        if not 0 <= plugin.language <= LAST_LANGUAGE:
            raise ValueError(f"language id {plugin.language} is not in 0..{LAST_LANGUAGE}")
        for known in self._plugins.values():
            if plugin.language == known.language or plugin.name == known.name:
                raise ValueError(f"language {known.language} ({known.name}) is already registered")
        self._plugins[plugin.language] = plugin

    def list_languages(self) -> list[int]:
        """Return the ids of all languages, rising."""
        return sorted(self._plugins)

    def find(self, language: int) -> Plugin:
        """Return the plug-in of a language; KeyError names an unknown one."""
        try:
            return self._plugins[language]
        except KeyError:
            raise KeyError(f"no plug-in for language id {language}") from None

    def make_matcher(self, language: int) -> Matcher[Any, Any]:
        """Return a new, empty matcher of a language."""
        return self.find(language).make_matcher()
