"""The first start without a configuration: one page, and what it stores."""

# ruff: noqa: ARG002, PTH107 - stand-ins have a board's interface; no pathlib on a device
import asyncio
import json
import os
import unittest

from denwatch.watchdog import boot
from denwatch.watchdog.portal import SetupPage, find_password, read_config, read_form

if not hasattr(asyncio, "run"):
    raise unittest.SkipTest("this runtime's asyncio runs in a browser's loop only")

CONFIG = {
    "device": "dog-1",
    "vocabulary": "00" * 8,
    "nodes": [],
    "spool": {"file": "spool.bin"},
    "sources": {},
    "events": [],
}


def quote(text):
    """Return text as a form sends it."""
    return "".join(["%{:02X}".format(byte) for byte in text.encode()])  # noqa: UP032 - MicroPython


class Stream:
    """Both ends of a connection."""

    def __init__(self, data):
        self.data = data
        self.sent = b""
        self.is_closed = False

    async def readline(self):
        cut = self.data.find(b"\n") + 1 or len(self.data)
        line, self.data = self.data[:cut], self.data[cut:]
        return line

    async def readexactly(self, size):
        if len(self.data) < size:
            raise OSError("closed")
        return self.data[:size]

    def write(self, data):
        self.sent += data

    async def drain(self):
        pass

    def close(self):
        self.is_closed = True


class PageTest(unittest.TestCase):
    def ask(self, data):
        """Return the answer to a request, and what was stored."""
        stored = []
        stream = Stream(data)

        async def run():
            page = SetupPage(lambda text, files: stored.append((text, files)))
            await page.serve(stream, stream)
            return page.done.is_set()

        is_done = asyncio.run(run())
        self.assertTrue(stream.is_closed)
        self.assertEqual(is_done, bool(stored))
        return stream.sent.decode(), stored

    def post(self, config, name="", password=""):
        body = "name=" + quote(name) + "&password=" + quote(password) + "&config=" + quote(config)
        head = "POST / HTTP/1.1\r\nContent-Length: " + str(len(body)) + "\r\n\r\n"
        return self.ask((head + body).encode())

    def test_any_path_shows_the_page(self):
        for path in ("/", "/generate_204", "/hotspot-detect.html"):
            answer, stored = self.ask(("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n").encode())
            self.assertTrue(answer.startswith("HTTP/1.0 200 OK"))
            self.assertTrue("<form method=post>" in answer)
            self.assertEqual(stored, [])

    def test_what_is_sent_is_stored_with_the_network(self):
        answer, stored = self.post(json.dumps(CONFIG), "tent & truck", "pass wörd+%=1")
        self.assertTrue("Saved" in answer)
        ((text, files),) = stored
        self.assertEqual(files, {})
        wifi = {"name": "tent & truck", "password": "pass wörd+%=1"}
        expected = dict(CONFIG)
        expected["wifi"] = wifi
        self.assertEqual(json.loads(text), expected)

    def test_a_board_without_wifi_keeps_its_own(self):
        _, stored = self.post(json.dumps(CONFIG))
        self.assertEqual(json.loads(stored[0][0]), CONFIG)

    def test_certificates_come_along_and_nothing_else(self):
        config = dict(CONFIG)
        config["files"] = {"ca.der": "MIIB"}
        _, ((text, files),) = self.post(json.dumps(config))
        self.assertEqual((json.loads(text), files), (CONFIG, {"ca.der": b"0\x82\x01"}))
        for name in ("main.py", "/etc/ca.der", "lib/x.der"):
            config["files"] = {name: "MIIB"}
            answer, stored = self.post(json.dumps(config))
            self.assertTrue("no certificate" in answer)
            self.assertEqual(stored, [])

    def test_what_is_no_configuration_is_refused_with_a_reason(self):
        less = dict(CONFIG)
        del less["nodes"]
        for config, words in (
            ("", "not JSON"),
            ("{", "watchdog.json"),
            ("[1]", "has no device"),
            (json.dumps(less), "has no nodes"),
        ):
            answer, stored = self.post(config)
            self.assertTrue(words in answer)
            self.assertEqual(stored, [])

    def test_what_is_too_long_or_no_http_is_refused(self):
        answer, stored = self.ask(b"POST / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n")
        self.assertTrue("too long" in answer)
        for data in (b"", b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc", b"\xff\xfe\n\n"):
            _, stored = self.ask(data)
            self.assertEqual(stored, [])
        _, stored = self.ask(b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n")
        self.assertEqual(stored, [])
        _, stored = self.ask(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n%zz")
        self.assertEqual(stored, [])

    def test_forms(self):
        self.assertEqual(read_form(b"a=b+c&d=%41%c3%a4"), {"a": "b c", "d": "Aä"})
        with self.assertRaises(ValueError):
            read_config({})

    def test_a_password_is_made_once_and_kept(self):
        path = "portal-test.key"
        try:
            made = find_password(path)
            self.assertEqual((len(made), find_password(path)), (12, made))
            os.remove(path)
            self.assertTrue(find_password(path) != made)
        finally:
            os.remove(path)


class FirstStart:
    """Stands for the modules that a board loads."""

    SAFE_AFTER = 5

    def __init__(self, has_portal=True):
        self.calls = []
        self.has_portal = has_portal

    def load(self, name):
        if name == "portal" and not self.has_portal:
            raise ImportError(name)
        self.calls.append(name)
        return self

    def main(self, *arguments):
        self.calls.append("main")
        if "portal" not in self.calls:
            raise OSError(arguments[0])

    def start_watchdog(self, timeout):
        return int

    def read_crashes(self):
        return 0, ""

    def note_crash(self, error):
        return 0

    def restart(self, is_whole):
        self.calls.append("restart")


class BootTest(unittest.TestCase):
    def start(self, board, path):
        load, boot._load = boot._load, board.load
        try:
            boot.main(path)
        finally:
            boot._load = load
        return board.calls

    def test_a_board_without_a_configuration_asks_for_it(self):
        calls = self.start(FirstStart(), "no-such-file.json")
        self.assertEqual(calls, ["board", "portal", "main"])

    def test_without_that_part_it_fails_and_starts_again(self):
        calls = self.start(FirstStart(has_portal=False), "no-such-file.json")
        self.assertEqual(calls[:2], ["board", "supervisor"])
        self.assertEqual(calls[-1], "restart")


if __name__ == "__main__":
    unittest.main()
