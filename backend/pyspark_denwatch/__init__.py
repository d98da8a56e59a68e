"""How PySpark finds the format `denwatch` by itself: it imports installed modules `pyspark_*` and
registers their `DefaultSource`. Nothing else is here; import `denwatch.spark`."""

from denwatch.spark.source.datasource import LogSource as DefaultSource

__all__ = ["DefaultSource"]
