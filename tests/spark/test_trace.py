"""One notification's way: its steps, its waits, and the same for other tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.cli import spark as command
from denwatch.cli.errors import CommandError
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.analytics.trace import (
    Step,
    Wait,
    build_otlp,
    describe_trace,
    explain_waits,
    list_latest,
    read_id,
    trace_notification,
    write_id,
)
from denwatch.spark.source import read_kind
from pyspark.sql import SparkSession

from tests.spark.scripted_run import run_script

NOTE = {"device": "bed-1", "at": 0, "event": "patient", "source": ""}


def make_steps() -> list[Step]:
    """North reads; south is met after 30 s and gets it 2 s later; the medic comes at 50 s."""
    return [
        Step(100, "north", "note", NOTE),
        Step(100, "north", "match", {"subscriber": "medic7", "possible": 255, "certain": 51}),
        Step(32_000, "south", "note", NOTE | {"source": "north"}),
        Step(32_100, "north", "transfer", {"peer": "south", "is_out": True, "bytes": 200}),
        Step(50_000, "south", "send", {"subscriber": "medic7", "attempt": 1}),
        Step(50_200, "south", "deliver", {"subscriber": "medic7"}),
    ]


ARRIVALS = {
    ("contact", "north", "south"): [50, 30_000, 60_000],
    ("attach", "south", "medic7"): [49_900],
}


def test_a_wait_is_for_a_contact_then_for_its_turn() -> None:
    steps = explain_waits(make_steps(), ARRIVALS)
    assert steps[3].waits == (
        Wait(100, 30_000, "a contact with south"),
        Wait(30_000, 32_100, "its turn in the send queue"),
    )
    assert steps[4].waits[0] == Wait(32_000, 49_900, "medic7 to connect to south")
    alone = explain_waits(make_steps(), {})
    assert alone[3].waits == (Wait(100, 32_100, "its turn in the send queue"),)


def test_people_read_it_from_top_to_bottom() -> None:
    lines = describe_trace(0xAB, explain_waits(make_steps(), ARRIVALS))
    assert lines[0] == "00000000000000ab: patient of bed-1, 1970-01-01 00:00:00.000+00:00"
    waits = [line.partition("waited ")[2] for line in lines if "waited" in line]
    assert waits[:2] == ["29.9 s for a contact with south", "2.1 s for its turn in the send queue"]
    assert lines[-1] == "delivered to medic7"
    lines = describe_trace(0xAB, make_steps()[:3])
    assert lines[-2:] == [
        "delivered to nobody",
        "not delivered to medic7, as far as these logs say",
    ]


def test_other_tools_get_spans_that_nest() -> None:
    trace = build_otlp(-1, explain_waits(make_steps(), ARRIVALS))
    spans = {
        span["spanId"]: span
        for each in trace["resourceSpans"]
        for span in each["scopeSpans"][0]["spans"]
    }
    assert {len(span["traceId"]) for span in spans.values()} == {32}
    roots = [span for span in spans.values() if span["parentSpanId"] == ""]
    assert [span["name"] for span in roots] == ["at north"]
    for span in spans.values():
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        if span not in roots:
            assert span["parentSpanId"] in spans
    json.dumps(trace)


def test_ids_are_read_as_they_are_written() -> None:
    for number in (0, 1, -1, 1 << 62, -(1 << 63)):
        assert read_id(write_id(number)) == number
    for wrong in ("", "12", "0123456789abcdeg"):
        with pytest.raises(ValueError, match="no id"):
            read_id(wrong)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    run_script(folder)
    return folder


@pytest.fixture(scope="module")
def logs(spark: SparkSession, folder: Path) -> Iterator[Logs]:
    logs = Logs(lambda kind: read_kind(spark, [folder], kind))
    yield logs
    logs.release()


def test_every_delivery_of_a_run_is_in_its_notifications_trace(
    spark: SparkSession, folder: Path, logs: Logs
) -> None:
    delivered = read_kind(spark, [folder], "deliver").collect()
    note = max(delivered, key=lambda row: row["time"])["note"]
    expected = {(row["node"], row["subscriber"]) for row in delivered if row["note"] == note}
    steps = trace_notification(logs, note)
    assert {(s.node, s.fields["subscriber"]) for s in steps if s.kind == "deliver"} == expected
    assert steps[0].kind == "note"
    assert steps == sorted(steps, key=lambda step: step.time)
    sent = [s for s in steps if s.kind == "transfer" and s.fields["is_out"]]
    received = [s for s in steps if s.kind == "note" and s.fields["source"]]
    assert {(s.fields["source"], s.node) for s in received} <= {
        (s.node, s.fields["peer"]) for s in sent
    }
    assert trace_notification(logs, 1) == []
    assert 0 < list_latest(logs).count() <= 20


def test_the_command(
    spark: SparkSession,
    folder: Path,
    logs: Logs,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from contextlib import nullcontext

    monkeypatch.setattr(command, "open_session", lambda *_: nullcontext(spark))
    assert command.run_trace([str(folder)]) == 0
    listed = capsys.readouterr().out.splitlines()
    note = listed[1].split()[0]
    assert command.run_trace([str(folder), note]) == 0
    assert capsys.readouterr().out.splitlines() == describe_trace(
        read_id(note), trace_notification(logs, read_id(note))
    )
    assert command.run_trace([str(folder), note, "--format", "otlp"]) == 0
    assert json.loads(capsys.readouterr().out)["resourceSpans"]
    assert command.run_trace([str(folder), note, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["kind"] == "note"
    with pytest.raises(CommandError, match="no notification of this id"):
        command.run_trace([str(folder), "0" * 16])
    with pytest.raises(CommandError, match="in which logs"):
        command.run_trace(["0" * 16])
