"""The front end for asyncio: the same promises, and an event loop that goes on meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.subscriber import (
    AsyncSubscriber,
    Promise,
    RequestRefusedError,
    UnconfirmedError,
)

from tests.client.sites import ScriptedSite, build_note, find_dead_url
from tests.client.victim import NAME, QUICK, WORDS


@pytest.fixture
def connect(tmp_path: Path) -> Callable[..., AsyncSubscriber]:
    def build(*sites: ScriptedSite, **options: Any) -> AsyncSubscriber:
        urls = [site.url for site in sites] or [find_dead_url()]
        store = tmp_path / "medic7.db"
        return AsyncSubscriber(NAME, servers=urls, store=store, settings=QUICK, **options)

    return build


Connect = Callable[..., AsyncSubscriber]


def test_asking_and_receiving(site: ScriptedSite, connect: Connect) -> None:
    async def use() -> list[int]:
        async with connect(site) as medic:
            assert (await medic.subscribe(WORDS, "fever")).state == "active"
            assert [s["name"] for s in await medic.list()] == ["fever"]
            with pytest.raises(RequestRefusedError) as caught:
                await medic.subscribe("lottery is high")
            assert caught.value.at == 1
            site.node.emit(NAME, *(build_note(i) for i in range(10)))
            site.node.emit(NAME, *(build_note(i) for i in range(10)))
            found = []
            async for note in medic.notifications():
                found.append(note.fields["index"])
                if len(found) == 10:
                    break
            await medic.unsubscribe("fever")
            assert await medic.list() == []
            return found

    assert asyncio.run(use()) == list(range(10))


def test_a_note_in_hand_comes_again_and_handled_ones_do_not(
    site: ScriptedSite, connect: Connect
) -> None:
    async def take(count: int, *sites: ScriptedSite) -> list[int]:
        found = []
        async with connect(*sites) as medic:
            if sites:
                await medic.subscribe(WORDS, "fever")
                site.node.emit(NAME, *(build_note(i) for i in range(5)))
            notes = medic.notifications(timeout=0.5 if not sites else 20)
            async for note in notes:
                found.append(note.fields["index"])
                if len(found) == count:
                    await notes.aclose()  # type: ignore[attr-defined]
                    break
        return found

    assert asyncio.run(take(3, site)) == [0, 1, 2]
    assert asyncio.run(take(9)) == [2, 3, 4]


def test_waiting_does_not_stop_the_loop_and_can_be_cancelled(connect: Connect) -> None:
    async def use() -> int:
        ticks = 0
        async with connect(promise=Promise.AT_MOST_ONCE) as medic:

            async def listen() -> None:
                async for _ in medic.notifications():
                    pass

            task = asyncio.create_task(listen())
            with pytest.raises(UnconfirmedError):
                await medic.subscribe(WORDS, timeout=0.3)
            for _ in range(20):
                await asyncio.sleep(0.01)
                ticks += 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [s.state for s in await medic.subscriptions()] == ["pending"]
        return ticks

    assert asyncio.run(use()) == 20


def test_closing_ends_the_notes(connect: Connect) -> None:
    async def use() -> None:
        async with connect() as medic:

            async def listen() -> int:
                return len([note async for note in medic.notifications()])

            task = asyncio.create_task(listen())
            await asyncio.sleep(0.1)
        assert await asyncio.wait_for(task, 10) == 0

    asyncio.run(use())


def test_handlers_get_the_transaction(site: ScriptedSite, connect: Connect, tmp_path: Path) -> None:
    async def use() -> list[int]:
        seen: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def handle(note: Any, transaction: Any) -> None:
            transaction.execute("CREATE TABLE IF NOT EXISTS seen (number)")
            transaction.execute("INSERT INTO seen VALUES (?)", (note.fields["index"],))
            loop.call_soon_threadsafe(seen.put_nowait, note.fields["index"])

        async with connect(site, on_notification=handle) as medic:
            await medic.subscribe(WORDS, "fever")
            site.node.emit(NAME, *(build_note(i) for i in range(3)))
            return [await asyncio.wait_for(seen.get(), 20) for _ in range(3)]

    assert asyncio.run(use()) == [0, 1, 2]
    with sqlite3.connect(tmp_path / "medic7.db") as found:
        assert found.execute("SELECT number FROM seen").fetchall() == [(0,), (1,), (2,)]
    found.close()
