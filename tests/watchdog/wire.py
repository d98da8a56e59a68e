"""A server in memory for the link's tests: it sees each write by itself, and answers as told."""

import asyncio


class Wire:
    """One connection: `reader` and `writer` of the client, and a script of the server's answers."""

    def __init__(self, server):
        self.server = server
        self.writes = []
        self.inbox = b""
        self.arrived = asyncio.Event()
        self.is_closed = False

    # The client's side

    def write(self, data):
        if self.is_closed:
            raise OSError(32)
        self.writes.append(bytes(data))
        self.server.handle(self, bytes(data))

    async def drain(self):
        if self.server.is_stuck:
            await asyncio.sleep(3600)

    async def read(self, size):
        while not self.inbox and not self.is_closed:
            self.arrived.clear()
            await self.arrived.wait()
        data = self.inbox[:size]
        self.inbox = self.inbox[size:]
        return data

    def close(self):
        self.is_closed = True
        self.arrived.set()

    async def wait_closed(self):
        pass

    # The server's side

    def send(self, data):
        self.inbox += data
        self.arrived.set()


class FakeServer:
    """Answers CONNECT, SUBSCRIBE, PUBLISH and PINGREQ, unless it is told not to."""

    def __init__(self):
        self.wires = []
        self.published = []  # (first byte, id, topic, payload)
        self.connack = b"\x20\x02\x00\x00"
        self.suback = b"\x01"
        self.is_down = False
        self.is_stuck = False
        self.pubacks = True
        self.pings = True
        self.acknowledged = []

    async def dial(self, server):  # noqa: ARG002
        if self.is_down:
            raise OSError(111)
        wire = Wire(self)
        self.wires.append(wire)
        return wire, wire

    @property
    def wire(self):
        return self.wires[-1]

    def handle(self, wire, data):
        kind = data[0] >> 4
        body = data[2:] if data[1] < 128 else data[3:]
        if kind == 1:
            wire.send(self.connack)
        elif kind == 8:
            count = data.count(b"\x01", 4) and 2
            wire.send(bytes([0x90, 2 + count]) + body[:2] + self.suback * count)
        elif kind == 3:
            stop = 2 + (body[0] << 8 | body[1])
            number = body[stop] << 8 | body[stop + 1]
            self.published.append((data[0], number, str(body[2:stop], "utf-8"), body[stop + 2 :]))
            if self.pubacks:
                wire.send(bytes([0x40, 2, number >> 8, number & 255]))
        elif kind == 4:
            self.acknowledged.append(body[0] << 8 | body[1])
        elif kind == 12 and self.pings:
            wire.send(b"\xd0\x00")
