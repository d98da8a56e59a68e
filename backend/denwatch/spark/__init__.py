"""The backend: every node's log looked at together, on Spark.

`session` starts Spark, `source` reads the nodes' logs, `tables` keeps them as Parquet, `matching`
holds every notification against every subscription. Uses of the node's packages are limited to
their pure parts: the log's decoder, the matcher, the vocabulary.
"""
