"""MQTT within WebSocket: the stream without I/O, and clients that others wrote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
from pathlib import Path

import paho.mqtt.client as paho
import pytest
import websockets
from denwatch.node.core.events import Message
from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.listener import Door
from denwatch.node.mqtt.websocket import LOCAL_PAGES, WebSocketStream
from paho.mqtt.enums import CallbackAPIVersion
from websockets.client import ClientProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from firmware_tests.runtimes import find_cache
from firmware_tests.support import refuse
from tests.mqtt import wire
from tests.mqtt.certificates import make_certificate
from tests.mqtt.hosting import TIMEOUT, Host, wait_for

MQTT = [Subprotocol("mqtt")]
WEB = Door(is_websocket=True)
REQUEST = (
    "GET /mqtt HTTP/1.1\r\nHost: tent\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{}\r\n"
)


def ask(*more: str) -> bytes:
    return REQUEST.format("".join(line + "\r\n" for line in more)).encode()


def open_stream(limits: Limits | None = None) -> tuple[WebSocketStream, ClientProtocol]:
    client = ClientProtocol(parse_uri("ws://tent/mqtt"), subprotocols=MQTT)
    client.send_request(client.connect())
    stream = WebSocketStream(limits or Limits())
    assert stream.receive(b"".join(client.data_to_send())) == b""
    client.receive_data(stream.take_answer())
    assert client.subprotocol == "mqtt"
    return stream, client


class TestStream:
    def test_the_handshake_byte_by_byte(self) -> None:
        stream = WebSocketStream(Limits())
        request = ask("Sec-WebSocket-Protocol: mqtt")
        for at in range(len(request)):
            assert not stream.take_answer()
            assert stream.receive(request[at : at + 1]) == b""
        answer = stream.take_answer()
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"Sec-WebSocket-Protocol: mqtt\r\n" in answer
        assert b"Date:" not in answer, "there is no clock here"
        assert not stream.fault

    @pytest.mark.parametrize(
        ("request_bytes", "status"),
        [
            (b"GET / HTTP/1.1\r\nHost: tent\r\n\r\n", b" 426 "),
            (ask(), b" 400 "),
            (ask("Sec-WebSocket-Protocol: chat"), b" 400 "),
            (ask("Sec-WebSocket-Protocol: mqtt").replace(b"13", b"12"), b" 400 "),
            (b"POST / HTTP/1.1\r\n\r\n", b""),
            (wire.connect(), b""),
            (b"\xff" * 9000, b""),
        ],
    )
    def test_what_is_no_handshake_is_answered_and_ends(
        self, request_bytes: bytes, status: bytes
    ) -> None:
        stream = WebSocketStream(Limits())
        stream.receive(request_bytes + b"\r\n\r\n")
        assert status in stream.take_answer()[:16]
        assert stream.fault

    def test_a_request_is_bounded(self) -> None:
        stream = WebSocketStream(Limits())
        stream.receive(b"GET / HTTP/1.1\r\n")
        for number in range(100):
            stream.receive(b"X-%d: %s\r\n" % (number, b"x" * 1000))
            if stream.fault:
                break
        assert number < 20
        assert stream.fault == "a request of too many bytes"

    def test_pages_of_other_places_are_refused_where_no_name_is_needed(self) -> None:
        for origin, status in [
            ("Origin: http://localhost:8080", b" 101 "),
            ("Origin: http://127.0.0.1", b" 101 "),
            ("X-None: at all", b" 101 "),
            ("Origin: https://evil.example", b" 403 "),
            ("Origin: http://localhost.evil.example", b" 403 "),
            ("Origin: null", b" 403 "),
        ]:
            stream = WebSocketStream(Limits(), LOCAL_PAGES)
            stream.receive(ask("Sec-WebSocket-Protocol: mqtt", origin))
            assert status in stream.take_answer()[:16], origin

    def test_packets_cross_in_any_pieces(self) -> None:
        stream, client = open_stream()
        sent = wire.connect() + wire.publish("t", b"x" * 300) + wire.PINGREQ
        got = b""
        client.send_binary(sent[:5])
        client.send_binary(sent[5:100], fin=False)
        client.send_continuation(sent[100:], fin=True)
        client.send_ping(b"?")
        for chunk in client.data_to_send():
            for at in range(len(chunk)):
                got += stream.receive(chunk[at : at + 1])
        assert got == sent
        client.receive_data(stream.take_answer())
        client.receive_data(stream.wrap(b"answer"))
        frames = [bytes(frame.data) for frame in client.events_received()[1:]]  # type: ignore[union-attr]
        assert frames == [b"?", b"answer"], "a ping has its answer"

    def test_text_ends_it(self) -> None:
        stream, client = open_stream()
        client.send_text(b"hello")
        stream.receive(b"".join(client.data_to_send()))
        client.receive_data(stream.take_answer())
        assert client.close_rcvd is not None
        assert client.close_rcvd.code == 1003
        assert stream.fault

    def test_a_stranger_sends_no_more_than_connect(self) -> None:
        limits = Limits(connect_bytes=100, packet_bytes=1000)
        stream, client = open_stream(limits)
        client.send_binary(b"x" * 101)
        assert stream.receive(b"".join(client.data_to_send())) == b""
        assert stream.fault
        stream, client = open_stream(limits)
        stream.wrap(b"CONNACK")
        client.send_binary(b"x" * 1000)
        assert stream.receive(b"".join(client.data_to_send())) == b"x" * 1000

    def test_the_end_is_told(self) -> None:
        stream, client = open_stream()
        client.receive_data(stream.close())
        assert client.close_rcvd is not None
        assert client.close_rcvd.code == 1000
        assert stream.wrap(b"late") == b""


class Page:
    """What a page in a browser does, by the library that made the server's side."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def talk(self, *sent: bytes, count: int) -> list[wire.Got]:
        found: list[wire.Got] = []
        async with websockets.connect(self.url, subprotocols=MQTT, origin="http://x") as link:  # type: ignore[arg-type]
            await link.send(b"".join(sent))
            while len(found) < count:
                data = await asyncio.wait_for(link.recv(), TIMEOUT)
                assert isinstance(data, bytes)
                found += wire.parse(data)
        return found


def connect_paho(host: Host, protocol: int, authority: str = "") -> tuple[paho.Client, list[bytes]]:
    messages: list[bytes] = []
    client = paho.Client(
        CallbackAPIVersion.VERSION2, "c", transport="websockets", protocol=protocol  # type: ignore[arg-type]
    )  # fmt: skip
    client.on_message = lambda _c, _u, message: messages.append(message.payload)
    subscribed: list[int] = []
    client.on_subscribe = lambda *_: subscribed.append(1)
    if authority:
        client.tls_set(authority)
    client.connect("127.0.0.1", host.port)
    client.loop_start()
    wait_for(client.is_connected)
    client.subscribe("t", 1)
    wait_for(lambda: subscribed)
    return client, messages


class TestClients:
    def test_a_page(self) -> None:
        with Host(door=WEB) as host:
            sent = (wire.connect(), wire.subscribe(1, ("t", 1)), wire.publish("t", b"x", 1, 5))
            got = asyncio.run(Page(f"ws://127.0.0.1:{host.port}/mqtt").talk(*sent, count=4))
            assert [each.kind for each in got] == ["connack", "suback", "publish", "puback"]
            assert Message("", "t", b"x") in host.events
            wait_for(lambda: not host.server.sessions.all)

    @pytest.mark.parametrize("protocol", [paho.MQTTv311, paho.MQTTv5])
    def test_paho(self, protocol: int, tmp_path: Path) -> None:
        context, authority = make_certificate(tmp_path)
        for door, verify in [(WEB, ""), (Door(context, True), authority)]:
            with Host(door=door) as host:
                client, messages = connect_paho(host, protocol, str(verify))
                client.publish("t", b"x" * 100_000, 1).wait_for_publish(TIMEOUT)
                wait_for(lambda found=messages: found)
                assert messages == [b"x" * 100_000]
                client.disconnect()
                client.loop_stop()

    def test_strangers_without_a_handshake_are_bounded_and_sent_away(self) -> None:
        limits = Limits(half_open=4, half_open_per_address=4, connect_ms=200)
        with Host(door=WEB, limits=limits) as host:
            strangers = [socket.create_connection(("127.0.0.1", host.port)) for _ in range(12)]
            for each in strangers:
                each.sendall(b"GET / HTTP/1.1\r\n")
            wait_for(lambda: not host.listener.links and not host.server.budget.half_open)
            for each in strangers:
                each.settimeout(TIMEOUT)
                with contextlib.suppress(ConnectionError):
                    assert each.recv(100) == b""
                each.close()
            client, _ = connect_paho(host, paho.MQTTv5)
            client.disconnect()
            client.loop_stop()


SCRIPT = """
const mqtt = require(process.argv[2]);
const client = mqtt.connect(process.argv[3], JSON.parse(process.argv[4]));
client.on('error', (error) => { console.error(error); process.exit(1); });
client.on('message', (topic, payload) => {
  console.log(topic + ' ' + payload);
  client.end(false, {}, () => process.exit(0));
});
client.on('connect', () => client.subscribe('t/+', {qos: 1}, () =>
  client.publish('t/a', 'x', {qos: 1})));
"""


@pytest.mark.parametrize("scheme", ["ws", "mqtt"])
@pytest.mark.parametrize("level", [4, 5])
def test_mqtt_js(scheme: str, level: int, tmp_path: Path) -> None:
    """With its defaults."""
    module, node = find_cache() / "mqttjs" / "node_modules" / "mqtt", shutil.which("node")
    if node is None or not module.exists():
        refuse("MQTT.js is missing: scripts/get-runtimes.sh mqttjs")
    script = tmp_path / "client.js"
    script.write_text(SCRIPT)
    with Host(door=Door(is_websocket=scheme == "ws")) as host:
        done = subprocess.run(
            [
                node,
                str(script),
                str(module),
                f"{scheme}://127.0.0.1:{host.port}",
                json.dumps({"protocolVersion": level}),
            ],
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.stdout == b"t/a x\n", done.stderr
