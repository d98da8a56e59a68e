"""The console on a phone's screen in real Chromium: how large, how soon, how smooth.

A console is served from this process, with notifications put in by hand, so that nothing but the
page is measured. A *first load* begins with an empty cache at the link that `denwatch console`
prints, and ends when the first card is on the screen; its bytes are those that crossed the
(emulated) network, compressed, until then. The network is Chromium's own emulation: "Slow 4G" as
Lighthouse defines it (150 ms a round trip, 1.6 Mbit/s), and the setting of that name in Chromium's
developer tools (562.5 ms for each request, 1.44 Mbit/s), which is far slower.

Then 1,000 notifications of 100 patients are in the feed, and one more arrives: the longest task of
the page's main thread until its card is first, from Chromium's trace. A task over 50 ms is one that
a person may feel. Its processor time is beside it: this machine has other work.

Headline: `first_load_kb` (aim: at most 150), `first_load_s_slow_4g` (1.5 on a quiet machine),
`longest_task_ms` (50).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from benchmarks.common import describe_machine, format_table, median, run, save_text, say
from simulator.served_console import ServedConsole, running_browser, served_console

_LOADS, _ARRIVALS = 9, 15
_QUICK_LOADS, _QUICK_ARRIVALS = 1, 3
_PATIENTS, _NOTIFICATIONS = 100, 1_000
_PHONE = {"width": 390, "height": 844}
_PATIENCE = 120_000  # ms
_FIRST_CARD = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("article")) return;
  observer.disconnect();
  requestAnimationFrame(() => (window.firstCard = performance.now()));
}).observe(document, { childList: true, subtree: true });
"""


@dataclass(frozen=True)
class Network:
    """An emulated network: ms before an answer begins, bytes a second."""

    name: str
    latency: float
    down: float
    up: float


SLOW_4G = Network("Slow 4G, as Lighthouse defines it", 150, 1.6e6 / 8, 750e3 / 8)
DEVTOOLS = Network("“Slow 4G” of Chromium's developer tools", 562.5, 1.44e6 / 8, 675e3 / 8)
LOCAL = Network("not slowed down", 0, -1, -1)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything and return the headline figures."""
    loads = _QUICK_LOADS if options.quick else _LOADS
    arrivals = _QUICK_ARRIVALS if options.quick else _ARRIVALS
    with running_browser() as own:
        with make_folder() as name, served_console(Path(name)) as console:
            console.add_all([(f"bed-{n}", {"heart_rate": 80.0 + 20 * n}) for n in range(5)])
            say("first loads")
            found = {
                network.name: [load_first(own, console, network) for _ in range(loads)]
                for network in (SLOW_4G, DEVTOOLS, LOCAL)
            }
        with make_folder() as name, served_console(Path(name)) as console:
            say(f"one notification among {_NOTIFICATIONS:,}")
            tasks = watch_arrivals(own, console, arrivals)
    seconds = {key: [one.seconds for one in each] for key, each in found.items()}
    every = [one for each in found.values() for one in each]
    result = {
        "first_load_kb": median([one.size for one in every]) / 1000,
        "first_load_s_slow_4g": median(seconds[SLOW_4G.name]),
        "first_load_s_developer_tools": median(seconds[DEVTOOLS.name]),
        "first_load_s_not_slowed": median(seconds[LOCAL.name]),
        "first_load_cpu_s": median([one.cpu for one in every]),
        "longest_task_ms": median([task for task, _ in tasks]),
        "longest_task_ms_worst": max(task for task, _ in tasks),
        "longest_task_cpu_ms": median([cpu for _, cpu in tasks]),
        "longest_task_cpu_ms_worst": max(cpu for _, cpu in tasks),
    }
    report = write_report(result, seconds, len(tasks))
    print(report)
    if options.save:
        save_text("console.md", report)
    return result


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for one console."""
    return tempfile.TemporaryDirectory(prefix="denwatch-console-")


@dataclass(frozen=True)
class FirstLoad:
    """Bytes and seconds until the first card, and the seconds of processor of the page's thread."""

    size: int
    seconds: float
    cpu: float


def load_first(browser: Browser, console: ServedConsole, network: Network) -> FirstLoad:
    """Load the page with nothing kept."""
    # The worker fetches the page's files once more, after the page is there.
    context = browser.new_context(viewport=_PHONE, service_workers="block")  # type: ignore[arg-type]
    page = context.new_page()
    page.add_init_script(_FIRST_CARD)
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    session.send(
        "Network.emulateNetworkConditions",
        {
            "offline": False,
            "latency": network.latency,
            "downloadThroughput": network.down,
            "uploadThroughput": network.up,
        },
    )
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(console.address, timeout=_PATIENCE)
    page.wait_for_function("window.firstCard", timeout=_PATIENCE)
    size, seconds = sum(sizes), page.evaluate("firstCard") / 1000
    metrics = session.send("Performance.getMetrics")["metrics"]
    cpu = next(one["value"] for one in metrics if one["name"] == "TaskDuration")
    context.close()
    return FirstLoad(size, seconds, cpu)


def watch_arrivals(
    browser: Browser, console: ServedConsole, arrivals: int
) -> list[tuple[float, float]]:
    """Let notifications arrive one by one; return each one's longest task: ms, and of processor."""
    beds = [(f"bed-{n % _PATIENTS}", {"heart_rate": 60.0 + n % 90}) for n in range(_NOTIFICATIONS)]
    console.add_all(beds, 500)
    context = browser.new_context(viewport=_PHONE)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(console.address, timeout=_PATIENCE)
    page.wait_for_selector("article", timeout=_PATIENCE)
    page.wait_for_timeout(3_000)  # the worker fetches, the state is kept
    found = []
    for number in range(arrivals):
        browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
        name = f"new-{number}"
        console.add(name, heart_rate=200.0 + number / 10)
        page.wait_for_selector(f"article[data-device={name}]", timeout=_PATIENCE)
        page.wait_for_timeout(2_500)  # what it sets off: the sound's turn, the state is kept
        found.append(find_longest(json.loads(browser.stop_tracing()), page))
    context.close()
    return found


def find_longest(trace: dict[str, Any], page: Page) -> tuple[float, float]:
    """Return the longest task of the page's main thread: its ms, and its ms of processor."""
    events = trace["traceEvents"]
    mains = {
        (one["pid"], one["tid"])
        for one in events
        if one.get("name") == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        (one["dur"] / 1000, one.get("tdur", 0) / 1000)
        for one in events
        if one.get("ph") == "X"
        and one["name"].endswith("RunTask")
        and (one["pid"], one["tid"]) in mains
    ]
    if not tasks:
        raise RuntimeError(f"no task of {page.url} was traced")
    return max(task for task, _ in tasks), max(cpu for _, cpu in tasks)


def write_report(result: dict[str, Any], seconds: dict[str, list[float]], arrivals: int) -> str:
    """Return the page of results."""
    rows: list[tuple[object, ...]] = [
        ("first load, KB compressed", "≤ 150", result["first_load_kb"]),
    ]
    for name, values in seconds.items():
        aim = "≤ 1.5, on a quiet machine" if name == SLOW_4G.name else ""
        rows.append((f"first card, s, {name}", aim, median(values)))
    rows += [
        ("… processor time of the page's main thread, s", "", result["first_load_cpu_s"]),
        ("longest task when one arrives, ms, median", "≤ 50", result["longest_task_ms"]),
        ("… the worst", "≤ 50", result["longest_task_ms_worst"]),
        ("… its processor time, ms, median", "", result["longest_task_cpu_ms"]),
        ("… its processor time, ms, the worst", "", result["longest_task_cpu_ms_worst"]),
    ]
    loads = len(next(iter(seconds.values())))
    return f"""# Console: how large, how soon, how smooth

A phone's screen in headless Chromium, nothing kept from earlier visits. A first load begins at the
link that `denwatch console` prints and ends when the first card is drawn: median of {loads}. "Slow
4G" as Lighthouse defines it is {SLOW_4G.latency:g} ms a round trip and 1.6 Mbit/s; the setting of
that name in Chromium's developer tools, {DEVTOOLS.latency:g} ms for each request, is beside it. The
longest task is that of the page's main thread in Chromium's trace when one notification arrives
among {_NOTIFICATIONS:,} of {_PATIENTS} patients, of {arrivals} arrivals. Console, browser and other
work shared two cores: a phone has a slower processor, and all of it for itself.

{format_table(("what", "aim", "measured"), rows)}

- {describe_machine()}.
"""


def main() -> None:
    """Run it."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
