"""The map: who sees whom, silence, cuts; and who publishes what."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import networkx
from denwatch.client.console.drawing import draw_map
from denwatch.client.console.status_monitor import (
    SILENT,
    NetworkMemory,
    build_sources,
    find_parts,
    read_announcements,
)
from denwatch.client.vocabulary import load_shipped
from hypothesis import given
from hypothesis import strategies as st

from simulator.served_console import make_note
from tests.console.notes import make_status

RESCUE = load_shipped("rescue")
NAMES = [f"n{i}" for i in range(6)]
NOW = 1_000_000


def test_nodes_that_see_each_other_are_one_part() -> None:
    memory = NetworkMemory()
    memory.learn("north", make_status(["south"]), NOW)
    memory.learn("south", make_status(["north"]), NOW)
    view = memory.view(NOW, "north")
    assert view.describe() == "All 2 nodes are connected."
    assert [(n.name, n.state, n.is_ours, n.lag) for n in view.nodes] == [
        ("north", "up", True, "up to date"),
        ("south", "up", False, "up to date"),
    ]


def test_a_link_that_was_and_is_no_longer_is_a_cut() -> None:
    memory = NetworkMemory()
    memory.learn("north", make_status(["south"]), NOW)
    memory.learn("north", make_status([]), NOW + 1_000)
    view = memory.view(NOW + 1_000)
    assert [link.is_up for link in view.links] == [False]
    assert view.parts == (("north",), ("south",))
    assert view.describe() == "The network is cut into 2 parts: north | south"
    memory.learn("north", make_status(["south"]), NOW + 2_000)
    assert not memory.view(NOW + 2_000).is_cut


def test_one_end_that_says_no_outweighs_the_other() -> None:
    memory = NetworkMemory()
    memory.learn("north", make_status(["south"]), NOW)
    memory.learn("south", make_status([]), NOW + 1)
    assert memory.view(NOW + 1).is_cut


def test_a_node_that_is_not_heard_is_silent_and_what_it_said_is_not_believed() -> None:
    memory = NetworkMemory()
    memory.learn("north", make_status(["south"]), NOW)
    later = NOW + SILENT
    memory.learn("south", make_status(["north"]), later)
    view = memory.view(later)
    assert {node.name: node.state for node in view.nodes} == {"north": "told", "south": "up"}
    assert view.state == "well"  # south is heard, and sees north
    both = memory.view(later + SILENT)
    assert {node.state for node in both.nodes} == {"silent"}
    assert both.state == "down"
    assert both.describe() == "No node is up: north silent for 1 min 10 s, south silent for 35 s."


def test_a_good_bye_is_no_cut_and_the_long_gone_is_forgotten() -> None:
    memory = NetworkMemory()
    memory.learn("north", make_status(["south"]), NOW)
    memory.forget("south", NOW + 1)
    memory.learn("north", make_status([]), NOW + 2)
    view = memory.view(NOW + 2)
    assert {node.name: node.state for node in view.nodes} == {"north": "up", "south": "stopped"}
    assert view.state == "reduced"
    assert view.describe() == "1 of 2 nodes are up: south stopped for 0 s."
    memory.forget("north", NOW + 60_000)
    none = memory.view(NOW + 90_000)
    assert none.state == "down"
    assert none.describe() == "No node is up: north stopped for 30 s, south stopped for 1 min 29 s."
    assert memory.view(NOW + 10**8).nodes == ()
    assert NetworkMemory().view(NOW).describe() == "No node has reported yet."


def test_nonsense_in_a_status_is_no_harm() -> None:
    memory = NetworkMemory()
    memory.learn("x", {"peers": "y", "queue": None, "lag_ms": "soon", "publishers": [3, {}]}, NOW)
    (node,) = memory.view(NOW).nodes
    assert (node.peers, node.queue, node.lag) == ((), 0, "")
    assert read_announcements({"x": {"publishers": [3, {"present": 7}]}}, {}) == ([], 0)


links = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=12)


@given(links)
def test_parts_are_the_connected_components(pairs: list[tuple[str, str]]) -> None:
    graph = networkx.Graph()
    graph.add_nodes_from(NAMES)
    graph.add_edges_from(pairs)
    expected = {frozenset(part) for part in networkx.connected_components(graph)}
    assert {frozenset(part) for part in find_parts(NAMES, pairs)} == expected


def test_the_map_shows_every_node_and_crosses_out_what_is_cut() -> None:
    memory = NetworkMemory()
    assert draw_map(memory.view(NOW)) == ""
    for name in ("a", "b", "<c>"):
        memory.learn(name, make_status([n for n in ("a", "b", "<c>") if n != name]), NOW)
    whole = draw_map(memory.view(NOW, "a"))
    assert whole.count('class="link up"') == 3
    assert whole.count('class="ring"') == 1
    memory.learn("b", make_status([]), NOW + 1)
    cut = draw_map(memory.view(NOW + 1, "a"))
    assert cut.count('class="link down"') == cut.count('class="cross"') == 2
    root = ElementTree.fromstring(cut)  # "<c>" is text
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"a", "b", "<c>"} <= set(texts)


# Who publishes what -------------------------------------------------------------------------


def test_devices_are_listed_with_what_they_sense_and_where_they_are() -> None:
    group = {
        "event": "patient",
        "attributes": ["heart_rate", "spirit"],
        "present": ["bed-2"],
        "away": ["bed-1"],
        "more": 4,
    }
    statuses = {
        "north": make_status([], [group]),
        "south": make_status([], [{**group, "present": ["bed-1"], "away": [], "more": 0}]),
    }
    announced, more = read_announcements(statuses, {})
    place = {"east": {"value": 420.0, "unit": "m"}, "north": {"value": 1310.0, "unit": "m"}}
    notes = [
        make_note("1", place, at="2026-11-16T10:00:00Z"),
        make_note("0", {"east": {"value": 1.0, "unit": "m"}}, at="2026-11-16T09:00:00Z"),
    ]
    first, second = build_sources(announced, RESCUE, notes)
    assert more == 4
    assert (first["name"], first["nodes"], first["is_present"]) == (
        "bed-1",
        ["south", "north"],
        True,
    )
    assert first["place"] == "420 m east, 1310 m north"
    assert (second["name"], second["place"]) == ("bed-2", "")
    (sense,) = first["sensed"]
    assert [a["domain"] for a in sense["attributes"]] == ["0 to 255 bpm", "not in this vocabulary"]
    announced, _ = read_announcements(statuses, {"south": NOW})
    known = {
        one["name"]: (one["is_present"], one["lost"])
        for one in build_sources(announced, RESCUE, [])
    }
    assert known == {"bed-1": (False, NOW), "bed-2": (True, 0)}  # nobody knows of south's devices
