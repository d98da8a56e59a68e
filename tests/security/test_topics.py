"""Nobody reaches somebody else's topic: filters against a plain matcher, by brute force."""

from __future__ import annotations

from itertools import product

from denwatch.node.security.access import Access, covers, overlaps
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.site import add_device, add_subscriber
from hypothesis import given
from hypothesis import strategies as st

from tests.security.oracle import matches
from tests.security.sites import make_registries

_LEVELS = ("a", "dens", "$s", "+")
_TOPICS = [
    "/".join(levels)
    for depth in range(1, 5)
    for levels in product(("a", "dens", "c", "$s"), repeat=depth)
]


def _list_filters(depth: int) -> list[str]:
    found = []
    for length in range(1, depth + 1):
        for levels in product(_LEVELS, repeat=length):
            found.append("/".join(levels))
            found.append("/".join([*levels[:-1], "#"]))
    return sorted(set(found))


def test_covering_and_overlap_are_what_matching_says() -> None:
    filters = _list_filters(3)
    matched = {
        one: frozenset(i for i, topic in enumerate(_TOPICS) if matches(one, topic))
        for one in filters
    }
    for wide in filters:
        for narrow in filters:
            assert covers(wide, narrow) == (matched[narrow] <= matched[wide]), (wide, narrow)
            assert overlaps(wide, narrow) == bool(matched[narrow] & matched[wide]), (wide, narrow)


NAMES = ("ann", "bob", "dog", "cat", "node-b", "node-c")
_PLACES = (
    ("dens", "+", "#", "x"),
    ("1", "+", "#", "2"),
    ("sub", "report", "reply", "note", "wd", "peer", "status", "+", "#"),
    (*NAMES, "node-a", "+", "#"),
    ("hello", "nv", "sv", "ack", "+", "#", ""),
)


def make_access(anonymous_role: str | None = None) -> Access:
    """Return the rules of node-a with two subscribers, two devices and two other nodes."""
    registry = make_registries("node-a", "node-b", "node-c")[0]
    for name in ("dog", "cat"):
        registry = add_device(registry, name)
    for name in ("ann", "bob"):
        registry, _ = add_subscriber(registry, name, "medic")
    return Access(Keyring(registry), b"k" * 32, anonymous_role)


def _list_dens_filters() -> set[str]:
    """Return every filter whose levels are plausible at their places, up to five levels."""
    found = set()
    for levels in product(*_PLACES):
        for length in range(1, 6):
            part = list(levels[:length])
            if "#" in part:
                part = part[: part.index("#") + 1]
            found.add("/".join(part).rstrip("/"))
    return found


def own_topics(user: str) -> tuple[set[str], set[str]]:
    """Return what a user may publish and hear, as the table of topics says."""
    status = {f"dens/1/status/{name}" for name in (*NAMES, "node-a")}
    if user in ("ann", "bob"):
        return (
            {f"dens/1/sub/{user}", f"dens/1/report/{user}"},
            {f"dens/1/reply/{user}", f"dens/1/note/{user}"} | status,
        )
    if user in ("dog", "cat"):
        return (
            {f"dens/1/wd/{user}/hello", f"dens/1/wd/{user}/nv"},
            {f"dens/1/wd/{user}/sv", f"dens/1/wd/{user}/ack"},
        )
    return {"dens/1/peer/node-a"}, {f"dens/1/peer/{user}"} | status


def find_trespasses(access: Access, enough: int = 10) -> list[tuple[str, str, str]]:
    """Return allowed filters, each with a topic that it reaches and its user does not own."""
    filters = _list_dens_filters()
    topics = [one for one in filters if "+" not in one and "#" not in one]
    topics += ["dens/1/note/unknown", "other/topic", "dens/2/note/ann"]
    found = []
    for user in NAMES:
        own = own_topics(user)[1]
        for one in filters:
            if not access.may_subscribe(user, one):
                continue
            for topic in topics:
                is_status = topic.startswith("dens/1/status/") and topic.count("/") == 3
                if (
                    matches(one, topic)
                    and topic not in own
                    and not (is_status and own_status(user))
                ):
                    found.append((user, one, topic))
            if len(found) >= enough:
                return found
    return found


def own_status(user: str) -> bool:
    """Return whether a user may read the status of nodes."""
    return user not in ("dog", "cat")


def test_no_filter_reaches_beyond_its_owner() -> None:
    assert find_trespasses(make_access()) == []


def test_everybody_publishes_to_their_own_topics_and_no_others() -> None:
    access = make_access()
    topics = [one for one in _list_dens_filters() if "+" not in one and "#" not in one]
    for user in NAMES:
        allowed = {topic for topic in topics if access.may_publish(user, topic)}
        assert allowed == own_topics(user)[0], user


def test_everybody_hears_their_own_topics() -> None:
    access = make_access()
    for user in NAMES:
        for topic in own_topics(user)[1]:
            assert access.may_subscribe(user, topic), (user, topic)
    assert access.may_subscribe("ann", "dens/1/status/+")
    assert not access.may_subscribe("ann", "dens/1/status/#")
    assert not access.may_subscribe("ann", "dens/1/note/+")


@given(
    st.lists(
        st.sampled_from(["ann", "bob", "dens", "1", "note", "sub", "+", "#", "", "$SYS", "x"]),
        min_size=1,
        max_size=6,
    )
)
def test_strangers_get_nothing(levels: list[str]) -> None:
    access = _ACCESS
    name = "/".join(levels)
    for user in ("stranger", ""):
        assert not access.may_publish(user, name)
        assert not access.may_subscribe(user, name)


_ACCESS = make_access()


def test_anonymous_clients_get_free_names_only() -> None:
    access = make_access("observer")
    assert access.may_publish("", "dens/1/sub/guest")
    assert access.may_subscribe("", "dens/1/note/guest")
    assert access.may_subscribe("", "dens/1/status/+")
    for topic in ("dens/1/sub/ann", "dens/1/sub/dog", "dens/1/sub/node-b", "dens/1/peer/node-a"):
        assert not access.may_publish("", topic)
    for name in ("dens/1/note/ann", "dens/1/note/+", "dens/1/note/#", "dens/1/note/", "#"):
        assert not access.may_subscribe("", name)
    assert access.role_of("guest") == "observer"
    assert access.role_of("ann") == "medic"
    assert access.role_of("dog") is None
