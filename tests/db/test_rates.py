"""Windows of rate limits, as the database counts them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from coatcheck.core.queries.rates import Leftover, Limited, RateRequest, RateWindows
from coatcheck.db.connection import Connection
from tests.db.edge_guard import AsyncpgConnection
from tests.waiting import eventually_async

# A window from 2017 to 2033: no test sees its end by chance.
KEY = Limited("acme", "key:k1", 500_000_000)


@pytest.fixture
async def windows(dsn: str) -> AsyncIterator[RateWindows]:
    line = Connection(dsn, name="rates")
    yield RateWindows(line)
    await line.close()


async def test_a_limit_gives_what_is_wanted_until_nothing_is_left(windows: RateWindows) -> None:
    grants = [await windows.take(RateRequest(KEY, 10, 4)) for _ in range(4)]
    assert [grant.granted for grant in grants] == [4, 4, 2, 0]
    assert [grant.used for grant in grants] == [4, 8, 10, 10]


async def test_windows_are_cut_by_the_databases_clock(
    windows: RateWindows, connection: AsyncpgConnection
) -> None:
    before = await connection.fetchval("SELECT clock_timestamp()")
    grant = await windows.take(RateRequest(KEY._replace(seconds=3600), 10, 1))
    after = await connection.fetchval("SELECT clock_timestamp()")
    assert grant.window_start <= after
    assert before < grant.window_start + timedelta(hours=1)
    assert grant.window_start.timestamp() % 3600 == 0
    ends = grant.window_start + timedelta(hours=1)
    assert (ends - after).total_seconds() <= grant.seconds_left <= (ends - before).total_seconds()


async def test_the_next_window_begins_with_everything(
    windows: RateWindows, connection: AsyncpgConnection
) -> None:
    await windows.take(RateRequest(KEY, 10, 10))
    await connection.execute(
        "UPDATE rate_windows SET window_start = window_start - make_interval(secs => seconds)"
    )
    assert (await windows.take(RateRequest(KEY, 10, 7))).granted == 7
    assert (await windows.take(RateRequest(KEY, 10, 7))).granted == 3


async def test_a_clock_that_was_set_back_gives_no_window_twice(
    windows: RateWindows, connection: AsyncpgConnection
) -> None:
    await windows.take(RateRequest(KEY, 10, 8))
    await connection.execute(
        "UPDATE rate_windows SET window_start = window_start + make_interval(secs => seconds)"
    )
    grant = await windows.take(RateRequest(KEY, 10, 8))
    assert grant.granted == 2
    assert grant.seconds_left > KEY.seconds


async def test_a_limit_that_was_lowered_below_what_is_used_gives_nothing(
    windows: RateWindows,
) -> None:
    await windows.take(RateRequest(KEY, 10, 8))
    grant = await windows.take(RateRequest(KEY, 5, 1))
    assert (grant.granted, grant.used) == (0, 8)
    assert (await windows.take(RateRequest(KEY, 20, 100))).granted == 12


async def test_a_limit_that_is_asked_under_two_values_at_once_counts_both(
    windows: RateWindows,
) -> None:
    grants = await asyncio.gather(
        windows.take(RateRequest(KEY, 10, 1)),  # goes alone, and the others gather meanwhile
        windows.take(RateRequest(KEY, 10, 4)),
        windows.take(RateRequest(KEY, 12, 4)),
        windows.take(RateRequest(KEY, 12, 4)),
    )
    assert [grant.granted for grant in grants] == [1, 4, 4, 3]


async def test_each_organisation_name_and_length_is_counted_by_itself(
    windows: RateWindows, connection: AsyncpgConnection
) -> None:
    limits = [KEY, KEY._replace(org="other"), KEY._replace(name="org"), KEY._replace(seconds=60)]
    grants = await asyncio.gather(*(windows.take(RateRequest(limited, 3, 3)) for limited in limits))
    assert [grant.granted for grant in grants] == [3, 3, 3, 3]
    assert await connection.fetchval("SELECT count(*) FROM rate_windows") == 4


async def test_what_is_given_back_can_be_taken_again(windows: RateWindows) -> None:
    grant = await windows.take(RateRequest(KEY, 10, 10))
    await windows.give_back(
        [Leftover(KEY, grant.window_start, 3), Leftover(KEY, grant.window_start, 1)]
    )
    assert (await windows.take(RateRequest(KEY, 10, 10))).granted == 4


async def test_what_is_given_back_to_a_window_gone_by_is_ignored(
    windows: RateWindows, connection: AsyncpgConnection
) -> None:
    grant = await windows.take(RateRequest(KEY, 10, 10))
    await windows.give_back([Leftover(KEY, grant.window_start - timedelta(seconds=KEY.seconds), 5)])
    assert await connection.fetchval("SELECT used FROM rate_windows") == 10


async def test_replicas_that_want_many_limits_in_any_order_do_not_deadlock(dsn: str) -> None:
    limits = [Limited(f"org{number}", "org", 3600) for number in range(20)]
    lines = [Connection(dsn, name=f"replica {number}") for number in range(4)]
    replicas = [RateWindows(line) for line in lines]

    async def take_and_return(replica: RateWindows, order: list[Limited]) -> int:
        taken = 0
        for _ in range(10):
            grants = await asyncio.gather(
                *(replica.take(RateRequest(each, 100, 2)) for each in order)
            )
            await replica.give_back(
                Leftover(each, grant.window_start, 1)
                for each, grant in zip(order, grants, strict=True)
                if grant.granted
            )
            taken += sum(grant.granted - 1 for grant in grants if grant.granted)
        return taken

    orders = [limits, limits[::-1], limits[10:] + limits[:10], limits[::2] + limits[1::2]]
    taken = await asyncio.gather(*map(take_and_return, replicas, orders))
    assert sum(taken) == 4 * 10 * 20
    for line in lines:
        await line.close()


async def test_a_limit_nobody_called_under_for_a_day_is_forgotten(
    windows: RateWindows, connection: AsyncpgConnection
) -> None:
    for name, ago in {"old": "26 h", "recent": "24 h"}.items():
        await windows.take(RateRequest(Limited("acme", name, 3600), 10, 1))
        await connection.execute(
            "UPDATE rate_windows SET window_start = window_start - $2::text::interval "
            "WHERE name = $1",
            name,
            ago,
        )
    await windows.prune()
    assert [row[0] for row in await connection.fetch("SELECT name FROM rate_windows")] == ["recent"]


async def test_forgetting_does_not_wait_for_a_limit_that_is_in_use(
    windows: RateWindows, connection: AsyncpgConnection
) -> None:
    await windows.take(RateRequest(KEY, 10, 1))
    await connection.execute(
        "UPDATE rate_windows SET window_start = window_start - interval '99 years'"
    )
    async with connection.transaction():
        await connection.execute("SELECT FROM rate_windows FOR UPDATE")
        await windows.prune()
    assert await connection.fetchval("SELECT count(*) FROM rate_windows") == 1


async def test_counting_writes_no_log(windows: RateWindows, connection: AsyncpgConnection) -> None:
    persistence = await connection.fetchval(
        "SELECT relpersistence::text FROM pg_class WHERE relname = 'rate_windows'"
    )
    assert persistence == "u"


async def test_a_broken_connection_is_asked_once_more(
    windows: RateWindows, connection: AsyncpgConnection
) -> None:
    await windows.take(RateRequest(KEY, 10, 1))

    async def cut_off() -> bool:
        return bool(
            await connection.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name = 'coatcheck rates' AND datname = current_database()"
            )
        )

    await eventually_async(cut_off, "the connection is terminated")
    assert (await windows.take(RateRequest(KEY, 10, 1))).granted == 1
