"""A language is found by its id, and its matcher is new and works."""

from __future__ import annotations

import pytest
from denwatch.node.matching.plugins import (
    BUILT_IN,
    CONTENT,
    FUZZY,
    MatcherPlugin,
    MatcherPlugins,
    SubscriptionMatch,
)
from denwatch.node.ranking.content import ContentFilter
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector


def test_both_languages_behind_one_interface() -> None:
    plugins = MatcherPlugins()
    assert [plugins.find(language).name for language in (FUZZY, CONTENT)] == ["fuzzy", "content"]
    fuzzy, content = plugins.make_matcher(FUZZY), plugins.make_matcher(CONTENT)
    fuzzy.add(4, SubscriptionVector(2, [Predicate(3, 100, 200)]))
    content.add(4, ContentFilter.of(("length", ">", 120)))
    assert fuzzy.match(NotificationVector(2, [Reading(3, (150,) * 4)])) == [
        SubscriptionMatch(4, 255, 255, 3)
    ]
    assert content.match({"length": 121}) == [SubscriptionMatch(4, 255, 255, -1)]
    for matcher in (fuzzy, content):
        matcher.remove(4)
        assert len(matcher) == 0
        with pytest.raises(KeyError):
            matcher.remove(4)
    assert plugins.make_matcher(FUZZY) is not fuzzy


def test_a_site_adds_its_own_language() -> None:
    plugins = MatcherPlugins()
    own = MatcherPlugin(7, "own", BUILT_IN[1].make_matcher)
    plugins.register(own)
    assert plugins.find(7) is own
    for wrong in (
        own,
        MatcherPlugin(8, "own", own.make_matcher),
        MatcherPlugin(7, "new", own.make_matcher),
    ):
        with pytest.raises(ValueError, match="already registered"):
            plugins.register(wrong)
    with pytest.raises(ValueError, match=r"256 is not in 0\.\.255"):
        plugins.register(MatcherPlugin(256, "far", own.make_matcher))
    with pytest.raises(KeyError, match="language id 9"):
        plugins.make_matcher(9)
