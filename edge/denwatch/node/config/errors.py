"""A mistake in `node.toml`: which key, what is wrong with it, and in which line."""

from __future__ import annotations


class ConfigError(ValueError):
    """`key` is dotted, "" if the file as a whole is meant; `line` is 0 where it is unknown."""

    def __init__(self, key: str, what: str, line: int = 0, source: str = "") -> None:
        self.key = key
        self.what = what
        self.line = line
        place = ", ".join(part for part in (source, f"line {line}" if line else "") if part)
        super().__init__(": ".join(part for part in (place, key, what) if part))
