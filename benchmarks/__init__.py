"""Measurements, as ratios taken in one run against a named baseline."""
