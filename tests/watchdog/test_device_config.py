"""`denwatch device config`: the command, its refusals, and a watchdog that runs with the result."""

# cpython only: it runs the PC's commands

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from denwatch.cli import main

from tests.watchdog.sentences import DEVICE, RESCUE


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a key, and a file in the place of a sensor."""
    monkeypatch.chdir(tmp_path)
    key = tmp_path / "dog-1.json"
    key.write_text(json.dumps(DEVICE))
    key.chmod(0o600)
    rows = "temperature,pulse\n36.6,71\n39.4,121\n40.1,133\n"
    (tmp_path / "ward.csv").write_text(rows)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["device", "config", "--key", "dog-1.json", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


PULSE = ("--sense", "heart_rate from ward.csv column pulse")


def test_it_writes_a_secret_file_and_says_what_it_understood(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "ward.txt").write_text(
        "# the ward\npatient_temperature from ward.csv column temperature accuracy 0.1 worst 0.3\n"
    )
    (site / "w.key").write_text("correct horse\n")
    (site / "w.key").chmod(0o600)
    status, told, _ = run(
        capsys,
        *("--senses", "ward.txt", *PULSE, "--every", "1 s", "--spool", "partition:spool"),
        *("--wifi", "tent", "--wifi-password-file", "w.key"),
    )
    assert status == 0
    assert told.splitlines() == [
        "attribute            event    source                        domain         in steps    "
        "accuracy             a fault beyond",
        "patient_temperature  patient  ward.csv, column temperature  25 to 50.5 °C  250 to 505  "
        "±0.1 °C, worst ±0.3  25 to 50.5 °C",
        "heart_rate           patient  ward.csv, column pulse        0 to 255 bpm   0 to 255    "
        "taken as exact       0 to 255 bpm",
        f"watchdog.json: dog-1 for tent; patient every 1 s; vocabulary rescue {RESCUE.hash[:16]}",
    ]
    path = site / "watchdog.json"
    assert path.stat().st_mode & 0o777 == 0o600
    config = json.loads(path.read_text())
    assert config["nodes"] == DEVICE["nodes"]
    assert config["wifi"] == {"name": "tent", "password": "correct horse"}
    assert config["spool"] == {"partition": "spool"}
    assert config["events"] == [
        {
            "event": 1,
            "period": 1000,
            "channels": [
                {
                    "source": "ward",
                    "field": 0,
                    "attribute": 0,
                    "low": 250,
                    "high": 505,
                    "typical": 1,
                    "worst": 3,
                },
                {"source": "ward", "field": 1, "attribute": 1, "low": 0, "high": 255},
            ],
        }
    ]
    assert main(["watchdog", "--check", "watchdog.json"]) == 0


def test_the_hash_of_a_configuration_is_the_one_that_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["show"], ["list"]):
        assert main(["vocabulary", *words]) == 0
        assert RESCUE.hash[:16] in capsys.readouterr().out.split("\n")[0].split()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ((), 2, "what does it sense? --sense 'heart_rate from ward.csv column pulse'"),
        (
            ("--sense", "heart_rate from ward.csv column puls"),
            1,
            'column 26: ward.csv has no column "puls"; did you mean "pulse"? '
            "(it has temperature, pulse)\n"
            "  heart_rate from ward.csv column puls\n"
            "                           ^^^^^^^^^^^",
        ),
        ((*PULSE, "--every", "5"), 2, '--every 5: a time has a unit of time (such as "10 s")'),
        ((*PULSE, "--spool", "file:x:2"), 1, 'spool "file:x:2": at least 3 blocks of 4 KB'),
        (
            (*PULSE, "--spool", "flash:100:200"),
            1,
            'spool "flash:100:200": both are multiples of 4096, at least 3 of them',
        ),
        (
            (*PULSE, "--spool", "partion:x"),
            1,
            'spool "partion:x": none; did you mean "partition"? '
            "(such as file:spool.bin, partition:spool, flash:0x100000:0x10000)",
        ),
        ((*PULSE, "--ca", "ca.der"), 1, "--ca ca.der: none of the nodes has TLS"),
        (
            (*PULSE, "--output", "dog-1.json"),
            2,
            "--output dog-1.json would overwrite what is read",
        ),
        ((*PULSE, "--senses", "no.txt"), 3, "no.txt: No such file or directory"),
        ((*PULSE, "--output", "no/x.json"), 3, "no/x.json: No such file or directory"),
        (
            (*PULSE, "--vocabulary", "wether"),
            3,
            'no vocabulary "wether": shipped are rescue, weather, or name a file',
        ),
        (
            (*PULSE, "--wifi", "tent"),
            2,
            "--wifi-password-file FILE has the password of tent",
        ),
    ],
)
def test_what_is_refused_writes_nothing(
    site: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: PTH123, SIM115
    before = sorted(path.name for path in site.iterdir())
    assert run(capsys, *words) == (status, "", f"denwatch device: {message}\n")
    assert sorted(path.name for path in site.iterdir()) == before


def test_keys_that_are_none(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = site / "dog-1.json"
    key.chmod(0o644)
    assert "other users may read it (mode 0644)" in run(capsys, *PULSE)[2]
    key.chmod(0o600)
    nodes = [{**DEVICE["nodes"][0], "key": "(--secrets shows it)"}]
    key.write_text(json.dumps({**DEVICE, "nodes": nodes}))
    assert "dog-1.json: there is no key in it; `denwatch keys show" in run(capsys, *PULSE)[2]
    key.write_text("[]")
    assert "dog-1.json: not a JSON object" in run(capsys, *PULSE)[2]
    key.unlink()
    status, _, told = run(capsys, *PULSE)
    assert (status, told) == (3, "denwatch device: dog-1.json: No such file or directory\n")


def test_certificates_of_nodes_with_tls(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secured = {**DEVICE["nodes"][0], "url": "mqtts://tent:8883", "ca": "ca.der"}
    (site / "dog-1.json").write_text(json.dumps({**DEVICE, "nodes": [secured]}))
    status, _, told = run(capsys, *PULSE)
    assert status == 3
    assert "tent: ca.der: No such file or directory; --ca FILE names" in told
    (site / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    assert "ca.pem is PEM; a board takes DER" in run(capsys, *PULSE, "--ca", "ca.pem")[2]
    (site / "site.der").write_bytes(b"\x30\x82")
    assert run(capsys, *PULSE, "--ca", "site.der")[0] == 0
    config = json.loads((site / "watchdog.json").read_text())
    assert config["nodes"][0]["ca"] == "site.der"


def test_accuracies_of_the_data_sheets(capsys: pytest.CaptureFixture[str], site: Path) -> None:
    assert site
    chip = "air_temperature from bme280 clock 22 data 21"
    status, told, _ = run(capsys, "--sense", chip)
    assert status == 0
    assert "bme280 0x76, temperature" in told
    assert "±0.5 °C, worst ±1.5" in told  # the domain goes below -20 degrees
    told = run(capsys, "--sense", "air_temperature from scd4x clock 22 data 21 every 10 s")[1]
    assert "scd4x 0x62, temperature" in told
    told = run(capsys, "--sense", "air_temperature from w1")[2]
    assert "w1 is described in a file (--sources)" in told
    (site / "sources.json").write_text('{"probe": {"kind": "w1", "count": 2}}')
    words = ("--sources", "sources.json", "--sense", "air_temperature from probe sensor 2")
    told = run(capsys, *words)[1]
    assert "probe, sensor 2" in told
    assert "-40000 to 87500" in told


def test_sources_written_by_hand(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chip = {"kind": "i2c", "clock": 22, "data": 21, "address": 72}
    fields = [[0, 2, True, False, 4], [1, 2, False, False, 0]]
    file = site / "sources.json"
    file.write_text(
        json.dumps({"tmp102": {**chip, "fields": fields}, "idle": {**chip, "fields": []}})
    )
    words = ("--sources", "sources.json", "--sense")
    sentence = "suit_temperature from tmp102 field {} step 0.0625 accuracy 0.5 worst 2"
    status, told, _ = run(capsys, *words, sentence.format(0))
    assert status == 0
    assert "tmp102, field 0  20 to 71 °C  320 to 1136  ±0.5 °C, worst ±2" in told
    assert "note: sources.json: nothing comes from idle" in told
    told = run(capsys, *words, sentence.format(2))[2]
    assert 'column 30: tmp102 has no field "2" (it has 0, 1)' in told
    for wrong, message in (
        (
            {"kind": "spi"},
            'chip: no kind "spi" (there are csv, adc, adc_mv, gpio, dht11, dht22, ds18x20, sht3x, '
            "scd4x, bme280, pulses, i2c, w1, iio, sysfs, nmea, driver)",
        ),
        ({"kind": "adc"}, 'chip: an adc has a "pin"'),
        (
            {**chip, "fields": [[0]]},
            "chip: a field is [register, bytes, signed, little-endian, shift]",
        ),
        ({"kind": "csv", "path": "x", "columns": ["a"], "scales": [0]}, "chip: as many scales as"),
    ):
        file.write_text(json.dumps({"chip": wrong}))
        status, _, told = run(capsys, *words, "pain from chip")
        assert status == 1
        assert f"sources.json: {message}" in told


@pytest.mark.usefixtures("site")
def test_a_watchdog_runs_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "patient_temperature from ward.csv column temperature accuracy 0.1 worst 0.3"
    assert run(capsys, "--sense", sentence, *PULSE, "--every", "50 ms")[0] == 0
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "denwatch.cli", "watchdog", "--report", "0.2", "watchdog.json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
    )
    try:
        assert process.stdout is not None
        end = time.monotonic() + 30
        report: dict[str, Any] = {}
        while report.get("rounds", 0) < 3 and time.monotonic() < end:
            report = json.loads(process.stdout.readline())
        assert report["rounds"] >= 3
        assert report["matched"] == 0  # nobody asked, and nothing is a fault
    finally:
        process.terminate()
        process.wait(10)
