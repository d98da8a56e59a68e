"""Notifications as people read them: ranked, values with units, ages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from denwatch.client.errors import LanguageError
from denwatch.client.language import parse
from denwatch.client.subscriber.messages import ReceivedNotification
from denwatch.client.syntax import iterate_predicates

_STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


class NotificationRow(NamedTuple):
    """One notification, as texts."""

    certainty: str  # "certain" or "possible"
    degree: str
    event: str
    values: str
    why: str
    age: str
    left: str
    subscription: str
    limit: str  # the attribute that limits the degree


class RankedNotifications:
    """The unexpired notifications, best first; bounded. One thread adds, others may read."""

    def __init__(self, limit: int = 1_000) -> None:
        self._notifications: dict[str, ReceivedNotification] = {}
        self._limit = limit

    def add(self, notifications: Iterable[ReceivedNotification], now: int) -> None:
        """Add notifications; beyond the limit the lowest-ranked are dropped."""
        for notification in notifications:
            self._notifications[notification.key] = notification
        if len(self._notifications) > self._limit:
            self._notifications = {best.key: best for best in self.rank(now)[: self._limit]}

    def rank(self, now: int) -> list[ReceivedNotification]:
        """Return what has not expired: by score, then degree, then certainty, then freshness."""
        known = list(self._notifications.values())
        return sorted((n for n in known if not n.is_expired(now)), key=_weigh)


def _weigh(n: ReceivedNotification) -> tuple[float, float, float, int, str]:
    return -n.score, -n.degree, -n.certain, -(n.at or 0), n.key


def describe_notification(
    notification: ReceivedNotification, now: int, asked: Sequence[str] = ()
) -> NotificationRow:
    """Return a notification as texts; the values of the attributes that were asked for go first."""
    device = notification.fields.get("device")
    limit = str(notification.why.get("attribute", "")) if _is_mapping(notification.why) else ""
    values = order_values(notification.values, (*asked, limit))
    return NotificationRow(
        "certain" if notification.is_certain else "possible",
        describe_degree(notification),
        f"{notification.event} {device}" if device else notification.event,
        ", ".join(f"{name} {describe_value(value)}" for name, value in values.items()),
        describe_why(notification.why),
        # 0 s if its clock is ahead of ours
        "" if notification.at is None else describe_span(max(0, now - notification.at)),
        "" if notification.expires is None else describe_span(max(0, notification.expires - now)),
        ", ".join(notification.subscriptions),
        limit,
    )


def order_values(values: Mapping[str, Any], first: Sequence[str]) -> dict[str, Any]:
    """Return values with some names before all others."""
    names = [name for name in dict.fromkeys(first) if name in values]
    return {name: values[name] for name in dict.fromkeys((*names, *values))}


def _is_mapping(why: Any) -> bool:
    return isinstance(why, Mapping)


def list_asked(texts: Iterable[str]) -> list[str]:
    """Return the attributes that subscriptions name, in their order; those that can be read."""
    found: dict[str, None] = {}
    for text in texts:
        with suppress(LanguageError):
            for predicate in iterate_predicates(parse(text).condition):
                found[predicate.attribute.text.rpartition(".")[2].replace(" ", "_")] = None
    return list(found)


def describe_degree(notification: ReceivedNotification) -> str:
    """Return how well it matches: one number, or from certain to possible where in doubt."""
    if notification.certain >= notification.possible:
        return f"{notification.degree:.2f}"
    return f"{notification.certain:.2f}..{notification.possible:.2f}"


def describe_value(value: object, up_to: str = "..", write: Callable[[Any], str] = str) -> str:
    """Return a value with its unit; a range or alternatives where it is in doubt."""
    if not isinstance(value, Mapping):
        return write(value)
    unit = f" {value['unit']}" if value.get("unit") else ""
    if "low" in value and "high" in value:
        return f"{write(value['low'])}{up_to}{write(value['high'])}{unit}"
    if isinstance(value.get("among"), list):
        return " or ".join(map(str, value["among"]))
    return f"{write(value.get('value', value.get('code', '?')))}{unit}"


def describe_why(why: Any) -> str:
    """Return what limits the degree."""
    if isinstance(why, Mapping):
        if why.get("words"):
            return str(why["words"])
        return " ".join(str(why[key]) for key in ("attribute", "degree") if key in why)
    return "" if why is None else str(why)


def describe_span(ms: int) -> str:
    """Return a span in its two largest units: "2 h 5 min", "41 s"."""
    parts: list[str] = []
    for length, unit in _STEPS:
        count, ms = divmod(ms, length)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part[0] != "0") or "0 s"
