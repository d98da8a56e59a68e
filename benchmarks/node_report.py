"""What the node's benchmark found: as figures, as lines, as the committed page and its picture."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import (
    describe_machine,
    format_table,
    median,
    new_figure,
    save_figure,
    save_text,
)
from benchmarks.node_crowd import FILTERS, LARGE, Crowd
from benchmarks.node_release import AWAY, COMMIT

_BATCH = 20
_AIM, _AIM_SINGLE = 0.9, 0.6  # of Mosquitto's relay
_AIM_RELEASE, _AIM_FANOUT = 1.7, 3  # times the last release
_AWAY = f"""One publisher, {AWAY} persistent sessions that are away: every message is {AWAY} copies,
which the node writes to its disk before the PUBACK. Medians of all rounds."""
_CROWD: tuple[tuple[str, Callable[[Crowd], object]], ...] = (
    ("idle links", lambda crowd: f"{crowd.links:,}"),
    ("… s until all were connected", lambda crowd: round(crowd.links_s, 2)),
    ("… KB of memory each", lambda crowd: round(crowd.kb_per_link, 1)),
    (f"{FILTERS} filters in one SUBSCRIBE, ms", lambda crowd: round(crowd.filters_ms, 1)),
    (f"a payload of {LARGE // 1_000_000} MB, ms", lambda crowd: round(crowd.large_ms)),
    ("delay of a message, p50, ms", lambda crowd: round(crowd.delay_ms, 2)),
    ("… beside a reader that stalls", lambda crowd: round(crowd.stalled_delay_ms, 2)),
    ("… ratio", lambda crowd: round(crowd.delay_ratio, 2)),
)
_DESCRIBED = """Links are opened 50 at a time. The payload goes from one client to another at QoS 1;
the node's `packet_bytes` is raised for it. The delay is that of 300 messages of 2 kB a second from
one client to another, without and with a third one that subscribed to them and does not read."""


@dataclass
class Report:
    """All figures of one run."""

    subscriptions: int
    notifications: int
    publishers: tuple[int, ...]
    plain: dict[str, list[float]] = field(default_factory=dict)  # server: PUBACK/s
    samples: dict[str, list[float]] = field(default_factory=dict)
    stages: dict[int, dict[str, float]] = field(default_factory=dict)  # batch: stage: µs
    crowds: dict[str, Crowd] = field(default_factory=dict)  # by server
    why_no_release: str = f"the commit {COMMIT[:7]} is not in this history (a shallow clone)"
    amqtt_relay: float = 0.0
    load: float = 0.0  # the machine's load average
    half_rate: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    busy_mb: float = 0.0
    subscriptions_mb: float = 0.0
    full_mb: float = 0.0
    database_mb: float = 0.0
    start_subscriptions_s: float = 0.0
    start_full_s: float = 0.0

    def add_plain(self, server: str, rates: list[float]) -> None:
        """Note PUBACK/s for each number of publishers."""
        self.plain[server] = rates

    def add(self, name: str, value: float) -> None:
        """Note one of several measurements."""
        self.samples.setdefault(name, []).append(value)

    def find(self, name: str) -> float:
        """Return the middle one."""
        return median(self.samples[name])

    def compare(self, path: str, relay: str) -> float:
        """Return the middle of the ratios of two that were measured in turn."""
        pairs = zip(self.samples[path], self.samples[relay], strict=True)
        return median([one / other for one, other in pairs])

    def compare_release(self, name: str) -> float | None:
        """Return what today's node does of what the last release does; None: it was not there."""
        release = f"{name}, release"
        return round(self.compare(name, release), 2) if release in self.samples else None

    def summarise(self) -> dict[str, Any]:
        """Return the headline figures."""
        return {
            "durable_pubacks_per_s": round(self.plain["node"][-1]),
            "durable_note_pubacks_per_s": round(self.plain["node, notifications"][-1]),
            "mosquitto_pubacks_per_s": round(self.plain["Mosquitto"][-1]),
            "amqtt_pubacks_per_s": round(self.plain["amqtt"][-1]),
            "full_path_per_s": round(self.find(f"paho path {_BATCH}")),
            "full_path_single_per_s": round(self.find("paho path 1")),
            "mosquitto_relay_per_s": round(self.find("paho relay")),
            "full_path_over_mosquitto_relay": round(
                self.compare(f"paho path {_BATCH}", "paho relay"), 3
            ),
            "full_path_single_over_mosquitto_relay": round(
                self.compare("paho path 1", "paho relay"), 3
            ),
            "raw_full_path_per_s": round(self.find(f"path {_BATCH}")),
            "raw_full_path_single_per_s": round(self.find("path 1")),
            "raw_mosquitto_relay_per_s": round(self.find("relay")),
            "raw_full_path_over_mosquitto_relay": round(self.compare(f"path {_BATCH}", "relay"), 3),
            "raw_full_path_over_last_release": self.compare_release(f"path {_BATCH}"),
            "persistent_fanout_per_s": round(self.find("fanout")),
            "mosquitto_persistent_fanout_per_s": round(self.find("fanout, Mosquitto")),
            "persistent_fanout_over_last_release": self.compare_release("fanout"),
            "amqtt_relay_per_s": round(self.amqtt_relay),
            "cpu_us_per_notification": round(self.find(f"cpu {_BATCH}")),
            "p50_ms_half_load": round(self.p50_ms, 2),
            "p99_ms_half_load": round(self.p99_ms, 2),
            "stalled_reader_delay_ratio": round(self.crowds["node"].delay_ratio, 2),
            "memory_mb": round(self.full_mb),
            "startup_s": round(self.start_full_s, 1),
            "load_average": round(self.load, 1),
            "share_without_processor": round(self.find(f"waiting {_BATCH}"), 2),
        }

    def describe(self) -> list[str]:
        """Return what a person reads during a run."""
        return [f"{name}: {value}" for name, value in self.summarise().items()]


def save_report(report: Report) -> None:
    """Write the committed page and its picture."""
    _draw(report)
    save_text("node.md", _write(report))


def _write(report: Report) -> str:
    found = report.summarise()
    singles = [report.find(name) for name in ("path 1", "paho path 1")]
    batches = [report.find(name) for name in (f"path {_BATCH}", f"paho path {_BATCH}")]
    relays = [report.find(name) for name in ("relay", "paho relay")]
    machine = f"{describe_machine()}, {os.cpu_count()} cores, load average {report.load:.0f}"
    return f"""# A whole node under load

`python -m benchmarks.node --save`, one run; {machine} while the full path
was measured. Every server is a process of its
own on the loopback; the node is `denwatch node` with SQLite in WAL mode, `synchronous=FULL`,
{report.subscriptions:,} subscriptions, its rate limits and queues raised, a window of 100, else
as it is shipped, measured once its compiled matcher is ready. Mosquitto 2.0.11 and amqtt 0.12.1
keep everything in memory.

## PUBACKs a second

One raw asyncio client for all, a window of 10 for each publisher, QoS 1. Plain messages (100 B)
wait for a persistent session that is away: the node writes each to its disk before the PUBACK, the
others do not. Notifications are frames of registered devices with one NV each: authenticated,
matched, committed.

{format_table(("server", *(f"{n} publishers" for n in report.publishers)), _list_plain(report))}

Group commit is why the node gains from more publishers: all that arrived in one turn of its loop is
one transaction.

## The full path

From a device's frame to the subscriber's PUBACK: tag checked, matched with {report.subscriptions:,}
subscriptions, committed, sent as JSON at QoS 1, the acknowledgement committed. One device, one
subscriber; beside it Mosquitto relays 100 B at QoS 1 from one client to another. Medians of
{len(report.samples["relay"])} rounds.

{
        format_table(
            ("notifications/s", "raw client", "paho-mqtt"),
            (
                ("node, 1 NV in a frame", *map(round, singles)),
                (
                    f"node, {_BATCH} NVs in a frame, as a watchdog with a spool sends",
                    *map(round, batches),
                ),
                ("Mosquitto's relay", *map(round, relays)),
                ("amqtt's relay", round(report.amqtt_relay), "-"),
            ),
        )
    }

With paho-mqtt, the client that our apps use, the node does
**{found["full_path_over_mosquitto_relay"]:.2f}** of Mosquitto's relay with {
        _BATCH
    } NVs in a frame and
{found["full_path_single_over_mosquitto_relay"]:.2f} with one (aims: {_AIM} and {
        _AIM_SINGLE
    }). With the raw client it is
{found["raw_full_path_over_mosquitto_relay"]:.2f}: Mosquitto relays in {
        report.find("relay cpu"):.0f} µs of processor
time, the node's Python needs {
        found["cpu_us_per_notification"]
    } µs, with a database row for the notification,
one for who wants it, one for the delivery, and four records of the log. The node's thread was ready
to run and had no processor for {100 * report.find(f"waiting {_BATCH}"):.0f} % of the time.

At half of the raw client's rate with one NV in a frame ({
        report.half_rate:.0f}/s, evenly spaced) the latency
from the device's write to the subscriber's read was {report.p50_ms:.1f} ms (p50) and {
        report.p99_ms:.1f} ms (p99).

## Where the time goes

![stages](node.svg)

{format_table(("stage", "µs, 1 NV in a frame", f"µs, {_BATCH} NVs"), _list_stages(report))}

Sampled in one process, without sockets; what the process as a whole uses is
{report.find("cpu 1"):.0f} and {report.find(f"cpu {_BATCH}"):.0f} µs.

## Sessions that are away

{_AWAY}

{format_table(("server", "copies/s"), _list_fanouts(report))}

## The last release

{_describe_release(report)}

## Crowds

{
        format_table(
            ("what", *report.crowds),
            [(words, *map(tell, report.crowds.values())) for words, tell in _CROWD],
        )
    }

{_DESCRIBED}

## Memory and start-up

{
        format_table(
            ("on the disk", "resident MB", "start-up s"),
            (
                (
                    f"{report.subscriptions:,} subscriptions",
                    round(report.subscriptions_mb),
                    report.start_subscriptions_s,
                ),
                (
                    f"and {report.notifications:,} notifications ({report.database_mb:.0f} MB)",
                    round(report.full_mb),
                    report.start_full_s,
                ),
            ),
        )
    }

The rows were written with the node's own encoders, not through the network. After all loads above
the first node had {report.busy_mb:.0f} MB.
"""


def _list_plain(report: Report) -> list[Sequence[object]]:
    names = {
        "node": "node, durable",
        "node, notifications": "node, durable, a notification each",
        "Mosquitto": "Mosquitto, in memory",
        "amqtt": "amqtt, in memory",
    }
    return [(words, *map(round, report.plain[name])) for name, words in names.items()]


def _list_fanouts(report: Report) -> list[Sequence[object]]:
    names = {
        "fanout": "node, durable",
        "fanout, release": "node, last release, durable",
        "fanout, Mosquitto": "Mosquitto, in memory",
    }
    return [
        (words, round(report.find(name))) for name, words in names.items() if name in report.samples
    ]


def _describe_release(report: Report) -> str:
    """Return the comparison with the last release, or that it is missing."""
    found = report.summarise()
    if found["raw_full_path_over_last_release"] is None:
        return f"Missing: {report.why_no_release}."
    rows = [
        (
            f"full path, raw client, {_BATCH} NVs in a frame",
            f"≥ {_AIM_RELEASE}",
            found["raw_full_path_over_last_release"],
        ),
        (
            "copies for sessions that are away",
            f"≥ {_AIM_FANOUT}",
            found["persistent_fanout_over_last_release"],
        ),
    ]
    table = format_table(("today's node over the last release's", "aim", "measured"), rows)
    return f"The commit {COMMIT[:7]} in a worktree, in turn with today's node.\n\n{table}"


def _list_stages(report: Report) -> list[Sequence[object]]:
    singles, batches = report.stages[1], report.stages[_BATCH]
    rows: list[Sequence[object]] = [
        (stage, round(singles[stage]), round(batches[stage])) for stage in singles
    ]
    return [*rows, ("in all", round(sum(singles.values())), round(sum(batches.values())))]


def _draw(report: Report) -> None:
    figure, (left, right) = new_figure(2, width=5.6)
    stages = list(report.stages[1])
    for place, batch in enumerate((1, _BATCH)):
        heights = [row + 0.2 - 0.4 * place for row in range(len(stages))]
        label = f"{batch} NV in a frame" if batch == 1 else f"{batch} NVs in a frame"
        left.barh(heights, [report.stages[batch][s] for s in stages], 0.38, label=label)
    left.set_yticks(range(len(stages)), stages)
    left.invert_yaxis()
    left.set_xlabel("µs of processor time a notification")
    left.legend(loc="lower right")
    for name, rates in report.plain.items():
        right.plot(report.publishers, rates, marker="o", label=name)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xticks(report.publishers, [str(n) for n in report.publishers])
    right.set_xlabel("publishers")
    right.set_ylabel("PUBACK/s")
    right.set_ylim(top=6 * max(max(rates) for rates in report.plain.values()))
    right.legend(ncols=2, loc="upper center")
    save_figure(figure, "node.svg")
