"""What `denwatch analyze` costs: jobs, CPU-seconds, memory, and how both grow with the logs.

Every analysis is a process of its own on logs of a made-up site (`analyze_site`): clocks in doubt,
restarts, top-k. CPU-seconds are those of the driver, Java and all workers together: they depend
less than seconds on what else the machine does. `demo` has about as many records as `make demo`.

DuckDB computes those of the tables that are plain SQL over the records (deliveries and latencies,
by subscriber and by node, links, transfers, how old things were on arrival) from the same Parquet
files, in one process. `over_duckdb` compares that with the same five queries on Spark, in the
session that has just done the analysis: above 1, Spark takes more CPU. `whole_over_duckdb` has the
whole analysis above the line, of which DuckDB does neither matching, nor the best possible, nor the
replay of strategies.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.analyze_site import Site, SiteLogs
from benchmarks.common import describe_machine, format_table, run, save_text, say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Site(nodes=6, notes=90)
DEMO = Site(nodes=3, notes=620, hours=1.5, subscriptions=9)
STEPS = (1, 4, 16)
MEDIUM = Site(nodes=12, notes=375, hours=24, subscriptions=60)  # times STEPS
MANY_RUNS = Site(nodes=100, notes=300, runs=50, hours=96, subscriptions=20)
MILLION = Site(nodes=2, notes=40, hours=2, subscriptions=1_000_000, widths=(0, 1))
LARGE = Site(nodes=12, notes=200_000, runs=24, hours=48, subscriptions=60, carried=2_000)
KINDS = ("deliver", "note", "contact_end", "transfer")
DUCKDB = (
    "create view records_{kind} as select * from read_parquet('{folder}/kind={kind}/**/*.parquet')"
)
QUERIES = {
    "delivered": """
        select count(*) as delivered, {quantiles}(latency, {shares}) as latency
        from (select note, subscriber, min(d.time) - min(n.read) as latency from records_deliver d
              join (select item, min({at}) as read from records_note group by item) n on note = item
              group by note, subscriber)""",
    "subscribers": """
        select subscriber, count(*), {quantiles}(latency, {shares})
        from (select note, subscriber, min(d.time) - min(n.read) as latency from records_deliver d
              join (select item, min({at}) as read from records_note group by item) n on note = item
              group by note, subscriber) group by subscriber""",
    "links": """
        select least(node, peer), greatest(node, peer), count(*), sum(items_out + digest_out)
        from records_contact_end group by all""",
    "relays": """
        select count(*) as relays, sum(bytes) as bytes from records_transfer
        where not is_out and what = 'notification'""",
    "staleness": """
        select node, origin, count(*), {quantiles}(time - read, {shares})
        from (select node, item, any_value(origin) as origin, min(time) as time, min({at}) as read
              from records_note group by node, item) group by node, origin""",
}


DIALECTS = {
    "duckdb": {"quantiles": "quantile_cont", "shares": "[0.5, 0.9, 0.95, 0.99]", "at": '"at"'},
    "spark": {"quantiles": "percentile", "shares": "array(0.5, 0.9, 0.95, 0.99)", "at": "at"},
}


def query_duckdb(records: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the plain tables, computed by DuckDB from the Parquet records."""
    import duckdb

    connection = duckdb.connect()
    for kind in KINDS:
        connection.execute(DUCKDB.format(kind=kind, folder=records))
    return {
        name: connection.execute(query.format(**DIALECTS["duckdb"])).fetchall()
        for name, query in QUERIES.items()
    }


def query_spark(session: SparkSession, records: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the plain tables, computed by Spark from the Parquet records."""
    for kind in KINDS:
        frame = session.read.parquet(str(records / f"kind={kind}"))
        frame.createOrReplaceTempView(f"records_{kind}")
    return {
        name: [tuple(row) for row in session.sql(query.format(**DIALECTS["spark"])).collect()]
        for name, query in QUERIES.items()
    }


# One analysis, in a process of its own -------------------------------------------------------


def list_processes() -> Iterator[tuple[float, int]]:
    """Yield CPU-seconds and the most memory (bytes) of this process and all below it."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        peak = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
        yield ticks.get(pid, 0) / os.sysconf("SC_CLK_TCK"), 1024 * sum(peak)


def measure_cpu() -> float:
    """Return the CPU-seconds of all processes so far."""
    return sum(seconds for seconds, _ in list_processes())


def analyze_once(logs: Path, out: Path) -> dict[str, Any]:
    """Analyse logs in this process as the command does; return what it took."""
    from denwatch.spark.report.analysis import analyze
    from denwatch.spark.session import build_session, is_little

    started = time.monotonic()
    session = build_session(is_brief=is_little([logs]))
    ready, ready_cpu = time.monotonic(), measure_cpu()
    steps: list[tuple[str, float]] = []

    def note(words: str) -> None:
        steps.append((words, measure_cpu()))

    report = analyze(session, [logs], out, tell=note)
    found = {
        "seconds": time.monotonic() - started,
        "seconds_session": ready - started,
        "cpu_seconds": measure_cpu(),
        "cpu_session": ready_cpu,
        "jobs": session.sparkContext._jsc.sc().dagScheduler().numTotalJobs(),
        "peak_mb": sum(peak for _, peak in list_processes()) / 1e6,
        "delivered": int(report.headline["delivered"]),
        "steps": [(words, after - before) for (words, before), (_, after) in pairwise(steps)],
    }
    before = measure_cpu()
    plain = query_spark(session, out / "records")
    found["plain_cpu_seconds"] = measure_cpu() - before
    found["plain_delivered"] = plain["delivered"][0][0]
    session.stop()
    return found


def run_site(site: Site, seed: int) -> dict[str, Any]:
    """Write the logs of a site, analyse them in a new process, and ask DuckDB for the same."""
    folder = Path(tempfile.mkdtemp(prefix="denwatch-analyze-"))
    try:
        records = SiteLogs(site, seed).write(folder / "logs")
        command = [sys.executable, "-m", "benchmarks.analyze", "--once", str(folder)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        found["records"] = records
        before = time.process_time()
        plain = query_duckdb(folder / "out" / "records")
        found["duckdb_cpu_seconds"] = time.process_time() - before
        counts = plain["delivered"][0][0], found["plain_delivered"], found["delivered"]
        if len(set(counts)) > 1:
            raise AssertionError(f"DuckDB, SQL on Spark and the analysis differ: {counts}")
        found["work"] = found["cpu_seconds"] - found["cpu_session"]
        told = f"{found['cpu_seconds']:.1f} CPU-s, {found['seconds']:.1f} s"
        say(f"{records:,} records: {found['jobs']} jobs, {told}")
        return found
    finally:
        shutil.rmtree(folder)


def scale(site: Site, times: int) -> Site:
    """Return a site with so many times the notifications."""
    return replace(site, notes=site.notes * times)


SITES = {
    "small": SMALL,
    "demo": DEMO,
    **{f"{times}x": scale(MEDIUM, times) for times in STEPS},
    "runs": MANY_RUNS,  # 5,000 of them
    "subscriptions": MILLION,
    "large": LARGE,  # some ten million records
}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the sites of DENWATCH_SITES, which are all unless it names some."""
    named = os.environ.get("DENWATCH_SITES") or ",".join(SITES)
    chosen = ["small", "demo"] if options.quick else named.split(",")
    found = {name: run_site(SITES[name], options.seed) for name in chosen}
    result: dict[str, Any] = {"jobs": max(each["jobs"] for each in found.values())}
    if "small" in found:
        result["cpu_seconds_small"] = found["small"]["cpu_seconds"]
    if "demo" in found:
        result["seconds_demo"] = found["demo"]["seconds"]
    for name, each in found.items():
        plain = max(each["duckdb_cpu_seconds"], 1e-9)
        result[f"records_{name}"] = each["records"]
        result[f"peak_mb_{name}"] = each["peak_mb"]
        result[f"records_per_cpu_second_{name}"] = each["records"] / max(each["work"], 1e-9)
        result[f"over_duckdb_{name}"] = each["plain_cpu_seconds"] / plain
        result[f"whole_over_duckdb_{name}"] = each["work"] / plain
    if {"1x", "16x"} <= set(found):
        result["growth_16x_over_1x"] = found["16x"]["work"] / found["1x"]["work"]
    if "runs" in found:
        result["runs"] = MANY_RUNS.nodes * MANY_RUNS.runs
    if options.save:
        save_text("analyze.md", write_page(found, result))
    return result


def write_page(found: dict[str, dict[str, Any]], result: dict[str, Any]) -> str:
    """Return the page of results."""
    rows = [
        (
            name,
            f"{each['records']:,}",
            each["jobs"],
            round(each["cpu_seconds"], 1),
            round(each["cpu_session"], 1),
            round(each["seconds"], 1),
            round(each["peak_mb"]),
            round(each["plain_cpu_seconds"], 2),
            round(each["duckdb_cpu_seconds"], 2),
        )
        for name, each in found.items()
    ]
    header = ("logs", "records", "jobs", "CPU-s", "of it session", "seconds", "peak MB")
    table = format_table((*header, "plain SQL, Spark CPU-s", "DuckDB CPU-s"), rows)
    first, each = next(iter(found.items()))
    steps = format_table(
        (f"step of the analysis {first}", "CPU-s"),
        [(words, round(seconds, 2)) for words, seconds in each["steps"]],
    )
    figures = format_table(("figure", "value"), sorted(result.items()))
    return (
        "# What an analysis costs\n\n`python -m benchmarks.analyze --json --save`; "
        f"{describe_machine()}.\n\n{__doc__.split(chr(10), 2)[2].strip()}\n\n"
        f"{table}\n\n{steps}\n\n{figures}\n"
    )


def main() -> None:
    """Run the benchmark, or one analysis of it."""
    if sys.argv[1:2] == ["--once"]:
        folder = Path(sys.argv[2])
        print(json.dumps(analyze_once(folder / "logs", folder / "out")))
        return
    run(measure, __doc__)


if __name__ == "__main__":
    main()
