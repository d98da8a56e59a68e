"""The benchmarks can be run as the README says; the wire's figures, which do not depend on the
machine, keep their promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from denwatch.protocol import subscription
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Reading

from benchmarks import rivals_builds
from benchmarks.__main__ import MEASUREMENTS, PAPERS, find_module
from benchmarks.rivals import measure_air, summarise
from benchmarks.rivals_site import NAMES, draw_site_work, encode_rule, write_sql
from benchmarks.rivals_tree import compare_matchers, draw_tree_work, write_expression

ROOT = Path(__file__).parents[1]


def run_module(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_wire_keeps_its_sizes() -> None:
    result = json.loads(run_module("benchmarks.wire", "--json").splitlines()[-1])
    assert result["sv_bytes_3"] <= 17
    assert result["nv_bytes_3"] <= 11
    assert result["xml_over_sv_min"] >= 50


@pytest.mark.parametrize("name", [*MEASUREMENTS, *(f"papers.{paper}" for paper in PAPERS)])
def test_every_benchmark_explains_itself(name: str) -> None:
    assert "--quick" in run_module(find_module(name), "--help")


def test_rivals_are_asked_the_same() -> None:
    """A rule as SQL, as A-Tree's expression and as a vector matches the same readings."""
    work = draw_site_work(1, 200, 400)
    assert sum(work.matches) > 50
    found = []
    vectors = [subscription.decode(encode_rule(rule)) for rule in work.rules]
    for values in work.readings:
        named = dict(zip(NAMES, values, strict=True))
        numbered = {f"a{n}": value for n, value in enumerate(values)}
        note = NotificationVector(1, [Reading(n, (v,) * 4) for n, v in enumerate(values)])
        count = 0
        for rule, vector in zip(work.rules, vectors, strict=True):
            sql = write_sql(rule).partition(" WHERE ")[2].replace("AND", "and")
            hit = match(vector, note)
            answers = {
                bool(eval(sql, {}, named)),
                bool(eval(write_expression(rule), {}, numbered)),
                hit is not None and hit.matched,
            }
            assert len(answers) == 1, (rule, values)
            count += answers.pop()
        found.append(count)
    assert found == list(work.matches)


def test_matchers_in_turns_find_the_same(tmp_path: Path) -> None:
    work = draw_tree_work(1, 300, 20)
    run = compare_matchers(work, tmp_path, 1, None)["columns"]
    fits = [
        sum(all(low <= event[a] <= high for a, low, high in rule) for rule in work.rules)
        for event in work.events
    ]
    assert [int(answer.partition(":")[0]) for answer in run.answers] == fits
    assert sum(fits) > 0


def test_a_rival_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals_builds, "CACHE", tmp_path)
    with pytest.raises(rivals_builds.Missing, match="without --quick"):
        rivals_builds.find_ekuiper(False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(rivals_builds.Missing, match="cargo, which is not installed"):
        rivals_builds.find_a_tree(True)
    result = summarise({}, {}, {"ours": 1, "every": 2}, {"ekuiper": "no Go"})
    assert result["missing_ekuiper"] == "no Go"
    assert not any(name.startswith("over_") for name in result)


def test_rivals_count_what_a_device_sends() -> None:
    air = measure_air(4, 1)
    assert air["missed"] == 0
    assert 0 < air["sent"] < air["readings"] // 2
    assert air["ours"] < air["filtered"] < air["every"]
