"""Services by region on Spark: who offers here what a person here asks for.

A device that says hello to a node offers, in that node's region, the attributes that it senses; a
subscription asks, where its owner is, for the attributes that it names. `records` reads both from
the logs, `refresh` keeps offers current batch by batch, `search` finds the best for each wish with
the finders of `node.services` (exact by bit masks, or SVDS), `summaries` is what people see.
"""

from __future__ import annotations

from denwatch.spark.services.records import Names, list_names, read_offers, read_wishes
from denwatch.spark.services.refresh import SERVICES, list_live, refresh
from denwatch.spark.services.search import FOUND, METHODS, WISHES, find_services
from denwatch.spark.services.summaries import recommend_services, sum_regions

__all__ = [
    "FOUND",
    "METHODS",
    "SERVICES",
    "WISHES",
    "Names",
    "find_services",
    "list_live",
    "list_names",
    "read_offers",
    "read_wishes",
    "recommend_services",
    "refresh",
    "sum_regions",
]
