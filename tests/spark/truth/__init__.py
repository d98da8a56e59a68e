"""A scripted run of real nodes with known truth: what every analysis of logs is checked against."""

from __future__ import annotations

from tests.spark.truth.script import TRUTH, Truth, run_script

__all__ = ["TRUTH", "Truth", "run_script"]
