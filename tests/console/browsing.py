"""A tab of real Chromium for the console's tests, with what it must never do watched throughout."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Page, WebSocket, expect

PATIENCE = 60_000  # ms
PICTURES = os.environ.get("DENWATCH_PICTURES")

expect.set_options(timeout=PATIENCE)


class Tab:
    """A page, all that it asked for, all that it was told, all that it complained about."""

    def __init__(self, browser: Browser, width: int, height: int, scheme: str = "dark") -> None:
        viewport = {"width": width, "height": height}
        self.context = browser.new_context(
            viewport=viewport,  # type: ignore[arg-type]
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
            device_scale_factor=1.5 if PICTURES else 1,
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.frames: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("websocket", self._watch)

    def _watch(self, socket: WebSocket) -> None:
        self.asked.append(socket.url)
        socket.on("framereceived", lambda payload: self.frames.append(str(payload)))

    def open(self, address: str) -> Page:
        """Go somewhere."""
        self.page.goto(address)
        return self.page

    def check(self, address: str) -> None:
        """See that nothing was asked of anybody but the console, and that nothing went wrong."""
        home = urlsplit(address).netloc
        others = [url for url in self.asked if urlsplit(url).netloc not in (home, "")]
        assert others == []
        assert any(url.startswith("ws://") for url in self.asked)
        assert self.complaints == [], self.complaints

    def check_access(self, where: str) -> None:
        """See that axe finds nothing."""
        found = Axe().run(self.page).response["violations"]
        wrong = [
            (one["id"], one["impact"], [node["target"] for node in one["nodes"]]) for one in found
        ]
        assert wrong == [], f"{where}: {wrong}"

    def check_width(self) -> None:
        """See that nothing sticks out to the right."""
        widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        wanted, there = self.page.evaluate(widths)
        assert wanted <= there

    def picture(self, name: str, height: int | None = None) -> None:
        """Keep a picture for the documentation, if pictures are wanted."""
        if PICTURES:
            path = Path(PICTURES) / f"console-{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            there = self.page.viewport_size
            assert there is not None
            self.page.screenshot(
                path=path,
                clip={"x": 0, "y": 0, "width": there["width"], "height": height or there["height"]},
            )
            with Image.open(path) as picture:  # a page has few colours: a third of the size
                small = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=256)
            small.save(path, optimize=True)

    def set_theme(self, theme: str) -> None:
        """Turn the themes until this one is there."""
        tool = self.page.get_by_role("button", name="Theme")
        for _ in range(3):
            if self.page.evaluate("document.documentElement.dataset.theme") == theme:
                return
            tool.click()
        raise AssertionError(f"no theme {theme}")

    def close(self) -> None:
        self.context.close()
