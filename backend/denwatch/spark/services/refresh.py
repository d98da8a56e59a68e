"""What is offered where, kept current: later news of a service replaces earlier.

News may come in any order, twice, and in batches of any size: what counts is the version, which
rises with every record that a node writes. What was withdrawn is kept as a row without attributes,
so that older news that comes after it changes nothing.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SERVICES = (
    "region string, service string, version struct<epoch: bigint, number: bigint>, "
    "has array<string>, against array<string>"
)
_KEY = ("region", "service")


def refresh(services: DataFrame, updates: DataFrame) -> DataFrame:
    """Return the services after some updates; both have the columns of SERVICES.

    `has` lists the attributes that a service has, `against` those that it refuses (ternary ones);
    a null in `has` withdraws it.
    """
    both = services.select(*_columns()).unionByName(updates.select(*_columns()))
    said = F.struct("has", "against")
    latest = both.groupBy(*_KEY).agg(
        F.max("version").alias("version"), F.max_by(said, F.col("version")).alias("said")
    )
    return latest.select(*_KEY, "version", "said.has", "said.against")


def list_live(services: DataFrame) -> DataFrame:
    """Return the services that are offered now."""
    return services.where("has is not null")


def _columns() -> list[str]:
    return [*_KEY, "version", "has", "against"]
