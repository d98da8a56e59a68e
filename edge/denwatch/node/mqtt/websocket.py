"""MQTT within WebSocket, for browsers: bytes of one in, bytes of the other out. No I/O.

`websockets` does the protocol (its layer without I/O); only this file knows it. A message of
WebSocket may have parts of MQTT packets or many of them, so what comes out is a stream. Nothing is
compressed. Until the client was answered for the first time it may send no more than CONNECT has,
and the request that opens the connection is bounded, too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from denwatch.node.mqtt.interface import Limits
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

Origins = Sequence[str | re.Pattern[str] | None]
LOCAL_PAGES: Origins = (None, re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?"))

_REQUEST_BYTES = 16_384
_END = b"\r\n\r\n"
_SILENT = logging.getLogger("denwatch.websocket")  # strangers do not write into our log
_SILENT.disabled = True
_SUBPROTOCOLS = ["mqtt", "mqttv3.1"]


class WebSocketStream:
    """One connection. `origins`: which pages may connect; None among them: who is no page."""

    def __init__(self, limits: Limits, origins: Origins | None = None) -> None:
        allowed = None
        if origins is not None:
            allowed = [Origin(each) if isinstance(each, str) else each for each in origins]
        self._protocol = ServerProtocol(
            origins=allowed,
            subprotocols=[Subprotocol(each) for each in _SUBPROTOCOLS],
            max_size=limits.connect_bytes,
            logger=_SILENT,
        )
        self._most = limits.packet_bytes
        self._request = b""  # what has arrived of it
        self.fault = ""  # why the connection has to be closed, if it has to

    def receive(self, data: bytes) -> bytes:
        """Return the bytes of MQTT in what arrived; `take_answer` has what is to be sent back."""
        if self.fault:
            return b""
        found: list[bytes] = []
        try:
            if self._protocol.state is State.CONNECTING:
                data = self._receive_request(data)
            if data and not self.fault:
                self._protocol.receive_data(data)
                found = [self._handle(event) for event in self._protocol.events_received()]
        except Exception as error:  # noqa: BLE001 - a stranger's bytes must not stop the others
            self.fault = f"not WebSocket: {type(error).__name__}"
        if not self.fault and self._protocol.close_expected():
            self.fault = "the end of WebSocket"
        return b"".join(found)

    def _receive_request(self, data: bytes) -> bytes:
        """Collect the request and answer it when it is complete; return what came behind it."""
        self._request += data
        head, end, rest = self._request.partition(_END)
        if len(head) > _REQUEST_BYTES:
            self.fault = "a request of too many bytes"
        elif not head.isascii():
            self.fault = "a request that is not ASCII"
        elif end:
            self._request = b""
            self._protocol.receive_data(head + end)
            for event in self._protocol.events_received():
                self._handle(event)
            if self._protocol.state is not State.OPEN:
                self.fault = "no handshake of WebSocket"
            return rest
        return b""

    def _handle(self, event: Request | Frame | object) -> bytes:
        if isinstance(event, Request):
            response = self._protocol.accept(event)
            del response.headers["Date"]  # this file has no clock
            self._protocol.send_response(response)
        elif isinstance(event, Frame):
            if event.opcode in (Opcode.BINARY, Opcode.CONT):
                return bytes(event.data)
            if event.opcode is Opcode.TEXT:
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is binary")
        return b""

    def wrap(self, data: bytes) -> bytes:
        """Return what is sent for bytes of MQTT; nothing if the connection is not open."""
        protocol = self._protocol
        if protocol.state is not State.OPEN:
            return b""
        protocol.max_size = self._most
        protocol.send_binary(data)
        return self.take_answer()

    def close(self) -> bytes:
        """Return what is sent before the connection is closed."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
        return self.take_answer()

    def take_answer(self) -> bytes:
        """Return what is to be sent now: of the handshake, of pings, of the end."""
        return b"".join(self._protocol.data_to_send())
