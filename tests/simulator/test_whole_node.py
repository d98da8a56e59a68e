"""Whole nodes in the box: the process, its server, its keyring, both stores; lies, bad disks."""

from __future__ import annotations

from random import Random

import cbor2
import pytest
from denwatch.node.core.mending import list_damage
from denwatch.node.store import StoreDecayed, StoreFailed, StoreFull

from simulator.ablations import switch_off
from simulator.campaign import catch_rule, play_scenario
from simulator.disk import FieldFaults, FieldMedium, FieldStore
from simulator.faults import Play
from simulator.generated_lies import Facts, encode_cbor, make_body, make_request, spoil
from simulator.known_defects import make_small
from simulator.process_loop import ProcessLoop
from simulator.registry import load_tables
from simulator.scenario import Happening, Scenario
from simulator.whole_world import WholeWorld

load_tables()
FACTS = Facts("node-b", 5, 10, 1_700_000_000_000, bytes(8), "mad", "mallory", ("node-a",), (3,))


def build_scenario(**dials: int) -> Scenario:
    """Two nodes, a person and a device; a walk, a kill and a contact."""
    happenings = (
        Happening(20_000, "walk", 0, 1),
        Happening(40_000, "kill", 0, 3_000),
        Happening(60_000, "meet", 0, 0),
    )
    return make_small(3, *happenings, silent=0, **dials)


def test_people_and_devices_are_clients_of_the_nodes_servers() -> None:
    play = Play(build_scenario(whole=1))
    play.run()
    assert isinstance(play.world, WholeWorld)
    node = play.world.whole("node-b")
    (person,) = play.world.people.values()
    assert not person.list_open()
    assert node.server is not None
    assert {"person-0", "node-a"} <= set(node.server.list_users())
    assert node.server.counts["messages_received"] > 5
    assert node.keyring.list_nodes() == ["node-a", "node-b"]
    assert node.keyring.role_of("person-0") == "all"  # registered at the other node
    assert node.log_files.files
    play.world.close()
    assert not node.is_up


@pytest.mark.parametrize("limits", [0, 1])
def test_both_stores_give_the_same_history(limits: int) -> None:
    model = play_scenario(build_scenario(whole=1, limits=limits))
    both = play_scenario(build_scenario(whole=2, limits=limits))
    assert (model.what, both.what) == ("", "")
    assert model.digest == both.digest


class TestTheProcess:
    """`serve_node`, asked what it does."""

    def make_loop(self) -> ProcessLoop:
        world = Play(build_scenario(whole=1)).world
        assert isinstance(world, WholeWorld)
        return ProcessLoop(world.whole("node-a").config)

    def test_it_opens_serves_and_waits_after_a_full_disk(self) -> None:
        loop = self.make_loop()
        assert loop.ask().what == "open"
        assert loop.note("open", None, 1_000).what == "run"
        asked = loop.note("run", StoreFull("no room"), 2_000)
        assert (asked.what, asked.wait) == ("open", 5_000)

    def test_it_ends_when_its_disk_fails(self) -> None:
        loop = self.make_loop()
        loop.note("open", None, 1_000)
        asked = loop.note("run", StoreFailed("broken"), 2_000)
        assert asked.what == "end"
        assert isinstance(asked.error, StoreFailed)

    @pytest.mark.parametrize(("pause", "last"), [(1_000, "end"), (20_000, "open")])
    def test_five_defects_in_a_minute_end_it(self, pause: int, last: str) -> None:
        loop = self.make_loop()
        for number in range(5):
            loop.note("open", None, number * pause)
            asked = loop.note("run", KeyError("a defect"), number * pause)
        assert asked.what == last


class TestDisks:
    """Disks that are full, and disks that decay."""

    def make_store(self) -> tuple[FieldStore, FieldFaults]:
        faults = FieldFaults()
        store = FieldStore("north", FieldMedium(), faults)
        store.apply([("item", b"k", b"a value")])
        store.commit()
        return store, faults

    def test_a_full_disk_is_full_at_commit_and_at_opening_until_there_is_room(self) -> None:
        store, faults = self.make_store()
        faults.is_full = True
        store.apply([("item", b"l", b"another")])
        with pytest.raises(StoreFull):
            store.commit()
        medium = store.crash()
        with pytest.raises(StoreFull):
            FieldStore("north", medium, faults)
        faults.clear()
        assert FieldStore("north", medium, faults).get("item", b"k") == b"a value"

    @pytest.mark.parametrize("how", ["flip", "tear"])
    def test_a_value_decays_and_is_mended(self, how: str) -> None:
        store, _ = self.make_store()
        assert store.medium.decay(Random(1), how) == "item"
        assert store.medium.spaces["item"][b"k"] != b"a value"
        with pytest.raises(StoreDecayed):
            store.get("item", b"k")
        store.medium.mend()
        store.close()
        assert FieldStore("north", store.medium).get("item", b"k") == b"a value"

    @pytest.mark.parametrize("how", ["flip", "tear"])
    def test_a_value_that_decayed_is_in_quarantine_after_the_next_opening(self, how: str) -> None:
        store, _ = self.make_store()
        store.medium.decay(Random(1), how)
        store.close()
        again = FieldStore("north", store.medium)
        assert again.get("item", b"k") is None
        assert list(again.scan("item")) == []
        assert [each.key for each in list_damage(again)] == [b"k"]

    def test_without_checksums_what_decayed_is_served(self) -> None:
        store, _ = self.make_store()
        store.medium.decay(Random(1), "flip")
        with switch_off("checksums"):
            assert store.get("item", b"k") != b"a value"
        assert store.medium.served == {("item", b"k")}

    def test_what_cannot_be_read_is_an_error_until_it_is_written_again(self) -> None:
        store, _ = self.make_store()
        store.medium.decay(Random(1), "unreadable")
        with pytest.raises(StoreFailed):
            store.get("item", b"k")
        store.apply([("item", b"k", b"new")])
        store.commit()
        assert store.get("item", b"k") == b"new"


class TestLies:
    """Messages that are nearly right."""

    def test_the_encoder_agrees_with_another_where_that_one_has_an_answer(self) -> None:
        for value in (0, -1, 1 << 32, -(1 << 64), 1 << 70, "é", b"x", [1, {"a": None}], 0.5, True):
            assert cbor2.loads(encode_cbor(value)) == value

    def test_every_place_is_spoilt_at_times(self) -> None:
        good = {"a": 1, "b": ["x", {"c": b"y"}]}
        found = [spoil(Random(seed), good) for seed in range(300)]
        assert all(isinstance(each, dict) for each in found)
        assert any(each.get("a") != 1 for each in found)
        assert any(each.get("b", [""])[:1] == ["x"] != each.get("b") for each in found if each)

    def test_the_same_number_is_the_same_lie(self) -> None:
        for kind in range(1, 6):
            assert make_body(Random(7), FACTS, kind) == make_body(Random(7), FACTS, kind)
        assert len({make_request(Random(seed)) for seed in range(50)}) > 40


@pytest.mark.parametrize("lie", ["lying-deaths", "lying-removals", "lying-twins"])
def test_a_member_silences_nobody(lie: str) -> None:
    happenings = (Happening(20_000, lie, 0, number) for number in range(1, 4))
    outcome = play_scenario(make_small(1, *happenings, silent=0))
    assert not outcome.broken
    assert not outcome.known


@pytest.mark.parametrize(
    ("rule", "broken", "first"),
    [
        ("tick", "unstopped", 0),
        ("start-again", "back", 0),
        ("home-registers", "own-voice", 0),
        ("device-nodes", "own-voice", 0),
        ("configured-limits", "frugal", 0),
        ("links-per-name", "frugal", 0),
        ("item-schema", "unstopped", 20),
        ("both-stores", "stores", 0),
        ("checksums", "damaged", 0),
        pytest.param("clock-bound", "unstopped", 0, marks=pytest.mark.slow),  # a minute
        ("receipt-proof", "unsilenced", 0),
        ("removal-proof", "unsilenced", 0),
        ("person-signature", "unsilenced", 0),
        ("same-person", "unsilenced", 0),
    ],
)
def test_a_rule_of_whole_nodes_that_is_off_is_noticed(rule: str, broken: str, first: int) -> None:
    assert broken in catch_rule(rule, range(first, first + 12)).broken
