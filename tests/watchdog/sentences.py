"""What the tests of `denwatch device config` share: a key, and a builder with sentences."""

from __future__ import annotations

from typing import Any

from denwatch.cli.devices.config import ConfigBuilder, ConfigRow
from denwatch.cli.devices.schema import check_config
from denwatch.cli.devices.sentences import parse_sentence
from denwatch.client.vocabulary import load_shipped

RESCUE = load_shipped("rescue")
DEVICE: dict[str, Any] = {
    "device": "dog-1",
    "nodes": [
        {
            "name": "tent",
            "url": "mqtt://127.0.0.1:1",
            "key_id": 1,
            "key": bytes(range(32)).hex(),
            "user": "dog-1",
            "password": "secret of dog-1",
        }
    ],
}


CHIP: dict[str, Any] = {
    "kind": "i2c",
    "clock": 1,
    "data": 2,
    "address": 9,
    "fields": [[0, 2, False, False, 0]],
}


def build(
    *sentences: str, vocabulary: str = "rescue", **options: Any
) -> tuple[ConfigBuilder, list[ConfigRow]]:
    """Return a builder that took the sentences, and what it understood."""
    builder = ConfigBuilder(load_shipped(vocabulary), **options)
    return builder, [builder.add(parse_sentence(sentence)) for sentence in sentences]


def write(builder: ConfigBuilder) -> dict[str, Any]:
    """Return the configuration, checked."""
    config = builder.build(DEVICE, {"file": "spool.bin", "blocks": 16})
    check_config(config)
    return config


def find_channel(config: dict[str, Any]) -> dict[str, Any]:
    """Return the only channel of a configuration."""
    ((channel,),) = (event["channels"] for event in config["events"])
    found: dict[str, Any] = channel
    return found
