"""docs/metrics.md and docs/grafana.json: what they name is what nodes export, and nothing else.

Two real nodes with watchdogs, people and trouble; and the source, for counts that did not happen.
"""

from __future__ import annotations

import ast
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from denwatch.cli.publish import find_coverage
from denwatch.client.publisher import Publisher, parse_reading, read_key
from denwatch.client.vocabulary import load_shipped
from prometheus_client.parser import text_string_to_metric_families

from simulator.site import REPOSITORY, Site, find_free_ports, wait_for
from tests.node.app import App

PAGE = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((REPOSITORY / "docs" / "grafana.json").read_text("utf-8"))
ROW = re.compile(r"^\| `(denwatch_\w+)` \|(?: (\w*) ?\|)?", re.M)
DOCUMENTED = {name: kind or "" for name, kind in ROW.findall(PAGE)}
RESCUE = load_shipped("rescue")


def list_counts() -> dict[str, bool]:
    """Return the counts of the source by name, and whether each has a label."""
    found: dict[str, bool] = {}
    for path in (REPOSITORY / "edge" / "denwatch" / "node").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func
            is_count = ast.unparse(called) in ("transaction.count", "Count", "events.Count")
            if not is_count:
                continue
            has_label = len(node.args) > 2 or any(k.arg == "label" for k in node.keywords)
            for part in ast.walk(node.args[0]):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    found[part.value] = has_label
    return found


class MetricsSite(Site):
    """Two linked nodes that serve metrics; `names` and `kinds` are what they exported."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        ports = find_free_ports(2)
        self.north, self.south = self.add_node("north"), self.add_node("south")
        self.pages = []
        for node, port in zip((self.north, self.south), ports, strict=True):
            node.configure(('address = ""', f'address = "127.0.0.1:{port}"'))
            self.pages.append(f"http://127.0.0.1:{port}/metrics")
        self.add_subscriber("medic7")
        self.key = self.add_device("dog-1", "south")
        keys = json.loads(self.key.read_text(encoding="utf-8"))
        self.device_password = keys["nodes"][0]["password"]

    def read(self) -> dict[str, tuple[str, set[str]]]:
        """Return all samples of both nodes by name: the type, and the kinds."""
        found: dict[str, tuple[str, set[str]]] = {}
        for page in self.pages:
            with urllib.request.urlopen(page, timeout=10) as answer:
                text = answer.read().decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    assert sample.labels["node"] in ("north", "south")
                    kinds = found.setdefault(sample.name, (family.type, set()))[1]
                    kinds.add(sample.labels.get("kind", ""))
        return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, set[str]]]]:
    with MetricsSite(tmp_path_factory.mktemp("metrics")) as site:
        live_a_little(site)
        yield site.read()


def live_a_little(site: MetricsSite) -> None:
    """Ask, mistake a word, read, deliver from node to node, suppress, and be refused."""
    with App(site.north.port, "medic7", site.passwords["medic7"]) as app:
        app.subscribe("dens/1/reply/medic7", "dens/1/note/medic7")
        site.south.stop()  # so that the nodes differ when they meet
        assert app.ask("medic7", "heart_rate is high, named pulse, top 1")["ok"]
        site.south.start()
        assert not app.ask("medic7", "hart_rate above 100 bpm")["ok"]
        assert app.subscribe("dens/1/note/other") == [128]
        readings = [parse_reading(f"patient heart_rate={rate}", RESCUE) for rate in (160, 130)]
        senses = find_coverage(readings, RESCUE)
        with Publisher(read_key(site.key), RESCUE, senses, timeout=60) as publisher:
            publisher.publish(readings)
        with App(site.south.port, "dog-1", site.device_password) as radio:
            radio.publish("dens/1/wd/dog-1/nv", b"\x01garbage")
        wait_for("a note from the other node", lambda: app.notes("medic7"), 60)
        wanted = ("denwatch_notes_delivered_total", "denwatch_notes_suppressed_total")
        wait_for("its delivery", lambda: set(wanted) <= set(site.read()), 60)


def test_the_page_has_every_count_of_the_source_and_no_other() -> None:
    counts = list_counts()
    assert {f"denwatch_{name}_total" for name in counts} == {
        name for name in DOCUMENTED if name.endswith("_total")
    }
    for name, has_label in counts.items():
        assert bool(DOCUMENTED[f"denwatch_{name}_total"]) == has_label, name


def test_everything_that_nodes_export_is_on_the_page_with_its_type_and_label(
    exported: dict[str, tuple[str, set[str]]],
) -> None:
    for name, (kind, labels) in exported.items():
        assert name in DOCUMENTED, f"{name} is not in docs/metrics.md"
        assert (kind == "counter") == name.endswith("_total")
        assert (labels != {""}) == bool(DOCUMENTED[name]), (name, labels)
    gauges = {name for name in DOCUMENTED if not name.endswith("_total")}
    assert gauges <= set(exported)


def test_the_dashboard_asks_for_what_nodes_really_export(
    exported: dict[str, tuple[str, set[str]]],
) -> None:
    asked = {
        name
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
        for name in re.findall(r"denwatch_\w+", target["expr"])
    }
    variable = DASHBOARD["templating"]["list"][1]["query"]["query"]
    asked |= set(re.findall(r"denwatch_\w+", variable))
    assert len(asked) >= 15
    assert asked <= set(exported), asked - set(exported)


def test_the_dashboard_is_whole_and_rates_are_of_counters() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = set()
    for panel in panels:
        assert panel["title"]
        assert panel["description"]
        area = panel["gridPos"]
        cells = {(area["x"] + x, area["y"] + y) for x in range(area["w"]) for y in range(area["h"])}
        assert not cells & places, f"{panel['title']} lies over another"
        assert area["x"] + area["w"] <= 24
        places |= cells
        for target in panel["targets"]:
            expression = target["expr"]
            assert expression.count("(") == expression.count(")")
            for name in re.findall(r"denwatch_\w+", expression):
                is_rated = re.search(rf"(rate|increase)\({name}", expression) is not None
                assert is_rated == name.endswith("_total"), expression
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label in ("node", "kind")


def test_what_to_watch_names_real_metrics() -> None:
    for name in re.findall(r"denwatch_\w+", PAGE):
        assert name in DOCUMENTED, name
