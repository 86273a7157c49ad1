"""The proxy: unnoticed until told otherwise, and then each fault as it is called."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from chaos.http_wire import HttpTalk
from chaos.postgres_wire import PostgresTalk
from chaos.proxy import Destination, Proxy
from tests.chaos.proxies import before
from tests.waiting import until_true

LIMIT_SECONDS = 20
RNG = random.Random(1)
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that answers every line with itself, and counts the ends it has seen."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.ended.set()


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Echo, Proxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    proxy = Proxy(Destination(port=server.sockets[0].getsockname()[1]), HttpTalk)
    await proxy.start()
    try:
        yield echo, proxy
    finally:
        await proxy.close()
        server.close()
        await server.wait_closed()


async def connected(proxy: Proxy) -> Wire:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def asked(wire: Wire, line: bytes) -> bytes:
    wire[1].write(line)
    return await asyncio.wait_for(wire[0].readline(), LIMIT_SECONDS)


async def test_everything_passes_and_an_end_is_passed_on() -> None:
    async with echoing() as (echo, proxy):
        wire = await connected(proxy)
        long = b"x" * 60_000 + b"\n"
        assert await asked(wire, b"hello\n") == b"hello\n"
        assert await asked(wire, long) == long
        wire[1].close()
        await asyncio.wait_for(echo.ended.wait(), LIMIT_SECONDS)
        while proxy.links:
            await asyncio.sleep(0.01)


async def test_a_cut_is_a_reset_or_an_orderly_end_and_the_next_connection_works() -> None:
    async with echoing() as (_, proxy):
        wire = await connected(proxy)
        await asked(wire, b"hello\n")
        assert proxy.cut(RNG) == 1
        with pytest.raises(ConnectionResetError):
            await asked(wire, b"again\n")
        wire = await connected(proxy)
        await asked(wire, b"hello\n")
        assert proxy.cut(RNG, reset=False) == 1
        assert await asyncio.wait_for(wire[0].read(), LIMIT_SECONDS) == b""
        assert await asked(await connected(proxy), b"hello\n") == b"hello\n"


async def test_what_is_delayed_arrives_whole_and_in_order() -> None:
    async with echoing() as (_, proxy):
        wire = await connected(proxy)
        await asked(wire, b"hello\n")
        proxy.delay_seconds = 0.05
        lines = [b"%d\n" % number for number in range(50)]
        for line in lines[:-1]:
            wire[1].write(line)
        await asyncio.sleep(0)
        proxy.delay_seconds = 0.0  # what follows must not overtake
        wire[1].write(lines[-1])
        assert [await wire[0].readline() for _ in lines] == lines


async def test_half_open_nothing_passes_and_nobody_is_told_until_it_is_dropped() -> None:
    async with echoing() as (echo, proxy):
        wire = await connected(proxy)
        await asked(wire, b"hello\n")
        assert proxy.freeze(new_too=False) == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asked(wire, b"anybody?\n"), 0.1)
        wire[1].close()
        assert await asked(await connected(proxy), b"new\n") == b"new\n"
        assert echo.heard == [b"hello\n", b"new\n"]
        assert not echo.ended.is_set()
        assert proxy.drop_frozen() == 1
        await asyncio.wait_for(echo.ended.wait(), LIMIT_SECONDS)


async def test_new_connections_can_be_swallowed_too_and_healing_ends_it() -> None:
    async with echoing() as (echo, proxy):
        proxy.freeze(new_too=True)
        wire = await connected(proxy)
        await until_true(lambda: bool(proxy.links), "the proxy has the connection")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asked(wire, b"anybody?\n"), 0.1)
        proxy.heal()
        with pytest.raises(ConnectionResetError):
            await asked(wire, b"anybody?\n")
        assert await asked(await connected(proxy), b"hello\n") == b"hello\n"
        assert echo.heard == [b"hello\n"]


async def test_nobody_behind_it_breaks_the_connection() -> None:
    proxy = Proxy(Destination(path="/nonexistent/socket"), PostgresTalk)
    await proxy.start()
    try:
        wire = await connected(proxy)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(wire[0].read(), LIMIT_SECONDS)
    finally:
        await proxy.close()


async def test_the_answer_to_a_request_that_changes_something_is_lost_after_it_was_heard() -> None:
    async with echoing() as (echo, proxy):
        losing = asyncio.create_task(proxy.lose_answers(1, LIMIT_SECONDS))
        wire = await connected(proxy)
        assert await asked(wire, b"GET /jobs HTTP/1.1\r\n") == b"GET /jobs HTTP/1.1\r\n"
        with pytest.raises(ConnectionResetError):
            await asked(wire, b"POST /jobs HTTP/1.1\r\n")
        assert await losing == ["POST /jobs"]
        assert echo.heard[-1] == b"POST /jobs HTTP/1.1\r\n"


async def test_losses_that_nothing_came_of_end_in_time() -> None:
    async with echoing() as (_, proxy):
        assert await proxy.lose_answers(3, 0.01) == []


async def test_a_commit_whose_answer_is_lost_has_happened(dsn: str) -> None:
    async with before(dsn) as (proxy, url):
        direct = await asyncpg.connect(dsn)
        await direct.execute("CREATE TABLE written (n integer)")

        async def autocommitted(through: asyncpg.Connection) -> None:
            await through.fetch("-- DELETE FROM no table\nINSERT INTO written VALUES ($1)", 1)

        async def in_a_transaction(through: asyncpg.Connection) -> None:
            async with through.transaction():
                await through.execute("INSERT INTO written VALUES ($1)", 2)
                assert await through.fetchval("SELECT count(*) FROM written") == 2

        async def copied(through: asyncpg.Connection) -> None:
            await through.copy_records_to_table("written", records=[(3,)] * 5_000)

        for write in (autocommitted, in_a_transaction, copied):
            through = await asyncpg.connect(url)
            losing = asyncio.create_task(proxy.lose_answers(1, LIMIT_SECONDS))
            # Neither a look nor a lock is a commit; nor is what was refused.
            await through.fetch("SELECT n FROM written WHERE n > $1 FOR UPDATE", 100)
            with pytest.raises(asyncpg.PostgresError):
                await through.execute("INSERT INTO written VALUES (1 / $1)", 0)
            with pytest.raises((asyncpg.PostgresConnectionError, ConnectionError)):
                await write(through)
            (lost,) = await losing
            assert "written" in lost
        counts = await direct.fetch("SELECT n, count(*) FROM written GROUP BY n ORDER BY n")
        assert [tuple(row) for row in counts] == [(1, 1), (2, 1), (3, 5_000)]
        await direct.close()
