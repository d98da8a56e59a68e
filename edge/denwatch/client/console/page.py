"""One open tab of the console: what it shows, what its buttons do. No web server in here.

All tabs of a subscriber share one `UserSession`. A tab gets plain JSON: for each part of the page
(`parts/*.js`) the values that have changed since the last time, and of a table that goes by keys
(the feed's cards) only the entries that have changed. The scripts put it into text nodes, so
nothing that a sensor sends is ever interpreted as markup.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from denwatch.client.console.completion import complete
from denwatch.client.console.drawing import PlanPicture, draw_map
from denwatch.client.console.phone import draw_svg_code
from denwatch.client.console.preview import MOST_CHARACTERS, Preview, preview, set_top
from denwatch.client.console.status_monitor import build_sources
from denwatch.client.console.user_session import Situation, UserSession, describe_subscription
from denwatch.client.errors import LanguageError
from denwatch.client.language.localisation import DEFAULT, Locale, list_locales, load_locale
from denwatch.client.subscriber import ConnectionState, ConnectionStatus, SubscriberError
from denwatch.client.subscriber.servers import DENIED

PERIOD = 0.5  # s between two looks at what has changed
_ALIVE = 5.0  # s after which a browser is told that the console is still there
EXAMPLES = (
    "patients with a high fever and an abnormal pulse",
    "oxygen saturation below 90, top 5",
    "dense smoke within 5 min after high carbon monoxide",
    "wind_gust is dangerous, expires after 10 min",
)
_BETWEEN = re.compile(r"[,;?]|\s(?:and|or|und|oder)\s", re.IGNORECASE)
_GONE = "There is no such subscription any more."
_LONGEST_LINK = 1_500  # characters that a QR code holds well
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class ConsolePage:
    """One tab of a browser."""

    def __init__(
        self, user: UserSession, is_shared: bool, send: Send, plan: PlanPicture | None = None
    ) -> None:
        """`is_shared`: several users have this console; `send` hands a message to the browser."""
        self._user = user
        self._is_shared = is_shared
        self._send_message = send
        self._plan = plan
        self._locale: Locale = load_locale(DEFAULT)
        self._situation: Situation | None = None
        self._shown: dict[str, dict[str, Any]] = {}
        self._changes: dict[str, dict[str, Any]] = {}
        self._reports = 0
        self._problem = ""  # why the browser's current request was not done
        self._quiet = 0  # ticks since the browser was sent anything
        self._is_greeted = False
        self._ticking = asyncio.Lock()  # the browser's requests and the clock both look
        self._handlers: dict[str, Callable[[Mapping[str, Any]], Awaitable[None]]] = {
            "hello": self._greet,
            "typed": self._type,
            "send": self._send,
            "mute": self._mute,
            "top": self._set_top,
            "end": self._end,
            "history": self._show_history,
            "have": self._have,
            "share": self._share,
            "report": self._report_seen,
            "find": self._find,
            "other": self._change_other,
        }

    # To the browser ------------------------------------------------------------------------------

    def _show(self, part: str, **values: Any) -> None:
        """Note what has changed of a part; `_flush` sends it."""
        shown = self._shown.setdefault(part, {})
        for key, value in values.items():
            if key not in shown or shown[key] != value:
                before = shown.get(key)
                shown[key] = value
                if isinstance(before, dict) and key == "cards":
                    value = _compare(before, value)
                    key = "+cards"
                self._changes.setdefault(part, {})[key] = value

    async def _flush(self) -> None:
        changes, self._changes = self._changes, {}
        self._quiet = 0 if changes else self._quiet + 1
        if changes:
            await self._send_message({"show": changes})
        elif self._quiet * PERIOD >= _ALIVE:
            self._quiet = 0
            await self._send_message({"alive": True})

    async def tick(self) -> None:
        """Send what has changed since the last time, once the browser has said its language."""
        if self._is_greeted:
            async with self._ticking:
                await self._look()

    async def _look(self) -> None:
        try:
            situation = await asyncio.to_thread(self._user.read)
        except SubscriberError:  # the session was closed meanwhile: the next tick handles it
            return
        before, self._situation = self._situation, situation
        status, feed, say = situation.status, situation.feed, self._locale.translate
        nodes = situation.network.nodes
        self._show(
            "bar",
            online=situation.is_online,
            link=say(describe_link(status.state, status.server, status.reason, nodes)),
            reason=say(describe_outage(self._user.outage)),
            since=self._user.since,
        )
        self._show("composer", online=situation.is_online)
        cards = self._user.build_cards(situation, self._locale)
        self._show(
            "feed",
            cards={card["key"]: card for card in cards},
            order=[card["key"] for card in cards],
            hidden=feed.hidden,
            beyond=feed.beyond,
            subscribed=len(situation.subscriptions),
        )
        muted = self._user.settings.muted
        own = {*(s.name for s in situation.subscriptions), *self._user.settings.ended}
        self._show(
            "subscriptions",
            others=[
                one for one in map(describe_other, self._user.listed) if one["name"] not in own
            ],
            subscriptions=[
                describe_subscription(s, feed, s.name in muted) for s in situation.subscriptions
            ],
            online=situation.is_online,
        )
        network = situation.network.to_dict()
        network["sentence"] = say(network["sentence"])
        self._show("nodes", network=network, map=draw_map(situation.network))
        if before is None or _differs(before, situation):
            vocabulary = self._user.vocabulary
            found = build_sources(situation.announcements, vocabulary, situation.notifications)
            self._show("sources", sources=found, more=situation.uncounted)
            self._show("plan", places=situation.places)
        self._show("find", found=self._user.found, nodes=[node.name for node in nodes])
        await self._flush()

    # From the browser --------------------------------------------------------------------------

    async def handle(self, message: object) -> None:
        """Do what a browser asks for; it may send anything.

        A request with an id is confirmed when it is done, with why it was not if it was refused.
        One that comes again, because the confirmation was lost, is only confirmed.
        """
        if not isinstance(message, Mapping) or not isinstance(message.get("data"), Mapping):
            return
        handler, request = self._handlers.get(str(message.get("event"))), message.get("id")
        is_surely = isinstance(request, str)
        self._problem = ""
        if handler is not None and not (is_surely and self._user.is_repeated(str(request))):
            await handler(message["data"])
            await self._flush()
        if is_surely:
            await self._send_message({"done": request, "problem": self._problem})

    async def _greet(self, data: Mapping[str, Any]) -> None:
        """Begin: the browser says its language, and when it was told something last."""
        language = data.get("language")
        self._locale = load_locale(language if language in list_locales() else DEFAULT)
        async with self._ticking:
            self._shown, self._situation, self._is_greeted = {}, None, True
        user = self._user
        said = map(self._locale.translate, EXAMPLES)
        texts = [text for text in said if preview(text, user.vocabulary).problem is None]
        self._show("bar", user=user.name, shared=self._is_shared)
        self._show("composer", examples=texts, limit=MOST_CHARACTERS)
        self._show("plan", area=self._plan.area if self._plan is not None else None)
        await self._send_message({"now": user.now(), "user": user.name})
        await self.tick()

    async def _type(self, data: Mapping[str, Any]) -> None:
        text, caret = _read_text(data.get("text")), data.get("caret", 0)
        self._answer(text, caret if isinstance(caret, int) else 0)

    def _answer(self, text: str, caret: int) -> None:
        names = [s.name for s in self._list_subscriptions()]
        understood = self._preview(text)
        found = complete(text, caret, self._user.vocabulary, names)
        replaces = understood.name in names and understood.problem is None
        self._show(
            "composer",
            answer={
                "text": text,
                "caret": caret,
                "completions": [asdict(one) for one in found],
                "preview": asdict(understood),
                "replaces": understood.name if replaces else "",
            },
        )

    def _preview(self, text: str) -> Preview:
        announcements = self._situation.announcements if self._situation is not None else ()
        return preview(text, self._user.vocabulary, announcements, self._locale.code)

    async def _send(self, data: Mapping[str, Any]) -> None:
        text = _read_text(data.get("text"))
        understood = self._preview(text)
        problem = understood.problem
        if problem is not None or not text.strip():
            why = problem.message if problem is not None else "nothing is written there"
            self._problem = self._locale.translate(why)
            self._answer(text, len(text))
            return
        changes = data.get("changes")
        old = next((s.name for s in self._list_subscriptions() if s.name == changes), None)
        try:
            # What was shown is what is sent: the node that gets it may know other devices.
            words = understood.words if understood.is_narrowed else text
            await asyncio.to_thread(self._user.replace, words, old)
        except SubscriberError as error:
            self._report(str(error), is_wrong=True)
            return
        is_online = self._situation is not None and self._situation.is_online
        words = "Subscribed. Matching readings appear in the feed."
        words = words if is_online else "Stored here. It is sent when a node is in range."
        self._report(words, text=text)
        await self.tick()

    async def _change_other(self, data: Mapping[str, Any]) -> None:
        """Change or end a subscription that another client of this person made."""
        names = [describe_other(one)["name"] for one in self._user.listed]
        name = data.get("name")
        if name not in names:
            self._problem = self._locale.translate(_GONE)
            return
        request: dict[str, Any] = {"unsubscribe": name}
        if not data.get("end"):
            request = {"change": name, "muted": bool(data.get("muted")) or None}
        problem = await self._ask(request)
        if problem:
            self._report(problem, is_wrong=True)
        await self.tick()

    async def _mute(self, data: Mapping[str, Any]) -> None:
        name = self._find_name(data)
        if name is not None:
            await self._change(self._user.mute, name, bool(data.get("muted")))

    async def _set_top(self, data: Mapping[str, Any]) -> None:
        name, top = self._find_name(data), data.get("top")
        text = next((s.text for s in self._list_subscriptions() if s.name == name), None)
        if name is not None and text is not None and (top is None or isinstance(top, int)):
            await self._change(lambda: self._user.subscribe(set_top(text, top), name))

    async def _end(self, data: Mapping[str, Any]) -> None:
        name = self._find_name(data)
        if name is not None:
            await self._change(self._user.unsubscribe, name)

    async def _have(self, data: Mapping[str, Any]) -> None:
        """Say that somebody has a device: "have", "silence", "to" somebody else, or "release"."""
        request = {key: data[key] for key in ("have", "release", "silence", "to") if data.get(key)}
        if not all(isinstance(value, str) for value in request.values()):
            return
        self._problem = self._locale.translate(await self._ask(request))
        self._reports += 1
        self._show("feed", told={"words": self._problem, "count": self._reports})
        await self.tick()

    async def _report_seen(self, data: Mapping[str, Any]) -> None:
        """Publish what this person has seen, in words, under their name."""
        text = _read_text(data.get("text"))
        problem = await self._ask({"report": text})
        self._reports += 1
        self._problem = self._locale.translate(problem)
        words = self._locale.translate(problem or "Reported. Everybody who asked for it is told.")
        said = {"words": words, "wrong": bool(problem), "count": self._reports}
        self._show("bar", reported=said)

    async def _find(self, data: Mapping[str, Any]) -> None:
        """Ask the node who can measure something, near somewhere."""
        split = _BETWEEN.split(_read_text(data.get("text")))
        names = [name.strip() for name in split if name.strip()]
        near = data.get("near")
        request: dict[str, Any] = {"find": names, "watch": bool(data.get("watch"))}
        if isinstance(near, str) and near:
            request["near"] = near
        problem = "Name what is to be measured, such as: pulse and temperature"
        if names:
            problem = await self._ask(request)
        self._reports += 1
        said = {"words": self._locale.translate(problem), "count": self._reports}
        self._show("find", problem=said, found={} if problem else self._user.found)

    async def _share(self, data: Mapping[str, Any]) -> None:
        """Show a subscription as a QR code: another console's page reads the link."""
        link = data.get("link")
        if isinstance(link, str) and len(link) <= _LONGEST_LINK:
            self._show("subscriptions", code={"link": link, "svg": draw_svg_code(link)})

    async def _show_history(self, data: Mapping[str, Any]) -> None:
        """Show what a device measured, all that this console has received."""
        device = data.get("device")
        if isinstance(device, str):
            self._show("history", device=device, lines=self._user.history.list_lines(device))

    async def _ask(self, request: Mapping[str, Any]) -> str:
        """Ask the node on another thread; return why it was refused, "" if it was not."""
        try:
            return await asyncio.to_thread(self._user.ask, request)
        except SubscriberError as error:
            return str(error)

    async def _change(self, work: Callable[..., object], *arguments: object) -> None:
        """Change the user's subscriptions, on another thread, and show the outcome."""
        try:
            await asyncio.to_thread(work, *arguments)
        except (LanguageError, SubscriberError) as error:
            self._report(str(error), is_wrong=True)
        await self.tick()

    def _find_name(self, data: Mapping[str, Any]) -> str | None:
        """Return the name of the subscription, if it is one of this user."""
        wanted = data.get("name")
        found = next((s.name for s in self._list_subscriptions() if s.name == wanted), None)
        if found is None:
            self._problem = self._locale.translate(_GONE)
        return found

    def _list_subscriptions(self) -> tuple[Any, ...]:
        return self._situation.subscriptions if self._situation is not None else ()

    def _report(self, words: str, is_wrong: bool = False, text: str = "") -> None:
        """Show an outcome at the field; `text` is what it may be emptied of."""
        self._reports += 1
        words = self._locale.translate(words)
        self._problem = words if is_wrong else ""
        said = {"words": words, "wrong": is_wrong, "text": text, "count": self._reports}
        self._show("composer", result=said)


def describe_link(state: ConnectionState, server: str, reason: str, nodes: tuple[Any, ...]) -> str:
    """Return the connection's state for people, with the node's name if it is known."""
    ours = next((node.name for node in nodes if node.is_ours), "")
    if state is ConnectionState.ONLINE:
        where = f"Connected to {ours or server}"
        return f"{where}: {reason}" if reason else where
    if state in (ConnectionState.OPENING, ConnectionState.LISTENING, ConnectionState.PROBING):
        return f"Connecting to {server}"
    if reason == DENIED:
        return f"{server} refuses your name or key; trying again"
    return f"No node in range ({reason}); trying again" if reason else "No node in range"


def describe_outage(status: ConnectionStatus) -> str:
    """Return why no node serves us, for people; "" if that is not known."""
    if status.reason == DENIED:
        return f"{status.server} refuses your name or key"
    kind, _, why = status.reason.partition(": ")
    if kind == "refused":
        return f"{status.server} cannot be used: {why}"
    return f"No node in range ({status.reason})" if status.reason else ""


def describe_other(listed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a subscription as the node lists it, made by whichever client."""
    options = listed.get("options")
    options = options if isinstance(options, Mapping) else {}
    return {
        "name": str(listed.get("name") or listed.get("id") or ""),
        "words": str(listed.get("words") or ""),
        "is_muted": bool(options.get("muted")),
        "top": options.get("top"),
        "score": options.get("score"),
    }


def _compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that have changed; None stands for one that is gone."""
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    return {**dict.fromkeys(before.keys() - after.keys()), **changed}


def _differs(before: Situation, after: Situation) -> bool:
    if before.announcements != after.announcements or before.uncounted != after.uncounted:
        return True
    return [one.key for one in before.notifications] != [one.key for one in after.notifications]


def _read_text(found: object) -> str:
    """Return the typed text; a browser may send anything."""
    text = found if isinstance(found, str) else ""
    return text[: MOST_CHARACTERS + 1].encode("utf-8", "replace").decode()
