"""The subscription language: one syntax tree (`denwatch.client.syntax`), four surfaces.

`parse` takes words, XML (starts with "<") or JSON (starts with "{"); `builder` is the Python
surface. Nothing is imported before it is used: words need no XML library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from denwatch.client.plugins import PluginRegistry
    from denwatch.client.syntax import SubscriptionTree
    from denwatch.client.vocabulary.vocabulary import Vocabulary


def detect_surface(text: str) -> str:
    """Return "xml", "json" or "words", by the first character."""
    return {"<": "xml", "{": "json"}.get(text.lstrip("\ufeff \t\r\n")[:1], "words")


def parse(text: str, registry: PluginRegistry | None = None) -> SubscriptionTree:
    """Return the subscription of a text in any surface; LanguageError points into the text."""
    surface = detect_surface(text)
    if surface == "xml":
        from denwatch.client.language.xml import parse_xml

        return parse_xml(text, registry)
    if surface == "json":
        from denwatch.client.language.json import parse_json

        return parse_json(text, registry)
    from denwatch.client.language.words import parse_words

    return parse_words(text, registry)


def print_as(
    surface: str, subscription: SubscriptionTree, vocabulary: Vocabulary | None = None
) -> str:
    """Return the subscription in a surface; with a vocabulary, XML is self-contained."""
    if surface == "xml":
        from denwatch.client.language.xml_printer import print_xml

        return print_xml(subscription, None, vocabulary)
    if surface == "json":
        from denwatch.client.language.json import print_json

        return print_json(subscription)
    if surface != "words":
        raise ValueError(f'unknown surface "{surface}": words, xml or json')
    from denwatch.client.language.words_printer import print_words

    return print_words(subscription)
