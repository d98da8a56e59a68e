"""One emulated day of a size, in a process of its own: what it costs in time and memory.

    python -m benchmarks.field_scale 1000 6

prints one JSON object. A process of its own, because the peak of memory is one of the process.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from typing import Any

from benchmarks.common import say
from simulator.day import Day, Plan
from simulator.link import Radio

HOUR = 3_600_000
PEOPLE = DEVICES = 10  # the same load for all sizes: only the carriers grow
PERIOD = 300_000  # ms from reading to reading of a device
STRATEGY = "spray:8"
REACH = 20.0  # m: radios of small devices, and a sparse network


def measure_day(nodes: int, hours: float, seed: int) -> dict[str, Any]:
    """Return the figures of one day, and its cost."""
    began, cpu = time.perf_counter(), time.process_time()
    day = Day(
        Plan(
            seed,
            nodes,
            round(hours * HOUR),
            STRATEGY,
            radio=Radio(reach=REACH),
            people=PEOPLE,
            devices=DEVICES,
            period=PERIOD,
        )
    )
    made = time.process_time() - cpu
    gc.collect()
    gc.freeze()  # what stays all day need not be looked through again and again
    day.run(lambda share: say(f"{nodes} nodes: {share:.0%}") if share * 20 % 1 == 0 else None)
    return {
        **day.describe(),
        "wall_s": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
        "contacts_cpu_s": round(made, 1),
        "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


if __name__ == "__main__":
    print(json.dumps(measure_day(int(sys.argv[1]), float(sys.argv[2]), 7)))
