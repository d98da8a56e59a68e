"""Which device serves each subscription best where its owner is, and how well regions are served.

Both searches are made: the exact one, which is what is recommended, and SVDS beside it, so that
their answers and their cost can be compared on the site's own data. For a wish that nobody in its
region serves, the best of all other regions is named.
"""

from __future__ import annotations

from denwatch.spark.services.search import find_services
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

EVERYWHERE = ""  # the region of those who look in all regions
_PARTS = 4


def recommend_services(services: DataFrame, wishes: DataFrame, windows: DataFrame) -> DataFrame:
    """Return one row a wish: who serves it best.

    `services` are live. Columns: region, owner, subscription_id, words, wants, service (null: none
    here), beyond (attributes that it has and nobody asked for), probes, svd_service, svd_beyond,
    svd_probes, elsewhere (region and device, where there is none here).
    """
    exact = find_services(services, wishes, method="exact", parts=_PARTS).select(
        "region", "wish", "service", F.col("squared").alias("beyond"), "probes"
    )
    svd = find_services(services, wishes, method="weighted", parts=_PARTS).select(
        "region",
        "wish",
        F.col("service").alias("svd_service"),
        F.col("squared").alias("svd_beyond"),
        F.col("probes").alias("svd_probes"),
    )
    here = wishes.join(exact, ["region", "wish"], "left").join(svd, ["region", "wish"], "left")
    unserved = here.where("service is null").withColumn("region", F.lit(EVERYWHERE))
    anywhere = services.withColumn("service", F.concat_ws(": ", "region", "service")).withColumn(
        "region", F.lit(EVERYWHERE)
    )
    others = find_services(anywhere, unserved, method="exact", parts=_PARTS).select(
        "wish", F.col("service").alias("elsewhere")
    )
    known = windows.select(
        F.lower(F.lpad(F.hex("subscription_id"), 16, "0")).alias("wish"),
        *("subscription_id", "owner", "words"),
    )
    return (
        here.join(others, "wish", "left")
        .join(known, "wish")
        .select(
            *("region", "owner", "subscription_id", "words", "wants", "service", "beyond"),
            *("probes", "svd_service", "svd_beyond", "svd_probes", "elsewhere"),
        )
        .orderBy("region", "owner", "subscription_id")
    )


def sum_regions(services: DataFrame, recommended: DataFrame) -> DataFrame:
    """Return one row a region: services, wishes, served, unserved, and what both searches cost.

    Columns: region, services, wishes, served, elsewhere (served by another region only), unserved,
    beyond and svd_beyond (mean), probes and svd_probes (mean).
    """
    offered = services.groupBy("region").agg(F.count("*").alias("services"))
    is_here, is_there = F.col("service").isNotNull(), F.col("elsewhere").isNotNull()
    asked = recommended.groupBy("region").agg(
        F.count("*").alias("wishes"),
        F.count_if(is_here).alias("served"),
        F.count_if(~is_here & is_there).alias("elsewhere"),
        F.count_if(~is_here & ~is_there).alias("unserved"),
        *(
            F.round(F.avg(name), 2).alias(name)
            for name in ("beyond", "svd_beyond", "probes", "svd_probes")
        ),
    )
    counts = ["services", "wishes", "served", "elsewhere", "unserved"]
    return offered.join(asked, "region", "full").fillna(0, counts).orderBy("region")
