"""The client that is killed: a rescue app with the subscriber library, and a plain MQTT receiver.

    python -m benchmarks.durability_app CONFIG.json LIFE

The library's handler writes each notification's number into a table of its store, in the lent
transaction. The plain receiver appends a message's number to a file, and only then acknowledges it:
the most careful way in which anybody can use a broker's persistent session. `LIFE` counts the
starts; in each the app asks for one more subscription, and notes the answer in a file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.durability_senders import RELAY

SEEN = "CREATE TABLE IF NOT EXISTS seen (device TEXT, number INTEGER)"
MAIN = "all"


def main(path: str, life: str) -> None:
    """Run until killed."""
    config: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    start_receiver(config)
    if config["store"]:
        run_subscriber(config, int(life))
    while True:
        time.sleep(60)


def start_receiver(config: dict[str, Any]) -> paho.Client:
    """Receive plain messages, in paho's thread."""
    file = os.open(config["received"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def connected(client: paho.Client, _d: Any, _f: Any, reason: Any, _p: Any) -> None:
        if not reason.is_failure:
            client.subscribe(RELAY, 1)

    def received(client: paho.Client, _d: Any, message: paho.MQTTMessage) -> None:
        os.write(file, message.payload + b"\n")  # in one piece, and beyond our own life
        client.ack(message.mid, message.qos)

    client = paho.Client(
        CallbackAPIVersion.VERSION2, "receiver-bench", clean_session=False, manual_ack=True
    )
    if config["user"]:
        client.username_pw_set(config["user"], config["password"])
    client.reconnect_delay_set(0.1, 0.3)  # type: ignore[arg-type]  # it waits for fractions, too
    client.on_connect = connected
    client.on_message = received
    client.connect_async("127.0.0.1", config["port"], 30)
    client.loop_start()
    return client


def run_subscriber(config: dict[str, Any], life: int) -> None:
    """Take notifications with the library, and never return."""
    from denwatch.client.subscriber import (
        BackOff,
        HandlerTransaction,
        ReceivedNotification,
        Subscriber,
        SubscriberOptions,
    )

    def handle(note: ReceivedNotification, transaction: HandlerTransaction) -> None:
        number = round(note.values["east"]["value"])
        row = (note.fields["device"], number)
        transaction.execute("INSERT INTO seen VALUES (?, ?)", row)

    file = os.open(config["answered"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    subscriber = Subscriber(
        config["user"],
        config["password"],
        [f"mqtt://127.0.0.1:{config['port']}"],
        store=config["store"],
        on_notification=handle,
        settings=SubscriberOptions(BackOff(50, 300), patience=1_000, report_delay=200),
    )
    prepare_table(config["store"])
    with subscriber:
        subscriber.subscribe(config["words"], MAIN, wait=False)
        name = f"life-{life}"
        subscriber.subscribe("patient_temperature is very high", name, timeout=None)
        os.write(file, name.encode() + b"\n")
        while True:
            time.sleep(60)


def prepare_table(store: str) -> None:
    """Make the app's own table, beside those of the library."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(store, timeout=30)) as connection:
        connection.execute(SEEN)
        connection.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
