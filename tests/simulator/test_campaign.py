"""The campaign: seeds keep their promises; a rule that is off is noticed; failures get shorter."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.campaign_journal import Journal
from simulator.ablations import switch_off
from simulator.campaign import (
    Catch,
    Outcome,
    catch_rule,
    describe_failure,
    describe_scenario,
    find_scenario,
    find_stale,
    main,
    play_scenario,
    play_seed,
    play_seeds,
    shrink_scenario,
    tell_replay,
)
from simulator.known_defects import Defect, find_defect, make_request, make_small
from simulator.registry import (
    CHECKS,
    DEFECTS,
    KINDS,
    RULES,
    Violation,
    draw_names,
    list_faults,
    list_ordinary,
)
from simulator.scenario import ASK, SIZES, Happening, Scenario, make_scenario
from simulator.shrinking import Shrinker

SEEDS = 100
MINUTE = 60_000


def test_the_same_seed_is_the_same_scenario() -> None:
    assert make_scenario(5) == make_scenario(5) != make_scenario(6)


def test_scenarios_are_of_all_sizes_and_have_every_fault() -> None:
    scenarios = [make_scenario(seed) for seed in range(1_000)]
    assert {fault for each in scenarios for fault in each.list_faults()} == set(list_faults())
    nodes = {each.nodes for each in scenarios}
    assert nodes >= set(range(2, SIZES[-1].nodes[1]))
    assert sum(each.nodes <= 5 for each in scenarios) > 900


def test_every_kind_of_happening_can_happen() -> None:
    """One scenario with each of them in it: nothing raises, and all promises are kept."""
    kinds = sorted([*list_ordinary(), *list_faults()])
    assert kinds == sorted(KINDS)
    asked = '{"subscribe": "heart_rate above 100, certain 0.9"}'
    happenings = tuple(
        Happening(
            5_000 + 9_000 * number,
            kind,
            7 * number + 1,
            131 * number + 3,
            asked if kind == ASK else "",
        )
        for number, kind in enumerate(kinds)
    )
    trouble = 9_000 * (len(kinds) + 2)
    outcome = play_scenario(Scenario(1, 3, 2, 2, "epidemic", 100_000, happenings, trouble))
    assert outcome.what == ""
    assert set(outcome.faults) == set(list_faults())


def test_seeds_keep_all_promises() -> None:
    """A hundred seeds, a process for each processor; the outcomes come in the order of seeds."""
    outcomes = list(play_seeds(range(1, SEEDS + 1), os.cpu_count() or 1))
    assert [outcome.seed for outcome in outcomes] == list(range(1, SEEDS + 1))
    failed = [f"{outcome.what}: {tell_replay(outcome)}" for outcome in outcomes if outcome.broken]
    assert not failed
    assert play_seed(7).digest == outcomes[6].digest  # the same history in another process


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("commit-first", {"disks", "acknowledged", "confirmed"}),
        ("settled-once", {"once"}),
        ("top-k", {"top-k"}),
        ("covering", {"covered"}),
        ("roles", {"hidden"}),
        ("doubt", {"held-back"}),
        ("names", {"tailored"}),
        ("will", {"present"}),
        ("rights", {"revoked"}),
        ("delay", {"dated"}),
        ("top-k-follows", {"top-k-anywhere"}),
        ("my-top", {"my-top-anywhere"}),
        ("my-top-follows", {"my-top-anywhere"}),
        ("expiry", {"expired"}),
        ("join", {"story"}),
        ("claims", {"claims"}),
        ("everyday", {"everyday"}),
        ("find", {"found"}),
        ("had", {"escalated"}),
        ("stored-wills", {"wills"}),
        ("counted-trials", {"updated"}),
        ("image-signature", {"updated"}),
    ],
)
def test_a_rule_that_is_off_is_noticed(rule: str, broken: set[str]) -> None:
    noticed = catch_rule(rule, range(120))
    assert set(noticed.broken) & broken


@pytest.mark.slow
@pytest.mark.parametrize("rule", list(RULES))
def test_every_rule_that_is_off_is_noticed(rule: str) -> None:
    assert catch_rule(rule, range(400)).broken


def test_nothing_of_an_ablation_stays() -> None:
    before = {name: rule.owner.__dict__[rule.name] for name, rule in RULES.items()}
    for name in RULES:
        with switch_off(name):
            assert RULES[name].owner.__dict__[RULES[name].name] is not before[name]
    assert before == {name: rule.owner.__dict__[rule.name] for name, rule in RULES.items()}
    with pytest.raises(ValueError, match="no rule"), switch_off("gravity"):
        pass


def build_failing() -> Scenario:
    """A scenario that breaks a promise by a kill, once a node speaks before it writes."""
    happenings = [
        Happening(20_000, "hang-up", 0, 0),
        Happening(40_000, "walk", 0, 1),
        Happening(60_500, "kill", 0, 0),
        Happening(62_500, "kill", 1, 0),
        Happening(65_000, "loss", 0, 1),
        Happening(69_000, "meet", 0, 1),
    ]
    return Scenario(2, 3, 2, 2, "epidemic", 100_000, tuple(happenings), trouble=2 * MINUTE)


def test_a_failing_scenario_gets_shorter() -> None:
    scenario = build_failing()
    assert play_scenario(scenario).what == ""
    rule = play_scenario(scenario, "commit-first").rule
    assert rule, "nobody notices that a node speaks before it writes"
    shorter = shrink_scenario(scenario, rule, "commit-first", budget=30)
    assert len(shorter.happenings) < len(scenario.happenings)
    assert play_scenario(shorter, "commit-first").rule == rule


def test_what_somebody_held_back_is_not_dated_fresh() -> None:
    scenario = make_small(
        5,
        make_request(1_000, {"subscribe": "heart_rate above 0"}),
        Happening(61_000, "held-up", 0, 60_000),
        minutes=4,
    )
    assert play_scenario(scenario).what == ""
    assert play_scenario(scenario, "delay").rule == "dated"


def test_a_disk_that_forgot_a_start_does_not_give_two_items_one_number() -> None:
    """The receipt for what the forgotten run made must not stand for what the next one makes."""
    happenings = tuple(
        Happening(time, "lying-disk", first, second)
        for time, first, second in (
            (58_745, 19_304, 35_716),
            (64_853, 17_814, 64_507),
            (117_408, 41_194, 1_263),
        )
    )
    scenario = Scenario(
        3070, 2, 1, 1, "utility", 100_000, happenings, 2 * MINUTE, pace=4, bandwidth=5_000
    )
    assert play_scenario(scenario).what == ""


def test_a_known_defect_is_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Every one shows in its own scenario, and nothing else is broken there."""
    assert not find_stale()
    for name, defect in DEFECTS.items():
        assert defect.check in CHECKS
        outcome = play_scenario(defect.scenario)
        assert name in outcome.known, name
        assert outcome.broken == (), outcome.what
    if DEFECTS:
        name = next(iter(DEFECTS))
        assert main(["--defect", name]) == 0
        assert f"known: {name}" in capsys.readouterr().out


def test_a_defect_that_was_mended_must_leave_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = make_small(1, make_request(1_000, {"subscribe": "heart_rate above 100"}))
    mended = Defect("wanted", "nobody remembers", scenario, frozenset({"odd"}), frozenset({"new"}))
    monkeypatch.setitem(DEFECTS, "mended", mended)
    assert find_stale() == ["mended"]
    assert find_defect(Violation("wanted", "this", "odd", "old")) == "mended"
    assert find_defect(Violation("wanted", "this", "odd", "new")) == ""
    assert find_defect(Violation("once", "this", "odd")) == ""


def test_a_new_kind_leaves_most_draws_as_they_were() -> None:
    names = [f"kind-{number}" for number in range(40)]
    before = [draw_names(f"{seed}", names, 2) for seed in range(300)]
    after = [draw_names(f"{seed}", [*names, "new"], 2) for seed in range(300)]
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert 0 < len(changed) < 40
    assert all("new" in each for each in changed)


def test_dials_and_parts_of_subscriptions_are_dropped_too() -> None:
    words = "heart_rate above 100, at least 0.4, why"
    request = {"content": [["event", "=", "patient"], ["heart_rate", ">", 90.5]], "top": 3}
    happenings = (make_request(1_000, {"subscribe": words}), make_request(2_000, request))
    scenario = make_small(1, *happenings, nodes=3, covering=1, home=1)

    def fails(candidate: Scenario) -> bool:
        said = " ".join(each.body for each in candidate.happenings)
        return "at least 0.4" in said and "content" in said and candidate.dial("home") == 1

    shorter = Shrinker(fails, budget=60).shrink(scenario)
    assert (shorter.nodes, shorter.dials) == (2, (("home", 1), ("silent", 1)))
    assert [json.loads(each.body) for each in shorter.happenings] == [
        {"subscribe": "heart_rate above 100, at least 0.4"},
        {"content": [["event", "=", "patient"]]},
    ]


def test_a_seed_is_replayed_by_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = play_seed(2)
    assert tell_replay(outcome) == "python -m simulator.campaign 2 --shrink"
    assert main(["2"]) == 0
    said = capsys.readouterr().out
    assert describe_scenario(make_scenario(2)) in said
    assert outcome.digest in said


def test_a_failing_seed_is_replayed_and_made_shorter(capsys: pytest.CaptureFixture[str]) -> None:
    """What the command prints for a failing seed: what is broken, and less that breaks it too."""
    caught = catch_rule("top-k", range(40))
    assert main([str(caught.seed), "--shrink", "--ablation", "top-k", "--budget", "12"]) == 1
    whole, _, shorter = capsys.readouterr().out.partition("The same is broken by:")
    assert "top-k: " in whole
    assert "top-k: " in shorter
    assert len(shorter.splitlines()) <= len(whole.splitlines())


def test_a_failing_seed_is_told_with_a_short_schedule_and_its_command() -> None:
    with switch_off("best"):
        outcome = next(each for each in play_seeds(range(40)) if each.rule)
        said = describe_failure(outcome, 12)
    first, second, *_, last = said.splitlines()
    assert first == f"seed {outcome.seed}: {outcome.what}"
    assert second.startswith(f"seed {outcome.seed}: ")
    assert last.strip() == tell_replay(outcome)
    whole = describe_scenario(find_scenario(outcome.seed)).splitlines()
    assert len(said.splitlines()) - 2 < len(whole)


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    one, other = (Outcome(seed, ("kill",), 0.2, (), "", "ab", ("odd",)) for seed in (1, 2))
    with Journal(path) as journal:
        journal.keep(one, 0.5)
    with path.open("a") as file:
        file.write('{"seed": 3, "fau')  # the power went
    with Journal(path) as journal:
        assert journal.outcomes == {1: one}
        journal.keep(other, 0.25)
        journal.keep_catch(Catch("expiry", ("expired",), 2))
    with Journal(path) as journal:
        assert journal.outcomes == {1: one, 2: other}
        assert journal.catches == {"expiry": Catch("expiry", ("expired",), 2)}
        assert journal.spent == {1: 0.5, 2: 0.25}
    path.write_text(path.read_text().replace('"program": "', '"program": "other'))
    with Journal(path) as journal:
        assert journal.outcomes == {}
