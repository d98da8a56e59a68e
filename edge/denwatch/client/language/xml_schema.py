"""The XML Schema of subscriptions, with the tags that plug-ins add: the only file that uses lxml.

lxml sees the elements that `xml_source` has read, never the text from outside.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from denwatch.client.errors import LanguageError
from denwatch.client.language.xml_source import Element
from denwatch.client.plugins import Named, PluginRegistry
from lxml import etree

SCHEMA = Path(__file__).with_name("subscription.xsd")
_XS = "{http://www.w3.org/2001/XMLSchema}"

# What a plug-in adds to the schema: its tag, and (name, required) of each attribute.
_Tag = tuple[str, tuple[tuple[str, bool], ...]]


def list_tags(registry: PluginRegistry) -> dict[str, str]:
    """Return the canonical tag of each one in small letters."""
    elements = etree.parse(SCHEMA).getroot().iter(f"{_XS}element")
    core = {str(name).casefold(): str(name) for e in elements if (name := e.get("name"))}
    for extension in _list_extensions(registry):
        if extension.tag.casefold() in core:
            raise LanguageError(f'the tag "{extension.tag}" of a plug-in is one of the core')
        core[extension.tag.casefold()] = extension.tag
    return core


def validate(root: Element, registry: PluginRegistry) -> None:
    """Raise LanguageError at the first element or attribute that the schema does not allow."""
    predicates = [_describe(extension) for extension in registry.predicates.values()]
    shapes = [_describe(extension) for extension in registry.shapes.values()]
    aggregators = [_describe(extension) for extension in registry.aggregators.values()]
    schema = _load_schema((*predicates, *shapes), tuple(aggregators))
    places: dict[str, Element] = {}
    try:
        tree = _build(root)
    except ValueError:
        raise LanguageError.at_span("a name that XML does not allow", root.start) from None
    document = etree.ElementTree(tree)
    if schema.validate(document):
        return
    for node, element in zip(tree.iter(), _iterate(root), strict=True):
        places[document.getpath(node)] = element
    entries: Any = schema.error_log  # its stub lacks what a list has
    entry = entries[0]
    culprit = places.get(str(entry.path), root)
    raise LanguageError.at_span(_tidy(str(entry.message)), culprit.start)


def _list_extensions(registry: PluginRegistry) -> tuple[Named, ...]:
    return (
        *registry.predicates.values(),
        *registry.shapes.values(),
        *registry.aggregators.values(),
    )


def _describe(extension: Named) -> _Tag:
    parameters = tuple((p.name, not p.optional) for p in extension.parameters)
    return extension.tag, parameters


@lru_cache(maxsize=8)
def _load_schema(constraints: tuple[_Tag, ...], aggregators: tuple[_Tag, ...]) -> etree.XMLSchema:
    document = etree.parse(SCHEMA)
    for group, tags in (("constraint", constraints), ("aggregator", aggregators)):
        choice = document.getroot().find(f"{_XS}group[@name='{group}']/{_XS}choice")
        assert choice is not None
        for tag, parameters in tags:
            element = etree.SubElement(choice, f"{_XS}element", name=tag)
            content = etree.SubElement(element, f"{_XS}complexType")
            for name, required in parameters:
                use = "required" if required else "optional"
                etree.SubElement(content, f"{_XS}attribute", name=name, type="Full", use=use)
    return etree.XMLSchema(document)


def _build(element: Element) -> etree._Element:
    """Return the element for lxml; text goes first, which a schema does not mind."""
    node = etree.Element(element.tag, element.attributes)
    node.text = element.text or None
    for child in element.children:
        node.append(_build(child))
    return node


def _iterate(element: Element) -> list[Element]:
    return [element, *(inner for child in element.children for inner in _iterate(child))]


def _tidy(message: str) -> str:
    """Return libxml2's message without its facets."""
    message = re.sub(r"^Element '([^']*)'(, attribute '([^']*)')?: ", r"<\1>\2: ", message)
    message = message.replace("[facet 'enumeration'] ", "").replace("[facet 'minLength'] ", "")
    return message.strip().rstrip(".")
