"""The subscriber for asyncio; the same core, store and link as `subscriber.py`.

    async with AsyncSubscriber("medic7", "secret", ["mqtts://tent:8883"], store="m.db") as medic:
        await medic.subscribe("patient_temperature is very high", name="fever")
        async for notification in medic.notifications():
            print(notification.event, notification.values, notification.degree)

The link has a thread of its own, and commits wait on other threads, so that a slow disk never
blocks the event loop. The guarantees are those of `Subscriber`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from denwatch.client.subscriber.messages import ReceivedNotification, Reply, UnconfirmedError
from denwatch.client.subscriber.session import find_name
from denwatch.client.subscriber.store import Promise, SubscriptionStatus
from denwatch.client.subscriber.subscriber import (
    SubscriberBase,
    build_status,
    describe_wait,
    read_list,
    read_understood,
    write_preference,
)

if TYPE_CHECKING:
    from denwatch.client.syntax import SubscriptionTree as Tree


class AsyncSubscriber(SubscriberBase):
    """`Subscriber` for asyncio. `on_notification` and `on_status` are called on other threads."""

    async def __aenter__(self) -> AsyncSubscriber:
        self._session.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._session.close)

    async def subscribe(
        self,
        wanted: str | Tree | Mapping[str, Any],
        name: str | None = None,
        timeout: float | None = 30.0,
        *,
        wait: bool = True,
    ) -> SubscriptionStatus:
        """Subscribe; see `Subscriber.subscribe`."""
        name, text = find_name(wanted, name)
        return build_status(name, text, await self._ask("subscribe", name, text, timeout, wait))

    async def unsubscribe(
        self, which: str | SubscriptionStatus, timeout: float | None = 30.0, *, wait: bool = True
    ) -> None:
        """End a subscription, by name."""
        name = which if isinstance(which, str) else which.name
        await self._ask("unsubscribe", name, "", timeout, wait)

    async def list(self, timeout: float | None = 30.0) -> Sequence[Mapping[str, Any]]:
        """Return the subscriptions that the node has for us, as it describes them."""
        return read_list(await self._ask("list", "", "", timeout, True))

    async def set_preference(
        self, wanted: str | int | Mapping[str, Any] | None, timeout: float | None = 30.0
    ) -> str:
        """Set how much of all subscriptions together is to be heard, as `Subscriber` does."""
        return read_understood(
            await self._ask("other", "", write_preference(wanted), timeout, True)
        )

    async def subscriptions(self) -> Sequence[SubscriptionStatus]:
        """Return this app's subscriptions from its own store."""
        return await asyncio.to_thread(self._session.list_subscriptions)

    async def _ask(
        self, kind: str, name: str, text: str, timeout: float | None, wait: bool
    ) -> Reply | None:
        request, stored, answer = self._session.ask(kind, name, text)
        await asyncio.wrap_future(stored)
        if not wait:
            return None
        try:
            reply = await asyncio.wait_for(asyncio.wrap_future(answer), timeout)
        except TimeoutError:
            if not request.is_stored:
                self._session.drop(request.id)
            raise UnconfirmedError(describe_wait(request, self.status)) from None
        if not reply.is_ok:
            raise reply.build_error()
        return reply

    async def notifications(
        self, timeout: float | None = None
    ) -> AsyncIterator[ReceivedNotification]:
        """Yield notifications as they come; see `Subscriber.notifications`."""
        inbox = self._session.inbox
        loop = asyncio.get_running_loop()
        arrival = asyncio.Event()

        def announce() -> None:
            loop.call_soon_threadsafe(arrival.set)

        inbox.add_listener(announce)
        try:
            while True:
                arrival.clear()
                lent = await asyncio.to_thread(inbox.lend, self._promise)
                if lent is None:
                    if inbox.is_closed or not await _wait(arrival, timeout, inbox.find_pause()):
                        return
                    continue
                is_handled = False
                try:
                    yield lent[1]
                    is_handled = True
                finally:
                    if self._promise is Promise.AT_LEAST_ONCE:
                        finish = inbox.mark if is_handled else inbox.put_back
                        await asyncio.to_thread(finish, lent[0])
        finally:
            inbox.remove_listener(announce)

    async def wait_until_connected(self, timeout: float | None = None) -> bool:
        """Return whether a node serves us, at the latest after so many seconds."""
        return await asyncio.to_thread(self._session.wait_until_connected, timeout)


async def _wait(arrival: asyncio.Event, timeout: float | None, pause: float | None) -> bool:
    """Wait for an arrival or until a postponed notification is due; False after the timeout."""
    shortest = min((t for t in (timeout, pause) if t is not None), default=None)
    try:
        await asyncio.wait_for(arrival.wait(), shortest)
    except TimeoutError:
        return timeout is None or (pause is not None and pause < timeout)
    return True
