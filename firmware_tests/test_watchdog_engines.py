"""Viper, plain kernel, rater, protocol and formulas on unix MicroPython: the same answers.

`tests/watchdog/engines.py` says which of them are independent, and where. The long form is a
million random pairs of subscription and event on each word size: all aggregators, patterns, hedges,
rules and widths that the wire has.
"""

from __future__ import annotations

from functools import partial

import pytest

from firmware_tests.runtimes import find_unix
from firmware_tests.support import require
from firmware_tests.unix import run_code

PROGRAM = """
from tests.watchdog import engines
assert engines.filter_module.KERNEL == "viper"
print(*engines.compare({pairs}, {seed}))
"""


def compare(bits: int, pairs: int, seed: int) -> None:
    require(partial(find_unix, bits))
    output, code = run_code(PROGRAM.format(pairs=pairs, seed=seed), bits)
    assert code == 0, output
    done, hits, alone = map(int, output.split())
    assert done >= pairs
    assert hits > pairs // 10
    assert pairs // 4 < alone < pairs  # machine code decided these


@pytest.mark.parametrize("bits", [64, 32])
def test_engines_agree(bits: int) -> None:
    compare(bits, 50_000, 100 + bits)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [64, 32])
def test_engines_agree_on_a_million_pairs(bits: int) -> None:
    compare(bits, 1_000_000, 200 + bits)
