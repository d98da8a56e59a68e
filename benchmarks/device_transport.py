"""The device's link and the whole watchdog in numbers, for `python -m benchmarks.device`.

`measure(options)` runs a Mosquitto on a free port of this machine, and against it

* QoS 1 messages a second of our link, one after the other and with a window of 4, and of
  micropython-lib's umqtt.simple, which `find_umqtt` gets with pip;
* an hour of simulated sampling by the full watchdog, everything imported, connected, 200
  subscriptions, spool on, on the 32-bit port, in a heap of 64 KiB. The code is in a ROM file
  system, as on a board (MicroPython 1.25 and later run it where it stands); and once more from
  `.mpy` files, in the smallest heap that is enough for them.

`measure_tls(options)` is what a TLS connection with a verified certificate takes of memory, on the
32-bit port.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from denwatch.cli.devices.images import build_role, build_romfs
from denwatch.cli.node import init_node
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector

from benchmarks.common import say
from benchmarks.small_node import DEVICE, KEY_ID, NODE, SECRET
from firmware_tests.images import compile_program, run_in_heap
from firmware_tests.runtimes import find_library, find_unix
from firmware_tests.unix import run_code
from simulator.site import ServerProcess, make_mosquitto

HEAP = 64  # KiB that shall be enough
LARGEST = 96
SUBSCRIPTIONS = 200
ROUNDS = 3600  # an hour, a sample a second

_PUBLISH = """
import asyncio, random, time
from denwatch.watchdog.link import DeviceLink, LinkSettings, NodeAddress

class Client:
    name = "bench"
    topics = ()
    will = None

    def connect(self, node):
        pass

def read_clock():
    return time.ticks_ms()

async def main():
    link = DeviceLink(Client(), [NodeAddress("s", "127.0.0.1", {port})], read_clock,
                    random.randrange, LinkSettings(window={window}, first_delay=0))
    task = asyncio.create_task(link.run())
    while link.server is None:
        await asyncio.sleep(0.01)
    payload = bytes(32)
    async def send(count):
        for i in range(count):
            assert await link.publish("bench", payload)
    start = time.ticks_us()
    await asyncio.gather(*[send({count} // {window}) for i in range({window})])
    print({count} * 1000000 // time.ticks_diff(time.ticks_us(), start))

asyncio.run(main())
"""

_UMQTT = """
import time
from umqtt.simple import MQTTClient
client = MQTTClient("umqtt", "127.0.0.1", {port})
client.connect()
payload = bytes(32)
start = time.ticks_us()
for i in range({count}):
    client.publish(b"bench", payload, qos=1)
print({count} * 1000000 // time.ticks_diff(time.ticks_us(), start))
"""

# The hashlib that boards have, not this port's frozen 5 KB.
_HASHLIB = "import sys, uhashlib; sys.modules['hashlib'] = uhashlib\n"

# Maps a ROM file system as a board has it in its flash: code is run where it stands.
_MOUNT = (
    _HASHLIB
    + """
import ffi, sys, uctypes, vfs
libc = ffi.open("libc.so.6")
file = libc.func("i", "open", "si")({image!r}, 0)
at = libc.func("P", "mmap", "PiiiiI")(0, {size}, 1, 2, file, 0)
vfs.mount(vfs.VfsRom(uctypes.bytearray_at(at, {size})), "/rom")
sys.path.insert(0, "/rom")
del libc, file, at
import program
"""
)

# An hour: the clock goes a second a round, as fast as the node acknowledges.
_HOUR = """
from denwatch.watchdog.boot import load
app = load()
import gc
import asyncio
import json
import os

class Simulated:
    now = 0
    def __call__(self):
        return self.now

async def main():
    clock = Simulated()
    with open({config!r}) as file:
        config = json.load(file)
    dog = app.Watchdog(config, 0, clock)
    config.clear()
    app.unload("config")
    asyncio.create_task(dog.link.run())
    asyncio.create_task(dog.send())
    while dog.language.filter.count < {subscriptions}:
        await asyncio.sleep(0.02)
        clock.now += 20
    start = clock.now
    low = gc.mem_free()
    for i in range({rounds}):
        clock.now = start + 1000 * i
        dog.execution.step(clock.now)
        await asyncio.sleep(0)
        if i % 5 == 4:
            dog.spool.flush(clock.now)
            dog.guard.rest()
            low = min(low, gc.mem_free())  # after a collection: what is really left
        if i % 10 == 9:
            while dog.spool.has_waiting():
                await asyncio.sleep(0.005)
                clock.now += 5
    gc.collect()
    print(json.dumps({{"lowest": low, "report": dog.report()}}))

asyncio.run(main())
"""


class Bench:
    """A Mosquitto, a small node, and a folder that looks like a device's file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        broker = make_mosquitto(folder)
        self.port = broker.port
        self.processes = [broker]
        broker.start()

    def start_node(self) -> None:
        """Start the node with 200 subscriptions of three attributes."""
        lines = []
        for handle in range(SUBSCRIPTIONS):
            predicates = [
                Predicate(a, (handle * 7 + 60 * a) % 200, (handle * 7 + 60 * a) % 200 + 50, 60)
                for a in range(3)
            ]
            vector = SubscriptionVector(1, predicates, threshold=100, handle=handle)
            lines.append(encode(vector).hex())
        path = self.folder / "subscriptions"
        path.write_text("\n".join(lines))
        command = [sys.executable, "-m", "benchmarks.small_node", str(self.port)]
        command += [str(self.folder / "db"), str(path)]
        node = ServerProcess("node", command, self.folder / "node.log")
        self.processes.append(node)
        node.launch()

    def close(self) -> None:
        """End every process of this bench."""
        for process in self.processes:
            process.kill()

    def run_unix(self, code: str, path: str) -> str:
        """Run a program on the 64-bit port and return what it prints."""
        done = subprocess.run(
            [str(find_unix(64)), "-X", "heapsize=4M", "-c", code],
            env={"MICROPYPATH": f"{path}:.frozen"},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return done.stdout.strip()

    def write_config(self) -> Path:
        """Write the configuration of a device with three attributes from a CSV file."""
        readings = self.folder / "readings.csv"
        lines = ["a,b,c"]
        for i in range(ROUNDS):
            lines.append(f"{i * 7 % 256},{(i // 60 * 31) % 256},{i * i // 97 % 256}")
        readings.write_text("\n".join(lines) + "\n")
        columns = ["a", "b", "c"]
        source = {"kind": "csv", "path": str(readings), "columns": columns, "scales": [1, 1, 1]}
        channels = [
            {"source": "file", "field": a, "attribute": a, "low": 0, "high": 255} for a in range(3)
        ]
        config = {
            "device": DEVICE,
            "vocabulary": "00" * 8,
            "capacity": 17 * SUBSCRIPTIONS + 16,
            "nodes": [
                {
                    "name": NODE,
                    "url": f"mqtt://127.0.0.1:{self.port}",
                    "key_id": KEY_ID,
                    "key": SECRET.hex(),
                }
            ],
            "spool": {"file": str(self.folder / "spool"), "blocks": 8},
            "sources": {"file": source},
            "events": [{"event": 1, "period": 1000, "channels": channels}],
            "patience": 100_000,
        }
        path = self.folder / "watchdog.json"
        path.write_text(json.dumps(config))
        return path

    def run_hour(
        self, kibibytes: int, rounds: int = ROUNDS, in_place: bool = True
    ) -> tuple[bool, str]:
        """Run the hour on the 32-bit port with so much heap; (worked, output).

        `in_place`: from a ROM file system; else from `.mpy` files, which are copied to the heap.
        """
        device = self.folder / "device"
        if not device.exists():
            build_role("full", "x86", device)
        program = self.folder / "program.py"
        program.write_text(
            _HOUR.format(
                config=str(self.write_config()), subscriptions=SUBSCRIPTIONS, rounds=rounds
            )
        )
        compile_program(program, device / "program.mpy")
        limit = 15 + rounds / 15  # s; out of memory, a task dies and the others wait for it
        if not in_place:
            return run_in_heap(device, kibibytes, _HASHLIB + "import program", limit)
        image = self.folder / "device.romfs"
        build_romfs(device, image)
        code = _MOUNT.format(image=str(image), size=image.stat().st_size)
        return run_in_heap(self.folder, kibibytes, code, limit)


def find_umqtt() -> str | None:
    """Return the folder that holds micropython-lib's `umqtt`, or None: pip cannot install it.

    DENWATCH_UMQTT names it, for example `micropython/umqtt.simple` of a micropython-lib checkout.
    """
    folder = os.environ.get("DENWATCH_UMQTT")
    if folder and (Path(folder) / "umqtt" / "simple.py").exists():
        return folder
    say("umqtt is not measured: DENWATCH_UMQTT does not name a folder that holds it")
    return None


def measure_link(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Return QoS 1 messages a second, ours (the best of three runs) and umqtt's."""
    count = 2000 if options.quick else 10_000
    result: dict[str, Any] = {}
    for name, window in (("qos1_one_by_one_per_s", 1), ("qos1_per_s", 4)):
        code = _PUBLISH.format(port=bench.port, window=window, count=count)
        result[name] = max(int(bench.run_unix(code, str(find_library()))) for _ in range(3))
    folder = find_umqtt()
    result["umqtt_qos1_per_s"] = None
    if folder:
        code = _UMQTT.format(port=bench.port, count=100)
        result["umqtt_qos1_per_s"] = int(bench.run_unix(code, folder))
    say("QoS 1 messages a second:", result)
    return result


def find_full_heap(options: argparse.Namespace) -> dict[str, Any]:
    """Run the hour in 64 KiB, in more if that is not enough, and say what was left of it.

    From `.mpy` files a tenth of the hour must do: what fails there for want of memory fails early.
    """
    rounds = ROUNDS // 10 if options.quick else ROUNDS
    smallest, output = _find_heap(rounds, True)
    files, _ = _find_heap(ROUNDS // 10, False)
    report = json.loads(output.splitlines()[-1])
    return {
        "full_heap_kib": smallest,
        "full_lowest_free_bytes": report["lowest"],
        "full_rounds": report["report"]["rounds"],
        "full_notifications": report["report"]["matched"],
        "full_files_heap_kib": files,
    }


def _find_heap(rounds: int, in_place: bool) -> tuple[int, str]:
    """Return the first heap (KiB) in which the hour works, and its output.

    Each try has a broker and a node of its own: a device whose spool is new has numbers that an old
    node knows already.
    """
    for kibibytes in range(HEAP, LARGEST + 1, 4):
        with tempfile.TemporaryDirectory() as name:
            bench = Bench(Path(name))
            try:
                bench.start_node()
                worked, output = bench.run_hour(kibibytes, rounds, in_place)
            finally:
                bench.close()
        if worked:
            return kibibytes, output
    raise RuntimeError(f"the full watchdog in {LARGEST} KiB: {output}")


# The C library's own account of what is allocated: mbedTLS takes its memory there, on this port.
_TLS = """
import ffi, gc, socket
count = ffi.open("libc.so.6").func("v", "malloc_stats", "")
from denwatch.watchdog.link import make_context
def note(word):
    gc.collect()
    print("step", word, gc.mem_alloc())
    count()
note("start")
with open({ca!r}, "rb") as file:
    context = make_context(file.read())
note("context")
plain = socket.socket()
plain.connect(socket.getaddrinfo("127.0.0.1", {port})[0][-1])
link = context.wrap_socket(plain, server_hostname="localhost")
note("connected")
link.write(bytes(200))
assert len(link.read(200)) == 200
note("used")
"""


def measure_tls(_: argparse.Namespace) -> dict[str, Any]:
    """Return the bytes that a TLS connection takes, as the C library counts them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        init_node(folder / "north", "north")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "north/tls/node.pem", folder / "north/tls/node.key")
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=_echo, args=(server, context), daemon=True)
            thread.start()
            ca, port = str(folder / "north/tls/ca.der"), server.getsockname()[1]
            pad = ("env", "MALLOC_TOP_PAD_=0")  # so that its peak is known to a page
            output, status = run_code(_TLS.format(ca=ca, port=port), 32, heap="256k", prefix=pad)
            thread.join(60)
    steps = re.findall(r"step (\w+) (\d+).*?Total.*?in use bytes *= *(\d+)", output, re.S)
    if status or len(steps) != 4:
        raise RuntimeError(output)
    start, context_used, _, used = (int(taken) for _, _, taken in steps)
    heap = int(steps[-1][1]) - int(steps[0][1])
    tops = [int(top) for top in re.findall(r"Total.*?system bytes *= *(\d+)", output, re.S)]
    result = {
        "tls_context_bytes": context_used - start,
        "tls_connection_bytes": used - context_used,
        "tls_peak_bytes": tops[-1] - start,
        "tls_python_bytes": heap,
    }
    say("TLS:", result)
    report = f"""One connection with a verified certificate, on the 32-bit port of MicroPython 1.25:
{used - start:,} bytes outside of Python's heap, as the C library counts what mbedTLS allocated
({context_used - start:,} of them the authority's certificate), {result["tls_peak_bytes"]:,} at most
during the handshake (to a page), and {heap:,} bytes in it. On a board without an operating system
all of it is Python's heap, with the buffers of its firmware; the 64 KiB above are without TLS.
"""
    return {**result, "report": report}


def _echo(server: socket.socket, context: ssl.SSLContext) -> None:
    """Serve one connection: return what comes."""
    link, _ = server.accept()
    with context.wrap_socket(link, server_side=True) as secure:
        secure.sendall(secure.recv(200))
        secure.recv(1)  # until the other side closes


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything of this file, but for TLS."""
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        try:
            result = measure_link(bench, options)
            start = time.monotonic()
            result.update(find_full_heap(options))
            say(f"the watchdog: {result}, {time.monotonic() - start:.0f} s")
        finally:
            bench.close()
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    print(json.dumps(measure(parser.parse_args())))
