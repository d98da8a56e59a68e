"""Global matching: every notification of every node against every subscription in force then.

    index = build_index(spark, find_windows(subscribe, unsubscribe).toArrow())
    matches = match_notes(find_notes(note), index)

`match_globally` does all of it. `windows` prepares subscriptions, notifications and vocabularies,
`kernels` decodes vectors, `index` and `value_index` write the subscriptions into files that workers
map, `job` runs on Spark.
"""

from __future__ import annotations

from pathlib import Path

from denwatch.spark.matching.index import SharedIndex, TooManyError, build_index
from denwatch.spark.matching.job import MATCHES, match_files, match_notes
from denwatch.spark.matching.windows import FOREVER, Meanings, find_notes, find_windows
from pyspark.sql import DataFrame

__all__ = ["FOREVER", "MATCHES", "Meanings", "SharedIndex", "TooManyError", "build_index"]
__all__ += ["collect_meanings", "find_notes", "find_windows", "match_files", "match_globally"]
__all__ += ["match_notes"]

_INDEXED = ("subscription_id", "subscriber", "begins", "ends", "language", "vocabulary", "vector")


def collect_meanings(vocabulary: DataFrame) -> Meanings:
    """Return the vocabularies of the log's records of the kind."""
    rows = vocabulary.where("document is not null").select("hash", "document").distinct().collect()
    return Meanings({bytes(row["hash"]): row["document"] for row in rows})


def match_globally(
    notes: DataFrame,
    windows: DataFrame,
    vocabulary: DataFrame | Meanings | None = None,
    *,
    files: str | Path | None = None,
    folder: str | Path | None = None,
    limit: int = 1 << 30,
) -> tuple[DataFrame, SharedIndex]:
    """Return all matches, and the index that finds them.

    `notes` and `windows` are what `find_notes` and `find_windows` return, `vocabulary` the records
    of that kind or what they mean; `files` is where the notifications are as Parquet, if they are.
    The index is built here, on the driver; the matches when they are asked for.
    """
    meanings = collect_meanings(vocabulary) if isinstance(vocabulary, DataFrame) else vocabulary
    table = windows.select(*_INDEXED).toArrow()
    index = build_index(windows.sparkSession, table, folder=folder, limit=limit, meanings=meanings)
    if files is not None:
        return match_files(windows.sparkSession, [files], index), index
    return match_notes(notes, index), index
