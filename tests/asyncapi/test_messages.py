"""Everything that a real node says, judged by docs/asyncapi.yaml: nothing else may be said.

Schemas allow no further fields, so a field that the code gains must be written down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest
from denwatch.cli.publish import find_coverage
from denwatch.client.publisher import Publisher, parse_reading, read_key
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.operator_protocol import Plan, encode_plan
from denwatch.node.core.request_handler import encode_question
from denwatch.protocol.vectors import NotificationVector, Reading

from simulator.site import Site, wait_for
from tests.asyncapi.contract import check_payload, load_contract, name_message
from tests.home.test_node import USER
from tests.node.app import App

CONTRACT = load_contract()
RESCUE = load_shipped("rescue")
REPLIES, NOTES = "dens/1/reply/medic7", "dens/1/note/medic7"
REQUESTS: list[tuple[Any, str]] = [
    ("heart_rate above 100 bpm, named pulse, top 3, valid for 1 hour", "taken"),
    ("heart_rate above 100 bpm, named pulse, top 3, valid for 1 hour", "taken"),
    ({"subscribe": "pain is severe", "name": "pain", "request": "7"}, "taken"),
    ({"content": [["event", "=", "patient"], ["triage", "=", "red"]], "name": "red"}, "taken"),
    ("hart_rate above 100 bpm", "refused"),
    ({"subscribe": "pain is severe and", "request": "8"}, "refused"),
    ({"unsubscribe": "nothing of the kind"}, "refused"),
    ({"prefer": [["pulse", "pain"]]}, "preferred"),
    ("my top 3 of the last 20, by mean", "topped"),
    ({"my_top": {"top": 3, "within": "10 min"}, "request": "13"}, "topped"),
    ("list", "listed"),
    ({"my_top": False}, "topped"),
    ({"find": ["pain", "heart_rate"], "against": ["smoke"], "watch": True}, "found"),
    ("find pain, near north", "found"),
    ("find nothing", "found"),
    ("explain pulse", "explained"),
    ({"explain": "nothing of the kind"}, "refused"),
    ({"have": "dog-2", "silence": "10 min"}, "refused"),
    ("I have medic7, silent for 10 min", "claimed"),
    ({"have": "0123456789abcdef", "to": "ops", "request": "14"}, "claimed"),
    ("who has what", "claimed"),
    ("release 0123456789abcdef", "released"),
    ({"release": "medic7", "request": "15"}, "released"),
    ({"change": "pain", "score": 0.5, "escalate": {"to": "ops", "after": "5 min"}}, "changed"),
    ("mute pain", "changed"),
    ({"change": "pain", "escalate": None, "muted": None, "request": "16"}, "changed"),
    ({"probe": ["pain is severe"], "request": "9"}, "probed"),
    ("mute", "muted"),
    ({"mute": False, "request": "10"}, "muted"),
    ("unsubscribe pain", "removed"),
    ({"unsubscribe": "pain", "request": "11"}, "removed"),
]


REPORTS: list[tuple[str | dict[str, Any], str]] = [
    ("patient: temperature is high, pulse about 60", "reported"),
    ({"report": "patient: pain 6 to 8", "age": 60, "request": "12"}, "reported"),
    ("patient: pules 120", "refused"),
]


class ContractSite(Site):
    """A node with discovery on, and clients of all kinds."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.node = self.add_node("north")
        self.node.configure(
            ("enabled = false", "enabled = true"), (f'{USER}user = ""', f'{USER}user = "home"')
        )
        self.add_subscriber("medic7")
        self.add_subscriber("home", "observer")
        self.add_subscriber("ops", "operator")
        self.key = self.add_device("dog-1")

    def app(self, name: str) -> App:
        return App(self.node.port, name, self.passwords[name]).wait()

    def publish(self, readings: list[NotificationVector]) -> None:
        senses = find_coverage(readings, RESCUE)
        with Publisher(read_key(self.key), RESCUE, senses, timeout=30) as publisher:
            publisher.run(1.5)
            publisher.publish(readings)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContractSite]:
    with ContractSite(tmp_path_factory.mktemp("asyncapi")) as site:
        yield site


def test_every_reply_is_one_of_the_channels_messages(site: ContractSite) -> None:
    with site.app("medic7") as app:
        app.subscribe(REPLIES)
        for request, expected in REQUESTS:
            text = request if isinstance(request, str) else json.dumps(request)
            if not isinstance(request, str):
                assert name_message(CONTRACT, "dens/1/sub/medic7", request) == "json"
            reply = app.ask("medic7", text)
            assert name_message(CONTRACT, REPLIES, reply) == expected, text
        for report, expected in REPORTS:
            if not isinstance(report, str):
                assert name_message(CONTRACT, "dens/1/report/medic7", report) == "report"
            reply = app.ask(
                "medic7", report if isinstance(report, str) else json.dumps(report), "report"
            )
            assert name_message(CONTRACT, REPLIES, reply) == expected, report
    asked = json.loads(encode_question("north"))
    assert name_message(CONTRACT, REPLIES, asked) == "asked"


def make_readings() -> list[NotificationVector]:
    """Return readings with doubt, with symbols, with a broken sensor, and of another event."""
    patient = RESCUE.events["patient"]
    bits = {name: attribute.bit for name, attribute in patient.attributes.items()}
    doubtful = [
        Reading(bits["heart_rate"], (150, 160, 160, 170)),
        Reading(bits["triage"], (1, 2, 2, 2)),
    ]
    words = "patient heart_rate=160 triage=red east=1200"
    return [
        parse_reading(words, RESCUE),
        NotificationVector(patient.number, doubtful, 0, 0, None, 1 << bits["pain"]),
        parse_reading("gas carbon_monoxide=120 detector=ok", RESCUE),
    ]


def test_every_note_fits_in_json_and_cbor(site: ContractSite) -> None:
    with site.app("medic7") as app:
        app.subscribe(REPLIES, NOTES)
        assert app.ask("medic7", "heart_rate above 100 bpm, named pulse, valid for 1 hour")["ok"]
        gas = {"subscribe": "carbon_monoxide above 50 ppm", "name": "gas", "format": "cbor"}
        assert app.ask("medic7", json.dumps(gas))["ok"]
        site.publish(make_readings())
        assert app.ask("medic7", "patient: pulse about 130", "report")["ok"]
        found = wait_for("four notes", lambda: len(app.find(NOTES)) >= 4 and app.find(NOTES))
        decoded = [cbor2.loads(p) if p[:1] != b"{" else json.loads(p) for p in found]
        for note in decoded:
            assert name_message(CONTRACT, NOTES, note) == "note"
        assert sorted(note["event"] for note in decoded) == ["gas", *["patient"] * 3]
        assert [note["reporter"] for note in decoded if "reporter" in note] == ["medic7"]
        assert any("faults" in note for note in decoded)
        assert any("low" in note["values"].get("heart_rate", {}) for note in decoded)
        assert sum(payload[:1] != b"{" for payload in found) == 1


def test_status_plan_and_home_fit(site: ContractSite) -> None:
    with site.app("ops") as ops:
        assert ops.publish("dens/1/operator/north", encode_plan(Plan("spray:6", "cheaper", 1)))
    with site.app("home") as app:
        app.subscribe("dens/1/status/north", "dens/1/plan/north", "dens/1/home/#")
        site.publish(make_readings())
        statuses = "dens/1/status/north"
        before = len(app.find(statuses))
        wait_for("a new status", lambda: len(app.find(statuses)) > before)
        seen = {
            topic: name_message(CONTRACT, topic, read(payload)) for topic, payload in app.messages
        }
        assert set(seen.values()) == {"status", "plan", "reading", "presence"}
        assert json.loads(app.find(statuses)[-1])["plan"]["strategy"] == "spray:6"


def read(payload: bytes) -> Any:
    """Return a payload as its reader has it: JSON, or a word."""
    return json.loads(payload) if payload[:1] == b"{" else payload.decode()


def test_a_field_that_is_not_written_down_would_be_noticed() -> None:
    example = CONTRACT["components"]["messages"]["note"]["examples"][0]["payload"]
    schema = {"$ref": "#/components/schemas/note"}
    assert check_payload(CONTRACT, schema, example) == []
    assert check_payload(CONTRACT, schema, {**example, "mood": "good"})
    assert check_payload(CONTRACT, schema, {k: v for k, v in example.items() if k != "why"})
