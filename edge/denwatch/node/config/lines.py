"""Finds the line of a key in a TOML text, for messages: `tomllib` does not keep places. Pure.

It reads headers and keys at the start of lines, which is how `node.toml` is written. What it does
not understand (a key inside an inline table) it gives the line of the nearest table around it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Path = Sequence[str | int]  # names of tables and keys, numbers within arrays of tables

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"^\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=")
_STRING = re.compile(r"'''|\"\"\"")


def find_line(text: str, path: Path) -> int:
    """Return the number of the line, from 1, where a key stands; 0 if it is nowhere."""
    best_line, best_depth = 0, 0
    for line, found in _list_places(text):
        depth = _common(found, path)
        # The first line of the longest part of the path: the key itself, or what is around it.
        if depth > best_depth and depth == len(found):
            best_line, best_depth = line, depth
    return best_line


def _list_places(text: str) -> list[tuple[int, list[str | int]]]:
    """Return every header and key with its line and whole path."""
    places: list[tuple[int, list[str | int]]] = []
    table: list[str | int] = []
    counts: dict[tuple[str, ...], int] = {}
    quote = ""
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            quote = "" if line.count(quote) % 2 else quote
            continue
        header = _HEADER.match(line)
        if header:
            names = _split(header[2])
            table = list(names)
            if header[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
                table = [*names, counts[names]]
            places.append((number, table))
            continue
        key = _KEY.match(line)
        if key:
            places.append((number, [*table, *_split(key[1])]))
            opened = _STRING.findall(line)
            quote = opened[0] if len(opened) % 2 else ""
    return places


def _split(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _common(found: Sequence[str | int], path: Path) -> int:
    """Return how many steps two paths share from the start."""
    length = 0
    for one, other in zip(found, path, strict=False):
        if one != other:
            break
        length += 1
    return length
