"""Metrics for Prometheus: what the core counts, and a small page that shows it.

The only file that imports prometheus_client. Names are `denwatch_<what>_total`, with one label
`kind` where the core gives one, and gauges that are asked for when the page is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from wsgiref.simple_server import WSGIServer

from denwatch.node.core.interface import Count
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class Metrics:
    """One node's counters; gauges come from a function at the time somebody looks."""

    def __init__(self, node: str, read_gauges: Callable[[], Mapping[str, float]]) -> None:
        self.registry = CollectorRegistry()
        self._node = node
        self._totals: dict[tuple[str, str], int] = {}
        self._read_gauges = read_gauges
        self._server: tuple[WSGIServer, Thread] | None = None
        self.registry.register(self)

    def count(self, what: Count) -> None:
        """Add one count of the core: on the path of every message, so a dictionary is all."""
        key = (what.name, what.label)
        self._totals[key] = self._totals.get(key, 0) + what.amount

    def read_totals(self) -> dict[str, int]:
        """Return all counters by "name" or "name.label"."""
        return {
            f"{name}.{label}" if label else name: total
            for (name, label), total in sorted(self._totals.items())
        }

    def collect(self) -> Iterable[Metric]:
        """Yield counters and gauges; prometheus_client's interface."""
        counters: dict[str, CounterMetricFamily] = {}
        for (name, label), total in sorted(self._totals.copy().items()):
            if name not in counters:
                counters[name] = CounterMetricFamily(
                    f"denwatch_{name}", name.replace("_", " "), labels=["node", "kind"]
                )
            counters[name].add_metric([self._node, label], total)
        yield from counters.values()
        for name, value in self._read_gauges().items():
            gauge = GaugeMetricFamily(f"denwatch_{name}", name.replace("_", " "), labels=["node"])
            gauge.add_metric([self._node], value)
            yield gauge

    def serve(self, host: str, port: int) -> int:
        """Show the page on http://host:port/metrics; return the port."""
        self._server = start_http_server(port, host, registry=self.registry)
        return int(self._server[0].server_port)

    def stop(self) -> None:
        """Close the page."""
        if self._server is not None:
            self._server[0].shutdown()
            self._server[0].server_close()
            self._server[1].join()
