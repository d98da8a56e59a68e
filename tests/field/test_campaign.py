"""The campaign: seeds keep their promises; a rule that is off is noticed; failures get shorter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge.field.ablations import RULES, switch_off
from edge.field.campaign import (
    describe_scenario,
    main,
    play_scenario,
    play_seed,
    shrink_scenario,
    tell_replay,
)
from edge.field.scenario import FAULTS, ORDINARY, Happening, Scenario, make_scenario
from edge.field.trouble import Play


def test_the_same_seed_is_the_same_scenario() -> None:
    assert make_scenario(5) == make_scenario(5) != make_scenario(6)


def test_every_kind_of_happening_can_happen() -> None:
    """One scenario with each of them in it: nothing raises, and all promises are kept."""
    kinds = sorted({*ORDINARY, *FAULTS})
    assert all(hasattr(Play, "_do_" + kind.replace("-", "_")) for kind in kinds)
    happenings = tuple(
        Happening(5_000 + 9_000 * number, kind, 7 * number + 1, 131 * number + 3)
        for number, kind in enumerate(kinds)
    )
    outcome = play_scenario(Scenario(1, 3, 2, 2, "epidemic", 100_000, happenings))
    assert outcome.what == ""
    assert set(outcome.faults) == set(FAULTS)


@pytest.mark.parametrize("seed", range(1, 4))
def test_seeds_keep_all_promises(seed: int) -> None:
    assert play_seed(seed).what == ""


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("commit-first", ("disks", "acknowledged", "confirmed")),
        ("settled-once", ("once",)),
        ("top-k", ("top-k",)),
    ],
)
def test_a_rule_that_is_off_is_noticed(rule: str, broken: tuple[str, ...]) -> None:
    noticed = next(filter(None, (play_seed(seed, rule).rule for seed in range(12))), "")
    assert noticed in broken


def test_nothing_of_an_ablation_stays() -> None:
    before = {name: rule.owner.__dict__[rule.name] for name, rule in RULES.items()}
    for name in RULES:
        with switch_off(name):
            assert RULES[name].owner.__dict__[RULES[name].name] is not before[name]
    assert before == {name: rule.owner.__dict__[rule.name] for name, rule in RULES.items()}
    with pytest.raises(ValueError, match="no rule"), switch_off("gravity"):
        pass


def test_a_failing_scenario_gets_shorter() -> None:
    scenario = replace(make_scenario(0), happenings=make_scenario(0).happenings[:6])
    shorter = shrink_scenario(scenario, "disks", "commit-first", budget=8)
    assert len(shorter.happenings) < len(scenario.happenings)
    assert play_scenario(shorter, "commit-first").rule == "disks"


def test_a_seed_is_replayed_by_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = play_seed(2)
    assert tell_replay(outcome) == "python -m edge.field.campaign 2 --shrink"
    assert main(["2"]) == 0
    said = capsys.readouterr().out
    assert describe_scenario(make_scenario(2)) in said
    assert outcome.digest in said
