"""Everyday words at a node: what is taken is said, what is stored can be read again."""

from __future__ import annotations

from collections.abc import Iterable

from denwatch.client.language import parse
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.items import ANNOUNCEMENT, AnnouncementBody, Dot, Item, encode_body
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.requests import compile_request, read_request

from tests.subscribers.subscriber_node import SubscriberNode

RESCUE = load_shipped("rescue")


class MedicRoles:
    """A role that may see patients only."""

    def role_of(self, subscriber: str) -> str:
        """Return the role."""
        return f"medic of {subscriber}"

    def check(self, role: str, event: str, attributes: Iterable[str]) -> object | None:
        """Refuse all but patients."""
        return None if event == "patient" else f"{role} may not see {list(attributes)}"


def announce(node: SubscriberNode, event: str, *names: str) -> None:
    """Let a device be known that senses some attributes."""
    found = RESCUE.events[event]
    mask = sum(1 << found.attributes[name].bit for name in names)
    body = AnnouncementBody(f"{event}-1", bytes.fromhex(RESCUE.hash)[:8], [[found.number, mask]])
    item = Item(Dot("b", 1, found.number), ANNOUNCEMENT, 0, encode_body(body))
    node.subscribers.directory.add(item)


def test_the_reply_says_what_was_taken_and_the_sentence_is_kept() -> None:
    node = SubscriberNode()
    reply = node.ask("medic7", "patients with fever")
    assert reply["ok"]
    assert reply["understood"] == "patient_temperature is high"
    assert reply["taken"] == ["understood as: patient_temperature is high"]
    (row,) = node.ask("medic7", '{"list": true}')["subscriptions"]
    assert parse(row["words"]) == parse("patient_temperature is high")


def test_german_is_answered_in_german() -> None:
    node = SubscriberNode()
    assert node.ask("medic7", "Patienten mit Fieber")["taken"][0].startswith("verstanden als: ")
    assert "nicht verstanden" in node.ask("medic7", "Patienten mit Blubb")["error"]


def test_a_refusal_brings_sentences_that_are_taken() -> None:
    node = SubscriberNode()
    reply = node.ask("medic7", "fever in ward 3")
    assert (reply["ok"], reply["at"]) == (False, 10)
    for hint in reply["hints"]:
        assert node.ask("medic7", hint)["ok"]


def test_the_devices_present_decide_what_a_word_means() -> None:
    node = SubscriberNode()
    assert not node.ask("medic7", "temperature above 39")["ok"]
    announce(node, "gas", "air_temperature")
    reply = node.ask("medic7", "temperature above 39")
    assert reply["event"] == "gas"
    assert any("patient_temperature" in note for note in reply["taken"])
    announce(node, "team", "suit_temperature")
    assert not node.ask("medic7", "temperature above 39")["ok"]


def test_the_role_decides_what_a_word_means() -> None:
    request = read_request(b"temperature above 39")
    found = compile_request(request, "medic7", 0, Vocabularies(RESCUE), MedicRoles())
    assert found.event.name == "patient"


def test_a_story_is_known_by_its_words_whatever_the_request_looks_like() -> None:
    told = "no smoke for about 10 minutes"
    node = SubscriberNode()
    for request in (told, {"subscribe": told, "name": "calm"}):
        reply = node.ask("ada", request)
        assert reply["ok"], reply
        assert reply["understood"].startswith("no smoke at least")
        assert "understood as: smoke above 0" in reply["taken"]
    assert (
        node.ask("ada", {"subscribe": "no smoke", "name": "clear"})["understood"] == "smoke = 0 %"
    )
    assert node.ask("ada", "no smoke")["understood"] == "smoke = 0 %"


def test_a_node_is_asked_what_everyday_words_and_stories_would_add() -> None:
    node = SubscriberNode()
    asked = ["patients with fever", "smoke within 5 min after high carbon monoxide"]
    reply = node.ask("ada", {"probe": asked, "request": "p"})
    assert reply["ok"], reply
    assert reply["new_roots"] == 3  # one, and each part of the story
