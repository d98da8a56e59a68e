"""XML with positions, read without trust: the only file that parses XML and the only one with lxml.

A document type declaration is refused where it begins, so there are no entities to expand and no
files or addresses to fetch; size and depth are limited. The case of element names is ignored,
because the DENS paper writes both <Aggregating-function> and <aggregating-function>. `validate`
checks the elements against subscription.xsd; lxml sees those elements, never the text from outside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.parsers import expat

from denwatch.client.errors import LanguageError
from denwatch.client.language.lexicon import check_length
from denwatch.client.plugins import Named, PluginRegistry
from denwatch.client.syntax import SourceSpan
from lxml import etree

MAX_CHARACTERS = 65536
MAX_DEPTH = 16


@dataclass
class Element:
    """One element: its canonical tag, attributes, children, text, and where they stand."""

    tag: str
    attributes: dict[str, str]
    start: SourceSpan  # of the start tag
    source: str = field(repr=False)
    children: list[Element] = field(default_factory=list)
    chunks: list[tuple[int, str]] = field(default_factory=list)  # text, with its places

    @property
    def text(self) -> str:
        """The text directly inside, without the blanks around it."""
        return "".join(chunk for _, chunk in self.chunks).strip()

    @property
    def text_span(self) -> SourceSpan:
        """Where the text stands; without any, the start tag."""
        full = [(place, chunk) for place, chunk in self.chunks if chunk.strip()]
        if not full:
            return self.start
        first, chunk = full[0]
        first += len(chunk) - len(chunk.lstrip())
        last, chunk = full[-1]
        return SourceSpan(first, max(first + 1, last + len(chunk.rstrip())))

    def find_attribute(self, name: str) -> SourceSpan:
        """Return where the value of an attribute stands."""
        tag = self.source[self.start.start : self.start.end]
        match = re.search(rf"\s{re.escape(name)}\s*=\s*[\"']([^\"']*)", tag)
        if match is None:
            return self.start
        return SourceSpan(self.start.start + match.start(1), self.start.start + match.end(1))

    def find_all(self, tag: str) -> list[Element]:
        """Return the children with that tag."""
        return [child for child in self.children if child.tag == tag]

    def find(self, tag: str) -> Element | None:
        """Return the first child with that tag."""
        return next((child for child in self.children if child.tag == tag), None)


def parse_source(text: str, tags: Mapping[str, str]) -> Element:
    """Return the root element; `tags` gives the canonical tag of each one in small letters."""
    check_length(text, MAX_CHARACTERS)
    return _ExpatReader(text, tags).read()


class _ExpatReader:
    def __init__(self, text: str, tags: Mapping[str, str]) -> None:
        self.text = text
        self.tags = tags
        self.data = text.encode("utf-8", "surrogatepass")
        self.bytes_seen = self.characters_seen = 0
        self.stack: list[Element] = []
        self.root: Element | None = None
        # The encoding is ours: what the declaration says about the text on its way is over.
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartDoctypeDeclHandler = self.refuse_doctype
        self.parser.StartElementHandler = self.open_element
        self.parser.EndElementHandler = self.close_element
        self.parser.CharacterDataHandler = self.add_text
        self.parser.ProcessingInstructionHandler = self.refuse_instruction

    def read(self) -> Element:
        try:
            self.parser.Parse(self.data, True)
        except expat.ExpatError as error:
            message = expat.errors.messages[error.code] if error.code else str(error)
            place = self.count_characters(self.parser.ErrorByteIndex)
            raise LanguageError(f"not well-formed XML: {message}", place + 1) from None
        assert self.root is not None
        return self.root

    def count_characters(self, index: int) -> int:
        """Return the characters before a byte; bytes come in order, so each is counted once."""
        if index < self.bytes_seen:
            return len(self.data[:index].decode("utf-8", "replace"))
        more = self.data[self.bytes_seen : index].decode("utf-8", "replace")
        self.bytes_seen = index
        self.characters_seen += len(more)
        return self.characters_seen

    def find_place(self) -> int:
        return self.count_characters(self.parser.CurrentByteIndex)

    def refuse_doctype(self, *_: object) -> None:
        place = self.text.rfind("<!DOCTYPE", 0, self.find_place() + 1)
        raise LanguageError(
            "a document type declaration is refused",
            place + 1,
            len("<!DOCTYPE"),
            "no entities, no external files",
        )

    def refuse_instruction(self, *_: object) -> None:
        raise LanguageError("a processing instruction is refused", self.find_place() + 1, 2)

    def open_element(self, tag: str, attributes: dict[str, str]) -> None:
        place = self.find_place()
        end = self.text.find(">", place) + 1
        span = SourceSpan(place, end if end > place else place + 1)
        if len(self.stack) >= MAX_DEPTH:
            raise LanguageError.at_span(f"elements nested more than {MAX_DEPTH} deep", span)
        element = Element(self.tags.get(tag.casefold(), tag), attributes, span, self.text)
        if self.stack:
            self.stack[-1].children.append(element)
        else:
            self.root = element
        self.stack.append(element)

    def close_element(self, _: str) -> None:
        self.stack.pop()

    def add_text(self, chunk: str) -> None:
        self.stack[-1].chunks.append((self.find_place(), chunk))


# The XML Schema, with the tags that plug-ins add --------------------------------------------------

SCHEMA = Path(__file__).with_name("subscription.xsd")
_XS = "{http://www.w3.org/2001/XMLSchema}"

# What a plug-in adds to the schema: its tag, and (name, required) of each attribute.
_Tag = tuple[str, tuple[tuple[str, bool], ...]]


def list_tags(registry: PluginRegistry) -> dict[str, str]:
    """Return the canonical tag of each one in small letters."""
    elements = etree.parse(SCHEMA).getroot().iter(f"{_XS}element")
    core = {str(name).casefold(): str(name) for e in elements if (name := e.get("name"))}
    for extension in (*registry.constraints, *registry.aggregators.values()):
        if extension.tag.casefold() in core:
            raise LanguageError(f'the tag "{extension.tag}" of a plug-in is one of the core')
        core[extension.tag.casefold()] = extension.tag
    return core


def validate(root: Element, registry: PluginRegistry) -> None:
    """Raise LanguageError at the first element or attribute that the schema does not allow."""
    schema = _load_schema(
        tuple(map(_describe, registry.constraints)),
        tuple(map(_describe, registry.aggregators.values())),
    )
    try:
        tree = _build(root)
    except ValueError:
        raise LanguageError.at_span("a name that XML does not allow", root.start) from None
    document = etree.ElementTree(tree)
    if schema.validate(document):
        return
    pairs = zip(tree.iter(), _iterate(root), strict=True)
    places = {document.getpath(node): element for node, element in pairs}
    entries: Any = schema.error_log  # its stub lacks what a list has
    entry = entries[0]
    culprit = places.get(str(entry.path), root)
    raise LanguageError.at_span(_tidy(str(entry.message)), culprit.start)


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
