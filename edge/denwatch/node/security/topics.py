"""Which topics belong to whom. Pure; the only file that writes the ownership down.

A client subscribes by filter, and a filter with wildcards reaches many topics: it is allowed only
if every topic that it can match is allowed. `covers` decides that by the levels alone.
"""

from __future__ import annotations

from typing import NamedTuple

ROOT = "dens/1/"


class Grant(NamedTuple):
    """What one client may do: topics to publish to, filters to subscribe within."""

    publish: frozenset[str]
    subscribe: tuple[str, ...]


NOTHING = Grant(frozenset(), ())
_EVERYBODY = (f"{ROOT}status/+", f"{ROOT}plan/+", "$SYS/#")
OPERATOR = "operator"  # the role of whoever may hand items and plans to nodes


def grant_subscriber(name: str) -> Grant:
    """Return what an app may do."""
    return Grant(
        frozenset([f"{ROOT}sub/{name}"]),
        (f"{ROOT}reply/{name}", f"{ROOT}note/{name}", *_EVERYBODY),
    )


def grant_home(prefix: str) -> Grant:
    """Return what Home Assistant may do besides: hear of devices, and say that it is there."""
    return Grant(frozenset([f"{prefix}/status"]), (f"{prefix}/#", f"{ROOT}home/#"))


def grant_operator(listener: str) -> Grant:
    """Return what an operator may do at a node besides what every app may."""
    return Grant(frozenset([f"{ROOT}operator/{listener}"]), ())


def grant_device(name: str) -> Grant:
    """Return what a watchdog may do."""
    own = f"{ROOT}wd/{name}/"
    return Grant(frozenset([f"{own}hello", f"{own}nv"]), (f"{own}sv", f"{own}ack"))


def grant_node(name: str, listener: str) -> Grant:
    """Return what a node may do at another one's server."""
    return Grant(frozenset([f"{ROOT}peer/{listener}"]), (f"{ROOT}peer/{name}", *_EVERYBODY))


def grant_anonymous() -> Grant:
    """Return what a client without a name may do, besides free names."""
    return Grant(frozenset(), _EVERYBODY)


def covers(wide: str, narrow: str) -> bool:
    """Return whether every topic that `narrow` matches is matched by `wide`.

    Of topics that start with "$" (MQTT 3.1.1, section 4.7.2) a leading wildcard matches none, so
    "#" does not cover "$SYS/#".
    """
    if narrow.startswith("$") and wide[:1] in ("+", "#"):
        return False
    # A topic has a level at least: alone, "#" is "+/#".
    wanted = ["+", "#"] if narrow == "#" else narrow.split("/")
    given = wide.split("/")
    for i, level in enumerate(given):
        if level == "#":
            return True
        if i >= len(wanted) or wanted[i] == "#":
            return False
        if level != wanted[i] and level != "+":
            return False
    # "a/#" also matches "a" itself, but no filter shorter than it is wider.
    return len(wanted) == len(given)


def overlaps(one: str, other: str) -> bool:
    """Return whether some topic is matched by both filters."""
    return _overlap(one.split("/"), other.split("/"), is_first=True)


def _overlap(one: list[str], other: list[str], is_first: bool) -> bool:
    if one[:1] == ["#"] or other[:1] == ["#"]:
        rest = other if one[:1] == ["#"] else one
        return not (is_first and rest[0].startswith("$"))
    if not one or not other:
        # "a/#" matches "a", too.
        return one in ([], ["#"]) and other in ([], ["#"])
    if one[0] == other[0] or "+" in (one[0], other[0]):
        if is_first and one[0] != other[0] and (one[0] + other[0]).replace("+", "", 1)[:1] == "$":
            return False
        return _overlap(one[1:], other[1:], is_first=False)
    return False
