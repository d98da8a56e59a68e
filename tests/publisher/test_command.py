"""`denwatch publish` against a real node: done means on its disk; everything else says why not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.cli import main
from denwatch.cli.publish import find_coverage
from denwatch.client.publisher import Publisher, UnacknowledgedError, parse_reading, read_key
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.items import NotificationBody, decode_body, decode_item
from denwatch.node.store import Store
from denwatch.protocol.notification import decode

from simulator.site import Site, wait_for
from tests.node.app import App

FEVER = "patient heart_rate=160 patient_temperature=39.5"


class PublisherSite(Site):
    """A node, a key file, and somebody who listens."""

    def __init__(self, folder: Path, scheme: str) -> None:
        super().__init__(folder)
        self.node = self.add_node("north", url=f"{scheme}://127.0.0.1")
        self.key = self.add_device("tester")
        self.password = self.add_subscriber("medic7")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublisherSite]:
    with PublisherSite(tmp_path_factory.mktemp("publish"), "mqtt") as site:
        yield site


def test_a_reading_in_words_reaches_who_asked(
    site: PublisherSite, capsys: pytest.CaptureFixture[str]
) -> None:
    with App(site.node.port, "medic7", site.password) as app:
        app.wait()
        app.subscribe("dens/1/reply/medic7", "dens/1/note/medic7")
        assert app.ask("medic7", "heart_rate above 150 bpm")["ok"]
        argv = ["publish", "--device", "tester", "--key", str(site.key)]
        assert main([*argv, "--node", f"127.0.0.1:{site.node.port}", FEVER]) == 0
        assert "north stored 1 reading from tester" in capsys.readouterr().out
        (note,) = wait_for("a note", lambda: app.notes("medic7"))
        assert note["values"]["heart_rate"] == {"value": 160, "unit": "bpm"}
        assert note["device"] == "tester"
        assert main([*argv, "--json", "--age", "0.1", "heart_rate=155", "heart_rate=40"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["ok"] for line in lines] == [True, True]
        assert lines[1]["device_sequence"] == lines[0]["device_sequence"] + 1
        wait_for("the second note", lambda: len(app.notes("medic7")) == 2)


def test_the_library_keeps_a_connection_and_hears_what_is_wanted(site: PublisherSite) -> None:
    rescue = load_shipped("rescue")
    fever, cold = (parse_reading(text, rescue) for text in (FEVER, "patient_temperature=30"))
    coverage = find_coverage([fever], rescue)
    with Publisher(read_key(site.key), rescue, coverage, capacity=4000) as publisher:
        for _ in range(3):
            assert len(publisher.publish([fever, fever])) == 2
        wait_for("vectors", lambda: publisher.run(0.2) or publisher.device.vectors)
        assert publisher.device.matches(fever)
        assert not publisher.device.matches(cold)


def test_a_person_reports_in_words(
    site: PublisherSite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    secret = tmp_path / "medic7.key"
    secret.write_text(site.password, encoding="utf-8")
    secret.chmod(0o600)
    node = ["--node", f"127.0.0.1:{site.node.port}"]
    argv = ["publish", "--as", "medic7", "--password-file", str(secret), *node]
    with App(site.node.port, "medic7", site.password) as app:
        app.subscribe("dens/1/reply/medic7", "dens/1/note/medic7")
        assert app.ask("medic7", "pain is severe")["ok"]
        assert main([*argv, "patient: pulse about 70, pain 8 to 9"]) == 0
        stored = "north stored patient: heart_rate 60.0 to 80.0 bpm, pain 8.0 to 9.0"
        assert stored in capsys.readouterr().out
        note = wait_for("a report", lambda: [n for n in app.notes("medic7") if "reporter" in n])[0]
        assert (note["reporter"], round(note["values"]["pain"]["high"])) == ("medic7", 9)
    assert main([*argv, "patient: pules 120"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith('column 10: unknown attribute "pules" of event patient; did you mean')
    assert main([*argv, "--dry-run", "patient: pain 8"]) == 0
    secret.write_text("wrong", encoding="utf-8")
    assert main([*argv, "patient: pain 8"]) == 1
    assert "refused" in capsys.readouterr().err


def test_what_is_acknowledged_survives_a_power_cut(
    site: PublisherSite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", "--key", str(site.key), "patient heart_rate=77"]) == 0
    site.node.kill()
    capsys.readouterr()
    assert main(["publish", "--key", str(site.key), "--timeout", "1", FEVER]) == 3  # nobody answers
    assert "unreachable" in capsys.readouterr().err
    with Store(site.node.folder / "data" / "node.db", "north", check="full") as store:
        items = [decode_item(*row) for row in store.scan("item.notification")]
    bodies = [decode_body(NotificationBody, item.body) for item in items]
    readings = [decode(body.vector).readings for body in bodies]
    assert any(len(found) == 1 and found[0].points[0] == 77 for found in readings)
    site.node.start()
    assert main(["publish", "--key", str(site.key), FEVER]) == 0


def test_mistakes_are_told_with_their_place(
    site: PublisherSite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = ["--key", str(site.key)]
    assert main(["publish", *key, "patient heart_rat=160"]) == 1
    assert 'did you mean "heart_rate"' in capsys.readouterr().err
    assert main(["publish", *key, "--json", "patient heart_rate=1000"]) == 1
    assert json.loads(capsys.readouterr().out)["at"] == 20
    assert main(["publish", FEVER]) == 2
    assert "--as NAME, or --key FILE" in capsys.readouterr().err
    assert main(["publish", *key, "--device", "bed-1", FEVER]) == 1
    assert "is the key of tester" in capsys.readouterr().err
    assert main(["publish", *key, "--node", "ftp://x", FEVER]) == 1
    assert "not the address of a node" in capsys.readouterr().err
    assert main(["publish", *key, "--dry-run", FEVER]) == 0
    assert capsys.readouterr().out == f"810000000000000391a0  {FEVER}\n"
    document = json.loads(site.key.read_text(encoding="utf-8"))
    document["nodes"][0]["password"] = "wrong"
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(document), encoding="utf-8")
    assert main(["publish", "--key", str(wrong), FEVER]) == 1
    assert "refused" in capsys.readouterr().err


def test_a_wrong_key_gets_no_answer(
    site: PublisherSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads(site.key.read_text(encoding="utf-8"))
    document["nodes"][0]["key"] = bytes(range(32)).hex()
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(document), encoding="utf-8")
    rescue = load_shipped("rescue")
    publisher = Publisher(read_key(wrong), rescue, {1: (3, 0)}, timeout=30)
    # Only the answer is not waited for so long: a connection to a busy node may take its time.
    run_until = publisher._run_until
    monkeypatch.setattr(
        publisher, "_run_until", lambda enough, _: run_until(enough, time.monotonic() + 1.5)
    )
    with pytest.raises(UnacknowledgedError, match="does not answer tester at north"):
        publisher.connect()
    publisher.close()


def test_over_tls_with_the_sites_own_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PublisherSite(tmp_path, "mqtts") as site:
        argv = ["publish", "--key", str(site.key), FEVER]
        authority = site.node.folder / "tls" / "ca.der"
        assert main([*argv, "--ca", str(authority)]) == 0
        assert main([*argv, "--ca", str(authority.with_name("ca.pem"))]) == 0
        assert main(argv) == 1
        assert "ca.der: No such file" in capsys.readouterr().err
        (site.key.parent / "ca.der").write_bytes(authority.read_bytes())
        assert main(argv) == 0
        capsys.readouterr()
        document = json.loads(site.key.read_text(encoding="utf-8"))
        del document["nodes"][0]["ca"]  # the system's authorities do not know this one
        site.key.write_text(json.dumps(document), encoding="utf-8")
        assert main(argv) == 1
        assert "not trusted" in capsys.readouterr().err
