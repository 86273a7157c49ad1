"""The catalogue's table: what workers publish into it, and what organisations register."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from asyncpg import CheckViolationError

from coatcheck.core.queries import services
from coatcheck.core.queries.services import delete, find, list_code
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.notifications import SERVICES
from coatcheck.domain.catalogue import EndpointSpec, HttpTarget, VersionSpec
from coatcheck.domain.lanes import Lane
from tests.db.blocking import until_blocked
from tests.db.edge_guard import AsyncpgConnection
from tests.db.publishing import publish
from tests.waiting import eventually_async


def spec(path: str, *, service: str = "docs", version: int = 1, url: str = "") -> EndpointSpec:
    return EndpointSpec(
        service=service,
        version=version,
        key=f"post__{path.strip('/')}",
        method="POST",
        path=path,
        lane=Lane.BULK,
        retries=7,
        timeout_seconds=12.5,
        sync_timeout_seconds=5.0,
        async_eligible=False,
        auth="service_token",
        keep_completed_seconds=1.0,
        keep_failed_seconds=2.0,
        parameters={"page": "integer"},
        target=HttpTarget(url, {"X-Key": "s3cret"}, 3.0) if url else None,
    )


def version(number: int, *paths: str, service: str = "docs", url: str = "") -> VersionSpec:
    return VersionSpec(
        number, tuple(spec(path, service=service, version=number, url=url) for path in paths)
    )


put = partial(services.put, services_max=10)
list_services = partial(services.list_services, after="", limit=10)
UPSTREAM = version(1, "/x", url="https://upstream.example")


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test services", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


@pytest.fixture
async def said(connection: AsyncpgConnection) -> list[str]:
    """What was said of services, as it is heard."""
    heard: list[str] = []
    await connection.add_listener(SERVICES, lambda *told: heard.append(str(told[3])))
    return heard


async def versions_of(
    line: Connection, org: str = "acme", service: str = "docs"
) -> dict[int, list[str]]:
    found = (await find(line, [(org, service)])).get((org, service))
    assert found is not None
    return {
        number: [endpoint.path for endpoint in each.endpoints]
        for number, each in found.versions.items()
    }


async def test_what_is_published_comes_back_whole(line: Connection) -> None:
    await publish(line, {"docs": [version(1, "/a", "/b")]})
    found = await find(line, [("acme", "docs"), ("other", "docs"), ("acme", "absent")])
    assert found.keys() == {("acme", "docs"), ("other", "docs")}
    service = found["acme", "docs"]
    assert service.versions == {1: version(1, "/a", "/b")}
    assert (service.org, service.workspace, service.source) == ("", "default", "code")
    assert found["other", "docs"] is service


async def test_a_worker_of_one_version_leaves_the_others_alone(line: Connection) -> None:
    await publish(line, {"docs": [version(1, "/a")]})
    await publish(line, {"docs": [version(2, "/a", "/b")]})
    assert await versions_of(line) == {1: ["/a"], 2: ["/a", "/b"]}


async def test_workers_of_one_version_publish_it_together(line: Connection) -> None:
    await publish(line, {"docs": [version(1, "/a", "/b")]})
    await publish(line, {"docs": [version(1, "/c")]})
    assert {number: sorted(paths) for number, paths in (await versions_of(line)).items()} == {
        1: ["/a", "/b", "/c"]
    }


async def test_only_what_differs_is_written_and_told(line: Connection, said: list[str]) -> None:
    services = {
        "docs": [version(1, "/a"), version(2, "/a")],
        "more": [version(1, "/m", service="more")],
    }
    await publish(line, services)
    before = await list_code(line)
    await publish(line, services)
    await publish(line, {"docs": [version(2, "/a")]})
    assert await list_code(line) == before
    await publish(line, services | {"more": [version(1, "/m", "/n", service="more")]})

    async def third() -> bool:
        return len(said) >= 3

    await eventually_async(third, "the third change is heard")
    assert sorted(said[:2]) == ["/docs", "/more"]
    assert said[2:] == ["/more"]


async def test_two_workers_that_publish_crosswise_do_not_deadlock(
    dsn: str, line: Connection, connection: AsyncpgConnection
) -> None:
    names = ["a", "b", "c"]
    await publish(line, {name: [version(1, "/x", service=name)] for name in names})
    rival = Connection(dsn, name="test rival")
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM services WHERE service_id = 'b' FOR UPDATE")
            changed = {name: [version(1, "/y", service=name)] for name in names}
            first = asyncio.create_task(publish(line, changed))
            await until_blocked(connection, "coatcheck test services")
            # Would hold c and wait for a, were it to write in the order that it was given.
            second = asyncio.create_task(publish(rival, dict(reversed(changed.items()))))
            await until_blocked(connection, "coatcheck test rival")
        assert await first < await second
        for name in names:
            assert sorted((await versions_of(line, service=name))[1]) == ["/x", "/y"]
    finally:
        await rival.close()


async def test_an_organisations_own_service_goes_before_codes(line: Connection) -> None:
    assert await put(line, "acme", "default", "docs", [UPSTREAM]) is not None
    await publish(line, {"docs": [version(1, "/code")]})
    assert await versions_of(line, "acme") == {1: ["/x"]}
    assert await versions_of(line, "other") == {1: ["/code"]}


async def test_a_name_that_code_has_cannot_be_registered(line: Connection) -> None:
    await publish(line, {"docs": [version(1, "/code")]})
    assert await put(line, "acme", "default", "docs", [UPSTREAM]) is None
    assert await versions_of(line) == {1: ["/code"]}


async def test_a_registration_replaces_the_whole_service(line: Connection) -> None:
    first = await put(
        line, "acme", "default", "docs", [UPSTREAM, version(2, "/y", url="https://b")]
    )
    again = await put(line, "acme", "default", "docs", [version(3, "/z", url="https://c")])
    assert first is not None
    assert again is not None
    assert (again.org, again.source) == ("acme", "http")
    assert again.created_at == first.created_at
    assert again.updated_at > first.updated_at
    assert again.versions == {3: version(3, "/z", url="https://c")}
    assert await versions_of(line) == {3: ["/z"]}


async def test_a_service_stays_in_its_workspace(line: Connection) -> None:
    await put(line, "acme", "one", "docs", [UPSTREAM])
    assert await put(line, "acme", "two", "docs", [UPSTREAM]) is None
    assert not await delete(line, "acme", "docs", "two")
    assert await put(line, "other", "two", "docs", [UPSTREAM]) is not None
    assert await delete(line, "acme", "docs", "one")
    assert await put(line, "acme", "two", "docs", [UPSTREAM]) is not None


async def test_nobody_can_delete_anothers_service_or_codes(line: Connection) -> None:
    await publish(line, {"docs": [version(1, "/code")]})
    await put(line, "acme", "default", "mine", [UPSTREAM])
    assert not await delete(line, "other", "mine", None)
    assert not await delete(line, "acme", "docs", None)
    assert not await delete(line, "", "docs", None)
    assert await delete(line, "acme", "mine", None)
    assert not await delete(line, "acme", "mine", None)
    assert [service.service for service in await list_services(line, "acme", None)] == ["docs"]


async def test_registering_and_deleting_are_told(line: Connection, said: list[str]) -> None:
    await put(line, "acme", "default", "docs", [UPSTREAM])
    await delete(line, "acme", "docs", None)
    await delete(line, "acme", "docs", None)

    async def second() -> bool:
        return len(said) >= 2

    await eventually_async(second, "the second change is heard")
    assert said == ["acme/docs", "acme/docs"]


async def test_an_organisation_lists_its_own_services_and_codes(line: Connection) -> None:
    await put(line, "acme", "lab", "docs", [UPSTREAM])
    await put(line, "acme", "default", "mine", [UPSTREAM])
    await put(line, "other", "default", "theirs", [UPSTREAM])
    await publish(line, {"docs": [version(1, "/code")], "more": [version(1, "/m", service="more")]})

    async def names(org: str, workspace: str | None) -> list[tuple[str, str]]:
        return [
            (service.service, service.source)
            for service in await list_services(line, org, workspace)
        ]

    assert await names("acme", None) == [("docs", "http"), ("mine", "http"), ("more", "code")]
    assert await names("acme", "lab") == [("docs", "http")]
    assert await names("other", None) == [("docs", "code"), ("more", "code"), ("theirs", "http")]


async def test_one_listed_by_workspace_is_not_shadowed_by_code(line: Connection) -> None:
    """What a name means to an organisation is its own service, in whatever workspace."""
    await put(line, "acme", "lab", "docs", [UPSTREAM])
    await publish(line, {"docs": [version(1, "/code")]})
    assert await list_services(line, "acme", "default") == []


async def test_code_belongs_to_everybody_by_constraint(connection: AsyncpgConnection) -> None:
    for org, source in (("acme", "code"), ("", "http")):
        with pytest.raises(CheckViolationError):
            await connection.execute(
                "INSERT INTO services (org_id, service_id, workspace_id, source, definition)"
                " VALUES ($1, 'docs', 'default', $2, '{}')",
                org,
                source,
            )
