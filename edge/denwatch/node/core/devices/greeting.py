"""A hello: what a device says of itself, checked. Pure: nothing here remembers."""

from __future__ import annotations

from typing import Any

from denwatch.node.core.devices.contracts import RefusedError, Senses, Vocabularies
from denwatch.node.core.devices.registry import Device
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import MESSAGE, Frame
from denwatch.protocol.messages import decode_message


def read_hello(
    name: str,
    frame: Frame,
    key_id: int,
    known: Device | None,
    vocabularies: Vocabularies,
    now: int,
) -> Device:
    """Return the device of an authenticated hello; RefusedError says why it is none."""
    fields = _read_message(frame)
    if fields["device"] != name:
        raise RefusedError("name", f"a hello of {fields['device']}")
    if fields["epoch"] != frame.epoch:
        raise RefusedError("message", f"a hello of epoch {fields['epoch']} in {frame.epoch}")
    number = (frame.epoch, frame.sequence)
    if not is_fresh(number, known):
        raise RefusedError("replay", f"hello {number} is not after the last one")
    senses = {event: (masks[0], masks[1]) for event, masks in sorted(fields["senses"].items())}
    possible = vocabularies.find_senses(fields["vocabulary"])
    if possible is None:
        raise RefusedError("vocabulary", f"{fields['vocabulary'].hex()} is not known here")
    check_senses(senses, possible)
    return Device(
        name,
        number,
        key_id,
        fields["vocabulary"],
        senses,
        fields["capacity"],
        tuple(fields["languages"]),
        fields.get("firmware", ""),
        fields.get("reset", 0),
        fields.get("lowest", 0),
        fields.get("dropped", 0),
        now,
        known is not None and known.is_doubtful,
        (0, 0) if known is None else known.taken,
        frame.epoch,
    )


def is_fresh(number: tuple[int, int], known: Device | None) -> bool:
    """Return whether a hello comes after all that was heard of the device."""
    return known is None or (number > known.hello and number[0] >= known.epoch)


def check_senses(senses: Senses, possible: Senses) -> None:
    """Refuse what the vocabulary does not have, or has at another resolution."""
    for event, (features, wides) in senses.items():
        all_features, all_wides = possible.get(event, (0, 0))
        if not features or features & ~all_features:
            raise RefusedError(
                "senses", f"event {event}: features {features:#06x} are not in the vocabulary"
            )
        if wides != all_wides & features:
            raise RefusedError(
                "senses", f"event {event}: the wide ones are {all_wides & features:#06x}"
            )


def _read_message(frame: Frame) -> dict[str, Any]:
    if frame.kind != MESSAGE:
        raise RefusedError("kind", f"kind {frame.kind} is no hello")
    try:
        name, fields = decode_message(frame.body)
    except ProtocolError as error:
        raise RefusedError("message", str(error)) from None
    if name != "hello":
        raise RefusedError("message", f"{name} is no hello")
    return fields
