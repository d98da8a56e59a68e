"""What was acknowledged survives, and is handled once: a short form of `benchmarks.durability`.

A handful of `kill -9` on real processes, deaths at some of the store's operations, and rules
switched off: the same checks must then find something lost or repeated.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from denwatch.node.core import device_protocol as devices_part
from denwatch.node.core.devices import Device, Number
from denwatch.node.log import LogError
from denwatch.node.runtime.durable_node import Effects

from benchmarks.durability_points import Point, Scenario, count_faults, list_points, try_points
from benchmarks.durability_site import DurabilitySite
from benchmarks.durability_stand import NodeStand
from benchmarks.durability_world import Host, Plan, make_plan

# In one worker and in this order.
pytestmark = pytest.mark.xdist_group("durability")
STEP = 36  # every so many commit points here; the benchmark tries all


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return make_plan(tmp_path_factory.mktemp("points"))


@pytest.fixture(scope="module")
def points(plan: Plan) -> list[Point]:
    return list_points(plan)


def list_commits(points: list[Point], trouble: str) -> list[Point]:
    return [
        point
        for point in points
        if (point.node, point.operation, point.trouble) == ("a", "commit", trouble)
    ]


def find_fault(
    plan: Plan, points: list[Point], kind: str, host_type: type[Host] = Host
) -> list[str]:
    """Return the faults of the first point at which there is one of a kind."""
    for point in points:
        found = try_points(plan, [point], host_type)
        if count_faults(found, kind):
            return found[point]
    return []


# In one process ---------------------------------------------------------------------------------


def test_the_scenario_meets_every_kind_of_operation(points: list[Point]) -> None:
    kinds = {(point.node, point.operation) for point in points}
    assert kinds == {
        (node, operation)
        for node in ("a", "b")
        for operation in ("open", "apply", "commit", "outbox")
    }
    assert len(points) > 300


@pytest.mark.parametrize("start", range(3))
def test_a_death_at_any_operation_loses_nothing(
    start: int, plan: Plan, points: list[Point]
) -> None:
    assert try_points(plan, points[start * (STEP // 3) :: STEP]) == {}


def test_the_same_death_gives_the_same_run(plan: Plan, points: list[Point]) -> None:
    point = list_commits(points, "crash-after")[5]
    runs = [Scenario(plan, point) for _ in range(2)]
    assert [run.run() for run in runs] == [[], []]
    assert runs[0].count_operations() == runs[1].count_operations()
    assert sum(host.deaths for host in runs[0].hosts) == 3  # the planned one, and both in the end


# Rules switched off: the checks above would see it ------------------------------------------------


class HastyHost(Host):
    """Lets everything out before it is committed."""

    def commit(self) -> None:
        effects, self.durable_node._effects = self.durable_node._effects, Effects()
        self.perform(effects)
        self.durable_node.commit()


def test_answering_before_the_commit_would_lose_what_was_acknowledged(
    plan: Plan, points: list[Point]
) -> None:
    commits = list_commits(points, "crash")
    assert find_fault(plan, commits, "lost", HastyHost), "nobody noticed"


def test_taking_numbers_again_would_deliver_twice(
    plan: Plan, points: list[Point], monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(number: Number, device: Device) -> bool:  # noqa: ARG001 - the rule's arguments
        return True

    monkeypatch.setattr(devices_part, "is_new", always)
    commits = list_commits(points, "crash-after")
    assert find_fault(plan, commits, "twice"), "nobody noticed"


def test_a_store_that_lost_what_it_had_promised_is_not_used(plan: Plan) -> None:
    class LyingHost(Host):
        def start(self) -> None:
            self.medium.syncs = False
            super().start()

    with pytest.raises(LogError, match="older than the log"):
        Scenario(plan, None, LyingHost).run()


# On real processes ------------------------------------------------------------------------------


def make_stand(folder: Path, app: str = "") -> NodeStand:
    return NodeStand("node", folder, DurabilitySite(folder, 2), random.Random(7), app)


def test_killed_under_load_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    stand = make_stand(tmp_path)
    verdict = stand.run_with(["app", "server", "both"])
    assert verdict.kills["server"] == 2
    assert verdict.kills["app"] == 2
    assert all(
        verdict.acknowledged[what] for what in ("notifications", "subscriptions", "messages")
    )
    assert verdict.lost.total() == 0, verdict.examples
    assert verdict.twice == 0, verdict.examples
    assert verdict.log_records > 0
    assert verdict.log_faults == 0


def test_a_client_that_acknowledges_before_its_commit_is_found_out(tmp_path: Path) -> None:
    stand = make_stand(tmp_path, "tests.node.durability_hasty")
    verdict = stand.run_with(["app", "app"])
    assert verdict.lost["notifications"] > 0
