"""The listener hears, notices that it has gone deaf, and says that it may have missed something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coatcheck.db.connection import Connection
from coatcheck.db.notifications import NotificationListener, Notifier
from tests.db.blocking import processes_named, terminate
from tests.db.edge_guard import AsyncpgConnection
from tests.db.lossy_proxy import LossyProxy
from tests.waiting import eventually_async

CHANNEL = "coatcheck_test"


class Ear:
    """What was heard, and how often something may have been missed."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.gaps = 0

    def note_gap(self) -> None:
        self.gaps += 1

    async def until_heard(self, *words: str) -> None:
        async def look() -> bool:
            return set(words) <= set(self.words)

        await eventually_async(look, f"{words} have been heard")


@pytest.fixture
async def ear() -> Ear:
    return Ear()


@pytest.fixture
async def listener(dsn: str, ear: Ear) -> AsyncIterator[NotificationListener]:
    opened = NotificationListener(dsn)
    subscription = opened.subscribe({CHANNEL: ear.words.append}, on_gap=ear.note_gap)
    await subscription.start()
    yield opened
    await subscription.stop()


async def say(connection: AsyncpgConnection, word: str) -> None:
    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, word)


async def test_it_hears_what_is_said(
    listener: NotificationListener, ear: Ear, connection: AsyncpgConnection
) -> None:
    await say(connection, "hello")
    await ear.until_heard("hello")


async def test_it_says_that_something_may_have_been_said_before_it_listened(
    listener: NotificationListener, ear: Ear
) -> None:
    assert ear.gaps == 1


async def test_killed_it_tells_of_the_gap_and_listens_again(
    listener: NotificationListener, ear: Ear, connection: AsyncpgConnection
) -> None:
    deaf = listener.backend_pid
    assert deaf is not None
    gaps = ear.gaps
    await terminate(connection, deaf)

    async def listens_again() -> bool:
        return listener.backend_pid not in (None, deaf)

    await eventually_async(listens_again, "it has another connection")
    assert ear.gaps > gaps
    await say(connection, "still there?")
    await ear.until_heard("still there?")


async def test_it_starts_without_a_server_and_goes_on_trying() -> None:
    ear = Ear()
    listener = NotificationListener("postgresql://postgres@/postgres?host=/nowhere/at/all")
    subscription = listener.subscribe({}, on_gap=ear.note_gap)
    await subscription.start()
    assert listener.backend_pid is None

    async def has_tried_again() -> bool:
        return ear.gaps >= 2

    await eventually_async(has_tried_again, "it has failed twice")
    await subscription.stop()


async def test_words_said_together_go_out_as_one(
    dsn: str, listener: NotificationListener, ear: Ear
) -> None:
    line = Connection(dsn, name="test notify")
    notifier = Notifier(line)
    for word in ("a", "b", "c"):
        notifier.notify(CHANNEL, [word])
    await notifier.drain()
    await eventually_async(lambda: asyncio.sleep(0, bool(ear.words)), "something was heard")
    assert [sorted(words.split(",")) for words in ear.words] == [["a", "b", "c"]]
    await line.close()


@pytest.mark.parametrize("letter", ["ö", "😀"])
async def test_too_many_bytes_go_out_as_look_yourself(
    letter: str, dsn: str, listener: NotificationListener, ear: Ear
) -> None:
    """PostgreSQL refuses 8,000 bytes, however few characters they are."""
    line = Connection(dsn, name="test notify")
    notifier = Notifier(line)
    notifier.notify(CHANNEL, [f"{number}{letter * 250}" for number in range(26)])
    await notifier.drain()
    await eventually_async(lambda: asyncio.sleep(0, bool(ear.words)), "something was heard")
    assert ear.words == [""]
    await line.close()


async def test_a_connection_that_is_open_and_says_nothing_is_given_up(
    dsn: str, ear: Ear, connection: AsyncpgConnection
) -> None:
    async with LossyProxy.before(dsn) as proxy:
        proxy.lose_answers(after=b"SELECT 1")  # its question whether anybody is there
        listener = NotificationListener(proxy.dsn)
        subscription = listener.subscribe(
            {CHANNEL: ear.words.append}, on_gap=ear.note_gap, ping_seconds=0.1
        )
        await subscription.start()
        try:
            deaf, gaps = listener.backend_pid, ear.gaps

            async def noticed() -> bool:
                return ear.gaps > gaps

            await eventually_async(noticed, "it says that something may have been missed")
            proxy.cut()  # from now on answers come through

            async def listens_again() -> bool:
                return listener.backend_pid not in (None, deaf)

            await eventually_async(listens_again, "it has another connection")
            await say(connection, "still there?")
            await ear.until_heard("still there?")
        finally:
            await subscription.stop()


async def test_subscriptions_share_a_connection_and_hear_each_their_own(
    listener: NotificationListener, ear: Ear, connection: AsyncpgConnection
) -> None:
    other = Ear()
    second = listener.subscribe(
        {CHANNEL: other.words.append, "another": other.words.append}, on_gap=other.note_gap
    )
    await second.start()
    assert second.is_listening
    assert (ear.gaps, other.gaps) == (1, 1)
    assert len(await processes_named(connection, "coatcheck listen")) == 1
    await connection.execute("SELECT pg_notify('another', 'for one')")
    await say(connection, "for both")
    await ear.until_heard("for both")
    await other.until_heard("for both")
    assert (ear.words, other.words) == (["for both"], ["for one", "for both"])
    await second.stop()
    assert not second.is_listening
    await say(connection, "for the first")
    await ear.until_heard("for the first")
    assert other.words == ["for one", "for both"]
