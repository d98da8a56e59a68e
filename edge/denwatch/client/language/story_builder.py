"""Stories in Python: `in_sequence(gas, smoke, within=about(5, "min")).near(about(200, "m"))`.

Conditions are those of `builder`; whole subscriptions (`when(...)`) may stand where a part needs
options of its own. `build()` returns the tree that `denwatch.client.compiler.stories` compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from denwatch.client import syntax
from denwatch.client.errors import LanguageError
from denwatch.client.language.builder import (
    ConditionBuilder,
    SubscriptionBuilder,
    quantity,
    when,
)
from denwatch.client.language.stories import StoryTree, TimeWindow

Part = ConditionBuilder | SubscriptionBuilder


def up_to(
    value: float, unit: str, fading: float | None = None, fading_unit: str | None = None
) -> TimeWindow:
    """Return a window with a sharp end, or one that fades until a second value."""
    zero = None if fading is None else quantity(fading, fading_unit or unit)
    return TimeWindow(None, quantity(value, unit), zero)


def about(value: float, unit: str) -> TimeWindow:
    """Return a window with a soft end."""
    return TimeWindow(None, quantity(value, unit), is_about=True)


def few(unit: str) -> TimeWindow:
    """Return a window by a phrase of the vocabulary: `few("minutes")`."""
    return TimeWindow(f"few {unit}")


@dataclass(frozen=True)
class StoryBuilder:
    """A story, which takes a distance and the options of what is delivered."""

    tree: StoryTree

    def build(self) -> StoryTree:
        """Return the syntax tree."""
        return self.tree

    def near(self, window: TimeWindow) -> StoryBuilder:
        """Ask that the readings are near each other."""
        if self.tree.kind == "absence":
            raise LanguageError("what is not there is not near anything")
        return self._with(near=window)

    def at_least(self, degree: float) -> StoryBuilder:
        """Ask for a degree of the whole story."""
        return self._with(possible=syntax.Scalar(degree))

    def named(self, name: str) -> StoryBuilder:
        """Give the story a name."""
        return self._with(name=syntax.Name(name))

    def top(self, count: float) -> StoryBuilder:
        """Ask for the best ones only."""
        return self._with(top=syntax.Scalar(count))

    def score(self, score: float) -> StoryBuilder:
        """Say how much it counts beside others."""
        return self._with(score=syntax.Scalar(score))

    def valid_for(self, value: float, unit: str | None = None) -> StoryBuilder:
        """Say how long the story is asked for."""
        return self._with(valid_for=quantity(value, unit))

    def _with(self, **changes: Any) -> StoryBuilder:
        return StoryBuilder(replace(self.tree, **changes))


def in_sequence(*parts: Part, within: TimeWindow | Sequence[TimeWindow]) -> StoryBuilder:
    """Return the story of parts that follow each other, the earliest first."""
    windows = (within,) * (len(parts) - 1) if isinstance(within, TimeWindow) else tuple(within)
    if len(parts) < 2 or len(windows) != len(parts) - 1:
        raise LanguageError("a sequence has two parts or more, and a time between each two")
    return StoryBuilder(StoryTree("sequence", tuple(map(_take, parts)), windows))


def together(*parts: Part, within: TimeWindow) -> StoryBuilder:
    """Return the story of parts that happen in one window, in any order."""
    if len(parts) < 2:
        raise LanguageError("two parts or more are together")
    return StoryBuilder(StoryTree("together", tuple(map(_take, parts)), (within,)))


def absent(part: Part, lasting: TimeWindow) -> StoryBuilder:
    """Return the story that nothing fits a part for some time."""
    return StoryBuilder(StoryTree("absence", (_take(part),), (lasting,)))


def counted(count: int, part: Part, within: TimeWindow) -> StoryBuilder:
    """Return the story that so many devices have a reading that fits a part."""
    number = syntax.Scalar(count)
    return StoryBuilder(StoryTree("count", (_take(part),), (within,), count=number))


def _take(part: Part) -> syntax.SubscriptionTree:
    return (when(part) if isinstance(part, ConditionBuilder) else part).build()
