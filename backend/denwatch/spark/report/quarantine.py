"""What is in quarantine, in words: how much of what, and the first of it. Pure."""

from __future__ import annotations

import pandas as pd

_WORDS = {"damage": "damaged", "duplicate": "there twice", "foreign": "foreign"}


def describe_quarantine(bad: pd.DataFrame) -> str:
    """Return a sentence for people; `bad` has the rows of the quarantine."""
    if bad.empty:
        return "nothing in quarantine"
    counts = bad.groupby("class").size()
    told = [f"{count} {_WORDS.get(str(kind), str(kind))}" for kind, count in sorted(counts.items())]
    damaged = bad[bad["class"] == "damage"]
    lost = int(damaged["length"].dropna().sum())
    words = f"{len(bad):,} {'part' if len(bad) == 1 else 'parts'} of the logs in quarantine: "
    words += ", ".join(told)
    if lost:
        words += f"; {lost:,} records are known to be lost"
    worst = (damaged if len(damaged) else bad).iloc[0]
    return f"{words}; the first: {worst['file']}: {worst['reason']}"
