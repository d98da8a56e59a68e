"""A run of three nodes with known truth: every hit, miss, cause and time was worked out by hand.

Three nodes that are mostly apart, three people who come and go, two devices. The strategy is
`spray:1`: a notification waits where it was made until its node meets one where it is wanted, so
that some of what epidemic copying would have brought is late or missed. Times are seconds after the
start. `TRUTH` is what an analysis of the logs must say; nothing here computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.spark.truth.network import Network

START = 1_800_000_000_000
END = 1_300
LIFE = 600  # of a notification
LATE = 60  # after so long a delivery is late
STRATEGY = "spray:1"
NODES = ("middle", "north", "south")

CONTACTS = (
    ("north", "middle", 20, 30),
    ("middle", "south", 40, 50),
    ("north", "middle", 60, 70),
    ("north", "south", 100, 110),
    ("north", "middle", 130, 140),
    ("middle", "south", 150, 160),
    ("north", "middle", 210, 220),
    ("north", "south", 300, 310),
    ("north", "middle", 321, 330),
    ("north", "middle", 350, 360),
    ("middle", "south", 370, 380),
    ("middle", "south", 510, 520),
    ("north", "middle", 700, 710),
    ("north", "south", 1_140, 1_150),
    ("middle", "south", 1_200, 1_210),
)
STAYS = (
    ("medic7", "south", 10, END),
    ("chief", "north", 12, 1_262),
    ("chief", "middle", 1_265, END),
    ("medic8", "middle", 14, 200),
    ("medic8", "north", 400, 520),
    ("medic8", "south", 600, END),
)
ASKED = (
    ("medic7", "south", 10, "patient_temperature is high, at least 0.5, named fever"),
    ("chief", "north", 12, "heart_rate is high, at least 0.5, top 1, named rush"),
    ("medic8", "middle", 14, "patient_temperature is low, at least 0.5, named cold"),
    ("medic7", "south", 500, "unsubscribe fever"),
    ("medic8", "south", 610, "oxygen_saturation is low, at least 0.5, named air"),
    ("chief", "north", 1_260, "unsubscribe rush"),
)
BEDS = {"bed-1": "north", "bed-2": "middle"}
SILENT = 1_250  # from here to two seconds later no app acknowledges anything


class Reading(NamedTuple):
    """What a device reads when. `number` is None for what nobody asks for, and stays there."""

    number: int | None
    second: int
    device: str
    words: str


READINGS = (
    Reading(1, 80, "bed-1", "patient patient_temperature=40"),
    Reading(None, 90, "bed-1", "patient patient_temperature=37 heart_rate=80"),
    Reading(2, 120, "bed-1", "patient patient_temperature=40.1"),
    Reading(3, 170, "bed-2", "patient patient_temperature=33"),
    Reading(4, 180, "bed-1", "patient patient_temperature=33.2"),
    Reading(5, 230, "bed-1", "patient heart_rate=130"),
    Reading(6, 240, "bed-1", "patient heart_rate=125"),
    Reading(7, 250, "bed-1", "patient heart_rate=150"),
    Reading(8, 260, "bed-2", "patient heart_rate=160"),
    Reading(9, 340, "bed-1", "patient patient_temperature=39.9"),
    Reading(10, 480, "bed-2", "patient patient_temperature=41"),
    Reading(11, 505, "bed-2", "patient patient_temperature=41.2"),
    Reading(12, 530, "bed-1", "patient patient_temperature=34"),
    Reading(13, 1_000, "bed-2", "patient patient_temperature=33"),
    Reading(14, 1_010, "bed-1", "patient patient_temperature=33.1"),
    Reading(15, 1_220, "bed-2", "patient patient_temperature=33.5"),
    Reading(16, 1_250, "bed-1", "patient heart_rate=170"),
    Reading(17, 1_270, "bed-2", "patient heart_rate=180"),
)


class Truth(NamedTuple):
    """What became of one notification for one person. Times in seconds after the reading."""

    number: int
    owner: str
    outcome: str
    cause: str | None
    latency: int | None  # until it was delivered
    best: int | None  # until it could have been delivered at the earliest


TRUTH = (
    # North meets south 20 s later, where medic7 is.
    Truth(1, "medic7", "hit", None, 20, 20),
    # Middle could have carried it (130, 150); it waited for north to meet south at 300.
    Truth(2, "medic7", "late", "replication", 180, 30),
    Truth(3, "medic8", "hit", None, 0, 0),
    # Medic8 left middle before it came there, and came to north at 400.
    Truth(4, "medic8", "late", "away", 220, 220),
    Truth(5, "chief", "hit", None, 0, 0),
    # 125 is a worse match than 130, which still counts.
    Truth(6, "chief", "missed", "top-k", None, 0),
    Truth(7, "chief", "hit", None, 0, 0),
    # As good as 150, and fresher; middle meets north at 321.
    Truth(8, "chief", "late", "partition", 61, 61),
    # Middle could have carried it (350, 370); north meets south only after it has expired.
    Truth(9, "medic7", "missed", "replication", None, 30),
    # Middle meets south at 510, ten seconds after medic7 has unsubscribed.
    Truth(10, "medic7", "missed", "withdrawn", None, None),
    # 11 was read after that: nobody wants it, though middle does not know.
    # Expired at 1130; north meets south, where medic8 is, at 1140.
    Truth(12, "medic8", "missed", "expired", None, None),
    # That medic8 is at south is told in the contact itself; the next second takes it into account.
    Truth(13, "medic8", "late", "partition", 201, 200),
    Truth(14, "medic8", "late", "partition", 131, 130),
    # Middle meets nobody any more.
    Truth(15, "medic8", "missed", "partition", None, None),
    Truth(16, "chief", "missed", "unacknowledged", None, 0),
    # Chief has unsubscribed at north, which middle does not know.
    Truth(17, "chief", "wrong", "ended", 0, None),
)
# How many notifications each node ever held: ten were read at north, seven at middle; north gave 1,
# 2 and 14 to south, 4 and 12 to middle, where medic8 had been; middle gave 8 to north, 13 to south.
HELD = {"north": 10 + 1, "middle": 7 + 2, "south": 4}
RELAYS = {
    ("north", "south"): 3,
    ("north", "middle"): 2,
    ("middle", "north"): 1,
    ("middle", "south"): 1,
}


def run_script(folder: Path, skews: dict[str, int] | None = None) -> dict[int, int]:
    """Let it happen; the logs are then below `folder`. Return the ids of readings, by number.

    `skews` says by how many ms nodes' clocks are ahead. South does not stop in order: its last
    segment stays open.
    """
    nodes = {name: (skews or {}).get(name, 0) for name in NODES}
    network = Network(folder, nodes, start=START, strategy=STRATEGY, keep=1_000 * LIFE)
    events = _list_events(network)
    sent: list[int] = []
    for second, number, act in events:
        network.wait(START + 1_000 * second)
        act()
        if number is not None:
            sent.append(number)
    network.wait(START + 1_000 * END)
    network.close(crashed="south")
    return _find_ids(network, sent)


def _list_events(network: Network) -> list[tuple[int, int | None, Callable[[], object]]]:
    events: list[tuple[int, int | None, Callable[[], object]]] = []
    for device, node in BEDS.items():
        events.append((1, None, partial(network.connect, device, node)))
    for person, node, second, words in ASKED:
        events.append((second, None, partial(network.ask, person, node, words)))
    for person, node, begin, end in STAYS:
        events.append((begin, None, partial(network.attach, person, node)))
        if end < END:
            events.append((end, None, partial(network.detach, person)))
    for one, other, begin, end in CONTACTS:
        events.append((begin, None, partial(network.link, one, other)))
        events.append((end, None, partial(network.cut, one, other)))
    events.append((SILENT, None, partial(_set_listening, network, False)))
    events.append((SILENT + 2, None, partial(_set_listening, network, True)))
    for reading in READINGS:
        events.append((reading.second, reading.number, partial(_read, network, reading)))
    return sorted(events, key=lambda event: event[0])


def _set_listening(network: Network, is_listening: bool) -> None:
    network.is_listening = is_listening


def _read(network: Network, reading: Reading) -> None:
    is_sent = network.read(reading.device, reading.words)
    assert is_sent == (reading.number is not None), f"{reading}: sent is {is_sent}"


def _find_ids(network: Network, sent: list[int]) -> dict[int, int]:
    """Return the ids of notifications: each device's came in the order of their readings."""
    ids: dict[int, int] = {}
    for device, node in BEDS.items():
        numbers = [r.number for r in READINGS if r.device == device and r.number in sent]
        found = network.hosts[node].list_taken(device)
        assert len(found) == len(numbers), f"{device}: {len(numbers)} sent, {len(found)} taken"
        ids |= {n: id for n, id in zip(numbers, found, strict=True) if n is not None}
    return ids
