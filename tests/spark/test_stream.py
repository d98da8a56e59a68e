"""The stream: whatever order logs come in, its tables end as those of the batch."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from denwatch.cli.errors import CommandError
from denwatch.cli.spark import read_span
from denwatch.spark.stream import engine as engine_module
from denwatch.spark.stream import ranking
from denwatch.spark.stream import versions as versions_module
from denwatch.spark.stream.engine import StreamEngine, StreamSettings
from denwatch.spark.stream.matching import StreamMatcher
from denwatch.spark.stream.versions import VersionError, Versions
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.logs import make_blocks, write_segment
from tests.spark.scripted_run import run_script
from tests.spark.streams import Arrival, check_equal, count_rows, read_plainly, write_batch

SEED = 20261116
CRASH = "the power is gone"
STEPS = ("write_records", "update_decisions", "update_offers", "join_small")
QUIET = StreamSettings(judging=0, late=60_000)


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    names = ("spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage")
    names += ("spark.sql.codegen.factoryMode",)
    before = {name: spark.conf.get(name) for name in names}
    yield spark
    for name, old in before.items():
        if old is not None:
            spark.conf.set(name, old)


def follow(
    session: SparkSession, logs: Path, out: Path, settings: StreamSettings
) -> dict[str, object]:
    engine = StreamEngine(session, [logs], out, settings)
    try:
        return engine.run(once=True)
    finally:
        engine.close()


@pytest.mark.slow
def test_logs_that_come_bit_by_bit_end_in_the_tables_of_the_batch(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three clocks are wrong, which is found out on the way; segments are cut anywhere."""
    run_script(tmp_path / "whole", {"north": 86_400_000, "south": -3_600_000})
    arrival = Arrival(tmp_path / "whole", tmp_path / "logs", random.Random(SEED), pieces=3)
    for number in range(3):
        for _ in range(3):
            arrival.step()
        # The second batch is decided by Spark's tasks, the others by the driver.
        monkeypatch.setattr(ranking, "FEW", 0 if number == 1 else 20_000)
        is_last = arrival.is_over
        settings = StreamSettings(strategies=("epidemic",)) if is_last else QUIET
        summary = follow(session, tmp_path / "logs", tmp_path / "out", settings)
    assert arrival.is_over
    write_batch(session, tmp_path / "whole", tmp_path / "batch")
    check_equal(tmp_path / "out", tmp_path / "batch")
    with_spark = session.read.parquet(str(tmp_path / "out" / "records"))
    assert with_spark.count() == sum(summary["records"].values())  # type: ignore[attr-defined]
    told = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert told == summary
    assert (told["headline"]["hit"], told["headline"]["missed"]) == (4, 4)
    assert set(told["clocks_off_ms"].values()) == {86_400_000, -3_600_000}
    page = (tmp_path / "out" / "live.html").read_text(encoding="utf-8")
    assert '<meta http-equiv="refresh" content="5">' in page
    assert '<figure id="delivery"' in page


def test_a_batch_that_was_in_the_tables_is_left_out_when_it_comes_again(
    session: SparkSession, tmp_path: Path
) -> None:
    """Killed after the switch, before Spark's checkpoint knew: the commit is taken back here."""
    write_segment(tmp_path / "logs", make_blocks(2, 5))
    out = tmp_path / "out"
    follow(session, tmp_path / "logs", out, QUIET)
    for path in (out / "checkpoint" / "commits").glob("*0*"):
        path.unlink()
    write_segment(tmp_path / "logs", make_blocks(1, 3), node="south")
    summary = follow(session, tmp_path / "logs", out, QUIET)
    assert summary["records"] == {"attach": 13}
    rows = count_rows(read_plainly(out / "records"))
    assert len(rows) == 13
    assert set(rows.values()) == {1}
    shutil.move(out / "checkpoint", tmp_path / "elsewhere")
    with pytest.raises(VersionError, match="not the one that the tables were made with"):
        follow(session, tmp_path / "logs", out, QUIET)
    shutil.move(tmp_path / "elsewhere", out / "checkpoint")
    shutil.rmtree(out / "versions")
    (out / "current").unlink()
    with pytest.raises(VersionError, match="not the tables made with it"):
        follow(session, tmp_path / "logs", out, QUIET)


def test_a_worker_that_cannot_connect_is_started_again(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark waits ten seconds for a Python process; on a busy machine that is not enough."""
    write_segment(tmp_path / "logs", make_blocks(1, 4))
    told: list[str] = []
    engine = StreamEngine(session, [tmp_path / "logs"], tmp_path / "out", QUIET, tell=told.append)
    start = engine._start
    failures = ["Python worker failed to connect back.", "[CANNOT_OPEN_SOCKET] Can not open socket"]

    def start_late(once: bool) -> StreamingQuery:
        if failures:
            raise StreamingQueryException(failures.pop(0))
        return start(once)

    monkeypatch.setattr(engine_module, "_POLL", 0.01)
    monkeypatch.setattr(engine, "_start", start_late)
    try:
        assert engine.run(once=True)["records"] == {"attach": 4}
        assert [line for line in told if "starting again" in line] == [
            "Python worker failed to connect back.; starting again",
            "[CANNOT_OPEN_SOCKET] Can not open socket; starting again",
        ]
        failures.append("something else")
        with pytest.raises(VersionError, match="something else"):
            engine.run(once=True)
    finally:
        engine.close()


def test_a_crash_at_any_step_of_a_batch_changes_nothing(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch crashes at six places, one after the other; whoever reads sees it once, or not."""
    out = tmp_path / "out"
    write_segment(tmp_path / "logs", make_blocks(1, 4))
    follow(session, tmp_path / "logs", out, QUIET)
    write_segment(tmp_path / "logs", make_blocks(1, 3), node="south")
    link = versions_module._replace_link
    places: list[tuple[object, str, Callable[..., object], int]] = [
        *((engine_module, name, _crash_after(getattr(engine_module, name)), 4) for name in STEPS),
        (StreamMatcher, "update", _crash_after(StreamMatcher.update), 4),
        # The version has its name, and nobody points to it.
        (versions_module, "_replace_link", _crash_at_switch(lambda *_: None, link), 4),
        # Everybody sees it, and Spark does not know.
        (versions_module, "_replace_link", _crash_at_switch(link, link), 7),
    ]
    for target, name, crash, seen in places:
        with monkeypatch.context() as patch:
            patch.setattr(target, name, crash)
            with pytest.raises(VersionError, match=CRASH):
                follow(session, tmp_path / "logs", out, QUIET)
        rows = count_rows(read_plainly(out / "records"))
        assert (set(rows.values()), len(rows)) == ({1}, seen), name
    summary = follow(session, tmp_path / "logs", out, QUIET)
    assert summary["records"] == {"attach": 7}
    assert len(count_rows(read_plainly(out / "records"))) == 7
    assert (summary["batch"], len(list((out / "checkpoint" / "commits").glob("[0-9]*")))) == (1, 2)


def _crash_after(work: Callable[..., object]) -> Callable[..., object]:
    def crash(*arguments: object, **named: object) -> object:
        work(*arguments, **named)
        raise RuntimeError(CRASH)

    return crash


def _crash_at_switch(
    work: Callable[[Path, str], None], link: Callable[[Path, str], None]
) -> Callable[[Path, str], None]:
    def crash(path: Path, target: str) -> None:
        if path.name != versions_module.CURRENT:
            link(path, target)
            return
        work(path, target)
        raise RuntimeError(CRASH)

    return crash


def _crash_in_the_middle(versions: Versions) -> None:
    with versions.build() as building:
        (building.folder / "records" / "two").write_text("2")
        raise RuntimeError("a crash")


def test_a_version_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    versions = Versions(tmp_path, keep=0)
    try:
        with versions.build() as building:
            (building.make("records") / "one").write_text("1")
            assert not (tmp_path / "records" / "one").exists()
        first = versions.current
        with pytest.raises(RuntimeError, match="a crash"):
            _crash_in_the_middle(versions)
        assert [path.name for path in (tmp_path / "records").iterdir()] == ["one"]
        with versions.build() as building:
            (building.folder / "records" / "two").write_text("2")
            building.manifest.batch = 7
        assert not first.exists()
        with pytest.raises(VersionError, match="another"):
            Versions(tmp_path)
    finally:
        versions.close()
    # What a killed run leaves: one that was not whole, and one that was, but not switched to.
    (tmp_path / "versions" / ".partial-1-1").mkdir()
    (tmp_path / "versions" / "00000099").mkdir()
    again = Versions(tmp_path, keep=0)
    assert again.read_manifest().batch == 7
    assert {path.name for path in (tmp_path / "versions").iterdir()} == {again.current.name}
    assert sorted(path.name for path in (tmp_path / "records").iterdir()) == ["one", "two"]
    again.close()
    (tmp_path / "other" / "tables").mkdir(parents=True)
    with pytest.raises(VersionError, match="a folder each"):
        Versions(tmp_path / "other")


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5), ("500ms", 0.5), ("2", 2), ("1m", 60)])
def test_times_between_batches(text: str, seconds: float) -> None:
    assert read_span(text) == seconds


@pytest.mark.parametrize("text", ["0s", "soon", "-1s", "5 days"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(CommandError, match="--every"):
        read_span(text)
