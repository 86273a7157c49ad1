"""The catalogue's cache: what it knows, and how it learns that it no longer does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from coatcheck import Service, Settings
from coatcheck.core import catalogue as catalogue_module
from coatcheck.core.catalogue import UNKNOWN, Catalogue
from coatcheck.core.queries import services as service_store
from coatcheck.db.connection import Connection
from coatcheck.db.database import Database
from coatcheck.db.notifications import SERVICES
from coatcheck.domain.catalogue import ServiceDefinition, ServiceSpec
from coatcheck.domain.errors import InvalidInput, InvalidParameter, ServiceNameTaken
from tests.db.blocking import until_blocked
from tests.db.edge_guard import AsyncpgConnection
from tests.db.publishing import publish
from tests.waiting import eventually_async

TARGET = {"type": "http", "url": "https://upstream.example"}


def definition(*paths: str, headers: dict[str, str] | None = None) -> ServiceDefinition:
    endpoints = [
        {"method": "POST", "path": path, "target": {**TARGET, "headers": headers or {}}}
        for path in paths
    ]
    return msgspec.convert({"versions": {"1": {"endpoints": endpoints}}}, ServiceDefinition)


def paths(found: Any) -> list[str]:
    assert isinstance(found, ServiceSpec)
    return [spec.path for spec in found.endpoints]


async def publish_code(dsn: str, *paths: str) -> None:
    docs = Service("docs")
    for path in paths:

        @docs.post(path)
        async def handle() -> None: ...

    line = Connection(dsn, name="test publisher")
    try:
        await publish(line, {"docs": [docs.spec]})
    finally:
        await line.close()


@pytest.fixture
async def catalogue(settings: Settings) -> AsyncIterator[Catalogue]:
    async with Database.of_engine(settings.database_url) as database:
        opened = Catalogue(settings, database)
        yield opened
        await opened.close()


@pytest.fixture
async def told_catalogue(settings: Settings) -> AsyncIterator[Catalogue]:
    """Another replica's, that hears of changes."""
    async with Database.of_engine(settings.database_url) as database:
        opened = Catalogue(settings, database)
        subscription = database.listener.subscribe(
            {SERVICES: opened.on_notification}, on_gap=opened.forget_all
        )
        await subscription.start()
        await subscription.listening()
        yield opened
        await subscription.stop()
        await opened.close()


async def test_what_was_found_is_known_without_asking_again(
    catalogue: Catalogue, connection: AsyncpgConnection
) -> None:
    await catalogue.put("acme", "default", "docs", definition("/a"))
    assert catalogue.find_now("acme", "docs") is UNKNOWN
    found = await catalogue.find("acme", "docs")
    await connection.execute("DELETE FROM services")  # without a word
    assert paths(found) == ["/a"]
    assert catalogue.find_now("acme", "docs") is found
    assert await catalogue.find("acme", "docs") is found
    catalogue.forget_all()
    assert await catalogue.find("acme", "docs") is None


async def test_what_is_known_is_asked_again_after_its_time(
    catalogue: Catalogue, connection: AsyncpgConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hint may be lost; nothing stays wrong for ever."""
    monkeypatch.setattr(catalogue_module, "KNOWN_SECONDS", -1.0)
    await catalogue.put("acme", "default", "docs", definition("/a"))
    assert paths(await catalogue.find("acme", "docs")) == ["/a"]
    await connection.execute("DELETE FROM services")
    assert catalogue.find_now("acme", "docs") is UNKNOWN
    assert await catalogue.find("acme", "docs") is None


async def test_what_is_absent_is_known_too_but_not_for_long(
    dsn: str, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await catalogue.find("acme", "docs") is None
    assert catalogue.find_now("acme", "docs") is None
    monkeypatch.setattr(catalogue_module, "ABSENT_SECONDS", -1.0)
    catalogue.forget_all()
    assert await catalogue.find("acme", "docs") is None
    await publish_code(dsn, "/a")
    assert paths(await catalogue.find("acme", "docs")) == ["/a"]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 64, "nul\0", "é"])
async def test_what_cannot_be_a_name_names_nothing_and_fills_no_cache(
    catalogue: Catalogue, name: str
) -> None:
    assert await catalogue.find("acme", name) is None
    assert catalogue.find_now("acme", name) is UNKNOWN
    assert not await catalogue.delete("acme", name)


async def test_another_replica_hears_of_every_change(
    dsn: str, catalogue: Catalogue, told_catalogue: Catalogue
) -> None:
    async def heard() -> bool:
        return told_catalogue.find_now("acme", "docs") is UNKNOWN

    assert await told_catalogue.find("acme", "docs") is None
    await catalogue.put("acme", "default", "docs", definition("/a"))
    await eventually_async(heard, "the registration is heard of")
    assert paths(await told_catalogue.find("acme", "docs")) == ["/a"]
    await catalogue.put("acme", "default", "docs", definition("/b"))
    await eventually_async(heard, "the change is heard of")
    assert paths(await told_catalogue.find("acme", "docs")) == ["/b"]
    await catalogue.delete("acme", "docs")
    await eventually_async(heard, "the end is heard of")
    assert await told_catalogue.find("acme", "docs") is None
    await publish_code(dsn, "/code")
    await eventually_async(heard, "the worker is heard of")
    assert paths(await told_catalogue.find("acme", "docs")) == ["/code"]


async def test_a_hint_forgets_what_it_names_and_nothing_else(
    dsn: str, catalogue: Catalogue
) -> None:
    await publish_code(dsn, "/code")
    for org in ("acme", "other"):
        await catalogue.put(org, "default", "mine", definition("/a"))

    async def known() -> set[tuple[str, str]]:
        pairs = [(org, name) for org in ("acme", "other") for name in ("docs", "mine")]
        left = {pair for pair in pairs if catalogue.find_now(*pair) is not UNKNOWN}
        for pair in pairs:
            await catalogue.find(*pair)
        return left

    await known()
    catalogue.on_notification("acme/mine")
    assert await known() == {("acme", "docs"), ("other", "docs"), ("other", "mine")}
    catalogue.on_notification("/docs")
    assert await known() == {("acme", "mine"), ("other", "mine")}
    catalogue.on_notification("acme/docs,other/mine")
    assert await known() == {("acme", "mine"), ("other", "docs")}
    catalogue.on_notification("")
    assert await known() == set()


async def test_a_change_heard_during_a_read_keeps_its_answer_out_of_the_cache(
    catalogue: Catalogue, connection: AsyncpgConnection
) -> None:
    await catalogue.put("acme", "default", "docs", definition("/a"))
    async with connection.transaction():
        await connection.execute("LOCK TABLE services IN ACCESS EXCLUSIVE MODE")
        reading = asyncio.create_task(catalogue.find("acme", "docs"))
        await until_blocked(connection, "coatcheck pool")
        catalogue.on_notification("acme/docs")
    await reading
    assert catalogue.find_now("acme", "docs") is UNKNOWN


async def test_misses_that_come_together_share_a_statement(
    catalogue: Catalogue, connection: AsyncpgConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await catalogue.put("acme", "default", "docs", definition("/a"))
    statements: list[int] = []
    real = service_store.find

    async def counted(line: Connection, keys: Any) -> Any:
        statements.append(len(keys))
        return await real(line, keys)

    monkeypatch.setattr(service_store, "find", counted)
    async with connection.transaction():
        await connection.execute("LOCK TABLE services IN ACCESS EXCLUSIVE MODE")
        first = asyncio.create_task(catalogue.find("acme", "docs"))
        await until_blocked(connection, "coatcheck pool")
        others = [
            asyncio.create_task(catalogue.find(org, "docs")) for org in ["acme", "other"] * 50
        ]
        await asyncio.sleep(0)  # each of them asks
    found = await asyncio.gather(first, *others)
    assert statements == [1, 2]
    assert [each is not None for each in found] == [True, *[True, False] * 50]


async def test_what_was_learned_first_goes_first_when_there_is_no_more_room(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue_module, "ENTRIES_MAX", 2)
    for name in ("one", "two", "three"):
        await catalogue.find("acme", name)
    assert catalogue.find_now("acme", "one") is UNKNOWN
    assert catalogue.find_now("acme", "two") is None
    assert catalogue.find_now("acme", "three") is None


async def test_all_organisations_share_one_object_of_codes_service(
    dsn: str, catalogue: Catalogue
) -> None:
    await publish_code(dsn, "/code")
    first = await catalogue.find("acme", "docs")
    second = await catalogue.find("other", "docs")
    assert first is second
    assert first is not None
    await publish_code(dsn, "/code", "/more")
    catalogue.on_notification("/docs")
    assert paths(await catalogue.find("acme", "docs")) == ["/code", "/more"]


async def test_a_name_that_code_or_another_workspace_has_is_refused(
    dsn: str, catalogue: Catalogue
) -> None:
    await publish_code(dsn, "/code")
    with pytest.raises(ServiceNameTaken):
        await catalogue.put("acme", "default", "docs", definition("/a"))
    await catalogue.put("acme", "one", "mine", definition("/a"))
    with pytest.raises(ServiceNameTaken):
        await catalogue.put("acme", "two", "mine", definition("/a"))


async def test_a_bad_name_or_definition_is_refused_and_changes_nothing(
    catalogue: Catalogue,
) -> None:
    for service, workspace in (("gateway", "default"), ("a b", "default"), ("docs", "nul\0")):
        with pytest.raises(InvalidParameter):
            await catalogue.put("acme", workspace, service, definition("/a"))
    with pytest.raises(InvalidInput):
        await catalogue.put("acme", "default", "docs", definition("/jobs"))
    assert await catalogue.list("acme") == []


async def test_a_list_is_of_one_workspace_or_of_all(dsn: str, catalogue: Catalogue) -> None:
    await publish_code(dsn, "/code")
    await catalogue.put("acme", "lab", "mine", definition("/a"))
    assert [each.service for each in await catalogue.list("acme")] == ["docs", "mine"]
    assert [each.service for each in await catalogue.list("acme", "lab")] == ["mine"]
    assert [each.service for each in await catalogue.list("acme", "default")] == ["docs"]
    assert await catalogue.list("acme", "nul\0") == []


async def test_what_is_remembered_is_bounded_by_its_endpoints(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue_module, "ENDPOINTS_MAX", 3)
    for name in ("one", "two", "three", "four"):
        await catalogue.put("acme", "default", name, definition("/a"))
        await catalogue.find("acme", name)
    remembered = {
        name: catalogue.find_now("acme", name) is not UNKNOWN
        for name in ("one", "two", "three", "four")
    }
    assert remembered == {"one": False, "two": True, "three": True, "four": True}
    catalogue.on_notification("acme/two")
    await catalogue.find("acme", "one")
    assert catalogue.find_now("acme", "three") is not UNKNOWN


async def test_services_that_are_asked_for_together_are_read_in_small_groups(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue_module, "READ_SERVICES_MAX", 2)
    names = ["one", "two", "three", "four", "five"]
    for name in names:
        await catalogue.put("acme", "default", name, definition("/a"))
    found = await asyncio.gather(*(catalogue.find("acme", name) for name in [*names, "six"]))
    assert [each and each.service for each in found] == [*names, None]
