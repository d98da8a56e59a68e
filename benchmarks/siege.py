"""A node under siege: what a medic notices of it.

Three attacks, each beside a quiet phase just before it, on one real node on the loopback: a user
floods it with requests; 2,000 strangers hold connections, and come back when they are closed; a
member of the site with good keys lies at the rate of its line. Meanwhile a medic asks for the list
of their subscriptions, again and again, logs in anew now and then, and gets readings of a device.

Headline: `honest_p99_ratio_…`, the 99th percentile of the medic's round trips under attack over
that of the quiet phase before it, the median over the rounds (aim: at most 3 each); `node_exits`,
`node_restarts` (runs of the node that ended, also within one process) and `acked_lost` (aim: 0);
`memory_before_mib`, and `memory_after_mib_…` after the last phase of each attack.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import (
    describe_machine,
    format_table,
    median,
    percentile,
    run,
    save_text,
    say,
)
from benchmarks.siege_attackers import ATTACKS, STRANGERS, Target, attack
from simulator.client_packets import write_connect, write_publish, write_subscribe
from simulator.storms.stand import MEDIC, Stand

_ROUNDS, _PHASE = 5, 10.0  # and s of one phase
_QUICK_ROUNDS, _QUICK_PHASE = 1, 4.0
_PAUSE = 0.005  # s between two questions of the medic
_LOGINS = 50  # questions between two new logins
_READINGS = 5  # in each phase
_REST = 2.0  # s after an attack
_USER = "medic8"
WHAT = {
    "flood": "one user sends requests as fast as they are read",
    "strangers": f"{STRANGERS:,} strangers hold connections, half of them to the TLS port",
    "lies": "a member sends lies, replays and nonsense at line rate",
}


class Phase(NamedTuple):
    """What a medic noticed, and what share of a processor the node had."""

    trips: list[float]  # ms
    logins: int
    refused: int  # logins that were not answered well
    cpu: float

    @property
    def p99(self) -> float:
        return percentile(self.trips, 0.99)


class Medic:
    """A medic's app as bytes: nothing of a library is in the times."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._link = self._log_in("siege")

    def _log_in(self, client: str) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self._stand.plain_port), 60)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(write_connect(client, MEDIC, self._stand.password))
        if link.recv(4) != b"\x20\x02\x00\x00":
            raise OSError("refused")
        link.sendall(write_subscribe(1, f"dens/1/reply/{MEDIC}", qos=0))
        link.recv(64)
        return link

    def try_login(self) -> bool:
        """Log in once more, as another app; return whether that worked."""
        try:
            self._log_in("siege-again").close()
        except OSError:
            return False
        return True

    def ask(self) -> float:
        """Ask for the list; return the ms until the reply is there."""
        began = time.perf_counter()
        self._link.sendall(write_publish(f"dens/1/sub/{MEDIC}", b"list", 0, 0))
        got = b""
        while b'"subscriptions"' not in got:
            more = self._link.recv(1 << 16)
            if not more:
                raise OSError("the medic's link was closed")
            got += more
        return (time.perf_counter() - began) * 1000

    def watch(self, seconds: float) -> Phase:
        """Ask for so many seconds."""
        before, began, logins, refused = self._read_cpu(), time.monotonic(), 0, 0
        trips: list[float] = []
        readings = [began + seconds * (n + 0.5) / _READINGS for n in range(_READINGS)]
        while time.monotonic() < began + seconds:
            trips.append(self.ask())
            time.sleep(_PAUSE)
            if len(trips) % _LOGINS == 0:
                logins += 1
                refused += not self.try_login()
            if readings and time.monotonic() > readings[0]:
                readings.pop(0)
                self._stand.publish(1, timeout=60)
        used = self._read_cpu() - before
        return Phase(trips, logins, refused, used / (time.monotonic() - began))

    def _read_cpu(self) -> float:
        """Return the processor time that the node has had, in s."""
        fields = Path(f"/proc/{self._stand.node.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def besiege(name: str, target: Target) -> Iterator[None]:
    """Let an attack go on meanwhile."""
    spawn = multiprocessing.get_context("spawn")
    is_under_way = spawn.Event()
    attacker = spawn.Process(target=attack, args=(name, target, is_under_way), daemon=True)
    attacker.start()
    try:
        if not is_under_way.wait(120):
            raise RuntimeError(f"{name}: the attack did not begin")
        yield
        if not attacker.is_alive():
            raise RuntimeError(f"{name}: the attacker ended")
    finally:
        attacker.kill()
        attacker.join()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, report, and save if asked."""
    rounds = _QUICK_ROUNDS if options.quick else _ROUNDS
    seconds = _QUICK_PHASE if options.quick else _PHASE
    phases: dict[str, list[tuple[Phase, Phase]]] = {name: [] for name in ATTACKS}
    with tempfile.TemporaryDirectory(prefix="denwatch-siege-") as folder:
        stand = Stand(Path(folder), files=4_096)
        stolen = stand.site.add_node("south").folder
        target = Target(stand.plain_port, stand.tls_port, _USER, stand.stranger_password, stolen)
        memory: dict[str, int] = {}
        with stand:
            medic = Medic(stand)
            before = stand.measure_memory() >> 20
            for number in range(rounds):
                for name in ATTACKS:
                    quiet = medic.watch(seconds)
                    with besiege(name, target):
                        busy = medic.watch(seconds)
                    phases[name].append((quiet, busy))
                    memory[name] = stand.measure_memory() >> 20
                    trips = f"p99 {quiet.p99:.1f} → {busy.p99:.1f} ms"
                    say(f"round {number + 1}, {name}: {trips}, {memory[name]} MiB")
                    time.sleep(_REST)
            exits = 0 if stand.is_running else 1
            restarts = stand.node.journal.count("starts again from its store") + exits
            stand.wait_for_all()
            lost = len(stand.acknowledged - set(stand.received))
            known = len(stand.acknowledged)
    result = {
        **{f"honest_p99_ratio_{name}": _find_ratio(each) for name, each in phases.items()},
        "node_exits": exits,
        "node_restarts": restarts,
        "acked_lost": lost,
        "logins_refused": sum(busy.refused for each in phases.values() for _, busy in each),
        "memory_before_mib": before,
        **{f"memory_after_mib_{name}": each for name, each in memory.items()},
    }
    page = _write_page(phases, result, known, seconds)
    print(page)
    if options.save:
        save_text("siege.md", page)
    return result


def _find_ratio(phases: list[tuple[Phase, Phase]]) -> float:
    return round(median([busy.p99 / quiet.p99 for quiet, busy in phases]), 2)


def _write_page(
    phases: dict[str, list[tuple[Phase, Phase]]],
    result: dict[str, Any],
    known: int,
    seconds: float,
) -> str:
    rows = []
    for name, each in phases.items():
        quiet, busy = ([pair[i] for pair in each] for i in (0, 1))
        ratios = [b.p99 / q.p99 for q, b in each]
        rows.append(
            (
                WHAT[name],
                f"{median([p.p99 for p in quiet]):.1f}",
                f"{median([p.p99 for p in busy]):.1f}",
                f"{result[f'honest_p99_ratio_{name}']:.2f}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
                f"{median([median(b.trips) / median(q.trips) for q, b in each]):.2f}",
                f"{median([p.cpu for p in quiet]):.2f}",
                f"{median([p.cpu for p in busy]):.2f}",
                f"{result[f'memory_after_mib_{name}']}",
            )
        )
    header = (
        *("attack", "p99 before, ms", "p99 under attack, ms", "ratio (aim: 3)", "of the rounds"),
        *("ratio of medians", "processor before", "under attack", "MiB after the last"),
    )
    count = len(next(iter(phases.values())))
    logins = sum(busy.logins for each in phases.values() for _, busy in each)
    pause = f"{_PAUSE * 1000:.0f}"
    return f"""# Siege: what a medic notices of an attack

One real node on the loopback, with its defaults. A medic asks for the list of their subscriptions,
waits {pause} ms after the reply, and asks again; the time is from the request to the reply. Each
phase of {seconds:.0f} s under attack, with what the attacker had saved, follows a quiet one;
{count} rounds, medians. Attackers share the machine's processors with medic and node, at the lowest
priority, because they would have their own; other work was on this machine, too. A ratio of two
phases side by side says more than a time.

{format_table(header, rows)}

- The process ended {result["node_exits"]} times, runs of the node {result["node_restarts"]} times;
  {result["acked_lost"]} of {known} acknowledged readings did not reach the medic; of {logins} new
  logins during attacks {result["logins_refused"]} were refused. Memory before the first attack:
  {result["memory_before_mib"]} MiB.
- What one long request takes of the thread is what a p99 shows: about 10 ms, and several times that
  where more programs than processors want to run. After its savings a user gets two a second.
- The user's requests are lists, probes of 16 texts and subscriptions of 16 alternatives; it is not
  refused, it waits. The strangers' connections are silent, or in the middle of a first packet. A
  tenth of the member's messages are transactions of 50 receipts, signed, of notifications that do
  not exist, the others replays and 16 KiB of nonsense.
- Attackers and budgets were changed after first runs: with attackers at the node's own priority,
  returning in one burst, a quick run had a flood at 13 to 684 ms, strangers at 9 to 64 ms and
  lies at 8 to 57 ms. Prices of long requests, accepts at a time and refused frames were changed
  in the node then, the attackers' priority and the strangers' return (over 2 s) here. So only the
  change from one to the other is known, not how much of it is the node's.
- All come from one address, 127.0.0.1, which is the hardest case for a budget by address: medic
  and strangers have the same. On a network they have not.
- {describe_machine()}.
"""


def main() -> None:
    """Run the benchmark."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
