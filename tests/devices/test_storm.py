"""The promises of the link hold in any storm, and each rule is needed for one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest
from denwatch.node.core import device_protocol
from denwatch.node.core.devices import DeviceRegistry, VectorTable
from denwatch.node.core.events import Action, Message, Publish
from denwatch.protocol import ccm, frames
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.devices.device_node import (
    DEVICE,
    TOPIC,
    DeviceNode,
    Watchdog,
    make_hello,
    meet,
    seal_batch,
)
from tests.devices.storm import SETTINGS, Storm

OPERATIONS = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 999)), min_size=60, max_size=250)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(OPERATIONS)
def test_nothing_is_lost_nothing_is_taken_twice_and_the_tables_converge(
    operations: list[tuple[int, int]],
) -> None:
    storm = Storm()
    storm.run(operations)
    storm.check_all()


def ride_storms(make_storm: Callable[[], Storm] = Storm, count: int = 60) -> None:
    """Go through storms that are the same each time."""
    for seed in range(count):
        random = Random(seed)
        storm = make_storm()
        storm.run([(random.randrange(26), random.randrange(1000)) for _ in range(250)])
        storm.check_all()


def test_storms_that_are_the_same_each_time() -> None:
    ride_storms(count=15)


def test_the_same_events_give_the_same_actions() -> None:
    spaces = []
    for _ in range(2):
        random = Random(5)
        storm = Storm()
        storm.run([(random.randrange(26), random.randrange(1000)) for _ in range(300)])
        spaces.append((storm.node.medium.spaces, storm.node.counts, storm.node.logs))
    assert spaces[0] == spaces[1]


# Ablations: without a rule, a promise breaks ------------------------------------------------


def test_without_the_check_for_repetitions_something_is_taken_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_protocol, "is_new", lambda _number, _device: True)
    with pytest.raises(AssertionError, match="taken twice"):
        ride_storms()


class HastyNode(DeviceNode):
    """Publishes before it writes; what it has not written is lost with the power."""

    def start(self, now: int) -> None:
        super().start(now)
        self.medium.syncs = False

    def settle(self, actions: Sequence[Action]) -> list[Publish]:
        self.medium.sync()  # what came before; this is only acknowledged
        return super().settle(actions)


def test_acknowledged_before_it_is_written_is_lost() -> None:
    node, watchdog = HastyNode(SETTINGS), Watchdog()
    storm = Storm(node)
    storm.watchdog = watchdog
    watchdog.connect()
    storm.send(0)
    storm.carry_up(0)
    storm.gather()
    storm.carry_all_down()
    storm.read(9)
    storm.send(0)
    storm.carry_up(0)
    storm.gather()
    node.reopen()
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        storm.carry_all_down()


def test_a_table_that_is_trusted_after_a_start_misses_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VectorTable, "doubt_all", VectorTable.lose_flight)
    with pytest.raises(AssertionError):
        ride_storms()


def test_numbers_that_do_not_rise_are_refused_by_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        DeviceRegistry, "take_number", lambda _self, _turn, _device, epoch: (epoch, 1)
    )
    with pytest.raises(AssertionError):
        ride_storms()


def test_a_frame_that_is_believed_before_its_acknowledgement_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send = VectorTable.send

    def believe(self: VectorTable, *arguments: object) -> None:
        send(self, *arguments)  # type: ignore[arg-type]
        assert self.flight is not None
        for handle, until in self.flight.grants.items():
            self._rows[handle].until = until

    monkeypatch.setattr(VectorTable, "send", believe)
    with pytest.raises(AssertionError):
        ride_storms()


def check_forged(node: DeviceNode) -> None:
    """A frame with a wrong tag changes nothing."""
    good = seal_batch(1, 1, bytes.fromhex("8100000100000001c8"), today=1)
    node.do(Message(DEVICE, TOPIC + "hello", make_hello()))
    node.do(Message(DEVICE, TOPIC + "nv", good[:-1] + bytes([good[-1] ^ 1])))
    assert node.count_notes() == 0, "a forged notification was taken"


def decrypt_unchecked(key: bytes, nonce: bytes, sealed: bytes, covered: bytes) -> bytes:  # noqa: ARG001
    """Return what comes out, whatever the tag."""
    return ccm._mix(key, nonce, sealed[-8:] + sealed[:-8])[:-8]


def test_without_the_check_of_the_tag_a_forgery_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_forged(DeviceNode())
    monkeypatch.setattr(frames, "decrypt", decrypt_unchecked)
    with pytest.raises(AssertionError, match="forged"):
        check_forged(DeviceNode())


def check_played_back(node: DeviceNode) -> None:
    """A hello of the past does not bring back what the device had then."""
    watchdog = Watchdog()
    old = Watchdog({1: (1, 0)}).say_hello()
    node.do(old)
    watchdog.restart()
    meet(node, watchdog)
    node.do(old)
    assert node.devices.list_devices()[0].sensed == watchdog.senses, "an old hello was believed"


def test_without_the_check_for_old_hellos_one_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    check_played_back(DeviceNode())
    monkeypatch.setattr(device_protocol, "is_fresh", lambda _number, _known: True)
    with pytest.raises(AssertionError, match="believed"):
        check_played_back(DeviceNode())
