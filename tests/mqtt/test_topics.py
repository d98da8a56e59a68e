"""Filters and topics against a matcher in a few plain lines."""

from __future__ import annotations

import pytest
from denwatch.node.mqtt.topics import (
    FilterIndex,
    TopicTree,
    find_filter_fault,
    is_directed,
    is_listened,
)
from hypothesis import given
from hypothesis import strategies as st

LEVELS = st.sampled_from(["a", "dens", "", "$s"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.sampled_from(["a", "dens", "", "+", "$s"]), min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
).filter(bool) | st.just("#")


def match(name: str, topic: str) -> bool:
    """The standard's section 4.7, word by word; what it says of `$` holds for `dens`, too."""
    if (topic[0] == "$" or topic.split("/")[0] == "dens") and name[0] in "+#":
        return False
    want, have = name.split("/"), topic.split("/")
    if want[-1] == "#":
        want = want[:-1]
        have = have[: len(want)] if len(have) >= len(want) else have
    return len(want) == len(have) and all(w in ("+", h) for w, h in zip(want, have, strict=True))


@pytest.mark.parametrize(
    ("name", "topic", "is_match"),
    [
        ("sport/#", "sport", True),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("#", "dens/1/note/medic7", False),
        ("+/1/note/medic7", "dens/1/note/medic7", False),
        ("dens/#", "dens/1/note/medic7", True),
        ("+/x", "density/x", True),
        ("$SYS/+", "$SYS/x", True),
        ("a/+/c/#", "a/b/c/d/e", True),
        ("a", "A", False),
    ],
)
def test_examples_of_the_standard(name: str, topic: str, is_match: bool) -> None:
    assert match(name, topic) is is_match, "the oracle"
    index: FilterIndex[str] = FilterIndex()
    index.add(name, "s", 1)
    assert ("s" in index.find_all(topic)) is is_match
    tree: TopicTree[str] = TopicTree()
    tree.put(topic, "v")
    assert (list(tree.find_all(name)) == ["v"]) is is_match


@given(
    st.lists(st.tuples(st.booleans(), FILTERS, st.integers(0, 3), st.integers(0, 2)), max_size=30),
    st.lists(TOPICS, min_size=1, max_size=8),
)
def test_the_index_finds_who_matches_with_the_best_qos(
    changes: list[tuple[bool, str, int, int]], topics: list[str]
) -> None:
    index: FilterIndex[int] = FilterIndex()
    model: dict[tuple[str, int], int] = {}
    for is_added, name, key, qos in changes:
        if is_added:
            index.add(name, key, qos)
            model[name, key] = qos
        else:
            index.remove(name, key)
            model.pop((name, key), None)
    for topic in topics:
        expected: dict[int, int] = {}
        for (name, key), qos in model.items():
            if match(name, topic):
                expected[key] = max(qos, expected.get(key, 0))
        assert index.find_all(topic) == expected
        exact = {key: qos for (name, key), qos in model.items() if name == topic}
        assert (index.get_exact(topic) or {}) == exact
    for name, key in model:
        index.remove(name, key)
    assert not index._exact
    assert not index._root.branches, "what is removed leaves nothing behind"
    assert index._wild == 0


@given(
    st.lists(st.tuples(st.booleans(), TOPICS), max_size=30),
    st.lists(FILTERS, min_size=1, max_size=6),
)
def test_the_tree_finds_the_topics_below_a_filter(
    changes: list[tuple[bool, str]], filters: list[str]
) -> None:
    tree: TopicTree[str] = TopicTree()
    model: dict[str, str] = {}
    for is_put, topic in changes:
        if is_put:
            assert tree.put(topic, topic) == model.get(topic)
            model[topic] = topic
        else:
            assert tree.remove(topic) == model.pop(topic, None)
    for name in filters:
        assert sorted(tree.find_all(name)) == sorted(t for t in model if match(name, t))
    for topic in model:
        assert tree.get(topic) == topic
        tree.remove(topic)
    assert not tree._root.stems


@given(st.text("a/+#", min_size=1, max_size=6))
def test_faults_of_filters(name: str) -> None:
    levels = name.split("/")
    is_good = all(level in ("+", "#") or not set(level) & set("+#") for level in levels)
    assert (find_filter_fault(name) == "") is (is_good and "#" not in levels[:-1])


def test_the_topics_of_the_protocol_are_directed_and_some_are_listened_to() -> None:
    listened = ["note/medic7", "reply/medic7", "peer/node-b", "wd/dog-1/sv"]
    others = ["wd/dog-1/ack", "sub/medic7", "wd/dog-1/nv", "wd/dog-1/hello"]
    assert all(is_directed("dens/1/" + topic) for topic in listened + others)
    assert not is_directed("dens/1/status/node-a")
    assert not is_directed("note/medic7")
    assert all(is_listened("dens/1/" + topic) for topic in listened)
    assert not any(is_listened("dens/1/" + topic) for topic in others)
    assert not is_listened("dens/1/note/+")
    assert not is_listened("dens/1/note/#")
