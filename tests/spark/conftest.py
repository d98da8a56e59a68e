"""One Spark for all tests of the backend: starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from denwatch.spark.session import build_session, list_common
from pyspark.sql import SparkSession

_JAVA = "spark.driver.extraJavaOptions"
# Hundreds of small queries, each run once: planning and compiling them well would take longer than
# running them badly.
QUICK = {
    "spark.sql.shuffle.partitions": "1",  # as `analyze` sets it for small logs
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.memory": "1g",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = build_session(
        "local[2]",
        name="tests",
        options=QUICK | {_JAVA: f"{list_common()[_JAVA]} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    )
    yield session
    session.stop()
