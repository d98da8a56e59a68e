"""One timeline for a node, another for each other node, and the clock that people see."""

from __future__ import annotations

from denwatch.node.core.events import ClockSet
from denwatch.node.core.items import DELIVERED, NOTIFICATION, SUBSCRIPTION, Dot
from denwatch.node.core.notifications import format_time
from denwatch.node.core.subscriptions import SingleClock, SubscriberSettings

from tests.subscribers.subscriber_node import (
    DAY,
    START,
    SubscriberNode,
    list_ids,
    load,
    make_notification,
    patient,
)

YEAR = 365 * DAY
QUIET = SubscriberSettings(is_announcing=False)


def show(item_id: int) -> str:
    return f"{item_id:016x}"


class Strange(SingleClock):
    """Node b is `behind` ours, known to `bound`; people's clock is ahead of our timeline."""

    def __init__(self, behind: int = 0, bound: int = 0, ahead: int = 0) -> None:
        self.behind = behind
        self.bound = bound
        self.ahead = ahead

    def localise(self, dot: Dot, time: int) -> int:
        return time + self.behind + self.bound if dot.origin == "b" else time

    def doubt(self, origin: str, epoch: int, now: int) -> int:  # noqa: ARG002
        return self.bound if origin == "b" else 0

    def show(self, dot: Dot, time: int) -> int:
        return time + self.ahead + (self.behind if dot.origin == "b" else 0)

    def date(self, time: int) -> int:
        return time + self.ahead


def test_a_clock_that_is_set_ends_nothing_and_delays_nothing() -> None:
    node = SubscriberNode(settings=SubscriberSettings(purge_after=5000, is_announcing=False))
    node.ask("m", "heart_rate is high")
    node.attach("m")
    _, published = node.read(patient(heart_rate=180))
    node.ack(published[0])
    for offset in (YEAR, -3 * YEAR):
        assert node.do(ClockSet(offset)) == []
        item, published = node.read(patient(heart_rate=180))
        assert list_ids(published, "m") == [show(item.id)]
    node.tick(6000)
    assert node.item_store.count(DELIVERED) == 1
    assert node.item_store.count(NOTIFICATION) == 2  # the first was let go in time


def test_people_see_their_own_time() -> None:
    node = SubscriberNode(clock=Strange(behind=2 * YEAR, ahead=5 * YEAR), settings=QUIET)
    reply = node.ask("m", "heart_rate is high, valid for 1 h")
    (item,) = node.item_store.iterate(node.store, SUBSCRIPTION)
    assert reply["expires"] == format_time(item.expires + 5 * YEAR)
    (row,) = node.ask("m", "list")["subscriptions"]
    assert row["created"] == format_time(START + 5 * YEAR)
    assert row["expires"] == reply["expires"]
    node.attach("m")
    node.now += 9
    _, published = node.read(patient(heart_rate=180), at=START + 5)
    assert load(published[0])["at"] == format_time(START + 5 + 5 * YEAR)
    assert load(published[0])["expires"] == format_time(START + 5 + 5 * YEAR + DAY)
    other = make_notification(node, patient(heart_rate=180), Dot("b", 1, 1), at=START - 2 * YEAR)
    assert load(node.bring(other)[0])["at"] == format_time(START + 5 * YEAR)


def test_a_mark_lives_as_long_as_what_it_marks_by_the_time_of_its_own_node() -> None:
    node = SubscriberNode(clock=Strange(behind=56 * YEAR), settings=QUIET)
    node.ask("m", "heart_rate is high")
    node.attach("m")
    note = make_notification(node, patient(heart_rate=180), Dot("b", 1, 1), at=START - 56 * YEAR)
    node.ack(node.bring(note)[0])
    node.tick(6000)
    (mark,) = node.item_store.iterate(node.store, DELIVERED)
    assert mark.expires == START + DAY
    node.tick(DAY - 60_000)
    assert node.item_store.count(DELIVERED) == 1


def test_a_quiet_time_counts_by_one_timeline() -> None:
    """A device first reports to a node whose clock is years ahead, then here."""
    node = SubscriberNode(clock=Strange(behind=-10 * YEAR), settings=QUIET)
    node.ask("m", "heart_rate is high, quiet for 10 min")
    node.attach("m")
    far = make_notification(
        node, patient(heart_rate=180), Dot("b", 1, 1), at=START + 10 * YEAR, device="wd1"
    )
    assert len(node.bring(far)) == 1
    node.now += 60_000
    assert node.read(patient(heart_rate=180))[1] == []
    node.now += 600_000
    assert len(node.read(patient(heart_rate=180))[1]) == 1
    node.now += 60_000
    assert node.read(patient(heart_rate=180))[1] == []
    again = make_notification(
        node, patient(heart_rate=180), Dot("b", 1, 2), at=node.now + 10 * YEAR, device="wd1"
    )
    assert node.bring(again) == []


def test_of_equals_the_newest_goes_first_by_one_timeline() -> None:
    node = SubscriberNode(clock=Strange(behind=10 * YEAR), settings=QUIET)
    node.ask("m", "heart_rate is high")
    mine, _ = node.read(patient(heart_rate=180))
    node.now += 5000
    newer = make_notification(
        node, patient(heart_rate=180), Dot("b", 1, 1), at=node.now - 10 * YEAR, life=11 * DAY
    )
    node.bring(newer)
    assert list_ids(node.attach("m"), "m") == [show(newer.id), show(mine.id)]


def test_what_may_have_been_read_in_time_counts() -> None:
    """A reading of a node whose clock is known to a minute, near both ends of a subscription."""
    for from_end, late, is_sent in (
        (False, -70_000, False),
        (False, -50_000, True),
        (True, 50_000, True),
        (True, 70_000, False),
    ):
        node = SubscriberNode(clock=Strange(bound=60_000), settings=QUIET)
        node.ask("m", "heart_rate is high, valid for 10 min")
        (item,) = node.item_store.iterate(node.store, SUBSCRIPTION)
        node.attach("m")
        at = (item.expires if from_end else START) + late
        note = make_notification(node, patient(heart_rate=180), Dot("b", 1, 1), at=at)
        assert bool(node.bring(note)) == is_sent, (from_end, late)
