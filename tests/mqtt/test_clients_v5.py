"""MQTT 5 with clients that others wrote, with their defaults: paho, Mosquitto's, aiomqtt, gmqtt."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator

import aiomqtt
import gmqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from simulator.open_server import OpenRules
from tests.mqtt.hosting import TIMEOUT, Host, wait_for


class NoForgery(OpenRules):
    def may_publish(self, user: str, topic: str) -> bool:  # noqa: ARG002
        return topic != "forged"


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(NoForgery()) as running:
        yield running


class Paho5:
    """A paho client that speaks MQTT 5, with its own thread."""

    def __init__(self, host: Host, client: str, **more: object) -> None:
        self.messages: list[paho.MQTTMessage] = []
        self.codes: list[int] = []
        self.published: list[int] = []
        self.ended: list[int] = []
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client, protocol=paho.MQTTv5)
        self.client.on_message = lambda _c, _u, message: self.messages.append(message)
        self.client.on_connect = lambda _c, _u, _f, code, _p: self.codes.append(code.value)
        self.client.on_publish = lambda _c, _u, _m, code, _p: self.published.append(code.value)
        self.client.on_disconnect = lambda _c, _u, _f, code, _p: self.ended.append(code.value)
        self.client.connect("127.0.0.1", host.port, 60, **more)  # type: ignore[arg-type]
        self.client.loop_start()
        wait_for(lambda: self.codes)

    def subscribe(self, host: Host, name: str, options: SubscribeOptions, number: int = 0) -> None:
        given = Properties(PacketTypes.SUBSCRIBE)
        if number:
            given.SubscriptionIdentifier = number
        self.client.subscribe(name, options=options, properties=given)
        wait_for(lambda: any(name in s.subscriptions for s in host.server.sessions.all.values()))

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class TestPaho:
    def test_properties_and_options(self, host: Host) -> None:
        client = Paho5(host, "c")
        client.subscribe(host, "t/+", SubscribeOptions(2), 77)
        given = Properties(PacketTypes.PUBLISH)
        given.UserProperty = [("a", "2"), ("c", "3")]
        given.ResponseTopic = "answers"
        given.CorrelationData = b"42"
        given.MessageExpiryInterval = 100
        given.TopicAlias = 1
        for qos in range(3):
            client.client.publish("t/a", b"x", qos, properties=given)
        wait_for(lambda: len(client.messages) == 3)
        for message in client.messages:
            found = message.properties
            assert found is not None
            assert found.UserProperty == [("a", "2"), ("c", "3")]
            assert (found.ResponseTopic, found.CorrelationData) == ("answers", b"42")
            assert found.SubscriptionIdentifier == [77]
            assert 90 < found.MessageExpiryInterval <= 100
        client.stop()

    def test_a_refused_publish_has_its_reason(self, host: Host) -> None:
        client = Paho5(host, "c")
        client.client.publish("forged", b"x", 1)
        client.client.publish("t", b"x", 1)
        wait_for(lambda: len(client.published) == 2)
        assert sorted(client.published) == [0, 0x87]
        client.stop()

    def test_a_session_outlives_its_client(self, host: Host) -> None:
        given = Properties(PacketTypes.CONNECT)
        given.SessionExpiryInterval = 1000
        first = Paho5(host, "c", clean_start=True, properties=given)
        first.subscribe(host, "t", SubscribeOptions(1))
        first.stop()
        sender = Paho5(host, "s")
        sender.client.publish("t", b"x", 1).wait_for_publish(TIMEOUT)
        again = Paho5(host, "c", clean_start=False, properties=given)
        wait_for(lambda: again.messages)
        for client in (sender, again):
            client.stop()

    def test_the_node_says_why_it_ends_a_link(self, host: Host) -> None:
        first = Paho5(host, "c")
        second = Paho5(host, "c")
        wait_for(lambda: first.ended)
        assert first.ended[0] == 0x8E
        for client in (first, second):
            client.stop()


def run_mosquitto(tool: str, host: Host, *options: str) -> subprocess.Popen[bytes]:
    path = shutil.which(tool)
    if path is None:
        assert not os.environ.get("CI"), f"{tool} is missing"
        pytest.skip(f"{tool} is missing")
    command = [path, "-V", "5", "-h", "127.0.0.1", "-p", str(host.port), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class TestMosquittoClients:
    @pytest.mark.parametrize("qos", ["0", "1", "2"])
    def test_publishing_and_subscribing(self, host: Host, qos: str) -> None:
        form = ["-C", "2", "-F", "%t %p %P"]
        reader = run_mosquitto("mosquitto_sub", host, "-q", qos, "-t", "$share/g/a/#", *form)
        wait_for(lambda: host.server.sessions.index.find_all("a/b"))
        for text in ("one", "two"):
            more = ["-D", "publish", "user-property", "k", text]
            run_mosquitto(
                "mosquitto_pub", host, "-q", qos, "-t", "a/b", "-m", text, *more
            ).wait(TIMEOUT)  # fmt: skip
        assert reader.communicate(timeout=TIMEOUT)[0] == b"a/b one k:one\na/b two k:two\n"

    def test_a_refusal_is_shown(self, host: Host) -> None:
        done = run_mosquitto("mosquitto_pub", host, "-q", "1", "-t", "forged", "-m", "x")
        _, error = done.communicate(timeout=TIMEOUT)
        assert b"not allowed" in error or b"Not authorized" in error, error


def test_aiomqtt(host: Host) -> None:
    async def talk(protocol: aiomqtt.ProtocolVersion) -> bytes:
        client = aiomqtt.Client("127.0.0.1", host.port, protocol=protocol)
        async with asyncio.timeout(TIMEOUT), client:
            await client.subscribe("t/#", qos=1)
            await client.publish("t/a", b"x", qos=2)
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                return message.payload
        return b""

    for protocol in (aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5):
        assert asyncio.run(talk(protocol)) == b"x"


@pytest.mark.parametrize("version", [4, 5])
def test_gmqtt(host: Host, version: int) -> None:
    async def talk() -> tuple[str, bytes, int]:
        came: asyncio.Future[tuple[str, bytes, int]] = asyncio.get_running_loop().create_future()
        ready = asyncio.Event()
        client = gmqtt.Client("gmqtt")

        def receive(_client: object, topic: str, payload: bytes, qos: int, _more: object) -> int:
            came.set_result((topic, bytes(payload), qos))
            return 0

        client.on_message = receive
        client.on_subscribe = lambda *_: ready.set()
        async with asyncio.timeout(TIMEOUT):
            await client.connect("127.0.0.1", host.port, version=version)
            client.subscribe("t/#", qos=1)
            await ready.wait()
            client.publish("t/a", b"x", qos=1)
            found = await came
            await client.disconnect()
        return found

    assert asyncio.run(talk()) == ("t/a", b"x", 1)
