"""Whether a command printed what its page shows. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

SKIP = "..."

_VARYING = re.compile(r"[0-9a-f]{2}(?: [0-9a-f]{2})+|(?=[0-9a-f]*\d)[0-9a-f]{8,}|\d[\d,.:T-]*\d|\d")
_SPACES = re.compile(r" {2,}")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def clean(text: str) -> list[str]:
    """Return the lines of an output, without colours and blanks at their ends."""
    return [line.rstrip() for line in _COLOUR.sub("", text).replace("\r", "").splitlines()]


def blur(line: str) -> str:
    """Return a line with its numbers, ids and times made equal, and columns closed up."""
    return _SPACES.sub(" ", _VARYING.sub("0", line))


def fits(shown: str, line: str, varies: bool) -> bool:
    """Return whether a printed line is the shown one."""
    if varies:
        shown, line = blur(shown), blur(line)
    pieces = [re.escape(piece) for piece in shown.split("…")]
    return re.fullmatch(".*".join(pieces), line) is not None


def find_difference(
    shown: Sequence[str], printed: Sequence[str], varies: bool, others_print: bool
) -> str | None:
    """Return what does not fit, None if all does.

    `others_print`: something in the background prints too, so that lines come in any order, and
    more of them.
    """
    if others_print:
        left = list(printed)
        for wanted in shown:
            found = [line for line in left if fits(wanted, line, varies)]
            # Two programs that write at once may write into one line.
            joined = found or [line for line in left if fits(f"…{wanted}…", line, varies)]
            if wanted != SKIP and not joined:
                return f"{wanted!r} is not printed"
            if found:
                left.remove(found[0])
        return None
    return _find_in_order(list(shown), list(printed), varies)


def _find_in_order(shown: list[str], printed: list[str], varies: bool) -> str | None:
    parts: list[list[str]] = [[]]
    for line in shown:
        if line == SKIP:
            parts.append([])
        else:
            parts[-1].append(line)
    at = 0
    for place, part in enumerate(parts):
        is_first, is_last = place == 0, place == len(parts) - 1
        begins = [at] if is_first else range(at, len(printed) - len(part) + 1)
        if is_last and not is_first:
            begins = [max(at, len(printed) - len(part))]
        for begin in begins:
            lines = printed[begin : begin + len(part)]
            if len(lines) == len(part) and all(
                fits(s, p, varies) for s, p in zip(part, lines, strict=True)
            ):
                at = begin + len(part)
                break
        else:
            return "these lines are not printed here:\n  " + "\n  ".join(part)
        if is_last and at < len(printed):
            return f"{printed[at]!r} is printed, and not shown"
    return None
