"""The link over datagrams: a serial line, ESP-NOW or LoRa, to a gateway (`denwatch bridge`).

Datagrams are small (51 bytes on a slow LoRa, 222 on a fast one) and get lost, so that a message
goes in pieces, and one message is under way in each direction. What is kept is little: the message
that is being sent with the pieces that the other side has, and the one that is being received.

| datagram | bytes |
|---|---|
| piece | 0x10 + topic, 2 of address, number of the message, index and last index in 4 bits each; |
| | then up to 46 of payload in a datagram of 51 |
| received | 0x20, then for each message 5: address, its number, a bit for each piece that came |
| begin | 0x30, 2 of address: a message of the node is lost, or its connection: say hello |
| reply | 0x40, 2 of address, the number of the device's message; then the node's acknowledgement |

* A batch costs two datagrams, itself and the reply. Who hears no reply sends the batch again, and
  gets the same reply again: a reply needs no answer.
* The receiver answers a message whose last piece has come; the sender sends the pieces that lack,
  and gives up after `tries`. Whoever gives up loses nothing: what must arrive is acknowledged by
  the *node*, and sent again until it is (`uplink.py`). The answer only saves that time.
* Pieces of the message that came last are answered again and not delivered again.
* A number is one byte, and begins at random. A message that happens to have the number of the one
  before a restart is taken for that, and lost: its sender hears nothing from the node, and says
  hello under the next number.
* Nothing here is trusted: frames are sealed end to end, between device and node. A forged datagram
  can delay, as a jammer can.

`AirBudget` counts milliseconds of air in minutes and never exceeds its share of any hour; in the
first hour after a start, never that of the time since, because what was sent before is not known.

No I/O and no clock in `RadioPeer` and `AirBudget`; `RadioLink` runs them on a modem: a serial line
(`machine.UART`, a board's USB port), MicroPython's `espnow`, or a modem of micropython-lib's `lora`
(`mip install lora-sx126x` or `lora-sx127x`, with `lora-sync`). `open_modem` makes one by its name.
"""

import asyncio
from array import array
from binascii import crc32

from ..protocol.degrees import const

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from .link import MqttClient, NodeAddress

    class RadioClient(MqttClient, Protocol):
        """Whose messages a radio carries: a device's `Uplink`."""

        def connect_anew(self, node: str) -> None:
            """Start with a node, of whose messages some may be lost."""

    class Modem(Protocol):
        """What sends and receives datagrams; it never waits for one."""

        size: int  # bytes of a datagram
        share: int  # of the time, in 1/1000, that it may send; 1000: always

        def send(self, datagram: bytes) -> None:
            """Send."""

        def receive(self) -> "bytes | None":
            """Return what has come, None: nothing."""

        def measure(self, size: int) -> int:
            """Return the milliseconds on the air of so many bytes."""


TOPICS = ("hello", "nv", "want", "sv", "ack")
PIECE = const(0x10)
RECEIVED = const(0x20)
BEGIN = const(0x30)
REPLY = const(0x40)
REPLY_HEAD = const(4)
HEAD = const(5)  # bytes of a piece before its payload, and of one message in an answer
OVERHEAD = const(24)  # bytes of a piece and of a sealed frame around its body
_PIECES = const(16)
_MINUTES = const(61)  # as many touch an hour
_HOUR = const(3_600_000)
_POLL = const(10)  # ms
_END = const(0xC0)  # SLIP (RFC 1055)
_ESCAPE = const(0xDB)
_LIMIT = const(260)


def find_address(device: str) -> bytes:
    """Return the two bytes that stand for a device's name on the air."""
    return (crc32(device.encode()) & 0xFFFF).to_bytes(2, "big")


class AirBudget:
    """How much of the air is left; `share` in 1/1000 of the time."""

    def __init__(self, share: int, now: int) -> None:
        self._share = share
        self._start = now
        self._used = array("H", [0] * _MINUTES)  # ms, of each of the last minutes
        self._minute = now // 60_000
        self.total = 0

    def is_free(self, airtime: int, now: int) -> bool:
        """Return whether so many ms may be sent now."""
        if self._share >= 1000:
            return True
        self._forget(now)
        elapsed = min(now - self._start, _HOUR)
        return (sum(self._used) + airtime) * 1000 <= elapsed * self._share

    def spend(self, airtime: int, now: int) -> None:
        """Note that so many ms were sent."""
        self._forget(now)
        self._used[self._minute % _MINUTES] += airtime
        self.total += airtime

    def _forget(self, now: int) -> None:
        minute = now // 60_000
        for each in range(max(self._minute + 1, minute - _MINUTES + 1), minute + 1):
            self._used[each % _MINUTES] = 0
        self._minute = minute


class RadioPeer:
    """One end of the traffic between a device and a gateway; the gateway has one for each device.

    `wait` is how long an answer may take, in ms; up to as much again is added by chance, so that
    two whose datagrams collided do not collide again.
    """

    tries = 4

    def __init__(
        self, address: bytes, size: int, rng: "Callable[[int], int]", wait: int = 2000
    ) -> None:
        self.address = address
        self._room = size - HEAD
        self._rng = rng
        self._wait = wait
        self._number = rng(256)  # of the message that is sent
        self._topic = 0
        self._payload = b""
        self._count = 0  # its pieces; 0: no message is under way
        self._had = 0  # a bit for each piece that the other side has
        self._next = 0
        self._round = 0
        self._until = 0
        self._heard = -1  # the number of the message that is received
        self._pieces: list[bytes | None] = []
        self._is_whole = False  # it has been delivered
        self.is_owed = False  # an answer
        self._reply = b""  # that goes with it
        self._reply_to = -1
        self.lost = 0  # messages that nobody answered

    @property
    def is_busy(self) -> bool:
        """Whether a message is under way."""
        return self._count > 0

    def offer(self, topic: int, payload: bytes) -> bool:
        """Begin a message; False: it has too many pieces. None may be under way."""
        count = (len(payload) + self._room - 1) // self._room or 1
        if count > _PIECES:
            self.lost += 1
            return False
        self._number = (self._number + 1) & 255
        self._topic = topic
        self._payload = payload
        self._count = count
        self._had = self._next = self._round = 0
        return True

    def next_piece(self, now: int) -> "bytes | None":
        """Return the datagram to send now; None: nothing, or wait. `note_sent` must follow."""
        if not self._count:
            return None
        while self._next < self._count and self._had >> self._next & 1:
            self._next += 1
        if self._next >= self._count:
            if now < self._until:
                return None
            self._round += 1
            if self._round >= self.tries:
                self._count = 0
                self.lost += 1
                return None
            self._next = 0
            return self.next_piece(now)
        start = self._next * self._room
        head = bytes([self._number, self._next << 4 | self._count - 1])
        part = self._payload[start : start + self._room]
        return bytes([PIECE | self._topic]) + self.address + head + part

    def note_sent(self, now: int) -> None:
        """Note that the piece was sent, until now."""
        self._next += 1
        self._until = now + self._wait + self._rng(self._wait * (1 + self._round))

    def next_answer(self) -> "bytes | None":
        """Return what an answer says of the message that came, once; None: nothing is owed."""
        if not self.is_owed:
            return None
        self.is_owed = False
        bits = 0
        for i in range(len(self._pieces)):
            bits |= (self._pieces[i] is not None) << i
        return self.address + bytes([self._heard, bits >> 8, bits & 255])

    def set_reply(self, payload: bytes) -> bool:
        """Answer the message that came by one of the node's; False: it has an answer already."""
        if not self.is_owed or not self._is_whole or len(payload) > self._room + HEAD - REPLY_HEAD:
            return False
        self._reply = payload
        self._reply_to = self._heard
        return True

    def next_reply(self) -> "bytes | None":
        """Return the datagram with the reply to the message that came; None: there is none."""
        if not self.is_owed or not self._is_whole or self._reply_to != self._heard:
            return None
        self.is_owed = False
        return bytes([REPLY]) + self.address + bytes([self._heard]) + self._reply

    def take_piece(self, datagram: bytes) -> "tuple[int, bytes] | None":
        """Take a piece; return the topic and payload of a message that is now whole."""
        number = datagram[3]
        index = datagram[4] >> 4
        count = (datagram[4] & 15) + 1
        if index >= count:
            return None
        if number != self._heard or count != len(self._pieces):
            self._heard = number
            self._pieces = [None] * count
            self._is_whole = False
        if not self._is_whole:
            self._pieces[index] = datagram[HEAD:]
        self.is_owed = index == count - 1 or None not in self._pieces
        if self._is_whole or None in self._pieces:
            return None
        self._is_whole = True
        payload = b"".join(self._pieces)  # type: ignore[arg-type]
        self._pieces = [b""] * count
        return datagram[0] & 15, payload

    def take_answer(self, number: int, bits: int) -> bool:
        """Take an answer; return whether a message that was under way has arrived."""
        if not self._count or number != self._number:
            return False
        self._had |= bits
        if self._had < (1 << self._count) - 1:
            self._until = 0  # what lacks can be sent now
            return False
        self._count = 0
        return True


def split_answers(datagram: bytes) -> "list[tuple[bytes, int, int]]":
    """Return address, number and bits of each message that a datagram answers."""
    answers = []
    for at in range(1, len(datagram) - HEAD + 1, HEAD):
        bits = datagram[at + 3] << 8 | datagram[at + 4]
        answers.append((datagram[at : at + 2], datagram[at + 2], bits))
    return answers


class RadioLink:
    """Connects its client to a gateway over a modem; the same to its user as `DeviceLink`."""

    def __init__(
        self,
        client: "RadioClient",
        servers: "list[NodeAddress]",
        clock: "Callable[[], int]",
        rng: "Callable[[int], int]",
        modem: "Modem",
    ) -> None:
        self._client = client
        self._clock = clock
        self._modem = modem
        self._node = servers[0]
        self.peer = RadioPeer(
            find_address(client.name), modem.size, rng, 500 + 8 * modem.measure(modem.size)
        )
        self.air = AirBudget(modem.share, clock())
        self._prefix = client.topics[0][:-2]  # without "sv"
        self._is_answered = False
        self._rng = rng
        self._quiet_until = 0
        self.server: NodeAddress | None = None
        self.counts = {"connected": 0, "lost": 0, "air": 0}
        self.reason = ""

    async def publish(self, topic: str, payload: bytes) -> bool:
        """Send a message; return whether the gateway has it."""
        if not self.offer(topic, payload, self._clock()):
            return False
        while self.peer.is_busy:
            await asyncio.sleep(_POLL / 1000)
        self.counts["lost"] = self.peer.lost
        return self._is_answered

    def offer(self, topic: str, payload: bytes, now: int) -> bool:
        """Begin a message; False: it is too long."""
        self._is_answered = False
        if not self.peer.offer(TOPICS.index(topic[len(self._prefix) :]), payload):
            self.reason = "too long"
            return False
        self._put_off(self._modem.measure(self._modem.size) * 8, now)
        return True

    def _put_off(self, longest: int, now: int) -> None:
        """Send no piece for a while: devices that start together must not send together."""
        if longest:
            self._quiet_until = now + self._rng(longest)

    async def run(self) -> None:
        """Send and receive, for ever."""
        self.server = self._node
        self.counts["connected"] += 1
        self._client.connect(self._node.name)
        while True:
            while self.step(self._clock()):
                await asyncio.sleep(0)
            await asyncio.sleep(_POLL / 1000)

    def step(self, now: int) -> bool:
        """Receive one datagram and send one; return whether there was anything to do."""
        datagram = self._modem.receive()
        if datagram:
            self._take(datagram, now)
        answer = self.peer.next_answer()
        if answer:
            self._send(bytes([RECEIVED]) + answer, now)
            return True
        piece = self.peer.next_piece(now) if now >= self._quiet_until else None
        if piece:
            if self._send(piece, now):
                self.peer.note_sent(self._clock())
                return True
            self._put_off(self._modem.measure(len(piece)) * 1000 // self._modem.share, now)
        return bool(datagram)

    def _send(self, datagram: bytes, now: int) -> bool:
        airtime = self._modem.measure(len(datagram))
        if not self.air.is_free(airtime, now):
            return False
        self.air.spend(airtime, now)
        self.counts["air"] = self.air.total
        self._modem.send(datagram)
        return True

    def _take(self, datagram: bytes, now: int) -> None:
        kind = datagram[0] & 0xF0
        if kind == RECEIVED:
            for address, number, bits in split_answers(datagram):
                if address == self.peer.address and self.peer.take_answer(number, bits):
                    self._is_answered = True
        elif datagram[1:3] != self.peer.address:
            pass
        elif kind == BEGIN:
            self.counts["connected"] += 1
            self._client.connect_anew(self._node.name)
        elif kind == REPLY and len(datagram) >= REPLY_HEAD:
            if self.peer.take_answer(datagram[3], 0xFFFF):
                self._is_answered = True
            self._client.receive(self._prefix + "ack", datagram[REPLY_HEAD:], now)
        elif kind == PIECE and len(datagram) >= HEAD:
            message = self.peer.take_piece(datagram)
            if message and message[0] < len(TOPICS):
                self._client.receive(self._prefix + TOPICS[message[0]], message[1], now)


# Modems ---------------------------------------------------------------------------------------


def write_slip(datagram: bytes) -> bytes:
    """Return a datagram as a line carries it: between ends, with 2 bytes of CRC."""
    data = bytearray([_END])
    for byte in datagram + (crc32(datagram) & 0xFFFF).to_bytes(2, "big"):
        if byte in (_END, _ESCAPE):
            data.append(_ESCAPE)
            byte = 0xDC if byte == _END else 0xDD
        data.append(byte)
    data.append(_END)
    return bytes(data)


class SlipParser:
    """Finds datagrams in what a line brings; the rest is what the board prints, of which so many
    bytes are kept (`noise`)."""

    def __init__(self, kept: int = _LIMIT) -> None:
        self._kept = kept
        self._data = bytearray()
        self._is_escaped = False
        self.noise = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the datagrams that are complete now."""
        found = []
        for byte in data:
            if byte == _END:
                datagram = bytes(self._data[:-2])
                if len(datagram) > 2 and self._data[-2:] == (crc32(datagram) & 0xFFFF).to_bytes(
                    2, "big"
                ):
                    found.append(datagram)
                else:
                    self._add_noise(self._data)
                self._data = bytearray()
                self._is_escaped = False
            elif byte == _ESCAPE:
                self._is_escaped = True
            else:
                if self._is_escaped:
                    byte = _END if byte == 0xDC else _ESCAPE
                    self._is_escaped = False
                self._data.append(byte)
                if len(self._data) > _LIMIT:
                    self._add_noise(self._data)
                    self._data = bytearray()
        return found

    def _add_noise(self, data: bytearray) -> None:
        self.noise += data[: self._kept - len(self.noise)]


class SerialModem:
    """Datagrams on a serial line; `line` has `read()`, which does not wait, and `write(data)`."""

    size = 255
    share = 1000

    def __init__(self, line: "Any", kept: int = _LIMIT) -> None:
        self._line = line
        self._parser = SlipParser(kept)
        self._found: list[bytes] = []
        self.noise = self._parser.noise

    def send(self, datagram: bytes) -> None:
        """Send."""
        self._line.write(write_slip(datagram))

    def receive(self) -> "bytes | None":
        """Return what has come."""
        if not self._found:
            self._found = self._parser.feed(self._line.read() or b"")
        return self._found.pop(0) if self._found else None

    def measure(self, size: int) -> int:  # noqa: ARG002 - a line is always free
        """Return 0: a line is nobody else's."""
        return 0


class _Prompt:
    """The port that a board's prompt uses: a Pico's USB."""

    def __init__(self) -> None:
        import select
        import sys

        import micropython

        micropython.kbd_intr(-1)  # byte 3 is a byte
        self._input = sys.stdin.buffer
        self._output = sys.stdout.buffer
        self._poll = select.poll()
        self._poll.register(sys.stdin, select.POLLIN)

    def read(self) -> bytes:
        data = bytearray()
        while len(data) < _LIMIT and self._poll.poll(0):
            data += self._input.read(1)
        return bytes(data)

    def write(self, data: bytes) -> None:
        self._output.write(data)


class EspNowModem:
    """Datagrams by ESP-NOW, to the gateway's address; `espnow` tells them from other traffic."""

    size = 250
    share = 1000  # the radio waits until the channel is free, and no rule limits it

    def __init__(self, radio: "Any", gateway: bytes) -> None:
        self._radio = radio
        self._gateway = gateway
        radio.active(True)
        radio.add_peer(gateway)

    def send(self, datagram: bytes) -> None:
        """Send, without waiting for the radio's own acknowledgement."""
        try:  # noqa: SIM105 - no contextlib on a device
            self._radio.send(self._gateway, datagram, False)
        except OSError:  # its buffer is full: as if it were lost
            pass

    def receive(self) -> "bytes | None":
        """Return what has come."""
        return self._radio.recv(0)[1]  # type: ignore[no-any-return]

    def measure(self, size: int) -> int:  # noqa: ARG002 - under 3 ms
        """Return 0."""
        return 0


def find_lora_airtime(size: int, spreading: int, bandwidth: int = 125_000) -> int:
    """Return the ms on the air of so many bytes, by the SX1276's data sheet: coding rate 4/5, eight
    symbols of preamble, explicit header, CRC."""
    symbol = (1000 << spreading) * 1000 // bandwidth  # microseconds
    slow = 2 if symbol > 16_000 else 0
    bits = 8 * size - 4 * spreading + 44
    groups = max(0, -(-bits // (4 * (spreading - slow))))
    quarters = 4 * (8 + 5 * groups) + 49  # symbols of payload, and 12.25 of preamble
    return -(-symbol * quarters // 4000)


class LoraModem:
    """Datagrams by LoRa, on a modem of micropython-lib; at most `share` of the time (1/1000)."""

    def __init__(self, radio: "Any", spreading: int, share: int = 10) -> None:
        self._radio = radio
        self._spreading = spreading
        self.size = 51 if spreading > 9 else 115 if spreading == 9 else 222
        self.share = share
        radio.start_recv(continuous=True)

    def send(self, datagram: bytes) -> None:
        """Send, and listen again."""
        self._radio.send(datagram)
        self._radio.start_recv(continuous=True)

    def receive(self) -> "bytes | None":
        """Return what has come."""
        packet = self._radio.poll_recv()
        return bytes(packet) if packet and packet is not True else None

    def measure(self, size: int) -> int:
        """Return the milliseconds on the air."""
        return find_lora_airtime(size, self._spreading)


def open_modem(radio: "dict[str, Any]", board: "Any") -> "Modem":
    """Return the modem that a configuration describes."""
    kind = radio["kind"]
    if kind == "serial":
        port = radio.get("port", "usb")
        line = (
            _Prompt() if port == "usb" else board.make_serial(port, None, radio.get("baud", 115200))
        )
        return SerialModem(line)
    if kind == "espnow":
        return EspNowModem(board.make_espnow(radio.get("channel")), bytes.fromhex(radio["gateway"]))
    if kind == "lora":
        spreading = radio.get("spreading", 7)
        return LoraModem(board.make_lora(radio), spreading, radio.get("share", 10))
    raise ValueError("kind: " + kind)


def exchange(first: "Modem", second: "Modem") -> bool:
    """Pass on what has come on either side, as a gateway's board does; return whether it had."""
    is_busy = False
    for source, target in ((first, second), (second, first)):
        datagram = source.receive()
        if datagram:
            target.send(datagram)
            is_busy = True
    return is_busy
