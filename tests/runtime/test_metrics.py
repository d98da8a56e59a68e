"""The metrics' page, read as Prometheus reads it."""

from __future__ import annotations

import urllib.request

from denwatch.node.core.events import Count
from denwatch.node.runtime.metrics import Metrics
from prometheus_client.parser import text_string_to_metric_families


def read_page(metrics: Metrics) -> dict[tuple[str, str], float]:
    port = metrics.serve("127.0.0.1", 0, lambda: {"subscriptions": 7})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            text = page.read().decode()
    finally:
        metrics.stop()
    return {
        (sample.name, sample.labels.get("kind", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_and_gauges_are_on_the_page() -> None:
    metrics = Metrics("north")
    metrics.count(Count("notes_delivered", 2))
    metrics.count(Count("notes_delivered"))
    metrics.count(Count("device_refused", 1, "tag"))
    metrics.count(Count("device_refused", 4, "replay"))
    page = read_page(metrics)
    assert page["denwatch_notes_delivered_total", ""] == 3
    assert page["denwatch_device_refused_total", "tag"] == 1
    assert page["denwatch_device_refused_total", "replay"] == 4
    assert page["denwatch_subscriptions", ""] == 7
    assert metrics.read_totals() == {
        "device_refused.replay": 4,
        "device_refused.tag": 1,
        "notes_delivered": 3,
    }
