"""A node that lost values to its disk: what it forgets with them, and how it gets them again."""

from __future__ import annotations

import pytest
from denwatch.node.core.item_store import CONTEXT, SPACES
from denwatch.node.core.items import NOTIFICATION, SUBSCRIPTION, Dot
from denwatch.node.core.mending import DAMAGED, list_damage, mend_damage, write_row
from denwatch.node.replication.dot_sets import decode_range, list_spans

from simulator.memory_store import MemoryStore
from tests.replication.checks import check_rest
from tests.replication.network import Network


def lose(network: Network, name: str, space: str, key: bytes, *, is_key_right: bool = True) -> None:
    """Let a value be damaged, and start the node again."""
    host = network.hosts[name]
    row = write_row(space, key, b"damaged", is_key_right=is_key_right)
    host.store.apply([(space, key, None), (DAMAGED, *row)])
    host.store.commit()
    network.restart(name)


@pytest.mark.parametrize("is_key_right", [True, False])
def test_a_lost_item_is_fetched_again_and_not_called_dead(is_key_right: bool) -> None:
    network = Network("ab")
    item, _ = network.hosts["a"].subscribe(network.now, "medic7")
    note, _ = network.hosts["a"].notify(network.now, 1)
    other, _ = network.hosts["b"].notify(network.now, 2)
    network.heal()
    for each in (item, note, other):
        lose(network, "b", SPACES[each.kind], each.dot.key, is_key_right=is_key_right)
        assert not network.hosts["b"].item_store.holds(each.kind, each.dot)
        network.heal()
        for host in network.hosts.values():
            assert host.item_store.holds(each.kind, each.dot)
    check_rest(network)


@pytest.mark.parametrize("is_key_right", [True, False])
def test_a_lost_run_of_the_context_is_built_from_what_is_held(is_key_right: bool) -> None:
    network = Network("ab")
    host = network.hosts["a"]
    kept = [host.subscribe(network.now, f"medic{number}")[0] for number in range(4)]
    network.heal()
    network.post("a", host.remove(network.now, kept[1].dot))
    network.heal()
    lose(network, "b", CONTEXT, Dot(*kept[0].dot.run, 0).key, is_key_right=is_key_right)
    network.heal()
    for each in network.hosts.values():
        assert each.list_dots(SUBSCRIPTION) == {kept[place].dot for place in (0, 2, 3)}
    check_rest(network)


def test_what_is_lost_of_peers_costs_one_whole_exchange() -> None:
    network = Network("ab")
    item, _ = network.hosts["a"].subscribe(network.now, "medic7")
    network.heal()
    lose(network, "a", "peer.version", Dot(*item.dot.run, 0).key)
    new, _ = network.hosts["a"].subscribe(network.now, "medic8")
    network.heal()
    assert network.hosts["b"].list_dots(SUBSCRIPTION) == {item.dot, new.dot}
    check_rest(network)


def test_damage_is_mended_once_and_kept_for_a_month() -> None:
    store = MemoryStore("north")
    key = Dot("north", 3, 7).key
    far = Dot("far", 1, 5_000_000).key
    rows = [
        write_row(SPACES[NOTIFICATION], place, b"raw", is_key_right=True) for place in (key, far)
    ]
    store.apply([(DAMAGED, *row) for row in rows])
    store.apply([(CONTEXT, Dot("north", 3, 0).key, (9).to_bytes(8, "big"))])
    store.apply([(CONTEXT, Dot("far", 1, 0).key, (6_000_000).to_bytes(8, "big"))])
    assert len(list(list_damage(store, is_fresh=True))) == 2
    store.apply(mend_damage(store, 1_000))
    left = store.get(CONTEXT, Dot("north", 3, 0).key)
    assert left is not None
    assert list_spans(decode_range(left)) == ((1, 6), (8, 9))
    assert not list(list_damage(store, is_fresh=True))
    assert [str(each) for each in list_damage(store)] == [
        f"item.notification at {far.hex()}, 3 bytes",
        f"item.notification at {key.hex()}, 3 bytes",
    ]
    assert mend_damage(store, 2_000) == []
    store.apply(mend_damage(store, 40 * 86_400_000))
    assert not list(list_damage(store))
