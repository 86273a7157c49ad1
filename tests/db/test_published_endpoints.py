"""What the catalogue makes of what workers publish: what is in force, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest

from coatcheck.core.queries import leases
from coatcheck.core.queries.limits import list_limits, set_limit
from coatcheck.core.queries.services import (
    find,
    forget,
    list_published,
    lock_published,
    put,
    resolve_published,
)
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.notifications import SERVICES
from coatcheck.domain.catalogue import (
    EndpointSpec,
    Method,
    VersionSpec,
    conflicts_of,
    described,
    unserved_of,
)
from coatcheck.domain.job import ConcurrencyLimit
from coatcheck.domain.lanes import Lane
from coatcheck.domain.service_definition import endpoint_key
from tests.db.edge_guard import AsyncpgConnection
from tests.db.publishing import fall_silent, publish
from tests.db.rows import connected
from tests.waiting import eventually_async


def endpoint(
    path: str, lane: Lane = Lane.STANDARD, *, method: Method = "POST", version: int = 1
) -> EndpointSpec:
    return EndpointSpec(
        service="docs",
        version=version,
        key=endpoint_key(method, path),
        method=method,
        path=path,
        lane=lane,
        timeout_seconds=12.5,
        sync_timeout_seconds=5.0,
    )


def docs(*endpoints: EndpointSpec, version: int = 1) -> dict[str, list[VersionSpec]]:
    return {"docs": [VersionSpec(version, endpoints)]}


STABLE = docs(endpoint("/a"), endpoint("/b"))
CANARY = docs(endpoint("/a", Lane.BULK), endpoint("/new"))


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test services", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


async def in_force(line: Connection) -> dict[str, str]:
    """The lane of each endpoint that can be called, by path."""
    found = (await find(line, [("acme", "docs")])).get(("acme", "docs"))
    return {} if found is None else {each.path: each.lane.value for each in found.endpoints}


async def let_pass(connection: AsyncpgConnection, time: str) -> None:
    """Have what is unserved be so for as much longer."""
    await connection.execute(
        "UPDATE published_endpoints SET unserved_since = unserved_since - $1::text::interval", time
    )


BOTH = {"/a": "bulk", "/b": "standard", "/new": "standard"}
AFTERWARDS = {"/a": "standard", "/b": "standard", "/new": "standard"}


async def test_a_worker_that_stops_leaves_the_definitions_of_the_others_in_force(
    line: Connection,
) -> None:
    await publish(line, STABLE)
    canary = await publish(line, CANARY)
    assert await in_force(line) == BOTH
    await leases.deregister(line, canary)
    assert await in_force(line) == AFTERWARDS


async def test_a_worker_that_falls_silent_counts_no_longer_and_again_when_it_is_back(
    line: Connection, connection: AsyncpgConnection
) -> None:
    await publish(line, STABLE)
    canary = await publish(line, CANARY)
    await fall_silent(line, canary)
    assert await in_force(line) == BOTH
    assert await resolve_published(line) == ["docs"]
    assert await in_force(line) == AFTERWARDS
    await leases.heartbeat(line, canary)
    assert await resolve_published(line) == ["docs"]
    assert await in_force(line) == BOTH
    await connection.execute("DELETE FROM workers WHERE boot = $1", canary)
    assert await resolve_published(line) == ["docs"]
    assert await resolve_published(line) == []
    assert await in_force(line) == AFTERWARDS


async def test_the_look_at_the_catalogue_waits_for_nobody_who_changes_it(
    line: Connection, connection: AsyncpgConnection
) -> None:
    """The upkeep of jobs goes through the same connection: a worker that is frozen while it
    registers must not hold up rescues, retries and delayed jobs."""
    await publish(line, STABLE)
    canary = await publish(line, CANARY)
    await fall_silent(line, canary)
    async with connection.transaction():
        await lock_published(connection)
        assert await resolve_published(line) == []
    assert await resolve_published(line) == ["docs"]
    assert await in_force(line) == AFTERWARDS


async def test_nothing_changes_when_all_workers_fall_silent(line: Connection) -> None:
    """A failover, or a laptop that slept: what was in force stays so."""
    for versions in (STABLE, CANARY):
        await fall_silent(line, await publish(line, versions))
    assert await resolve_published(line) == []
    assert await in_force(line) == BOTH


async def test_a_restart_with_the_same_code_makes_nothing_newer(
    line: Connection, connection: AsyncpgConnection
) -> None:
    """Else each worker of the stable code that is started would end a canary."""
    stable = await publish(line, STABLE)
    await publish(line, CANARY)
    told: list[str] = []
    await connection.add_listener(SERVICES, lambda *said: told.append(str(said[3])))
    await publish(line, STABLE)
    await leases.deregister(line, stable)
    await publish(line, STABLE)
    assert await in_force(line) == BOTH
    await publish(line, docs(endpoint("/last")))

    async def heard() -> bool:
        return bool(told)

    await eventually_async(heard, "the change is told")
    assert told == ["/docs"]  # the last one's alone


async def test_of_endpoints_that_answer_one_path_the_newer_one_does(line: Connection) -> None:
    await publish(line, docs(endpoint("/x/{id}", method="GET"), endpoint("/b")))
    canary = await publish(line, docs(endpoint("/x/{name}", Lane.BULK, method="GET")))
    assert await in_force(line) == {"/x/{name}": "bulk", "/b": "standard"}
    (conflict,) = conflicts_of(await list_published(line))
    assert described([conflict]) == "docs.get__x_name (key, path, lane)"
    await leases.deregister(line, canary)
    assert await in_force(line) == {"/x/{id}": "standard", "/b": "standard"}


async def test_an_endpoint_without_a_worker_is_kept_for_a_week(
    line: Connection, connection: AsyncpgConnection
) -> None:
    await publish(line, STABLE)
    canary = await publish(line, CANARY)
    await leases.deregister(line, canary)
    await let_pass(connection, "6 days")
    assert await resolve_published(line) == []
    assert await in_force(line) == AFTERWARDS
    await let_pass(connection, "2 days")
    assert await resolve_published(line) == ["docs"]
    assert await in_force(line) == {"/a": "standard", "/b": "standard"}


async def test_a_service_without_an_endpoint_left_is_removed_and_its_name_is_free(
    line: Connection, connection: AsyncpgConnection
) -> None:
    await leases.deregister(line, await publish(line, STABLE))
    assert await put(line, "acme", "default", "docs", [], 10) is None
    await let_pass(connection, "8 days")
    assert await resolve_published(line) == ["docs"]
    assert await in_force(line) == {}
    assert await put(line, "acme", "default", "docs", [], 10) is not None


async def test_time_in_which_nothing_runs_does_not_count(
    line: Connection, connection: AsyncpgConnection
) -> None:
    """A machine that is off over the holidays comes back with all that it had."""
    await fall_silent(line, await publish(line, STABLE))
    await connection.execute("UPDATE published_endpoints SET published_at = now() - interval '1y'")
    await resolve_published(line)
    assert await in_force(line) == {"/a": "standard", "/b": "standard"}


async def test_forgetting_takes_what_no_live_worker_publishes(line: Connection) -> None:
    await publish(line, STABLE)
    second = docs(endpoint("/a", version=2), endpoint("/c", version=2), version=2)
    for boot in (await publish(line, CANARY), await publish(line, second)):
        await leases.deregister(line, boot)
    assert await forget(line, "docs", 1, "post__a") == ((), ("docs.post__a",))
    assert await forget(line, "docs", 2, "post__c") == (("docs.v2.post__c",), ())
    assert await forget(line, "docs", 3) == ((), ())
    assert await forget(line, "docs") == (
        ("docs.post__new", "docs.v2.post__a"),
        ("docs.post__a", "docs.post__b"),
    )
    assert await in_force(line) == {"/a": "standard", "/b": "standard"}
    await publish(line, CANARY)
    assert await in_force(line) == BOTH


async def test_a_silent_worker_that_comes_back_has_its_endpoints_in_the_catalogue_again(
    line: Connection,
) -> None:
    """What it publishes was forgotten meanwhile: it has to register, and so to publish, anew."""
    boot = await publish(line, STABLE)
    await fall_silent(line, boot)
    assert await forget(line, "docs") == (("docs.post__a", "docs.post__b"), ())
    with pytest.raises(leases.RegistrationGone):
        await leases.heartbeat(line, boot)


async def test_what_a_worker_publishes_that_may_still_hold_jobs_is_not_forgotten(
    line: Connection, connection: AsyncpgConnection
) -> None:
    """Silent for longer than its shortest lease, and not for its longest one."""
    boot = await publish(line, STABLE)
    await connection.execute(
        "UPDATE workers SET urgent_seconds = 30, last_seen_at = now() - interval '1 minute'"
    )
    await resolve_published(line)
    assert len(unserved_of(await list_published(line))) == 2
    assert await forget(line, "docs") == ((), ("docs.post__a", "docs.post__b"))
    await leases.heartbeat(line, boot)
    await resolve_published(line)
    assert await in_force(line) == {"/a": "standard", "/b": "standard"}


async def test_what_a_dead_worker_published_is_forgotten_at_once(line: Connection) -> None:
    boot = await publish(line, STABLE)
    await leases.declare_dead(line, [boot])
    assert await forget(line, "docs") == (("docs.post__a", "docs.post__b"), ())
    assert await in_force(line) == {}


async def test_forgetting_is_told(line: Connection, connection: AsyncpgConnection) -> None:
    told: list[str] = []
    await leases.deregister(line, await publish(line, STABLE))
    await connection.add_listener(SERVICES, lambda *said: told.append(str(said[3])))
    await forget(line, "docs", 1, "post__a")

    async def heard() -> bool:
        return told == ["/docs"]

    await eventually_async(heard, "the service is told of")


async def test_a_concurrency_limit_is_that_of_the_definition_in_force(line: Connection) -> None:
    def limited(held_max: int | None) -> dict[str, list[VersionSpec]]:
        return docs(replace(endpoint("/a"), concurrency=held_max))

    async def limits() -> list[int]:
        return [limit.held_max for limit in await list_limits(line, "acme")]

    await publish(line, limited(3))
    assert await list_limits(line, "acme") == [ConcurrencyLimit("*", "endpoint", "docs.post__a", 3)]
    unlimited = await publish(line, limited(None))
    assert await limits() == []
    wider = await publish(line, limited(5))
    assert await limits() == [5]
    await leases.deregister(line, unlimited)
    await leases.deregister(line, wider)
    assert await limits() == [3]
    await set_limit(line, ConcurrencyLimit("*", "endpoint", "docs.post__a", 1))
    await publish(line, limited(7))
    assert await limits() == [1]


async def test_a_limit_goes_with_its_endpoint(line: Connection) -> None:
    versions = {"docs": [VersionSpec(2, (replace(endpoint("/a", version=2), concurrency=3),))]}
    await leases.deregister(line, await publish(line, versions))
    assert [limit.name for limit in await list_limits(line, "acme")] == ["docs.v2.post__a"]
    await forget(line, "docs", 2)
    assert await list_limits(line, "acme") == []


async def test_where_live_workers_disagree_can_be_seen(line: Connection) -> None:
    await publish(line, STABLE, name="stable")
    other = docs(replace(endpoint("/a", Lane.BULK), retries=9))
    canary = await publish(line, other, name="canary")
    published = await list_published(line)
    (conflict,) = conflicts_of(published)
    assert described([conflict]) == "docs.post__a (lane, retries)"
    assert conflict.in_force.workers == ("canary",)
    assert unserved_of(published) == []
    await fall_silent(line, canary)
    published = await list_published(line)
    assert conflicts_of(published) == []
    await leases.deregister(line, canary)
    assert conflicts_of(await list_published(line)) == []


async def test_definitions_that_say_the_same_are_no_disagreement(
    line: Connection, connection: AsyncpgConnection
) -> None:
    """Written otherwise, or by a release that knew fewer options: nothing would be to be done."""
    await publish(line, docs(replace(endpoint("/a"), timeout_seconds=30)))
    await publish(line, docs(replace(endpoint("/a"), timeout_seconds=30.0)))
    assert len(await list_published(line)) == 2
    assert conflicts_of(await list_published(line)) == []


async def test_what_no_live_worker_publishes_can_be_seen(line: Connection) -> None:
    await publish(line, STABLE)
    await leases.deregister(line, await publish(line, CANARY))
    (gone,) = unserved_of(await list_published(line))
    assert gone.spec.engine_endpoint == "docs.post__new"
    assert gone.unserved_since is not None


@pytest.mark.slow
async def test_a_process_that_is_frozen_as_it_publishes_keeps_no_other_from_it(
    line: Connection, dsn: str
) -> None:
    async with connected(dsn) as frozen:
        transaction = frozen.transaction()
        await transaction.start()
        await lock_published(frozen)
        # Between two messages of one statement: to the server it is neither idle nor running.
        preparing = await frozen.prepare("SELECT 1")
        await publish(line, STABLE)  # until the frozen one is cut off
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
            await preparing.fetchval()
