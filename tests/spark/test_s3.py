"""Logs in S3: a server on loopback (moto), and Spark's own connector, which Maven brings.

`make s3` runs it. DENWATCH_S3 is the Python that has moto; DENWATCH_JARS may name a folder with the
connector's files, where Maven cannot be asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simulator.site import find_free_ports
from tests.spark.logs import make_blocks, write_segment

SERVER = os.environ.get("DENWATCH_S3", "")
JARS = os.environ.get("DENWATCH_JARS", "")
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not SERVER, reason="needs moto and Spark's connector: make s3")


@contextmanager
def serve_s3(folder: Path) -> Iterator[str]:
    """Run a server; yield its URL."""
    (port,) = find_free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with (folder / "server.txt").open("w") as said:
        command = [SERVER, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/moto-api/").close()
                break
            except OSError:
                assert server.poll() is None, (folder / "server.txt").read_text()
                time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait()


def put(url: str, data: bytes = b"") -> None:
    """Store an object, or make a bucket; this server checks no signature."""
    key = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host"
    headers = {"Authorization": f"{key}, Signature=0", "Content-Type": "application/octet-stream"}
    urllib.request.urlopen(urllib.request.Request(url, data, headers, method="PUT")).close()


def list_settings(url: str) -> dict[str, str]:
    """Return Spark's settings for a server on this machine."""
    s3a = "spark.hadoop.fs.s3a"
    settings = {
        f"{s3a}.endpoint": url,
        f"{s3a}.endpoint.region": "us-east-1",
        f"{s3a}.access.key": "test",
        f"{s3a}.secret.key": "test",
        f"{s3a}.path.style.access": "true",
    }
    if JARS:
        settings["spark.jars"] = ",".join(map(str, sorted(Path(JARS).glob("*.jar"))))
    else:
        from pyspark import __path__ as places

        (client,) = Path(places[0], "jars").glob("hadoop-client-api-*.jar")
        version = client.stem.removeprefix("hadoop-client-api-")
        settings["spark.jars.packages"] = f"org.apache.hadoop:hadoop-aws:{version}"
    return settings


# Each line that it reads asks it to look at the bucket; it prints the files copied and the records.
READER = """
import json, sys
from pathlib import Path
from denwatch.spark.session import build_session
from denwatch.spark.source.storage import fetch_logs
from denwatch.spark.record_tables import RecordTables
session = build_session("local[1]", options=json.loads(sys.argv[1]), is_brief=True)
for _ in sys.stdin:
    folders, copied = fetch_logs(session, ["s3a://logs/site"], Path("here"))
    print(copied, sum(RecordTables("records").update(session, folders).values()), flush=True)
session.stop()
"""


def test_logs_in_a_bucket_are_read_and_only_new_ones_are_copied(tmp_path: Path) -> None:
    north = write_segment(tmp_path / "made", make_blocks(2, 10))
    south = write_segment(tmp_path / "made", make_blocks(1, 5), "south")
    with serve_s3(tmp_path) as url, (tmp_path / "errors.txt").open("w") as errors:
        put(f"{url}/logs")
        put(f"{url}/logs/site/north/{north.name}", north.read_bytes())
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, json.dumps(list_settings(url))],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert reader.stdin is not None
        assert reader.stdout is not None

        def look() -> str:
            print("look", file=reader.stdin, flush=True)
            assert reader.stdout is not None
            return reader.stdout.readline().strip() or (tmp_path / "errors.txt").read_text()

        try:
            assert look() == "1 20"
            assert look() == "0 20"
            put(f"{url}/logs/site/south/{south.name}", south.read_bytes())
            assert look() == "1 25"
        finally:
            reader.stdin.close()
            reader.wait()
