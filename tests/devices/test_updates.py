"""Updates over the air, the node's side: who is offered what, which pieces are sent, in stages."""

from __future__ import annotations

from typing import Any

import pytest
from denwatch.node.core.events import Message, Tick
from denwatch.node.core.updates import (
    DeviceUpdates,
    Rollout,
    RunningImage,
    UpdateImage,
    cover_manifest,
    decode_image,
    decode_rollout,
    digest,
    encode_image,
    encode_rollout,
    write_manifest,
)
from denwatch.protocol import frames
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import decode_message, encode_message

from tests.devices.device_node import DEVICE, TOPIC, DeviceNode, Keys, make_hello, seal_up
from tests.devices.test_hello import hello

FILES = {"denwatch/app.mpy": b"app" * 700, "denwatch/link.mpy": b"link"}


def make_image(version: str = "2") -> UpdateImage:
    manifest = write_manifest(version, 5, FILES)
    return UpdateImage(digest(manifest), version, (manifest, *FILES.values()))


def sign(data: bytes) -> bytes:
    return digest(b"secret" + data)


def verify(data: bytes, signature: bytes) -> bool:
    return sign(data) == signature


def start(**fields: Any) -> tuple[DeviceNode, UpdateImage]:
    """Return a node that has an image for its device, which has said hello."""
    node, image = DeviceNode(), make_image()
    node.devices.updates.replace(Rollout(0, {DEVICE: image.id}), {image.id: image})
    node.do(hello(make_hello(**fields)))
    return node, image


def list_messages(node: DeviceNode, name: str) -> list[dict[str, object]]:
    """Return the fields of all messages of a type that the node sent."""
    link = Keys().link_for(DEVICE, 7)
    assert link is not None
    opened = [frames.open_frame(link, frames.DOWN, sent.payload) for sent in node.outbox]
    bodies = [decode_message(frame.body) for frame in opened if frame.kind == frames.MESSAGE]
    return [fields for kind, fields in bodies if kind == name]


def ask(node: DeviceNode, image: bytes, file: int, at: int, length: int = 512) -> None:
    fields: dict[str, object] = {"image": image, "file": file, "at": at, "length": length}
    payload = seal_up(frames.MESSAGE, 1, 1 << 31, encode_message("want", fields))
    node.do(Message(DEVICE, TOPIC + "want", payload))


READY = [0, 1, "1", bytes(16), b""]


def test_a_device_is_offered_its_image_and_gets_every_piece() -> None:
    node, image = start(image=READY)
    assert list_messages(node, "offer") == [{"image": image.id, "size": len(image.files[0])}]
    for number, file in enumerate(image.files):
        for at in range(0, len(file), 512):
            ask(node, image.id, number, at)
    received = [b""] * 3
    for piece in list_messages(node, "piece"):
        received[piece["file"]] += piece["data"]  # type: ignore[index, call-overload]
    assert tuple(received) == image.files


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ([0, 0, "", b"", b""], "cannot"),
        ([0, 1, "2", make_image().id, b""], "done"),
        ([0, 2, "2", make_image().id, b""], "on trial"),
        ([0, 1, "1", bytes(16), make_image().id], "failed"),
        (None, "cannot"),  # a watchdog of before
    ],
)
def test_who_has_it_tries_it_or_went_back_is_offered_nothing(
    said: list[object] | None, state: str
) -> None:
    node, _ = start(**({} if said is None else {"image": said}))
    assert not list_messages(node, "offer")
    (row,) = node.devices.describe_fleet()
    assert row["update"]["state"] == state  # type: ignore[index]


def test_an_offer_is_repeated_until_the_device_asks() -> None:
    node, image = start(image=READY)
    node.do(Tick())
    assert len(list_messages(node, "offer")) == 1
    node.now += 31_000
    node.do(Tick())
    assert len(list_messages(node, "offer")) == 2
    ask(node, image.id, 1, 1024)
    node.now += 20_000
    node.do(Tick())
    assert len(list_messages(node, "offer")) == 2
    (row,) = node.devices.describe_fleet()
    done = 100 * (len(image.files[0]) + 1024) // image.size
    assert row["update"] == {
        "state": "receiving",
        "image": image.id.hex(),
        "version": "2",
        "percent": done,
    }


def test_what_is_known_of_the_code_survives_a_restart() -> None:
    node, _ = start(image=[2570, 1, "1.5", b"i" * 16, b"f" * 16])
    node.reopen()
    (device,) = node.devices.list_devices()
    assert device.image == RunningImage(2570, 1, "1.5", b"i" * 16, b"f" * 16)


def test_wants_that_cannot_be_are_refused() -> None:
    node, image = start(image=READY)
    ask(node, bytes(16), 0, 0)
    ask(node, image.id, 3, 0)
    ask(node, image.id, 2, 4)
    payload = seal_up(frames.MESSAGE, 1, 2, encode_message("remove", {"handles": []}))
    node.do(Message(DEVICE, TOPIC + "want", payload))
    node.do(Message(DEVICE, TOPIC + "want", payload[:-1] + b"x"))
    assert not list_messages(node, "piece")
    reasons = [log.fields["why"] for log in node.logs if log.kind == "refuse"]
    assert [str(why).partition(":")[0] for why in reasons] == ["image"] * 3 + ["message", "tag"]


def test_the_next_stage_begins_when_the_one_before_runs_it() -> None:
    image, other = make_image().id, bytes(16)
    names = [f"dog-{i}" for i in range(1, 6)]
    updates = DeviceUpdates()
    updates.replace(Rollout(2, dict.fromkeys(names, image)), {image: make_image()})
    said = {name: RunningImage(0, 1, "1", other, b"") for name in names}

    def list_due(now: int) -> list[str]:
        return [name for name in names if updates.find_due(name, said.get, now)]

    assert list_due(0) == ["dog-1", "dog-2"]
    said["dog-1"] = RunningImage(0, 1, "2", image, b"")
    said["dog-2"] = RunningImage(0, 2, "2", image, b"")  # on trial
    assert list_due(60_000) == []
    said["dog-2"] = RunningImage(0, 1, "2", image, b"")
    assert list_due(120_000) == ["dog-3", "dog-4"]
    said["dog-3"] = RunningImage(0, 1, "2", image, b"")
    said["dog-4"] = RunningImage(0, 1, "1", other, image)  # it went back
    assert list_due(240_000) == []
    assert updates.describe("dog-5", said.get)["state"] == "waiting"
    assert updates.describe("dog-9", said.get) == {}
    del said["dog-5"]
    assert updates.describe("dog-5", said.get)["state"] == "not heard"


def test_an_image_is_what_the_authority_signed() -> None:
    image = make_image()
    data = encode_image(image.files, sign(cover_manifest(image.files[0])))
    assert decode_image(data, verify) == image
    wrong = [
        encode_image(image.files, sign(image.files[0])),  # another purpose
        encode_image((image.files[0], b"other", b"link"), sign(cover_manifest(image.files[0]))),
        encode_image(image.files[:2], sign(cover_manifest(image.files[0]))),
        data[:-1],
        b"",
        b"\x80",
        encode_image([b"\xff"], b""),
    ]
    for each in wrong:
        with pytest.raises(ProtocolError):
            decode_image(each, verify)


def test_rollouts_survive_and_nonsense_is_refused() -> None:
    rollout = Rollout(2, {"dog-2": bytes(16), "dog-1": b"i" * 16})
    assert decode_rollout(encode_rollout(rollout)) == rollout
    assert list(decode_rollout(encode_rollout(rollout)).targets) == ["dog-2", "dog-1"]
    for text in ("", "[]", '{"stage": -1, "targets": {}}', '{"stage": 0, "targets": {"a": "x"}}'):
        with pytest.raises(ProtocolError):
            decode_rollout(text)
