"""Plain matching of MQTT topics by filters, and of roles, written from the rules alone."""

from __future__ import annotations

import re


def matches(pattern: str, topic: str) -> bool:
    """Return whether a filter matches a topic (MQTT 3.1.1, section 4.7; `dens` as `$SYS`)."""
    if (topic[0] == "$" or topic.split("/")[0] == "dens") and pattern[0] in "+#":
        return False
    expression = ""
    levels = pattern.split("/")
    for i, level in enumerate(levels):
        if level == "#":
            return re.fullmatch(expression + ("(/.*)?" if i else ".*"), topic) is not None
        expression += ("/" if i else "") + ("[^/]*" if level == "+" else re.escape(level))
    return re.fullmatch(expression, topic) is not None


def glob(pattern: str, text: str) -> bool:
    """Return whether a pattern with "*" fits a text without dots, by trying every way."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return glob(pattern[1:], text) or (bool(text) and glob(pattern, text[1:]))
    return bool(text) and pattern[0] == text[0] and glob(pattern[1:], text[1:])


def may_see(
    events: list[str], attributes: list[str], deny: list[str], event: str, attribute: str
) -> bool:
    """Return whether a role with these patterns sees an attribute of an event."""

    def fits(pattern: str) -> bool:
        if pattern == "*":
            return True
        left, _, right = pattern.partition(".")
        return glob(left, event) and glob(right, attribute)

    if not any(glob(pattern, event) for pattern in events):
        return False
    for pattern in deny:
        if "." in pattern and fits(pattern):
            return False
        if "." not in pattern and glob(pattern, event):
            return False
    return any(fits(pattern) for pattern in attributes)
