"""Rate limits as replicas keep them together: two or more limiters on one database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from coatcheck.db.connection import Connection
from coatcheck.domain.errors import DatabaseUnavailable, RateLimited
from coatcheck.domain.tenants import ALL_SCOPES, Principal, RateLimit
from coatcheck.http import rate_limits
from coatcheck.http.rate_limits import RateLimiter
from coatcheck.http.response import RawHeaders
from tests.db.edge_guard import AsyncpgConnection
from tests.db.lossy_proxy import LossyProxy
from tests.db.rows import connected
from tests.waiting import eventually_async

LONG = 500_000_000
"""A window from 2017 to 2033: no test sees its end by chance."""
CALLER = Principal("acme", "key", "user:u1", ALL_SCOPES, key_id="k1")


def limited(*, key: int | None = None, org: int | None = None, key_id: str = "k1") -> Principal:
    return replace(
        CALLER,
        key_id=key_id,
        key_rate=None if key is None else RateLimit(key, LONG),
        org_rate=None if org is None else RateLimit(org, LONG),
    )


@asynccontextmanager
async def replica(dsn: str) -> AsyncIterator[RateLimiter]:
    line = Connection(dsn, name="rates")
    limiter = RateLimiter(line)
    yield limiter
    await limiter.close()
    await line.close()


@pytest.fixture
async def limiter(dsn: str) -> AsyncIterator[RateLimiter]:
    async with replica(dsn) as one:
        yield one


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    async with connected(dsn) as one:
        yield one


async def ask(limiter: RateLimiter, principal: Principal) -> RawHeaders | None:
    """As the control plane does. None if it was refused."""
    headers = limiter.admit_now(principal)
    if headers is not None:
        return headers
    try:
        return await limiter.admit(principal)
    except RateLimited:
        return None


async def admitted(asked: list[Awaitable[RawHeaders | None]]) -> int:
    return sum(headers is not None for headers in await asyncio.gather(*asked))


async def used(connection: AsyncpgConnection, name: str) -> int:
    return int(
        await connection.fetchval("SELECT used FROM rate_windows WHERE name = $1", name) or 0
    )


async def moved_to_the_next_window(connection: AsyncpgConnection) -> None:
    await connection.execute(
        "UPDATE rate_windows SET window_start = window_start - make_interval(secs => seconds)"
    )


async def test_without_a_limit_nothing_is_asked_or_said(limiter: RateLimiter) -> None:
    assert limiter.admit_now(CALLER) == ()
    assert await limiter.admit(CALLER) == ()


@pytest.mark.parametrize("limit", [1, 10, 100, 777])
async def test_replicas_let_in_exactly_the_limit_together(dsn: str, limit: int) -> None:
    caller = limited(key=limit)
    async with replica(dsn) as first, replica(dsn) as second, replica(dsn) as third:
        replicas = [first, second, third]
        crowd = [ask(replicas[number % 3], caller) for number in range(2 * limit + 20)]
        assert await admitted(crowd) == limit


async def test_callers_one_after_the_other_get_exactly_the_limit(dsn: str) -> None:
    """So that grants grow with demand; what a replica holds and does not use comes back."""
    caller = limited(org=500)
    async with replica(dsn) as first, replica(dsn) as second:
        count = 0
        for number in range(600):
            count += await ask((first, second)[number % 2], caller) is not None
        assert 480 <= count <= 500
        await first.tick()
        await second.tick()  # what was called for since the last tick is kept, so once more
        await first.tick()
        await second.tick()

        async def the_rest_was_let_in() -> bool:
            nonlocal count
            count += await ask(first, caller) is not None
            return count == 500

        await eventually_async(the_rest_was_let_in, "what was given back is let in")
        assert await ask(first, caller) is None
        assert await ask(second, caller) is None


async def test_a_high_limit_costs_few_statements(
    limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = 0
    fetch = Connection.fetch

    async def counted(line: Connection, query: str, *arguments: Any) -> Any:
        nonlocal statements
        statements += 1
        return await fetch(line, query, *arguments)

    monkeypatch.setattr(Connection, "fetch", counted)
    caller = limited(key=100_000)
    for _ in range(10_000):
        assert await ask(limiter, caller) is not None
    assert statements < 40


async def test_a_limit_below_a_hundred_is_taken_request_by_request(
    limiter: RateLimiter, connection: AsyncpgConnection
) -> None:
    caller = limited(key=99)
    for count in range(1, 31):
        assert await ask(limiter, caller) is not None
        assert await used(connection, "key:k1") == count


async def test_a_key_is_refused_without_using_up_its_organisations_limit(
    limiter: RateLimiter, connection: AsyncpgConnection
) -> None:
    caller = limited(key=5, org=50)
    assert await admitted([ask(limiter, caller) for _ in range(40)]) == 5
    await limiter.close()
    assert await used(connection, "org") == 5


async def test_an_organisation_is_refused_without_using_up_its_keys_limits(
    limiter: RateLimiter, connection: AsyncpgConnection
) -> None:
    caller = limited(key=1_000, org=7)
    assert await admitted([ask(limiter, caller) for _ in range(40)]) == 7
    await limiter.close()
    assert await used(connection, "key:k1") == 7
    assert await used(connection, "org") == 7


async def test_the_keys_of_an_organisation_share_its_limit(dsn: str) -> None:
    callers = [limited(key=30, org=40, key_id=f"k{number}") for number in range(4)]
    async with replica(dsn) as first, replica(dsn) as second:
        crowd = [ask((first, second)[number % 2], callers[number % 4]) for number in range(120)]
        assert await admitted(crowd) == 40


async def test_the_headers_tell_of_the_tighter_limit(limiter: RateLimiter) -> None:
    headers = dict(await limiter.admit(limited(key=10, org=5)))
    reset = int(headers.pop(b"ratelimit-reset"))
    assert 0 < reset <= LONG
    assert headers == {
        b"ratelimit-limit": b"5",
        b"ratelimit-remaining": b"4",
        b"ratelimit": b'"org";r=4;t=%d' % reset,
        b"ratelimit-policy": b'"key";q=10;w=%d, "org";q=5;w=%d' % (LONG, LONG),
    }


async def test_what_remains_counts_down_whoever_asks_the_database(limiter: RateLimiter) -> None:
    caller = limited(key=200)
    remaining = []
    for _ in range(50):
        headers = await ask(limiter, caller)
        assert headers is not None
        remaining.append(int(dict(headers)[b"ratelimit-remaining"]))
    assert remaining == list(range(199, 149, -1))


async def test_a_refusal_says_which_limit_and_when_to_come_back(limiter: RateLimiter) -> None:
    caller = limited(key=1, org=5)
    await limiter.admit(caller)
    for _ in range(2):  # as the database says, and as this replica remembers
        with pytest.raises(RateLimited) as refused:
            await limiter.admit(caller)
        headers = dict(refused.value.headers)
        assert refused.value.retry_after == int(headers[b"ratelimit-reset"]) > 0
        assert headers[b"ratelimit-limit"] == b"1"
        assert headers[b"ratelimit-remaining"] == b"0"
        assert headers[b"ratelimit"].startswith(b'"key";r=0;t=')


async def test_a_new_window_lets_callers_in_again(
    limiter: RateLimiter, connection: AsyncpgConnection
) -> None:
    caller = limited(key=3)
    assert await admitted([ask(limiter, caller) for _ in range(5)]) == 3
    await moved_to_the_next_window(connection)

    async def let_in() -> bool:
        return await ask(limiter, caller) is not None

    await eventually_async(let_in, "the limiter asks about the next window")


async def test_a_window_that_really_ends_ends_for_what_was_taken_from_it(
    dsn: str, connection: AsyncpgConnection
) -> None:
    """By the database's clock: no window of a second lets in more than its limit."""
    caller = replace(CALLER, org_rate=RateLimit(200, 1))
    seen: dict[int, int] = {}

    async def call(limiter: RateLimiter) -> None:
        async with connected(dsn) as clock:
            while len(seen) < 4:
                before = await clock.fetchval("SELECT extract(epoch FROM clock_timestamp())")
                headers = await ask(limiter, caller)
                after = await clock.fetchval("SELECT extract(epoch FROM clock_timestamp())")
                if headers is None:
                    await asyncio.sleep(0.01)
                elif int(before) == int(after):  # else it cannot be said in which it was
                    seen[int(before)] = seen.get(int(before), 0) + 1
                else:
                    seen.setdefault(int(after), 0)

    async with replica(dsn) as first, replica(dsn) as second:
        await asyncio.gather(*(call(each) for each in (first, second) for _ in range(3)))
    assert max(seen.values()) <= 200
    assert sum(seen.values()) > 200


async def test_what_is_left_of_a_window_that_ended_is_not_used(
    limiter: RateLimiter, connection: AsyncpgConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "SWEEP_SECONDS", 3_600.0)  # what is left is to stay
    caller = replace(CALLER, key_rate=RateLimit(1_000, 3))
    started = "SELECT extract(epoch FROM clock_timestamp())::bigint / 3"
    window = await connection.fetchval(started)

    async def next_window_has_begun() -> bool:
        return bool(await connection.fetchval(started) != window)

    await eventually_async(next_window_has_begun, "a window begins")
    for _ in range(50):
        assert await ask(limiter, caller) is not None
    assert await used(connection, "key:k1") > 50, "some of what was taken is left"
    window = await connection.fetchval(started)
    await eventually_async(next_window_has_begun, "the next window begins")
    assert limiter.admit_now(caller) is None
    await limiter.admit(caller)
    let_in = 1
    while limiter.admit_now(caller) is not None:
        let_in += 1
    assert let_in == await used(connection, "key:k1")


async def test_what_is_left_over_is_given_back_when_demand_is_gone(
    dsn: str, connection: AsyncpgConnection
) -> None:
    caller = limited(key=1_000)
    async with replica(dsn) as limiter:
        for _ in range(100):
            assert await ask(limiter, caller) is not None

        async def given_back() -> bool:
            return await used(connection, "key:k1") == 100

        await eventually_async(given_back, "the limiter gives back by itself")


async def test_a_caller_that_leaves_while_it_waits_uses_nothing(
    limiter: RateLimiter, connection: AsyncpgConnection
) -> None:
    caller = limited(key=5, org=5)
    await limiter.admit(caller)
    async with connection.transaction():
        await connection.execute("SELECT FROM rate_windows FOR UPDATE")
        leaving = [asyncio.create_task(limiter.admit(caller)) for _ in range(3)]
        staying = asyncio.create_task(limiter.admit(caller))

        async def waiting() -> bool:
            return bool(
                await connection.fetchval(
                    "SELECT count(*) FROM pg_stat_activity "
                    "WHERE wait_event_type = 'Lock' AND datname = current_database()"
                )
            )

        await eventually_async(waiting, "the statement waits for the row")
        for each in leaving:
            each.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
    await staying
    assert await admitted([ask(limiter, caller) for _ in range(10)]) == 3


async def test_a_limit_that_is_changed_holds_at_once(limiter: RateLimiter) -> None:
    assert await admitted([ask(limiter, limited(key=10)) for _ in range(6)]) == 6
    assert await ask(limiter, limited(key=5)) is None
    assert await admitted([ask(limiter, limited(key=8)) for _ in range(6)]) == 2


async def test_without_a_database_what_was_granted_is_used_up_first(
    dsn: str, connection: AsyncpgConnection
) -> None:
    caller = limited(key=10_000)
    reachable = AsyncExitStack()
    proxy = await reachable.enter_async_context(LossyProxy.before(dsn))
    async with replica(proxy.dsn) as limiter:
        for _ in range(50):
            assert await ask(limiter, caller) is not None
        left = await used(connection, "key:k1") - 50
        assert left > 0
        await reachable.aclose()
        for _ in range(left):
            assert limiter.admit_now(caller) is not None
        assert limiter.admit_now(caller) is None
        with pytest.raises(DatabaseUnavailable):
            await limiter.admit(caller)


async def test_limits_that_are_not_in_use_are_forgotten(
    limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "FORGOTTEN_SECONDS", 0.5)
    caller = replace(CALLER, key_rate=RateLimit(5, 1))
    await limiter.admit(caller)

    async def forgotten() -> bool:
        """It sweeps while there is something to sweep."""
        return all(task.get_name() != "rate limits" for task in asyncio.all_tasks())

    assert not await forgotten()
    await eventually_async(forgotten, "the sweep forgets a window that is over")
    assert await ask(limiter, caller) is not None
