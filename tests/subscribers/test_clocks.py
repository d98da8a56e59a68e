"""One timeline for a node, another for each other node, and the clock that people see."""

from __future__ import annotations

from denwatch.node.core.events import ClockSet
from denwatch.node.core.items import DELIVERED, NOTIFICATION, SUBSCRIPTION, Dot
from denwatch.node.core.notifications import format_time
from denwatch.node.core.subscriptions import SingleClock, SubscriberSettings

from tests.subscribers.world import DAY, START, World, list_ids, load, make_note, patient

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
    world = World(settings=SubscriberSettings(purge_after=5000, is_announcing=False))
    world.ask("m", "heart_rate is high")
    world.attach("m")
    _, published = world.read(patient(heart_rate=180))
    world.ack(published[0])
    for offset in (YEAR, -3 * YEAR):
        assert world.do(ClockSet(offset)) == []
        item, published = world.read(patient(heart_rate=180))
        assert list_ids(published, "m") == [show(item.id)]
    world.tick(6000)
    assert world.item_store.count(DELIVERED) == 1
    assert world.item_store.count(NOTIFICATION) == 2  # the first was let go in time


def test_people_see_their_own_time() -> None:
    world = World(clock=Strange(behind=2 * YEAR, ahead=5 * YEAR), settings=QUIET)
    reply = world.ask("m", "heart_rate is high, valid for 1 h")
    (item,) = world.item_store.iterate(world.store, SUBSCRIPTION)
    assert reply["expires"] == format_time(item.expires + 5 * YEAR)
    (row,) = world.ask("m", "list")["subscriptions"]
    assert row["created"] == format_time(START + 5 * YEAR)
    assert row["expires"] == reply["expires"]
    world.attach("m")
    world.now += 9
    _, published = world.read(patient(heart_rate=180), at=START + 5)
    assert load(published[0])["at"] == format_time(START + 5 + 5 * YEAR)
    assert load(published[0])["expires"] == format_time(START + 5 + 5 * YEAR + DAY)
    other = make_note(world, patient(heart_rate=180), Dot("b", 1, 1), at=START - 2 * YEAR)
    assert load(world.bring(other)[0])["at"] == format_time(START + 5 * YEAR)


def test_a_mark_lives_as_long_as_what_it_marks_by_the_time_of_its_own_node() -> None:
    world = World(clock=Strange(behind=56 * YEAR), settings=QUIET)
    world.ask("m", "heart_rate is high")
    world.attach("m")
    note = make_note(world, patient(heart_rate=180), Dot("b", 1, 1), at=START - 56 * YEAR)
    world.ack(world.bring(note)[0])
    world.tick(6000)
    (mark,) = world.item_store.iterate(world.store, DELIVERED)
    assert mark.expires == START + DAY
    world.tick(DAY - 60_000)
    assert world.item_store.count(DELIVERED) == 1


def test_a_quiet_time_counts_by_one_timeline() -> None:
    """A device first reports to a node whose clock is years ahead, then here."""
    world = World(clock=Strange(behind=-10 * YEAR), settings=QUIET)
    world.ask("m", "heart_rate is high, quiet for 10 min")
    world.attach("m")
    far = make_note(
        world, patient(heart_rate=180), Dot("b", 1, 1), at=START + 10 * YEAR, device="wd1"
    )
    assert len(world.bring(far)) == 1
    world.now += 60_000
    assert world.read(patient(heart_rate=180))[1] == []
    world.now += 600_000
    assert len(world.read(patient(heart_rate=180))[1]) == 1
    world.now += 60_000
    assert world.read(patient(heart_rate=180))[1] == []
    again = make_note(
        world, patient(heart_rate=180), Dot("b", 1, 2), at=world.now + 10 * YEAR, device="wd1"
    )
    assert world.bring(again) == []


def test_of_equals_the_newest_goes_first_by_one_timeline() -> None:
    world = World(clock=Strange(behind=10 * YEAR), settings=QUIET)
    world.ask("m", "heart_rate is high")
    mine, _ = world.read(patient(heart_rate=180))
    world.now += 5000
    newer = make_note(
        world, patient(heart_rate=180), Dot("b", 1, 1), at=world.now - 10 * YEAR, life=11 * DAY
    )
    world.bring(newer)
    assert list_ids(world.attach("m"), "m") == [show(newer.id), show(mine.id)]


def test_what_may_have_been_read_in_time_counts() -> None:
    """A reading of a node whose clock is known to a minute, near begin and end of a wish."""
    for from_end, late, is_sent in (
        (False, -70_000, False),
        (False, -50_000, True),
        (True, 50_000, True),
        (True, 70_000, False),
    ):
        world = World(clock=Strange(bound=60_000), settings=QUIET)
        world.ask("m", "heart_rate is high, valid for 10 min")
        (item,) = world.item_store.iterate(world.store, SUBSCRIPTION)
        world.attach("m")
        at = (item.expires if from_end else START) + late
        note = make_note(world, patient(heart_rate=180), Dot("b", 1, 1), at=at)
        assert bool(world.bring(note)) == is_sent, (from_end, late)
