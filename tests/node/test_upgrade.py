"""A node of the first release, stopped with notifications that wait, goes on with today's code.

`first_release.tar.xz` is the folder of a real node, written by the program of 16 November 2026
(the first release): its keys and store, three subscriptions in two languages, and notifications
that nobody had fetched. Beside it, `facts.json` has the passwords and what must still be there.
"""

from __future__ import annotations

import json
import tarfile
import time
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from simulator.site import NodeProcess, find_free_port, run_denwatch, wait_for

NEW = "patient patient_temperature=40.1 heart_rate=131"
RELEASE = Path(__file__).with_name("first_release.tar.xz")


def test_nothing_of_the_first_release_is_lost(tmp_path: Path) -> None:
    with tarfile.open(RELEASE) as archive:
        archive.extractall(tmp_path, filter="data")
    facts = json.loads((tmp_path / "facts.json").read_text(encoding="utf-8"))
    node = NodeProcess(tmp_path / "north", "north", f"mqtt://127.0.0.1:{find_free_port()}")
    node.configure((facts["url"], node.url))
    node.clock_error = facts["at"] - time.time()  # what waits has not expired
    node.start()
    try:
        device = tmp_path / "tester.json"
        keys = device.read_text(encoding="utf-8").replace(facts["url"], node.url)
        device.write_text(keys, encoding="utf-8")
        assert "stored 1 reading" in run_denwatch("publish", "--key", str(device), NEW)
        for name, kept in facts["people"].items():
            check_person(node, name, kept)
    finally:
        node.stop()
    assert "store and log are valid" in run_denwatch("node", "--check", str(node.folder))


def check_person(node: NodeProcess, name: str, kept: dict[str, Any]) -> None:
    """Password and subscriptions are there; what waited comes, and what is new, each once."""
    messages: list[MQTTMessage] = []
    client = Client(CallbackAPIVersion.VERSION2, f"{name}-sub", clean_session=False)
    client.username_pw_set(name, kept["password"])
    client.on_message = lambda _client, _data, message: messages.append(message)
    topics = [(f"dens/1/{kind}/{name}", 1) for kind in ("note", "reply")]
    client.on_connect = lambda client, *_: client.subscribe(topics)
    client.on_subscribe = lambda client, *_: client.publish(f"dens/1/sub/{name}", "list", 1)
    client.connect("127.0.0.1", node.port)
    client.loop_start()

    def read(kind: str) -> list[dict[str, Any]]:
        return [json.loads(m.payload) for m in messages if m.topic == f"dens/1/{kind}/{name}"]

    def find_list() -> object:
        return next((each["subscriptions"] for each in read("reply") if "subscriptions" in each), 0)

    try:
        listed = wait_for(f"{name}'s list", find_list)
        assert sorted(one["name"] for one in listed) == kept["subscriptions"]
        wait_for(f"{name}'s notifications", lambda: len(read("note")) > len(kept["waiting"]))
        *waited, new = sorted(read("note"), key=lambda note: str(note["at"]))
        assert sorted(str(note["id"]) for note in waited) == sorted(kept["waiting"])
        assert new["values"]["patient_temperature"]["value"] == 40.1
    finally:
        client.disconnect()
        client.loop_stop()
