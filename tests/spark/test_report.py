"""The report and the commands: pictures with data, one page that asks for nothing, clear errors."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from denwatch.cli import spark as commands
from denwatch.cli.errors import CommandError
from denwatch.spark.report import EmptyLogsError, Report, analyze
from denwatch.spark.report import pictures as draw
from denwatch.spark.report.page import Picture, ReportPage, show_table, write_page, write_table
from denwatch.spark.report.svg import (
    AxisScale,
    choose_spans,
    choose_ticks,
    choose_times,
    format_number,
    format_span,
)
from pyspark.sql import SparkSession

from tests.spark.scripted_run import run_script

PICTURES = {
    *("delivery", "latency", "causes", "links", "replicas", "strategies", "sources", "terms"),
    "regions",
}
QUICK = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")


class Done(NamedTuple):
    report: Report
    logs: Path
    told: list[str]


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    """The report of the scripted run, beside a file that is no log and a log cut short."""
    folder = tmp_path_factory.mktemp("report")
    run_script(folder / "logs")
    (folder / "logs" / "holiday.dlog").write_bytes(b"\xff\xd8\xff\xe0 a photograph")
    before = {name: spark.conf.get(name) for name in QUICK}
    told: list[str] = []
    report = analyze(
        spark,
        [folder / "logs"],
        folder / "out",
        strategies=("direct", "spray:2", "epidemic"),
        tell=told.append,
    )
    yield Done(report, folder / "logs", told)
    spark.catalog.clearCache()
    for name, old in before.items():
        if old is not None:
            spark.conf.set(name, old)


# The report -----------------------------------------------------------------------------------


def test_the_page_stands_alone(done: Done) -> None:
    html = done.report.page.read_text(encoding="utf-8")
    assert set(re.findall(r'<figure id="(\w+)"', html)) == PICTURES
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert html.count("<script") == 1
    links = re.findall(r'(?:src|href|action|data)="([^"]*)"', html)
    assert links == ["data:,"]
    assert "@import" not in html
    assert "url(" not in html
    assert len(html) < 400_000


def test_what_could_not_be_read_is_told(done: Done) -> None:
    html = done.report.page.read_text(encoding="utf-8")
    assert "holiday.dlog" in html
    assert "could not be read (1 " in html
    assert done.report.quarantined == 1
    words = "1 part of the logs in quarantine: 1 foreign; the first: "
    assert any(words in line and "holiday.dlog" in line for line in done.told)


def test_progress_names_every_table_and_the_end(done: Done) -> None:
    steps = [line for line in done.told if re.match(r"\d+/\d+ ", line)]
    assert len(steps) == int(steps[0].split()[0].split("/")[1])
    assert done.told[-1].endswith("report.html")


def test_each_picture_has_its_table_beside_it(done: Done) -> None:
    for name in PICTURES:
        table = pd.read_csv(done.report.tables / f"{name}.csv")
        assert len(table), name
        assert len(pd.read_parquet(done.report.tables / f"{name}.parquet")) == len(table)
    outcomes = pd.read_parquet(done.report.tables / "outcomes.parquet")
    assert outcomes["outcome"].value_counts().to_dict() == {
        "missed": 4,
        "withheld": 2,
        "late": 5,
        "hit": 4,
        "wrong": 1,
    }
    assert outcomes["notification_id"].str.fullmatch("[0-9a-f]{16}").all()


def test_a_second_run_says_the_same(done: Done, spark: SparkSession) -> None:
    first = done.report.page.read_text(encoding="utf-8")
    out = done.report.page.parent
    again = analyze(spark, [done.logs], out, strategies=("direct", "spray:2", "epidemic"))
    assert again.page.read_text(encoding="utf-8") == first
    assert not list(out.rglob(".*.parquet"))


def test_a_browser_shows_every_picture_and_asks_for_nothing(done: Done) -> None:
    # A missing browser fails: what the page looks like is a promise.
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "chromium is missing: apt-get install chromium"
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            for scheme in ("light", "dark"):
                page = browser.new_page(
                    color_scheme=scheme, viewport={"width": 1100, "height": 900}
                )
                page.on("request", lambda request: asked.append(request.url))
                page.on("console", lambda message: complaints.append(message.text))
                page.on("pageerror", lambda error: complaints.append(str(error)))
                page.goto(done.report.page.as_uri())
                shown = page.evaluate(
                    """() => [...document.querySelectorAll('figure')].map(figure => {
                        const marks = [...figure.querySelectorAll('svg .mark')]
                            .map(mark => mark.getBoundingClientRect());
                        const box = figure.getBoundingClientRect();
                        return [figure.id, marks.filter(m => m.width + m.height > 1).length,
                            marks.every(m => m.left >= box.left - 1 && m.right <= box.right + 1),
                            figure.scrollWidth <= figure.clientWidth + 1];
                    })"""
                )
                assert {name for name, *_ in shown} == PICTURES
                for name, marks, is_inside, fits in shown:
                    assert marks > 0, f"{name} shows nothing"
                    assert is_inside, f"{name} draws outside its frame"
                    assert fits, f"{name} is wider than its frame"
                hidden = "tbody tr:not([hidden])"
                assert page.locator(f"#failures {hidden}").count() == 12
                page.fill("#filter", "missed PARTITION")
                shown_rows = page.locator(f"#failures {hidden}").all_inner_texts()
                assert shown_rows
                assert all("missed" in row and "partition" in row for row in shown_rows)
                page.click("#causes summary")
                page.click("#causes tr[data-filter^='late']")
                shown_rows = page.locator(f"#failures {hidden}").all_inner_texts()
                assert shown_rows
                assert all("late" in row for row in shown_rows)
                assert page.locator("#told").inner_text() == f"{len(shown_rows)} of 12"
                page.close()
        finally:
            browser.close()
    assert {url for url in asked if not url.startswith("data:")} == {done.report.page.as_uri()}
    assert complaints == []


def test_texts_of_the_logs_stay_texts() -> None:
    evil = '<img src="http://example.org/x" onerror="alert(1)">'
    row = draw.BarRow(evil, [(3.0, "main", evil)], evil)
    picture = Picture("p", evil, draw.draw_rows([row], evil, [("main", evil)]), evil, "", "", evil)
    page = ReportPage(evil, evil, [(evil, evil)], evil, [evil], [picture], [], [(evil, evil)])
    html = write_page(page) + write_table([evil], [[evil]], 1)
    assert "<img" not in html
    assert "&lt;img" in html


def test_people_read_times_spans_and_shares() -> None:
    rows = [("n1", 1_790_000_000_000, 90_000.0, 0.25, 12_345), ("n2", None, None, None, 7)]
    table = pd.DataFrame(rows, columns=["node", "at", "p95_ms", "share", "bytes"])
    html = show_table(table)
    cells = [re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    assert cells[1:] == [
        ["n1", "2026-09-21 14:13:20", "1.5 min", "25.0%", "12,345"],
        ["n2", "", "", "", "7"],
    ]
    heads = re.findall(r"<th( [^>]*)?>(.*?)</th>", html)
    assert [name for mark, name in heads if mark] == ["p95", "share", "bytes"]
    assert len(heads) == 5


# Pictures -------------------------------------------------------------------------------------


def test_scales_and_ticks() -> None:
    assert AxisScale(0, 10, 0, 100)(5) == 50
    assert AxisScale(1, 100, 0, 100, is_log=True)(10) == 50
    assert choose_ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert choose_ticks(3, 3) == [3]
    assert choose_spans(10, 70_000) == [10, 100, 1_000, 10_000, 60_000]
    assert choose_times(3, 31, 10) == [10, 20, 30]
    assert [format_span(ms) for ms in (5, 1_500, 90_000, 5_400_000)] == [
        "5 ms",
        "1.5 s",
        "1.5 min",
        "1.5 h",
    ]
    assert [format_number(n) for n in (0.25, 12, 12_345, 3_200_000)] == [
        "0.25",
        "12",
        "12.3 k",
        "3.2 M",
    ]


@pytest.mark.parametrize(
    "drawn",
    [
        draw.draw_delivery(
            pd.DataFrame(columns=["time", "hit", "late", "missed", "withheld", "wrong"]), 1_000
        ),
        draw.draw_latency(pd.DataFrame(columns=["share", "latency_ms", "best_ms"])),
        draw.draw_rows([], "none"),
        draw.draw_graph(pd.DataFrame(columns=["first", "second", "up_ms"]), {}),
    ],
)
def test_a_picture_without_data_is_none(drawn: str) -> None:
    assert drawn == ""


# Commands -------------------------------------------------------------------------------------


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands use the tests' session instead of one of their own."""

    @contextmanager
    def lend(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(commands, "open_session", lend)


@pytest.mark.usefixtures("shared")
def test_no_logs_and_foreign_files_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no such folder") as missing:
        commands.run_analyze([str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")])
    assert missing.value.status == 3
    (tmp_path / "logs").mkdir()
    with pytest.raises(CommandError, match="no log segments below"):
        commands.run_analyze([str(tmp_path / "logs"), "--out", str(tmp_path / "out")])
    name = "north-0000000001-00000000000000000001.dlog"
    (tmp_path / "logs" / name).write_bytes(b"not a log at all")
    with pytest.raises(CommandError, match=f"no readable records.*{name}"):
        commands.run_analyze([str(tmp_path / "logs"), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--late", "0"], "--late"),
        (["--strategies", "direct,teleport"], "teleport"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        commands.run_analyze([str(tmp_path), "--out", str(tmp_path / "out"), *arguments])


def test_an_empty_folder_is_an_error_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(EmptyLogsError, match="data/log"):
        analyze(spark, [tmp_path], tmp_path / "out")


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert commands.run_sql(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("shared")
def test_sql_answers_from_views_and_records(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    query = "select reason, count(*) as times from log_unsubscribe group by reason"
    table = ask(capsys, str(done.logs), query)
    assert [line.split() for line in table.splitlines()] == [
        ["reason", "times"],
        ["-------", "-----"],
        ["removed", "4"],
    ]
    text = ask(capsys, str(done.logs), "--format", "csv", "--query", "select * from stays limit 3")
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text)))
    assert [(row["subscriber"], row["node"]) for row in rows] == [
        ("medic7", "south"),
        ("chief", "north"),
        ("medic8", "middle"),
    ]
    text = ask(capsys, str(done.logs), "select class, file from quarantine", "--format", "json")
    (bad,) = [json.loads(line) for line in text.splitlines()]
    assert Path(bad["file"]).name == "holiday.dlog"


@pytest.mark.usefixtures("shared")
def test_a_report_answers_from_its_tables(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    out = done.report.page.parent
    query = "select subscriber, outcome, cause, count(*) from outcomes group by all order by all"
    assert ask(capsys, str(out), query) == ask(capsys, str(done.logs), query)
    of_records = "select device, degree, at from log_note order by all"
    assert ask(capsys, str(out), of_records) == ask(capsys, str(done.logs), of_records)
    listed = [ask(capsys, str(folder)).splitlines() for folder in (out, done.logs)]
    names = [{line.split()[0] for line in lines} for lines in listed]
    assert names[0] == names[1]
    for name in sorted(name for name in names[0] if not name.startswith("log_")):
        assert ask(capsys, str(out), f"select * from {name} limit 1", "--format", "csv")


@pytest.mark.usefixtures("shared")
def test_queries_can_be_typed(
    done: Done, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["select count(*) as times", "from causes;", "drop view causes;", "select 1 from x;"]
    typed = iter([*lines, "select 7 as seven ;", "", "exit"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert commands.run_sql([str(done.report.page.parent), "--format", "csv"]) == 0
    told = capsys.readouterr()
    answers = told.out.splitlines()[-4:]
    assert (answers[0], answers[2:]) == ("times", ["seven", "7"])
    assert int(answers[1]) > 0
    assert "only queries" in told.err
    assert "x" in told.err
    assert next(typed, None) is None


@pytest.mark.usefixtures("shared")
def test_sql_lists_its_views_and_refuses_all_but_queries(
    done: Done, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = ask(capsys, str(done.logs))
    assert {line.split()[0] for line in listed.splitlines()} >= {"outcomes", "causes", "log_note"}
    with pytest.raises(CommandError, match="only queries"):
        commands.run_sql([str(done.logs), "--query", "drop view outcomes"])
    with pytest.raises(CommandError, match="nothere"):
        commands.run_sql([str(done.logs), "select * from nothere"])


def test_many_nodes_are_a_matrix() -> None:
    nodes = {f"node{n:02d}": 1.0 for n in range(50)}
    links = pd.DataFrame(
        [("node00", "node49", 3, 60_000, 9), ("node01", "node02", 1, 30_000, 2)],
        columns=["first", "second", "contacts", "up_ms", "notifications"],
    )
    drawn = draw.draw_graph(links, nodes)
    assert drawn.count("<rect") == 4
    assert "<circle" not in drawn
    assert "node00 and node49: 3 contacts, 1 min, 9 notifications" in drawn
    assert all(name in drawn for name in nodes)
    most = draw.draw_graph(links, {f"node{n:03d}": 1.0 for n in range(200)} | nodes)
    assert "120 of 250 nodes" in most
