"""Wi-Fi as a task: joins the first network that answers, and again when it is lost.

Networks are tried in the order of the configuration, each for 15 s; when none answers, the next
attempt waits, longer each time. Which radio there is, `board.py` knows.
"""

import asyncio

from ..protocol.degrees import const
from .link import LinkSettings, find_delay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_JOIN = const(15_000)  # ms for one network


class WifiTask:
    """Keeps a wireless network: `networks` is a list of {"name", "password"}, or one of them."""

    def __init__(
        self,
        board: "Any",
        networks: "Any",
        clock: "Callable[[], int]",
        rng: "Callable[[int], int]",
        log: "Callable[[str], None]",
    ) -> None:
        self._board = board
        self._networks = networks if isinstance(networks, list) else [networks]
        self._clock = clock
        self._rng = rng
        self._log = log
        self._settings = LinkSettings()

    async def run(self) -> None:
        """Join, watch, join again."""
        attempt = 0
        while True:
            if self._board.is_joined():
                attempt = 0
                await asyncio.sleep(1)
                continue
            count = len(self._networks)
            if await self._join(self._networks[attempt % count]):
                continue
            attempt += 1
            if attempt % count == 0:
                delay = find_delay(attempt // count - 1, self._settings, self._rng)
                await asyncio.sleep(delay / 1000)

    async def _join(self, network: "dict[str, str]") -> bool:
        self._board.join_wifi(network["name"], network["password"])
        until = self._clock() + _JOIN
        while not self._board.is_joined():
            if self._clock() >= until:
                self._log("no Wi-Fi: " + network["name"])
                return False
            await asyncio.sleep(0.1)
        return True
