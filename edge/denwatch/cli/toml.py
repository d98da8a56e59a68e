"""A vocabulary's document as TOML text: the standard library reads TOML but does not write it.

Only what vocabularies hold: tables, lists, texts, numbers and flags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
# Tables of these stand on one line each: terms, whose definitions are short.
_INLINE_BELOW = "terms"


def write_toml(document: Mapping[str, Any]) -> str:
    """Return the TOML text; `tomllib.loads` reads the same document back."""
    return "\n".join(_write_table(document, ())).strip("\n") + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not _is_table(value, path)}
    tables = {key: value for key, value in table.items() if _is_table(value, path)}
    if path and (plain or not tables):
        yield ""
        yield f"[{'.'.join(map(_write_key, path))}]"
    for key, value in plain.items():
        yield f"{_write_key(key)} = {_write_value(value)}"
    for key, value in tables.items():
        yield from _write_table(value, (*path, key))


def _is_table(value: object, path: tuple[str, ...]) -> bool:
    return isinstance(value, Mapping) and path[-1:] != (_INLINE_BELOW,)


def _write_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _write_text(key)


def _write_text(text: str) -> str:
    # JSON's escapes are TOML's too, but for the control character that TOML forbids unescaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_write_value, value))}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_write_key(k)} = {_write_value(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    raise TypeError(f"{type(value).__name__} has no place in a vocabulary")
