"""The server with clients that others wrote: paho-mqtt, Mosquitto's, and the watchdog's own."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from denwatch.node.core.events import Acknowledged, Listening, Message
from denwatch.node.mqtt.interface import Limits
from paho.mqtt.enums import CallbackAPIVersion

from firmware_tests.runtimes import LIBRARY, REPOSITORY, find_library, find_unix
from firmware_tests.support import require
from tests.mqtt.certificates import make_certificate
from tests.mqtt.hosting import TIMEOUT, Host, wait_for

KEYS = {"medic7": b"secret", "dog-1": b"bone"}


class Own:
    def authenticate(self, user: str, password: bytes | None, client: str) -> int:  # noqa: ARG002
        return 0 if user in KEYS and KEYS[user] == password else 4

    def recognises(self, user: str, password: bytes | None) -> bool:
        return user in KEYS and KEYS[user] == password

    def may_publish(self, user: str, topic: str) -> bool:
        return user in topic.split("/")

    def may_subscribe(self, user: str, name: str) -> bool:
        return user in name.split("/")


class Paho:
    """A paho client with its own thread."""

    def __init__(self, host: Host, client: str, clean: bool = True, **more: object) -> None:
        self.messages: list[tuple[str, bytes, int, bool]] = []
        self.granted: list[int] = []
        self.codes: list[int] = []
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client, clean_session=clean)
        self.client.on_message = self._on_message
        self.client.on_subscribe = lambda _c, _u, _m, codes, _p: self.granted.extend(
            code.value for code in codes
        )
        self.client.on_connect = lambda _c, _u, _f, code, _p: self.codes.append(code.value)
        if "user" in more:
            self.client.username_pw_set(str(more["user"]), str(more.get("password", "")))
        if "will" in more:
            self.client.will_set("will", b"gone", 1)
        if "authority" in more:
            self.client.tls_set(str(more["authority"]))
        self.client.connect("127.0.0.1", host.port, int(str(more.get("keep_alive", 60))))
        self.client.loop_start()
        wait_for(lambda: self.codes)

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self.messages.append((message.topic, message.payload, message.qos, message.retain))

    def subscribe(self, *filters: tuple[str, int]) -> list[int]:
        self.granted.clear()
        self.client.subscribe(list(filters))
        wait_for(lambda: len(self.granted) == len(filters))
        return self.granted

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos, retain).wait_for_publish(TIMEOUT)

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def die(self) -> None:
        """Go without a word."""
        self.client._sock.close()  # type: ignore[union-attr]
        self.client.loop_stop()


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as running:
        yield running


class TestPaho:
    def test_all_kinds_of_qos_there_and_back(self, host: Host) -> None:
        client = Paho(host, "c")
        assert client.subscribe(("a/+", 2), ("b", 1), ("c", 0)) == [2, 1, 0]
        for topic in ("a/x", "b", "c"):
            for qos in (0, 1, 2):
                client.publish(topic, b"%d" % qos, qos)
        wait_for(lambda: len(client.messages) == 9)
        best = {"a/x": 2, "b": 1, "c": 0}
        assert sorted(client.messages) == sorted(
            (topic, b"%d" % qos, min(qos, best[topic]), False)
            for topic in best
            for qos in (0, 1, 2)
        )
        client.stop()
        wait_for(lambda: not host.server.sessions.all)

    def test_a_thousand_messages_arrive_once_and_in_order(self, host: Host) -> None:
        receiver, sender = Paho(host, "r"), Paho(host, "s")
        receiver.subscribe(("t", 2))
        infos = [sender.client.publish("t", b"%d" % i, 1 + i % 2) for i in range(1000)]
        for info in infos:
            info.wait_for_publish(TIMEOUT)
        wait_for(lambda: len(receiver.messages) >= 1000)
        for qos in (1, 2):
            payloads = [int(m[1]) for m in receiver.messages if m[2] == qos]
            assert payloads == list(range(qos - 1, 1000, 2))
        receiver.stop()
        sender.stop()

    def test_messages_wait_over_a_restart_of_the_server(self) -> None:
        with Host() as first:
            client = Paho(first, "c", clean=False)
            client.subscribe(("t", 2))
            client.stop()
            sender = Paho(first, "s")
            sender.publish("t", b"one", 1)
            sender.publish("t", b"two", 2)
            sender.publish("kept", b"three", 1, retain=True)
            sender.stop()
        with Host(store=first.store) as second:
            client = Paho(second, "c", clean=False)
            wait_for(lambda: len(client.messages) == 2)
            client.subscribe(("kept", 1))
            wait_for(lambda: len(client.messages) == 3)
            assert client.messages == [
                ("t", b"one", 1, False),
                ("t", b"two", 2, False),
                ("kept", b"three", 1, True),
            ]
            client.stop()

    def test_a_client_that_dies_leaves_its_will_and_one_that_says_goodbye_does_not(
        self, host: Host
    ) -> None:
        listener = Paho(host, "listener")
        listener.subscribe(("will", 1))
        Paho(host, "polite", will=True).stop()
        Paho(host, "dying", will=True).die()
        wait_for(lambda: listener.messages)
        assert listener.messages == [("will", b"gone", 1, False)]
        listener.stop()

    def test_wrong_keys_and_other_peoples_topics(self) -> None:
        with Host(Own()) as host:
            wrong = Paho(host, "c", user="medic7", password="guess")
            assert wrong.codes[0] != 0
            wrong.stop()
            medic = Paho(host, "c", user="medic7", password="secret")
            assert medic.codes == [0]
            assert medic.subscribe(("note/medic7", 1), ("note/dog-1", 1), ("#", 1)) == [1, 128, 128]
            medic.client.publish("note/dog-1", b"forged", 1)
            wait_for(lambda: host.server.counts["refused"] > 2)
            medic.client.loop_stop()
            assert Message("medic7", "note/dog-1", b"forged") not in host.events

    def test_tls(self, tmp_path: Path) -> None:
        context, authority = make_certificate(tmp_path)
        with Host(context=context) as host:
            client = Paho(host, "c", authority=authority)
            client.publish("t", b"x")
            assert Message("", "t", b"x") in host.events
            client.stop()
            with pytest.raises(ssl.SSLError):
                Paho(host, "c", authority=ssl.get_default_verify_paths().cafile)


def run_mosquitto(tool: str, host: Host, *options: str) -> subprocess.Popen[bytes]:
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"{tool} is missing")
    command = [path, "-h", "127.0.0.1", "-p", str(host.port), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class TestMosquittoClients:
    @pytest.mark.parametrize("qos", ["0", "1", "2"])
    def test_publishing_and_subscribing(self, host: Host, qos: str) -> None:
        reader = run_mosquitto("mosquitto_sub", host, "-q", qos, "-t", "a/#", "-C", "2", "-v")
        wait_for(lambda: host.server.sessions.index.find_all("a/b"))
        for text in ("one", "two"):
            run_mosquitto("mosquitto_pub", host, "-q", qos, "-t", "a/b", "-m", text).wait(TIMEOUT)
        assert reader.communicate(timeout=TIMEOUT)[0] == b"a/b one\na/b two\n"

    def test_a_persistent_session_and_a_retained_message(self, host: Host) -> None:
        subscribe = ["-q", "1", "-i", "me", "-c", "-t", "t"]
        run_mosquitto("mosquitto_sub", host, *subscribe, "-E").wait(TIMEOUT)
        for text in ("1", "2", "3"):
            options = ["-q", "1", "-t", "t", "-m", text, "-r"]
            assert run_mosquitto("mosquitto_pub", host, *options).wait(TIMEOUT) == 0
        reader = run_mosquitto("mosquitto_sub", host, *subscribe, "-C", "3", "-R")
        assert reader.communicate(timeout=TIMEOUT)[0] == b"1\n2\n3\n"
        late = run_mosquitto("mosquitto_sub", host, "-t", "t", "-C", "1", "-F", "%r %p")
        assert late.communicate(timeout=TIMEOUT)[0] == b"1 3\n"

    def test_a_rescue_app_is_two_of_them(self) -> None:
        with Host(Own()) as host:
            login = ["-u", "medic7", "-P", "secret", "-q", "1"]
            topic = "dens/1/note/medic7"
            reader = run_mosquitto("mosquitto_sub", host, *login, "-t", topic, "-C", "2")
            wait_for(lambda: Listening(topic, True) in host.events)
            host.publish(topic, b'{"degree": 255}', token=11)
            wait_for(lambda: Acknowledged(topic, 11) in host.events)
            request = ["-t", "dens/1/sub/medic7", "-m", "patient_temperature is very high"]
            assert run_mosquitto("mosquitto_pub", host, *login, *request).wait(TIMEOUT) == 0
            words = b"patient_temperature is very high"
            assert Message("medic7", "dens/1/sub/medic7", words) in host.events
            host.publish(topic, b'{"degree": 128}', token=12)
            output = reader.communicate(timeout=TIMEOUT)[0]
            assert output == b'{"degree": 255}\n{"degree": 128}\n'
            wait_for(lambda: Listening(topic, False) in host.events)

    def test_refusals_are_seen(self) -> None:
        with Host(Own()) as host:
            wrong = run_mosquitto("mosquitto_pub", host, "-u", "x", "-P", "y", "-t", "t", "-m", "m")
            assert b"refused" in wrong.communicate(timeout=TIMEOUT)[1]
            assert wrong.returncode != 0
            login = ["-u", "medic7", "-P", "secret"]
            denied = run_mosquitto("mosquitto_sub", host, *login, "-t", "note/dog-1")
            assert b"denied" in denied.communicate(timeout=TIMEOUT)[1]


WATCHDOG = """
import sys, asyncio, time
sys.path.insert(0, {root!r})
from denwatch.watchdog.link import DeviceLink, LinkSettings, NodeAddress
from denwatch.watchdog.packets import PINGREQ
got = []
pings = []
passed = 0  # ms by which the watchdog's clock was set forward
def clock():
    return int(time.time() * 1000) + passed
class Client:
    name = "dog-1"
    topics = ["dens/1/wd/dog-1/sv"]
    will = ("dens/1/wd/dog-1/hello", b"gone")
    def connect(self, node):
        pass
    def receive(self, topic, payload, now):
        got.append((topic, bytes(payload)))
class Link(DeviceLink):
    async def _write(self, packet):
        await DeviceLink._write(self, packet)
        if packet == PINGREQ:
            pings.append(packet)
async def main():
    global passed
    settings = LinkSettings(keep_alive=40, timeout=30, first_delay=0, window=4)
    link = Link(Client(), [NodeAddress("node", "127.0.0.1", {port}, None, "dog-1", "bone")],
                clock, lambda n: n // 2, settings)
    task = asyncio.create_task(link.run())
    while link.server is None:
        await asyncio.sleep(0.02)
    done = []
    for i in range(50):
        done.append(await link.publish("dens/1/wd/dog-1/nv", b"%d" % i))
    while len(got) < 2:
        await asyncio.sleep(0.02)
    while not pings:  # it is quiet for half a minute, and a message has it look at its clock
        passed += 30000
        await asyncio.sleep(0.02)
    done.append(await link.publish("dens/1/wd/dog-1/nv", b"50"))
    print("published", done.count(True), "got", got[:2], "lost", link.counts["lost"])
asyncio.run(main())
"""


class TestWatchdog:
    """The watchdog's own client, on CPython and on MicroPython."""

    def run(self, command: list[str], environment: dict[str, str] | None) -> None:
        with Host(Own()) as host:
            code = WATCHDOG.format(root=str(REPOSITORY), port=host.port)
            runner = subprocess.Popen(
                [*command, "-c", code],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=REPOSITORY,
            )
            killer = threading.Timer(TIMEOUT * 2, runner.kill)
            killer.start()
            topic = "dens/1/wd/dog-1/sv"
            wait_for(lambda: Listening(topic, True) in host.events or runner.poll() is not None)
            host.publish(topic, b"first", token=1)
            host.publish(topic, b"second", token=2)
            while runner.poll() is None:
                host.publish(topic, b"more", qos=0)
                time.sleep(0.05)
            output = runner.communicate()[0].decode()
            killer.cancel()
            expected = "published 51 got [('%s', b'first'), ('%s', b'second')] lost 0"
            assert output.strip() == expected % (topic, topic)
            taken = [e.payload for e in host.events if isinstance(e, Message)]
            assert taken[:51] == [b"%d" % i for i in range(51)]
            wait_for(lambda: Acknowledged(topic, 1) in host.events)
            wait_for(lambda: Acknowledged(topic, 2) in host.events)
            wait_for(lambda: Message("dog-1", "dens/1/wd/dog-1/hello", b"gone") in host.events)

    def test_on_cpython(self) -> None:
        self.run([sys.executable], None)

    @pytest.mark.parametrize("bits", [64, 32])
    def test_on_micropython(self, bits: int) -> None:
        runtime = require(partial(find_unix, bits))
        self.run(
            [str(runtime)], {"MICROPYPATH": f"{LIBRARY}:{find_library()}:{REPOSITORY}:.frozen"}
        )


def test_a_silent_client_is_found_out_by_its_keep_alive() -> None:
    with Host(limits=Limits(connect_ms=60_000)) as host:
        listener = Paho(host, "listener")
        listener.subscribe(("will", 1))
        frozen = Paho(host, "frozen", will=True, keep_alive=1)
        frozen.client.loop_stop()  # nobody pings any more
        wait_for(lambda: listener.messages)
        assert host.server.counts["timeouts"] == 1
        listener.stop()


class TestStandAlone:
    """`python -m simulator.open_server`, as interoperability suites and benchmarks use it."""

    def test_it_serves_until_it_is_told_to_stop(self) -> None:
        command = [sys.executable, "-m", "simulator.open_server", "--open", "--refuse", "no/way"]
        runner = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY)
        assert runner.stdout is not None
        host = Host(port=int(runner.stdout.readline()))
        client = Paho(host, "c")
        assert client.subscribe(("t", 1), ("no/way", 1)) == [1, 128]
        client.publish("t", b"x")
        wait_for(lambda: client.messages)
        client.stop()
        runner.terminate()
        assert runner.wait(TIMEOUT) == 0

    def test_it_is_not_open_unless_somebody_says_so(self) -> None:
        command = [sys.executable, "-m", "simulator.open_server"]
        done = subprocess.run(command, capture_output=True, cwd=REPOSITORY, check=False)
        assert done.returncode == 2
        assert b"--open" in done.stderr
