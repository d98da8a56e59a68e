"""Stories in words: `smoke is dense within about 5 min after carbon_monoxide is high`.

A story is written around ordinary conditions, which the grammar of the words reads: here is only
what stands between them. A text is masked rather than cut, so that every error has its column in
what was written. A part that has options of its own, or that joins several conditions, stands in
parentheses.

    A within WINDOW after B [ within WINDOW after C ... ]       a sequence, the last one first
    A and B [ and C ... ] within WINDOW                         together
    no A for WINDOW                                             an absence
    [at least] 3 [or more] [devices] with A within WINDOW       a count

    WINDOW = [ "about" ], NUMBER, UNIT, [ ( "fading until" | "rising from" ), NUMBER, UNIT ]
           | "a few", ( "seconds" | "minutes" | "hours" )

After a comma: `within WINDOW` with a unit of length, and the options of a subscription that are
about what is delivered. "About" makes a window half as long again, in which the degree falls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from denwatch.client import syntax
from denwatch.client.errors import LanguageError
from denwatch.client.language import lexicon
from denwatch.client.language.words import parse_words
from denwatch.client.language.words_printer import print_words
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary.values import UnitError, find_unit

ABOUT = 0.5  # the share of a window by which "about" makes it longer, or a silence shorter
KINDS = ("sequence", "together", "absence", "count")
OPTIONS = ("name", "score", "top", "prefer", "valid_for", "expiry", "possible")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class TimeWindow(syntax.SyntaxNode):
    """How far apart in time, or in space: by a phrase of the vocabulary, or fully and not at all.

    Without `zero` the end is sharp, or `is_about`.
    """

    phrase: str | None = None
    full: syntax.Quantity | None = None
    zero: syntax.Quantity | None = None
    is_about: bool = False


@dataclass(frozen=True, slots=True)
class StoryTree(syntax.SyntaxNode):
    """A whole story. Parts of a sequence are in the order of time, whatever is said first."""

    kind: str
    parts: tuple[syntax.SubscriptionTree, ...]
    windows: tuple[TimeWindow, ...]  # of a sequence one for each step, else one
    near: TimeWindow | None = None
    count: syntax.Scalar | None = None
    name: syntax.Name | None = None
    possible: syntax.Scalar | None = None
    score: syntax.Scalar | None = None
    top: syntax.Scalar | None = None
    prefer: tuple[syntax.Prefer, ...] = ()
    valid_for: syntax.Quantity | None = None
    expiry: syntax.Quantity | None = None


_AMOUNT = r"(?:\d+(?:\.\d+)?|\.\d+)\s*[^\W\d]\w*"
_WINDOW = (
    rf"(?:(?:about|around|roughly)\s+)?{_AMOUNT}(?:\s+(?:fading\s+until|rising\s+from)\s+{_AMOUNT})?"
    r"|(?:a\s+)?few\s+[^\W\d]\w*"
)
_READ_WINDOW = re.compile(
    rf"(?:(?P<about>about|around|roughly)\s+)?(?P<full>{_AMOUNT})"
    rf"(?:\s+(?:fading\s+until|rising\s+from)\s+(?P<zero>{_AMOUNT}))?"
    r"|(?:a\s+)?(?P<few>few\s+[^\W\d]\w*)",
    re.IGNORECASE,
)
_OPENING = re.compile(
    r"\s*(?:(?:(?:tell|notify|alert|warn)\s+(?:me|us)\s+)?(?:when|whenever|if)\b)?\s*",
    re.IGNORECASE,
)
_STEP = re.compile(rf"\bwithin\s+({_WINDOW})\s+after\b", re.IGNORECASE)
_AFTER = re.compile(r"\bwithin\s+(?:\S+\s+){1,6}?after\b", re.IGNORECASE)
_CLOSE = re.compile(rf"\bwithin\s+({_WINDOW})\s*$", re.IGNORECASE)
_SILENCE = re.compile(rf"\bfor\s+({_WINDOW})\s*$", re.IGNORECASE)
_NO = re.compile(r"no\s+(?!(?:more|less)\b)", re.IGNORECASE)
_COUNT = re.compile(
    rf"(?:at\s+least\s+)?(?P<count>\d+|{'|'.join(_NUMBERS)})\s+(?:or\s+more\s+)?"
    r"(?:(?P<what>[^\W\d]\w*)\s+)?with\b",
    re.IGNORECASE,
)
_ANY_DEVICE = ("device", "devices")
_SPREAD = re.compile(  # what stands before "within" where it belongs to a constraint
    r"(?:\b(?:about|around|roughly)|[~≈])\s*[+-]?[\d.]+\s*\S*\s*$", re.IGNORECASE
)
_JOINT = re.compile(r"\b(and|between)\b|&&", re.IGNORECASE)

# Reads a part where it stands: the text up to its end, where its condition begins, and where what
# is counted is named before that ("patients with"), if it is.
ReadPart = Callable[[str, int, int], syntax.SubscriptionTree]


def read_condition(text: str, start: int, subject: int) -> syntax.SubscriptionTree:  # noqa: ARG001
    """Read a part by the grammar of the words, to which it is the same what is counted."""
    return parse_words(" " * start + text[start:])


def is_story(text: str) -> bool:
    """Return whether words tell a story; a cheap look, which never refuses."""
    start = _skip_opening(text)
    core = _hide(text)[start : _find_end(text)]
    if _NO.match(core):
        return _SILENCE.search(core) is not None
    if _AFTER.search(core):
        return True
    close = _CLOSE.search(core)
    if close is None or _SPREAD.search(core[: close.start()]):
        return False
    with suppress(LanguageError):
        _read_amount(close[1].rpartition("until")[2].strip(), "length", None)
        return False  # "free and within 2 km"
    return bool(_COUNT.match(core) or _find_joints(text, start, start + close.start()))


def parse_story(text: str, read: ReadPart = read_condition) -> StoryTree:
    """Return the story that words tell; LanguageError points at what is wrong."""
    lexicon.check_length(text, 8192)
    start, end = _skip_opening(text), _find_end(text)
    near, options = _read_tail(text, end)
    tree = _read_core(text, start, end, read)
    tree = replace(tree, near=near, span=SourceSpan(start, max(end, start + 1)))
    if near is not None and tree.kind == "absence":
        raise LanguageError.at_node("what is not there is not near anything", near)
    if options is None:
        return tree
    for name in syntax.SubscriptionTree.__dataclass_fields__:
        value = getattr(options, name)
        if name not in (*OPTIONS, "condition", "span") and value not in (None, (), False):
            raise LanguageError(
                f'"{name.replace("_", " ")}" is an option of one part: write it in parentheses'
                " with the part",
                end + 1,
            )
    return replace(tree, **{name: getattr(options, name) for name in OPTIONS})


def _read_core(text: str, start: int, end: int, read: ReadPart) -> StoryTree:
    hidden = _hide(text)[:end]
    core = hidden[start:]
    counted, silent = _COUNT.match(core), _NO.match(core)
    if silent is not None:
        found = _SILENCE.search(hidden, start)
        if found is None:
            raise LanguageError('"for" and a time are expected: no … for about 10 min', end + 1)
        part = _read_part(text, start + silent.end(), found.start(), read)
        return StoryTree("absence", (part,), (_read_place(text, found),))
    if counted is not None:
        found = _find_close(hidden, start, end)
        what = (counted["what"] or "").casefold()
        subject = start + counted.start("what") if what not in ("", *_ANY_DEVICE) else None
        part = _read_part(text, start + counted.end(), found.start(), read, subject)
        said = counted["count"].casefold()
        number = _NUMBERS.index(said) + 2 if said in _NUMBERS else int(said)
        place = SourceSpan(start + counted.start("count"), start + counted.end("count"))
        count = syntax.Scalar(number, span=place)
        return StoryTree("count", (part,), (_read_place(text, found),), count=count)
    steps = list(_STEP.finditer(hidden, start))
    loose = _AFTER.search(hidden, start)
    if loose is not None and not steps:
        raise LanguageError(
            'a time is expected between "within" and "after": within about 5 min after',
            loose.start() + 1,
            loose.end() - loose.start(),
        )
    if steps:
        starts = [start, *(step.end() for step in steps)]
        ends = [*(step.start() for step in steps), end]
        parts = [_read_part(text, *place, read) for place in zip(starts, ends, strict=True)]
        windows = [_read_place(text, step) for step in steps]
        return StoryTree("sequence", tuple(parts[::-1]), tuple(windows[::-1]))
    found = _find_close(hidden, start, end)
    joints = _find_joints(text, start, found.start())
    if not joints:
        raise LanguageError(
            'two or more parts are expected, joined by "and"', start + 1, found.start() - start
        )
    starts = [start, *(joint.end for joint in joints)]
    ends = [*(joint.start for joint in joints), found.start()]
    together = []
    for first, last in zip(starts, ends, strict=True):
        part = _read_part(text, first, last, read)
        if isinstance(part.condition, syntax.Or) and not _find_group(text, first, last):
            raise LanguageError.at_node("put alternatives in parentheses", part.condition)
        together.append(part)
    return StoryTree("together", tuple(together), (_read_place(text, found),))


def _find_close(hidden: str, start: int, end: int) -> re.Match[str]:
    found = _CLOSE.search(hidden, start)
    if found is None:
        raise LanguageError('"within" and a time are expected: within about 10 min', end + 1)
    return found


def _read_part(
    text: str, start: int, end: int, read: ReadPart, subject: int | None = None
) -> syntax.SubscriptionTree:
    """Read one condition where it stands; in parentheses it may have options."""
    if not text[start:end].strip():
        raise LanguageError("a condition is expected here", start + 1, max(1, end - start))
    group = _find_group(text, start, end)
    if group is not None:
        start, end = group.start, group.end
    start += len(text[start:end]) - len(text[start:end].lstrip())
    return read(text[:end], start, start if subject is None else subject)


def _find_group(text: str, start: int, end: int) -> SourceSpan | None:
    """Return what parentheses around a whole part enclose."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if text[start : start + 1] != "(" or text[end - 1] != ")":
        return None
    depths = [depth for _, depth in _walk(text)]
    if any(depth < depths[start] for depth in depths[start:end]):
        return None
    return SourceSpan(start + 1, end - 1)


def _walk(text: str) -> Iterator[tuple[str, int]]:
    """Yield each character and how deep in parentheses it is; in quotes one deeper."""
    depth, quoted, skip = 0, False, False
    for letter in text:
        opens = letter == "(" and not quoted
        depth += opens
        yield letter, depth + quoted
        depth -= letter == ")" and not quoted
        if letter == '"' and not skip:
            quoted = not quoted
        skip = letter == "\\" and quoted and not skip


def _hide(text: str) -> str:
    """Return the text with a line for all that stands in parentheses or quotes."""
    return "".join("_" if depth or letter == '"' else letter for letter, depth in _walk(text))


def _skip_opening(text: str) -> int:
    found = _OPENING.match(text)
    return found.end() if found else 0


def _find_end(text: str) -> int:
    """Return where the core ends: at the first comma outside parentheses, or at a full stop."""
    hidden = _hide(text)
    end = hidden.find(",")
    return len(text.rstrip().removesuffix(".")) if end < 0 else end


def _find_joints(text: str, start: int, end: int) -> list[SourceSpan]:
    """Return the places of "and" between parts; not those of "between 1 and 2"."""
    joints, is_range = [], False
    for found in _JOINT.finditer(_hide(text)[:end], start):
        if found[0].casefold() == "between":
            is_range = True
        elif is_range:
            is_range = False
        else:
            joints.append(SourceSpan(*found.span()))
    return joints


def _read_tail(text: str, end: int) -> tuple[TimeWindow | None, syntax.SubscriptionTree | None]:
    """Return the distance and the options that follow after commas."""
    hidden = _hide(text)
    near: TimeWindow | None = None
    if end >= len(text) or text[end] != ",":
        return None, None
    kept, place = list(text), end
    while 0 <= place < len(text):
        after = hidden.find(",", place + 1)
        stop = after if after >= 0 else len(text.rstrip().removesuffix("."))
        found = re.compile(rf"\s*within\s+({_WINDOW})\s*", re.IGNORECASE).fullmatch(
            hidden, place + 1, stop
        )
        if found is not None:
            if near is not None:
                raise LanguageError('"within" is given twice', found.start(1) + 1)
            near = read_window(found[1], found.start(1), "length")
            kept[place:stop] = " " * (stop - place)
        place = after
    rest = "".join(kept)[end:]
    if not rest.strip(" ."):
        return near, None
    dummy = "x=1"  # the grammar wants a condition before options
    return near, parse_words(" " * (end - len(dummy)) + dummy + rest)


def _read_place(text: str, found: re.Match[str]) -> TimeWindow:
    return read_window(text[found.start(1) : found.end(1)], found.start(1))


def read_window(text: str, start: int | None = 0, dimension: str = "time") -> TimeWindow:
    """Return the window that a text says; `start` is where it stands, None: nowhere."""
    text = text.rstrip()
    found = _READ_WINDOW.fullmatch(text.strip())
    span = None if start is None else SourceSpan(start, start + max(1, len(text)))
    if found is None:
        hint = "about 5 min" if dimension == "time" else "about 200 m"
        raise LanguageError.at_span(f'"{text.strip()}" is no {dimension}', span, f"as in {hint}")
    if found["few"] is not None:
        if dimension != "time":
            raise LanguageError.at_span("a distance is a number with a unit", span)
        return TimeWindow(" ".join(found["few"].casefold().split()), span=span)
    full = _read_amount(found["full"], dimension, span)
    zero = None if found["zero"] is None else _read_amount(found["zero"], dimension, span)
    if zero is not None and found["about"]:
        raise LanguageError.at_span('"about" or two numbers, not both', span)
    return TimeWindow(None, full, zero, bool(found["about"]), span=span)


def _read_amount(text: str, dimension: str, span: SourceSpan | None) -> syntax.Quantity:
    quantity = lexicon.read_quantity(text, span)
    try:
        unit = find_unit(quantity.unit or "")
    except UnitError as error:
        raise LanguageError.at_span(str(error), span) from None
    if unit.dimension != dimension:
        wanted = "a time" if dimension == "time" else "a distance"
        raise LanguageError.at_span(f"{wanted} is expected, not {text}", span)
    return quantity


# Printing --------------------------------------------------------------------------------------


def print_story(tree: StoryTree) -> str:
    """Return the story in words, on one line; `parse_story` reads the same tree back."""
    windows = [print_window(window, tree.kind == "absence") for window in tree.windows]
    if tree.kind == "absence":
        said = f"no {print_part(tree.parts[0])} for {windows[0]}"
    elif tree.kind == "count":
        count = lexicon.format_number(tree.count.value if tree.count else 0)
        said = f"{count} or more devices with {print_part(tree.parts[0])} within {windows[0]}"
    elif tree.kind == "together":
        said = f"{' and '.join(map(print_part, tree.parts))} within {windows[0]}"
    else:
        said = print_part(tree.parts[-1])
        for part, window in zip(tree.parts[-2::-1], windows[::-1], strict=True):
            said += f" within {window} after {print_part(part)}"
    if tree.near is not None:
        said += f", within {print_window(tree.near)}"
    options = syntax.SubscriptionTree(
        parse_words("x=1").condition, **{name: getattr(tree, name) for name in OPTIONS}
    )
    return said + print_words(options).partition("x = 1")[2]


def print_part(part: syntax.SubscriptionTree) -> str:
    """Return a part in words, in parentheses where they keep it together."""
    words = print_words(part)
    is_plain = part == syntax.SubscriptionTree(part.condition)
    is_joint = isinstance(part.condition, syntax.And | syntax.Or)
    return words if is_plain and not is_joint else f"({words})"


def print_window(window: TimeWindow, is_rising: bool = False) -> str:
    """Return a window as `read_window` reads it."""
    if window.phrase is not None:
        return f"a {window.phrase}"
    assert window.full is not None
    said = f"about {_print_amount(window.full)}" if window.is_about else _print_amount(window.full)
    if window.zero is None:
        return said
    return f"{said} {'rising from' if is_rising else 'fading until'} {_print_amount(window.zero)}"


def _print_amount(quantity: syntax.Quantity) -> str:
    return f"{lexicon.format_number(quantity.value)} {quantity.unit or 's'}"
