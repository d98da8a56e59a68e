"""The first start of a board that has no configuration: an access point with one page.

A phone joins it and opens http://192.168.4.1, or scans the code of `denwatch device config --qr`,
whose address brings the configuration along, behind a `#` and so only to the page's own script. The
page asks for Wi-Fi, and sends both to the board, which stores `watchdog.json`, the certificates
under `files` in it (names to base64) and starts again. The access point's password is the board's
own, in `portal.key`: `denwatch device install --bare` makes and prints it, or the board itself.
Whoever is in reach and knows it could do this first, or listen. Once there is a configuration, this
file is never loaded.
"""

import asyncio
import json
import os
from binascii import a2b_base64

from ..protocol.degrees import const

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_Timeout = asyncio.TimeoutError  # on MicroPython there is no other
_LIMIT = const(8192)  # bytes of a request
_NEEDED = ("device", "vocabulary", "nodes", "spool", "sources", "events")
_PAGE = """<!doctype html><meta name=viewport content="width=device-width"><title>denwatch</title>
<style>body{font:1em sans-serif;max-width:30em;margin:1em auto;padding:0 1em}
input,textarea{width:100%;font:inherit;box-sizing:border-box;margin:.3em 0 1em}</style>
<h1>denwatch</h1><p>MESSAGE</p><form method=post>
<label>Wi-Fi<input name=name></label><label>Password<input name=password type=password></label>
<label>watchdog.json<textarea name=config rows=8 required></textarea></label>
<button>Save</button></form><script>
if(location.hash)try{document.querySelector("textarea").value=
atob(location.hash.slice(1).replace(/-/g,"+").replace(/_/g,"/"))}catch(e){}</script>"""
_HEAD = "HTTP/1.0 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n\r\n"


def read_form(body: bytes) -> dict[str, str]:
    """Return the fields of a form."""
    fields = {}
    for pair in body.split(b"&"):
        cut = pair.find(b"=")
        value = bytearray()
        parts = pair[cut + 1 :].replace(b"+", b" ").split(b"%")
        value += parts[0]
        for part in parts[1:]:
            value.append(int(part[:2], 16))
            value += part[2:]
        fields[str(pair[:cut], "utf-8")] = str(value, "utf-8")
    return fields


def read_config(fields: dict[str, str]) -> "tuple[str, dict[str, bytes]]":
    """Return the text of watchdog.json with the Wi-Fi in it, and the certificates that came along;
    ValueError: what is wrong."""
    try:
        config = json.loads(fields.get("config", ""))
    except ValueError:
        raise ValueError("watchdog.json is not JSON") from None
    for name in _NEEDED:
        if not isinstance(config, dict) or name not in config:
            raise ValueError("watchdog.json has no " + name)
    if fields.get("name"):
        config["wifi"] = {"name": fields["name"], "password": fields.get("password", "")}
    files = {}
    for name, text in config.pop("files", {}).items():
        if "/" in name or not name.endswith(".der"):  # nothing that a board would run
            raise ValueError(name + " is no certificate")
        files[name] = a2b_base64(text)
    return json.dumps(config), files


def find_password(path: str = "portal.key") -> str:
    """Return the access point's password; a board that has none makes one, and keeps it."""
    try:
        with open(path) as file:  # noqa: PTH123 - no pathlib on a device
            return file.read().strip()
    except OSError:
        password = os.urandom(6).hex()
        with open(path, "w") as file:  # noqa: PTH123
            file.write(password)
        return password


class SetupPage:
    """Serves the page until a configuration is stored."""

    def __init__(self, save: "Callable[[str, dict[str, bytes]], None]") -> None:
        self._save = save
        self.done = asyncio.Event()

    async def serve(self, reader: "Any", writer: "Any") -> None:
        """Answer one request, whatever its path: phones look for the internet under any name."""
        try:
            message = await self._answer(reader)
            writer.write((_HEAD + _PAGE.replace("MESSAGE", message)).encode())
            await writer.drain()
        except (OSError, ValueError, _Timeout):
            pass  # who does not speak HTTP gets no answer
        writer.close()

    async def _answer(self, reader: "Any") -> str:
        request = await asyncio.wait_for(reader.readline(), 10)
        size = 0
        while True:
            line = await asyncio.wait_for(reader.readline(), 10)
            if not line or line == b"\r\n":
                break
            if line.lower().startswith(b"content-length:"):
                size = int(line[15:])
        if not request.startswith(b"POST"):
            return "Wi-Fi, and the configuration from your PC."
        if size > _LIMIT:
            return "That is too long."
        body = await asyncio.wait_for(reader.readexactly(size), 10)
        try:
            text, files = read_config(read_form(body))
        except ValueError as error:
            return str(error).replace("<", "&lt;")
        self._save(text, files)
        self.done.set()
        return "Saved. The board starts now."


def main(path: str, board: "Any") -> None:
    """Open the access point, and start again when there is a configuration."""

    def save(text: str, files: "dict[str, bytes]") -> None:
        for name in files:
            with open(name, "wb") as file:  # noqa: PTH123 - no pathlib on a device
                file.write(files[name])
        with open(path, "w") as file:  # noqa: PTH123
            file.write(text)

    async def run() -> None:
        page = SetupPage(save)
        await asyncio.start_server(page.serve, "0.0.0.0", 80)
        await page.done.wait()
        await asyncio.sleep(2)  # in which the answer leaves

    password = find_password()
    name = board.open_access_point("denwatch", password)
    print("no", path + ": join", name, "(" + password + ") and open http://192.168.4.1")
    asyncio.run(run())
    board.restart(True)
