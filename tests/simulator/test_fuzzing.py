"""Fuzzing in its short form: the same scripts everywhere, and the defects that are known."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from random import Random

import cbor2
import msgspec
import pytest
from denwatch.node.core.events import Message
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.operator_protocol import OperatorProtocol
from denwatch.node.core.subscriber_protocol import SubscriberProtocol

from simulator.fuzzing.corpus import list_seeds
from simulator.fuzzing.engine import fuzz_seeded, shrink_finding, try_script
from simulator.fuzzing.inputs import InputReport, play_inputs
from simulator.fuzzing.inputs import run as run_inputs
from simulator.fuzzing.known_defects import KNOWN_INPUTS, find_known
from simulator.fuzzing.mutation import load_script, mutate_script
from simulator.fuzzing.targets import RequestTarget, Target, list_targets

COUNTS = {
    "codecs": 4_000,
    "mqtt": 500,
    "websocket": 500,
    "requests": 150,
    "operators": 150,
    "devices": 80,
    "peers": 40,
}
TARGETS = {target.name: target for target in list_targets()}
MEMORY = 32 << 20  # bytes that one script may make a node use at a time


def test_known_defects_are_still_there() -> None:
    mended = [
        (known.target, known.finding)
        for known in KNOWN_INPUTS
        if try_script(TARGETS[known.target], known.encoded) != known.finding
    ]
    assert not mended, "take them off the list, and add their scripts to corpus.py"


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_nothing_else_leaves_a_node(target: Target) -> None:
    known = find_known(target.name)
    report = fuzz_seeded(target, COUNTS[target.name], 7, [one.encoded for one in known.values()])
    new = {
        finding: load_script(s) for finding, s in report.findings.items() if finding not in known
    }
    assert not new
    assert report.count > COUNTS[target.name]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_memory_is_bounded(target: Target) -> None:
    rng, seeds = Random(3), list_seeds(target.name)
    scripts = seeds + [mutate_script(rng.choice(seeds), rng, seeds) for _ in range(20)]
    try_script(target, seeds[0])  # what is loaded and compiled once is not the script's
    tracemalloc.start()
    try:
        for script in scripts:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            try_script(target, script)
            assert tracemalloc.get_traced_memory()[1] - before < MEMORY, load_script(script)
    finally:
        tracemalloc.stop()


def test_every_target_plays_its_seeds_to_the_end() -> None:
    for target in TARGETS.values():
        for seed in list_seeds(target.name):
            assert try_script(target, seed) == "", load_script(seed)


def test_the_same_seed_gives_the_same_scripts() -> None:
    seeds = list_seeds("peers")
    first, second = Random(5), Random(5)
    for _ in range(300):
        one = mutate_script(first.choice(seeds), first, seeds)
        assert one == mutate_script(second.choice(seeds), second, seeds)


def test_a_mutation_stays_a_script() -> None:
    rng, seeds = Random(5), list_seeds("requests")
    changed = [mutate_script(rng.choice(seeds), rng, seeds) for _ in range(300)]
    assert len({*changed} - {*seeds}) > 250
    assert sum(isinstance(load_script(script), list) for script in changed) > 250


def test_an_exception_that_leaves_a_node_is_found_and_made_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receive = SubscriberProtocol.receive

    def receive_badly(
        protocol: SubscriberProtocol, transaction: Transaction, message: Message
    ) -> None:
        if b"\x07" in message.payload:
            raise KeyError("not expected")
        receive(protocol, transaction, message)

    monkeypatch.setattr(SubscriberProtocol, "receive", receive_badly)
    script = cbor2.dumps([[0, b"list"], [1, b"heart \x07rate is high"], [0, b"mute"]])
    target = RequestTarget()
    finding = try_script(target, script)
    assert finding == "KeyError in Node.handle"
    assert load_script(shrink_finding(target, script, finding)) == [[1, b"\x07"]]


def test_generated_inputs_do_no_harm_and_the_same_ones_come_again() -> None:
    """The short form of `make inputs`: two lives of each kind."""
    report = play_inputs(2_000, seed=5, life=250)
    assert report.is_good, report.findings
    assert report.counts == {"mqtt": 500, "requests": 500, "items": 504, "devices": 500}


def test_a_run_that_was_ended_goes_on_with_its_next_round(tmp_path: Path) -> None:
    state = tmp_path / "inputs.json"
    for count in ("24", "48"):
        assert run_inputs(["--count", count, "--seed", "5", "--state", str(state)]) == 0
    report = msgspec.json.decode(state.read_bytes(), type=InputReport)
    assert report.rounds == 2
    assert report.inputs >= 48


def test_an_input_at_which_a_node_fails_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(OperatorProtocol, "receive", fail)
    report = play_inputs(40, seed=5, life=10)
    assert report.findings == {"items: KeyError in Node.handle": 10}
    assert not report.is_good
