"""Stories as a subscription language: what a request tells, and the parts that devices get.

The three parts of a language (`languages.py`): *look-up* compiles words, JSON or XML; *filter*
gives devices the vector of every part (`list_parts`); *match* is the index of parts, and
`node/core/stories.py` joins what it finds.
"""

from __future__ import annotations

from typing import Any

from denwatch.client import syntax
from denwatch.client.compiler.settings import read_options
from denwatch.client.compiler.stories import Story, decode_story, decompile_story
from denwatch.client.language.stories import OPTIONS, StoryTree, print_story
from denwatch.client.language.story_surfaces import tells_story
from denwatch.client.language.understanding import understand_story
from denwatch.client.vocabulary import Vocabulary
from denwatch.client.vocabulary.values import read_duration
from denwatch.node.core.languages import STORY, LookedUp, SubscriptionLanguage
from denwatch.node.matching.joins import StoryParts
from denwatch.node.matching.plugins import Matcher


class StoryLanguage(SubscriptionLanguage):
    """Subscriptions over several readings."""

    id, name, key = STORY, "story", "story"

    def recognises(self, text: str) -> bool:
        """Return whether words or XML tell a story."""
        return tells_story(text)

    def look_up(self, source: Any, vocabulary: Vocabulary) -> LookedUp:
        """Compile a story."""
        found = understand_story(source, vocabulary)
        tree, compiled = found.tree, found.compiled
        data = compiled.story.encode()
        (event, names), *others = compiled.asks
        life = 0.0 if tree.valid_for is None else read_duration(tree.valid_for)
        return LookedUp(
            event,
            names,
            data,
            print_story(decompile_story(data, vocabulary)),
            _list_options(tree),
            life,
            compiled.notes,
            tuple((other.name, asked) for other, asked in others),
            taken=found.notes,
            source=found.words if found.notes else "",
        )

    def lower(self, data: bytes, vocabulary: Vocabulary) -> bytes | None:  # noqa: ARG002
        """Return the first part, by which the devices that can answer are named."""
        return self.decode(data).parts[0]

    def list_parts(self, data: bytes) -> tuple[bytes, ...]:
        """Return the vectors of all parts."""
        return self.decode(data).parts

    def make_matcher(self) -> Matcher[Any, Any]:
        """Return the index of parts."""
        return StoryParts()

    def decode(self, data: bytes) -> Story:
        """Return the story of a subscription's bytes."""
        return decode_story(data)

    def list_attributes(self, data: bytes) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: what a story shows is judged part by part."""
        return ()


def _list_options(tree: StoryTree) -> dict[str, Any]:
    fields = {name: getattr(tree, name) for name in OPTIONS if name != "possible"}
    return read_options(syntax.SubscriptionTree(tree.parts[0].condition, **fields)).to_dict()


STORY_LANGUAGE = StoryLanguage()
