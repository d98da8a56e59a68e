"""Stories as bytes: parts that sensors filter, and how they must follow each other.

THEORY. A *story* is a subscription over several readings. Its *parts* are ordinary fuzzy vectors,
so that sensors and covering treat them like any other. The rest is small:

  sequence   the parts in the order of time, each within its window after the one before it
  together   all parts within one window; the reading that comes last closes it
  absence    no reading fits the one part for as long as the window says
  count      so many devices with a reading that fits the one part, within one window

A *window* is (full, zero) in ms: the degree of a gap is 255 up to `full` and falls to 0 at `zero`
(an absence rises from `zero` to `full`). `near` is the same in metres, for the distance between the
places (`east`, `north`) of two readings. The degree of a story is the lowest of its parts', of
their gaps' and of their distances'; it is told if that reaches `threshold`.

The bytes are deterministic CBOR, [kind, parts, windows, near, count, threshold]; only this file
knows them, and refuses everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from denwatch.client import syntax
from denwatch.client.compiler.compiler import compile_subscription
from denwatch.client.compiler.constraint_writer import write_threshold
from denwatch.client.compiler.decompiler import decompile
from denwatch.client.compiler.settings import encode_threshold, read_count
from denwatch.client.errors import LanguageError
from denwatch.client.language.stories import ABOUT, StoryTree, TimeWindow
from denwatch.client.vocabulary import EventType, Vocabulary
from denwatch.client.vocabulary.values import UnitError, convert
from denwatch.protocol import cbor
from denwatch.protocol import subscription as codec
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import SubscriptionVector

SEQUENCE, TOGETHER, ABSENCE, COUNT = range(4)
KINDS = ("sequence", "together", "absence", "count")
MAX_PARTS = 4
MAX_COUNT = 100
MAX_WINDOW = 7 * 86_400_000  # ms
MAX_DISTANCE = 100_000_000  # mm
DEFAULT_THRESHOLD = 128
PLACE = ("east", "north")  # the attributes that say where a reading was made, in m
_MAX_PART = 4096  # bytes


@dataclass(frozen=True)
class Story:
    """A story as nodes judge it. Parts of a sequence are in the order of time."""

    kind: int
    parts: tuple[bytes, ...]
    windows: tuple[tuple[int, int], ...]  # full, zero, in ms; of a sequence one for each step
    near: tuple[int, int] | None = None  # full, zero, in mm
    count: int = 0
    threshold: int = DEFAULT_THRESHOLD

    @property
    def vectors(self) -> list[SubscriptionVector]:
        """The parts, decoded."""
        return [codec.decode(part) for part in self.parts]

    def encode(self) -> bytes:
        """Return the bytes that an item carries."""
        near = None if self.near is None else list(self.near)
        windows = [list(window) for window in self.windows]
        data: bytes = cbor.encode(
            [self.kind, list(self.parts), windows, near, self.count, self.threshold]
        )
        return data


@lru_cache(maxsize=4096)
def decode_story(data: bytes) -> Story:
    """Return the story of an item's bytes; ProtocolError says what is wrong with them."""
    fields: Any = cbor.decode(data)
    if type(fields) is not list or len(fields) != 6:
        raise ProtocolError("a story has six fields")
    kind, parts, windows, near, count, threshold = fields
    if type(kind) is not int or not 0 <= kind < len(KINDS):
        raise ProtocolError("a story has no such kind")
    least, most = (2, MAX_PARTS) if kind in (SEQUENCE, TOGETHER) else (1, 1)
    if type(parts) is not list or not least <= len(parts) <= most:
        raise ProtocolError(f"a story of the kind {KINDS[kind]} has {least} to {most} parts")
    for part in parts:
        if type(part) is not bytes or len(part) > _MAX_PART:
            raise ProtocolError("a part of a story is a vector")
        codec.decode(part)
    steps = len(parts) - 1 if kind == SEQUENCE else 1
    if type(windows) is not list or len(windows) != steps:
        raise ProtocolError(f"a story of the kind {KINDS[kind]} has {steps} windows here")
    for window in windows:
        _check_pair(window, MAX_WINDOW, kind == ABSENCE)
    if near is not None:
        _check_pair(near, MAX_DISTANCE, False)
        if kind == ABSENCE:
            raise ProtocolError("an absence is near nothing")
    if type(count) is not int or not (2 <= count <= MAX_COUNT if kind == COUNT else count == 0):
        raise ProtocolError("the count of a story is wrong")
    if type(threshold) is not int or not 1 <= threshold <= 255:
        raise ProtocolError("the threshold of a story is 1 to 255")
    return Story(
        kind,
        (*parts,),
        tuple((full, zero) for full, zero in windows),
        None if near is None else (near[0], near[1]),
        count,
        threshold,
    )


def _check_pair(pair: Any, most: int, is_rising: bool) -> None:
    is_right = type(pair) is list and len(pair) == 2 and all(type(x) is int for x in pair)
    low, high = (pair[1], pair[0]) if is_right and is_rising else pair if is_right else (1, 0)
    if not (0 <= low <= high <= most and high > 0):
        raise ProtocolError(f"full and zero of a story are 0 to {most}, in their order")


# Compiling -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompiledStory:
    """A story with what its parts ask for: events and the attributes of each."""

    story: Story
    asks: tuple[tuple[EventType, tuple[str, ...]], ...]
    notes: tuple[str, ...]


def compile_story(
    tree: StoryTree, vocabulary: Vocabulary, *, compact: bool = True
) -> CompiledStory:
    """Return the story of a tree; LanguageError says what is wrong and where."""
    kind = KINDS.index(tree.kind)
    parts: list[bytes] = []
    asks: list[tuple[EventType, tuple[str, ...]]] = []
    notes: list[str] = []
    for part in tree.parts:
        _check_options(part)
        compiled = compile_subscription(part, vocabulary, compact=compact)
        event, features = compiled.event, compiled.vector.features
        names = tuple(a.name for a in event.attributes.values() if features >> a.bit & 1)
        if tree.near is not None:
            _check_place(event, part)
            names += tuple(name for name in PLACE if name not in names)
        parts.append(compiled.data)
        asks.append((event, names))
        notes += [str(approximation) for approximation in compiled.report]
    windows = tuple(_find_window(window, vocabulary, kind == ABSENCE) for window in tree.windows)
    near = None if tree.near is None else _find_near(tree.near)
    if near is not None:
        notes.append("a reading without its place, east and north, is near nothing")
    count = 0 if tree.count is None else read_count(tree.count, "how many", MAX_COUNT)
    if kind == COUNT and count < 2:
        raise LanguageError.at_node(
            "two or more are counted; for one, a subscription does", tree.count
        )
    threshold = encode_threshold(tree.possible, "the threshold") if tree.possible else 0
    story = Story(kind, (*parts,), windows, near, count, threshold or DEFAULT_THRESHOLD)
    return CompiledStory(decode_story(story.encode()), (*asks,), (*notes,))


def _check_options(part: syntax.SubscriptionTree) -> None:
    for name in ("name", "score", "top", "prefer", "valid_for", "expiry"):
        if getattr(part, name) not in (None, ()):
            raise LanguageError.at_node(
                f'"{name.replace("_", " ")}" is an option of the whole story', part
            )


def _check_place(event: EventType, part: syntax.SubscriptionTree) -> None:
    for name in PLACE:
        attribute = event.attributes.get(name)
        if attribute is None or attribute.unit != "m":
            raise LanguageError.at_node(
                f"readings of {event.name} do not say where they were made", part
            )


def _find_window(window: TimeWindow, vocabulary: Vocabulary, is_rising: bool) -> tuple[int, int]:
    """Return full and zero in ms."""
    if window.phrase is not None:
        seconds = vocabulary.phrases.get(window.phrase)
        if seconds is None:
            raise LanguageError.of_unknown(
                "unknown phrase of time", window.phrase, vocabulary.phrases, window
            )
        full, zero = (round(1000 * second) for second in seconds)
        pair = (zero, full) if is_rising else (full, zero)
    else:
        assert window.full is not None
        full = _scale(window.full, "s", 1000)
        if window.zero is not None:
            zero = _scale(window.zero, "s", 1000)
        else:
            zero = round(full * _find_share(is_rising)) if window.is_about else full
        pair = full, zero
    low, high = (pair[1], pair[0]) if is_rising else pair
    if not (low <= high <= MAX_WINDOW and high > 0):
        raise LanguageError.at_node("a time above 0 and up to 7 days, in its order", window)
    return pair


def _find_share(is_rising: bool) -> float:
    return 1 - ABOUT if is_rising else 1 + ABOUT


def _find_near(window: TimeWindow) -> tuple[int, int]:
    assert window.full is not None
    full = _scale(window.full, "m", 1000)
    zero = full
    if window.zero is not None:
        zero = _scale(window.zero, "m", 1000)
    elif window.is_about:
        zero = round(full * (1 + ABOUT))
    if not (full <= zero <= MAX_DISTANCE and zero > 0):
        raise LanguageError.at_node("a distance above 0 and up to 100 km, in its order", window)
    return full, zero


def _scale(quantity: syntax.Quantity, unit: str, factor: int) -> int:
    """Return a quantity in thousandths of a unit."""
    try:
        value = convert(quantity.value, quantity.unit or unit, unit)
    except UnitError as error:
        raise LanguageError.at_node(str(error), quantity) from None
    return round(factor * value)


# Decompiling -----------------------------------------------------------------------------------


def decompile_story(data: bytes | Story, vocabulary: Vocabulary) -> StoryTree:
    """Return a tree that compiles to the same bytes; ProtocolError if they are no story."""
    story = data if isinstance(data, Story) else decode_story(data)
    is_rising = story.kind == ABSENCE
    is_usual = story.threshold == DEFAULT_THRESHOLD
    return StoryTree(
        KINDS[story.kind],
        tuple(decompile(part, vocabulary) for part in story.parts),
        tuple(_write_window(window, is_rising, _write_time) for window in story.windows),
        None if story.near is None else _write_window(story.near, False, _write_length),
        syntax.Scalar(story.count) if story.count else None,
        possible=None if is_usual else write_threshold(story.threshold),
    )


def _write_window(pair: tuple[int, int], is_rising: bool, write: Any) -> TimeWindow:
    full, zero = pair
    if full == zero:
        return TimeWindow(None, write(full))
    if zero == round(full * _find_share(is_rising)):
        return TimeWindow(None, write(full), is_about=True)
    return TimeWindow(None, write(full), write(zero))


def _write_time(ms: int) -> syntax.Quantity:
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms % size == 0 and ms:
            return syntax.Quantity(ms // size, unit)
    return syntax.Quantity(ms / 1000, "s")


def _write_length(mm: int) -> syntax.Quantity:
    return syntax.Quantity(mm / 1000, "m")
