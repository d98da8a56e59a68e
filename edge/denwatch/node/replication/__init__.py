"""Replication as a pure library: contexts, sets, prints, frames, clocks, strategies."""
