"""What devices offer in each region, kept current: services' vectors refreshed by every batch.

Later news of a device replaces earlier, whatever order logs arrive in (`spark.services.refresh`);
so a batch needs what was known and its own records. When a vocabulary is explained that was not
known, attributes get their names, and all records are read again.
"""

from __future__ import annotations

from denwatch.spark.matching import Meanings
from denwatch.spark.services import SERVICES, list_names, read_offers, refresh
from denwatch.spark.source import build_schema
from denwatch.spark.stream.files import add_frame, list_files, read_files
from denwatch.spark.stream.notes import STATE
from denwatch.spark.stream.records import Written, name_stem
from denwatch.spark.stream.versions import Building
from denwatch.spark.tables import Tables
from pyspark.sql import DataFrame, SparkSession

_FOLDER = "services"


def update_offers(
    spark: SparkSession,
    building: Building,
    written: dict[str, Written],
    number: int,
    meanings: Meanings,
    *,
    is_renamed: bool,
) -> None:
    """Bring the offers to what a batch says."""
    if "device" not in written and not is_renamed:
        return
    folder = building.make(STATE, _FOLDER)
    known = list_files(folder)
    if is_renamed:
        before = read_files(spark, [], SERVICES)
        said = Tables(building.folder / "records").read(spark, "device").drop("day")
    else:
        before = read_files(spark, known, SERVICES)
        said = read_files(spark, written["device"].files, build_schema("device"))
    offers = refresh(before, read_offers(said, list_names(meanings)))
    add_frame(offers.coalesce(1), folder, name_stem(number))
    for path in known:
        path.unlink()


def read_services(spark: SparkSession, building: Building) -> DataFrame:
    """Return all that is known of what devices offer, also what they no longer do."""
    return read_files(spark, list_files(building.make(STATE, _FOLDER)), SERVICES)
