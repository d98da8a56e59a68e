"""The page: view models to the browser, and what people do there to their desk.

With `server`, the only file that imports NiceGUI. Each open tab has a page of its own, all of one
session look at one desk. What a part shows is plain JSON, sent when it has changed; the parts in
`parts/` put it into text nodes, so nothing that a sensor says is ever taken for markup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from denwatch.client.console.completion import complete
from denwatch.client.console.desk import Desk, Situation, describe_subscription
from denwatch.client.console.drawing import draw_map
from denwatch.client.console.preview import MOST_CHARACTERS, preview, set_top
from denwatch.client.console.sources import build_directory, build_sources
from denwatch.client.errors import LanguageError
from denwatch.client.subscriber import ConnectionState, SubscriberError
from nicegui import ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

_PERIOD = 0.5  # s
EXAMPLES = (
    "patient_temperature is very high and heart_rate is not normal",
    "oxygen_saturation is critical, top 5",
    "smoke is dense and visibility is bad",
    "wind_gust is dangerous, expires after 10 min",
)


class Part(Element):
    """One component of the page. `show` sends what has changed."""

    def show(self, **values: Any) -> None:
        """Show other values."""
        changed = {key: value for key, value in values.items() if self._props.get(key) != value}
        if changed:
            for key, value in changed.items():
                self._props[key] = value
            self.update()


class Bar(Part, component="parts/bar.js"):
    """Who, the link, themes, help."""


class Composer(Part, component="parts/composer.js"):
    """Where a subscription is written."""


class Wishes(Part, component="parts/wishes.js"):
    """What was asked for."""


class FeedList(Part, component="parts/feed.js"):
    """What came."""


class Nodes(Part, component="parts/nodes.js"):
    """The map."""


class Sources(Part, component="parts/sources.js"):
    """Who publishes what."""


class Page:
    """One tab."""

    def __init__(self, desk: Desk, is_shared: bool, is_valid: Callable[[], bool]) -> None:
        """`is_shared`: several people use this console; `is_valid`: the session still is one."""
        self._desk = desk
        self._is_valid = is_valid
        self._situation: Situation | None = None
        self._asked = ("", 0)
        self._bar = Bar()
        with ui.element("div").props('id="main"'):
            with ui.element("div").classes("side"):
                self._composer = Composer()
                self._wishes = Wishes()
            self._feed = FeedList()
            with ui.element("div").classes("side"):
                self._nodes = Nodes()
                self._sources = Sources()
        self._bar.show(person=desk.name, shared=is_shared)
        texts = [text for text in EXAMPLES if preview(text, desk.vocabulary).problem is None]
        self._composer.show(examples=texts, limit=MOST_CHARACTERS)
        self._composer.on("typed", self._type)
        self._composer.on("send", self._send)
        self._wishes.on("mute", self._mute)
        self._wishes.on("top", self._set_top)
        self._wishes.on("end", self._end)
        self._timer = ui.timer(_PERIOD, self._tick, immediate=True)

    # What comes ------------------------------------------------------------------------------

    async def _tick(self) -> None:
        if not self._is_valid():
            self._timer.cancel()
            ui.navigate.to("/login")
            return
        try:
            situation = await asyncio.to_thread(self._desk.read)
        except SubscriberError:  # the desk was closed meanwhile: the next tick sees why
            return
        before, self._situation = self._situation, situation
        self._show_link(situation)
        feed = situation.feed
        self._feed.show(
            rows=list(feed.rows),
            held_back=feed.held_back,
            beyond=feed.beyond,
            asked=len(situation.subscriptions),
            now=self._feed._props.get("now") or situation.now,
        )
        muted = self._desk.settings.muted
        self._wishes.show(
            wishes=[
                describe_subscription(s, feed, s.name in muted) for s in situation.subscriptions
            ],
            online=situation.is_online,
        )
        self._nodes.show(network=situation.network.to_dict(), map=draw_map(situation.network))
        if before is None or _differs(before, situation):
            vocabulary = self._desk.vocabulary
            found = build_sources(situation.announcements, vocabulary, situation.notes)
            self._sources.show(sources=found, more=situation.uncounted)

    def _show_link(self, situation: Situation) -> None:
        tell = situation.tell
        self._bar.show(
            online=situation.is_online,
            link=describe_link(tell.state, tell.server, tell.reason, situation.network.nodes),
            since=self._desk.since,
            now=self._bar._props.get("now") or situation.now,
        )
        self._composer.show(online=situation.is_online)

    # What people do --------------------------------------------------------------------------

    def _type(self, event: GenericEventArguments) -> None:
        text, caret = _read_text(event.args.get("text")), event.args.get("caret", 0)
        self._answer(text, caret if isinstance(caret, int) else 0)

    def _answer(self, text: str, caret: int) -> None:
        desk, situation = self._desk, self._situation
        announcements = situation.announcements if situation is not None else ()
        names = [s.name for s in situation.subscriptions] if situation is not None else []
        directory = build_directory(desk.vocabulary, announcements)
        understood = preview(text, desk.vocabulary, desk.organisation, directory)
        found = complete(text, caret, desk.vocabulary, desk.organisation, names)
        replaces = understood.name in names and understood.problem is None
        self._composer.show(
            answer={
                "text": text,
                "caret": caret,
                "completions": [asdict(one) for one in found],
                "preview": understood.to_dict(),
                "replaces": understood.name if replaces else "",
            }
        )

    async def _send(self, event: GenericEventArguments) -> None:
        text = _read_text(event.args.get("text"))
        problem = preview(text, self._desk.vocabulary, self._desk.organisation).problem
        if problem is not None or not text.strip():
            self._answer(text, len(text))
            return
        changes = event.args.get("changes")
        old = next((s.name for s in self._list_wishes() if s.name == changes), None)
        try:
            await asyncio.to_thread(self._desk.replace, text, old)
        except SubscriberError as error:
            self._say(str(error), is_wrong=True)
            return
        is_online = self._situation is not None and self._situation.is_online
        words = "Asked. Matching readings appear in the feed."
        self._say(words if is_online else "Kept here. It is sent when a node is in range.")
        await self._tick()

    async def _mute(self, event: GenericEventArguments) -> None:
        name = self._find_name(event)
        if name is not None:
            await asyncio.to_thread(self._desk.mute, name, bool(event.args.get("muted")))
            await self._tick()

    async def _set_top(self, event: GenericEventArguments) -> None:
        name, top = self._find_name(event), event.args.get("top")
        text = next((s.text for s in self._list_wishes() if s.name == name), None)
        if name is None or text is None or not (top is None or isinstance(top, int)):
            return
        try:
            changed = set_top(text, top)
            await asyncio.to_thread(self._desk.subscribe, changed, name)
        except (LanguageError, SubscriberError) as error:
            self._say(str(error), is_wrong=True)
        await self._tick()

    async def _end(self, event: GenericEventArguments) -> None:
        name = self._find_name(event)
        if name is None:
            return
        try:
            await asyncio.to_thread(self._desk.unsubscribe, name)
        except SubscriberError as error:
            self._say(str(error), is_wrong=True)
        await self._tick()

    def _find_name(self, event: GenericEventArguments) -> str | None:
        """Return the subscription that is meant, if it is one of this desk."""
        wanted = event.args.get("name")
        return next((s.name for s in self._list_wishes() if s.name == wanted), None)

    def _list_wishes(self) -> tuple[Any, ...]:
        return self._situation.subscriptions if self._situation is not None else ()

    def _say(self, words: str, is_wrong: bool = False) -> None:
        self._asked = words, self._asked[1] + 1
        self._composer.show(result={"words": words, "wrong": is_wrong, "count": self._asked[1]})


def describe_link(state: ConnectionState, server: str, reason: str, nodes: tuple[Any, ...]) -> str:
    """Return what the link does, for people: the node's name where it is known."""
    ours = next((node.name for node in nodes if node.is_ours), "")
    if state is ConnectionState.ONLINE:
        where = f"Connected to {ours or server}"
        return f"{where}: {reason}" if reason else where
    if state in (ConnectionState.OPENING, ConnectionState.LISTENING, ConnectionState.PROBING):
        return f"Connecting to {server}"
    return f"No node in range ({reason}); trying again" if reason else "No node in range"


def _differs(before: Situation, after: Situation) -> bool:
    if before.announcements != after.announcements or before.uncounted != after.uncounted:
        return True
    return [note.key for note in before.notes] != [note.key for note in after.notes]


def _read_text(found: object) -> str:
    """Return what was typed; a browser may send anything."""
    text = found if isinstance(found, str) else ""
    return text[: MOST_CHARACTERS + 1].encode("utf-8", "replace").decode()
