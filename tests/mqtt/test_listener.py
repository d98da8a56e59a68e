"""The listener with real sockets: batches, nothing before the commit, bounds, TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from asyncio.sslproto import SSLProtocol
from pathlib import Path

import pytest
from denwatch.node.core.events import Message
from denwatch.node.mqtt.interface import Close, Limits, LinkBlocked, Pause, Resume

from tests.mqtt import wire, wire5
from tests.mqtt.certificates import make_certificate
from tests.mqtt.hosting import TIMEOUT, Host, wait_for


class Peer:
    """A client of bytes."""

    def __init__(self, host: Host, client: str = "c", join: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", host.port), timeout=TIMEOUT)
        if join:
            self.send(wire.connect(client))
            assert self.read(4) == b"\x20\x02\x00\x00"

    def send(self, *data: bytes) -> None:
        self.socket.sendall(b"".join(data))

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError(data)
            data += chunk
        return data

    def is_closed(self) -> bool:
        """Wait for the end."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            return True
        return True


def test_nothing_goes_out_before_the_commit() -> None:
    with Host() as host:
        peer = Peer(host)
        host.is_open = False
        peer.send(wire.publish("t", b"x", 1, 1), wire.DISCONNECT)
        host.wait_for(lambda: Message("", "t", b"x") in host.events)
        peer.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.read(1)
        peer.socket.settimeout(TIMEOUT)
        host.commit()
        assert peer.read(4) == wire.puback(1)
        assert peer.is_closed()


def test_what_many_links_bring_while_the_node_is_busy_is_one_batch() -> None:
    with Host() as host:
        peers = [Peer(host, f"c{i}") for i in range(10)]
        before = len(host.batches)

        def be_busy() -> None:
            for peer in peers:
                peer.send(wire.publish("t", b"x", 1, 1))

        host.call(be_busy)
        for peer in peers:
            assert peer.read(4) == wire.puback(1)
        assert max(host.batches[before:]) == 10


def test_packets_are_not_delayed_by_the_socket() -> None:
    with Host() as host:
        peer = Peer(host)
        (connection,) = host.listener.links.values()
        raw = connection.transport.get_extra_info("socket")
        assert raw.getpeername() == peer.socket.getsockname()
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_machine_that_is_gone_is_noticed_whatever_keep_alive_its_client_asked_for() -> None:
    """Of the socket alone: that Linux then ends such a connection is Linux's promise."""
    with Host(limits=Limits(keep_alive_s=12)) as host:
        Peer(host)
        (connection,) = host.listener.links.values()
        raw = connection.transport.get_extra_info("socket")

        def read(option: int) -> int:
            return int(raw.getsockopt(socket.IPPROTO_TCP, option))

        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        silent = read(socket.TCP_KEEPCNT) * read(socket.TCP_KEEPINTVL)
        assert read(socket.TCP_KEEPIDLE) + silent == 18
        assert read(socket.TCP_USER_TIMEOUT) == 18_000


def test_the_end_of_a_connection_is_reported() -> None:
    with Host() as host:
        peer = Peer(host)
        peer.socket.close()
        host.wait_for(lambda: not host.server.sessions.all)
        assert not host.listener.links


def test_a_link_is_closed_after_what_was_sent() -> None:
    with Host() as host:
        peer = Peer(host)
        (link,) = host.listener.links

        def say_goodbye() -> None:
            host.listener.send(link, b"last")
            host.listener.close(link)
            host.listener.close(link)
            host.listener.send(link, b"too late")
            host.listener.perform([Pause(link), Resume(link), Pause(99), Close(99, "")])

        host.call(say_goodbye)
        assert peer.read(4) == b"last"
        with pytest.raises(EOFError):
            peer.read(1)
        host.wait_for(lambda: not host.listener.links)
        host.call(lambda: host.listener.close(link))


def test_links_are_bounded() -> None:
    with Host(limits=Limits(links=2)) as host:
        peers = [Peer(host, "a"), Peer(host, "b")]
        refused = Peer(host, join=False)
        refused.send(wire.connect("c"))
        assert refused.read(4) == b"\x20\x02\x00\x03"
        assert refused.is_closed()
        peers.pop().socket.close()
        host.wait_for(lambda: len(host.listener.links) == 1)
        Peer(host, "c")


def test_who_does_not_read_is_not_read_and_blocks_nobody() -> None:
    limits = Limits(buffer_bytes=10_000, slow_ms=60_000)
    with Host(limits=limits) as host:
        blocks: list[LinkBlocked] = []
        block = host.server.block
        host.server.block = lambda *a: (blocks.append(LinkBlocked(*a[:2])), block(*a))[1]  # type: ignore[method-assign]
        slow = Peer(host, "slow")
        slow.send(wire.subscribe(1, ("t", 0)))
        assert slow.read(5)[0] == 0x90
        fast = Peer(host, "fast")
        sent = 0
        while not blocks:
            for _ in range(20):
                fast.send(wire.publish("t", bytes(50_000), 1, 1))
                assert fast.read(4) == wire.puback(1), "the others go on"
                sent += 1
        assert blocks == [LinkBlocked(1, True)]
        for _ in range(20):
            fast.send(wire.publish("t", bytes(50_000), 1, 1))
            assert fast.read(4) == wire.puback(1)
        assert host.server.counts["dropped_qos0"] >= 20
        (connection, _) = host.listener.links.values()
        assert connection.transport.get_write_buffer_size() < 200_000, "memory is bounded"
        slow.send(wire.PINGREQ)
        slow.socket.settimeout(TIMEOUT)
        data = b""
        while b"\xd0\x00" not in data[-2:]:
            data += slow.socket.recv(1 << 20)
        wait_for(lambda: blocks[-1] == LinkBlocked(1, False))
        assert len(data) < sent * 50_000


def test_who_never_reads_is_sent_away() -> None:
    limits = Limits(buffer_bytes=10_000, slow_ms=200, farewell_ms=100)
    with Host(limits=limits) as host:
        slow, fast = Peer(host, "slow"), Peer(host, "fast")
        slow.send(wire.subscribe(1, ("t", 0)))
        assert slow.read(5)[0] == 0x90
        while ("", "slow") in host.server.sessions.all:
            fast.send(wire.publish("t", bytes(100_000), 1, 1))
            assert fast.read(4) == wire.puback(1)
        wait_for(lambda: len(host.listener.links) == 1)
        assert host.server.counts["timeouts"] == 1


def test_a_link_with_too_much_unsent_is_cut() -> None:
    with Host(limits=Limits(buffer_bytes=1_000, buffer_limit_bytes=100_000)) as host:
        peer = Peer(host)
        (link,) = host.listener.links
        sent = 0
        while link in host.listener.links:
            host.call(lambda: host.listener.send(link, bytes(100_000)))
            sent += 100_000
            assert sent < 100_000_000
        assert peer.is_closed()


def test_a_publisher_that_must_wait_is_not_read() -> None:
    limits = Limits(window=1, queue=1, waiting=2, hold_ms=60_000)
    with Host(limits=limits) as host:
        receiver, sender = Peer(host, "r"), Peer(host, "s")
        receiver.send(wire.subscribe(1, ("t", 1)))
        receiver.read(5)
        count = 200
        payload = bytes(100_000)
        sender.socket.settimeout(0.5)
        data = b"".join(wire.publish("t", payload, 1, number) for number in range(1, count))
        with pytest.raises(TimeoutError):  # the buffers of the machine are full, not ours
            sender.send(data)
        sender.socket.settimeout(TIMEOUT)
        assert sender.read(8) == wire.puback(1) + wire.puback(2)
        assert host.server.sessions.bytes < 3 * len(payload)


def test_tls_lets_in_who_trusts_it(tmp_path: Path) -> None:
    context, authority = make_certificate(tmp_path)
    with Host(context=context) as host:
        client = ssl.create_default_context(cafile=str(authority))
        raw = socket.create_connection(("127.0.0.1", host.port), timeout=TIMEOUT)
        with client.wrap_socket(raw, server_hostname="localhost") as peer:
            peer.sendall(wire.connect("c") + wire.publish("t", b"x", 1, 1))
            data = b""
            while len(data) < 8:
                data += peer.recv(100)
            assert data == b"\x20\x02\x00\x00" + wire.puback(1)
        plain = Peer(host, join=False)
        plain.send(wire.connect("c"))
        assert plain.is_closed()
        host.wait_for(lambda: not host.listener.links)


def test_several_addresses_share_their_numbers() -> None:
    with Host() as host:
        first = Peer(host, "a")
        more = host.listener.start("127.0.0.1", 0)
        host.port = asyncio.run_coroutine_threadsafe(more, host._loop).result(TIMEOUT)
        second = Peer(host, "b")
        assert sorted(host.listener.links) == [1, 2]
        second.send(wire.subscribe(1, ("t", 1)))
        second.read(5)
        first.send(wire.publish("t", b"x", 1, 1))
        assert second.read(len(wire.publish("t", b"x", 1, 1))) == wire.publish("t", b"x", 1, 1)


def test_a_link_that_is_closed_while_its_client_resets_it_harms_nobody() -> None:
    """Both ends at once: the socket is gone when we say that nothing more follows."""
    with Host() as host:
        reset = socket.create_connection(("127.0.0.1", host.port))
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.sendall(wire.connect("a"))
        wait_for(lambda: host.server.sessions.all)
        (link,) = host.listener.links

        def close_both() -> None:
            reset.close()
            host.listener.close(link)

        host.call(close_both)
        wait_for(lambda: not host.listener.links)
        assert host.listener.lingering == 0


def test_the_last_packet_arrives_even_if_the_client_has_sent_more() -> None:
    """A socket that is closed with something unread would reset the connection."""
    limits = Limits(farewell_ms=600_000)
    with Host(limits=limits) as host, socket.create_connection(("127.0.0.1", host.port)) as client:
        client.settimeout(TIMEOUT)
        client.sendall(wire5.connect("a") + wire5.publish("a/#"))
        received = client.recv(1000)
        for _ in range(100):  # the server has closed its side, and is not told
            client.sendall(wire.PINGREQ * 1000)
        while chunk := client.recv(1000):
            received += chunk
        assert [(got.kind, got.code) for got in wire5.parse(received)] == [
            ("connack", 0),
            ("disconnect", 0x90),
        ]
        wait_for(lambda: host.listener.lingering == 1)  # it counts after the client may know
        client.close()
        wait_for(lambda: not host.listener.links)
        assert host.listener.lingering == 0


def test_a_connection_in_the_middle_of_its_handshake_takes_little_memory() -> None:
    async def find_buffer() -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        loop = asyncio.get_running_loop()
        protocol = SSLProtocol(loop, asyncio.Protocol(), context, None, server_side=True)  # type: ignore[arg-type]
        return len(protocol.get_buffer(-1))  # type: ignore[attr-defined]

    assert asyncio.run(find_buffer()) <= 32_768
