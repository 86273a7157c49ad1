"""Secrets of registered services: where they are not, who opens them, and how keys are rotated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from coatcheck import Engine, Settings
from coatcheck.core import service_secrets
from coatcheck.core.catalogue import Catalogue
from coatcheck.core.queries import service_secrets as store
from coatcheck.core.queries import services, sql
from coatcheck.core.service_secrets import Resealer, ServiceSecrets
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.database import Database
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT, ServiceDefinition, ServiceSpec
from coatcheck.domain.errors import InvalidInput, SealingKeyMissing, SecretsLost
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import explain_query
from tests.db.rows import holding, recorded

OLD, NEW = "o" * 32, "n" * 32
URL = "https://upstream.example"
SECRET = "canary-of-a-header"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, secret_keys=(OLD,))


@pytest.fixture
async def catalogue(settings: Settings) -> AsyncIterator[Catalogue]:
    async with Database.of_engine(settings.database_url) as database:
        opened = Catalogue(settings, database)
        yield opened
        await opened.close()


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test secrets", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is read again."""
    monkeypatch.setattr(service_secrets, "KNOWN_SECONDS", 0.0)


def definition(secret: str = SECRET, url: str = URL, path: str = "/a") -> ServiceDefinition:
    target = {"type": "http", "url": url, "headers": {"X-Key": secret}}
    endpoints = [{"method": "POST", "path": path, "target": target}]
    return msgspec.convert({"versions": {"1": {"endpoints": endpoints}}}, ServiceDefinition)


def named(spec: ServiceSpec) -> str:
    """The id of its endpoint's secrets."""
    target = spec.endpoints[0].target
    assert target is not None
    return target.secrets_id


async def opened(settings: Settings, spec: ServiceSpec, org: str = "acme") -> str:
    async with Database.of_engine(settings.database_url) as database:
        return (await ServiceSecrets(settings, database.read).find(org, named(spec))).values[
            "X-Key"
        ]


async def test_a_spec_names_its_secrets_and_holds_none(
    catalogue: Catalogue, settings: Settings, connection: AsyncpgConnection
) -> None:
    await catalogue.put("acme", "default", "docs", definition())
    found = await catalogue.find("acme", "docs")
    assert found is not None
    assert found.endpoints[0].hidden == {"X-Key": "***"}
    stored = await connection.fetchrow("SELECT s.*, v.* FROM services s, service_secrets v")
    assert SECRET not in repr((found, stored))
    assert await opened(settings, found) == SECRET
    again = await catalogue.put("acme", "default", "docs", found.definition)
    assert again.versions == found.versions
    assert await opened(settings, again) == SECRET


async def test_a_service_with_secrets_needs_a_key_and_one_without_needs_none(
    settings: Settings, connection: AsyncpgConnection
) -> None:
    async with Database.of_engine(settings.database_url) as database:
        keyless = Catalogue(replace(settings, secret_keys=()), database)
        with pytest.raises(SealingKeyMissing, match="COATCHECK_SECRET_KEYS"):
            await keyless.put("acme", "default", "docs", definition())
        assert await connection.fetchval("SELECT count(*) FROM services") == 0
        target = {"type": "http", "url": URL}
        endpoint = {"method": "POST", "path": "/a", "target": target}
        plain = msgspec.convert({"versions": {"1": {"endpoints": [endpoint]}}}, ServiceDefinition)
        assert named(await keyless.put("acme", "default", "docs", plain)) == ""


async def test_values_that_are_replaced_are_what_is_found_from_then_on(
    catalogue: Catalogue, settings: Settings
) -> None:
    first = await catalogue.put("acme", "default", "docs", definition())
    await catalogue.put("acme", "default", "docs", definition("another"))
    assert await opened(settings, first) == "another"


async def test_secrets_of_an_address_that_was_left_are_still_there_for_jobs_of_before(
    catalogue: Catalogue, settings: Settings
) -> None:
    before = await catalogue.put("acme", "default", "docs", definition())
    after = await catalogue.put("acme", "default", "docs", definition("new", "https://b.example"))
    assert (await opened(settings, before), await opened(settings, after)) == (SECRET, "new")
    await catalogue.delete("acme", "docs")
    assert await opened(settings, after) == "new"


@contextmanager
def lost() -> Iterator[None]:
    with pytest.raises(SecretsLost):
        yield


async def test_another_organisations_row_does_not_open_with_ours(
    catalogue: Catalogue, settings: Settings, connection: AsyncpgConnection
) -> None:
    ours = await catalogue.put("acme", "default", "docs", definition())
    theirs = await catalogue.put("globex", "default", "docs", definition("theirs"))
    with lost():
        await opened(settings, ours, org="globex")
    await connection.execute(
        "UPDATE service_secrets SET sealed = (SELECT sealed FROM service_secrets"
        " WHERE org_id = 'acme') WHERE org_id = 'globex'"
    )
    with lost():
        await opened(settings, theirs, org="globex")
    # Nor as a row of its own that has our id.
    await connection.execute(
        "UPDATE service_secrets SET id = $1 WHERE org_id = 'globex'", named(ours)
    )
    with lost():
        await opened(settings, ours, org="globex")
    assert await opened(settings, ours) == SECRET


@pytest.mark.parametrize(
    "garble", ["left(sealed, -3)", "sealed || 'A'", "replace(sealed, 'v1', 'v2')", "''", "'{}'"]
)
async def test_what_was_garbled_is_refused_and_may_be_given_again(
    catalogue: Catalogue, settings: Settings, connection: AsyncpgConnection, garble: str
) -> None:
    spec = await catalogue.put("acme", "default", "docs", definition())
    await connection.execute(f"UPDATE service_secrets SET sealed = {garble}")
    with lost():
        await opened(settings, spec)
    with pytest.raises(InvalidInput, match="the hidden value is unknown"):
        await catalogue.put("acme", "default", "docs", spec.definition)
    await catalogue.put("acme", "default", "docs", definition())
    assert await opened(settings, spec) == SECRET


async def test_a_key_that_is_missing_is_named_and_comes_back(
    catalogue: Catalogue, settings: Settings
) -> None:
    spec = await catalogue.put("acme", "default", "docs", definition())
    for keys in ((), (NEW,)):
        with pytest.raises(SealingKeyMissing, match="COATCHECK_SECRET_KEYS"):
            await opened(replace(settings, secret_keys=keys), spec)
    assert await opened(replace(settings, secret_keys=(NEW, OLD)), spec) == SECRET


async def test_keys_are_rotated_in_small_steps_and_the_old_one_can_go(
    catalogue: Catalogue, settings: Settings, line: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_secrets, "RESEALED_ROWS_MAX", 2)
    specs = [
        await catalogue.put("acme", "default", f"docs{number}", definition(f"secret-{number}"))
        for number in range(5)
    ]
    both = replace(settings, secret_keys=(NEW, OLD))
    resealer = Resealer(both, line)
    before = await resealer.state()
    assert (before.current, before.old, before.is_done) == (0, 5, False)
    assert await resealer.reseal() == 5
    after = await resealer.state()
    assert (after.current, after.old, after.is_done) == (5, 0, True)
    assert await resealer.reseal() == 0
    only_new = replace(settings, secret_keys=(NEW,))
    assert [await opened(only_new, spec) for spec in specs] == [f"secret-{n}" for n in range(5)]
    lacking = await Resealer(settings, line).state()
    assert [*lacking.locked.values()] == [5]


async def test_a_row_that_cannot_be_opened_does_not_keep_others_from_being_sealed_anew(
    catalogue: Catalogue,
    settings: Settings,
    line: Connection,
    connection: AsyncpgConnection,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_secrets, "RESEALED_ROWS_MAX", 1)
    for org in ("a", "b", "c"):
        await catalogue.put(org, "default", "docs", definition())
    await connection.execute(
        "UPDATE service_secrets SET sealed = sealed || 'AA' WHERE org_id = 'b'"
    )
    resealer = Resealer(replace(settings, secret_keys=(NEW, OLD)), line)
    assert [await resealer.reseal(), await resealer.reseal()] == [2, 0]
    state = await resealer.state()
    assert (state.current, state.old) == (2, 1)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "a sealed secret cannot be opened: its service has to be registered again"
    ]


async def test_a_registration_during_a_rotation_is_not_undone(
    catalogue: Catalogue, settings: Settings, line: Connection
) -> None:
    spec = await catalogue.put("acme", "default", "docs", definition())
    resealer = Resealer(replace(settings, secret_keys=(NEW, OLD)), line)
    (key_id,) = Resealer(settings, line).sealer.key_ids
    ((key, text),) = await store.sealed_with(line, key_id, ("", UUID(int=0)), 10)
    anew = resealer.sealer.resealed(*key, text)
    await catalogue.put("acme", "default", "docs", definition("newer"))
    assert await store.reseal(line, [anew]) == 0
    assert await opened(settings, spec) == "newer"


async def test_a_value_that_is_replaced_meanwhile_is_not_undone_by_one_who_keeps_it(
    catalogue: Catalogue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await catalogue.put("acme", "default", "docs", definition())
    find = store.find

    async def replaced_right_after(*arguments: Any) -> Any:
        found = await find(*arguments)
        monkeypatch.setattr(store, "find", find)
        await catalogue.put("acme", "default", "docs", definition("newer"))
        return found

    monkeypatch.setattr(store, "find", replaced_right_after)
    again = await catalogue.put("acme", "default", "docs", first.definition)
    assert await opened(settings, again) == "newer"


async def unseal(connection: AsyncpgConnection, secret: str = SECRET) -> None:
    """Make the stored definitions what they were before secrets were sealed."""
    await connection.execute(
        """
        UPDATE services SET definition = jsonb_set(
            definition #- '{versions,1,endpoints,0,target,secrets_id}',
            '{versions,1,endpoints,0,target,headers,X-Key}', to_jsonb($1::text)
        )
        """,
        secret,
    )
    await connection.execute("DELETE FROM service_secrets")


async def test_definitions_of_before_are_sealed_without_being_registered_again(
    catalogue: Catalogue, settings: Settings, line: Connection, connection: AsyncpgConnection
) -> None:
    spec = await catalogue.put("acme", "default", "docs", definition())
    await unseal(connection)
    keyless = Resealer(replace(settings, secret_keys=()), line)
    assert (await keyless.seal_plain(), (await keyless.state()).plain) == (0, 1)
    resealer = Resealer(settings, line)
    assert [await resealer.seal_plain(), await resealer.seal_plain()] == [1, 0]
    state = await resealer.state()
    assert (state.plain, state.current, state.is_done) == (0, 1, True)
    assert SECRET not in await connection.fetchval("SELECT definition::text FROM services")
    assert await catalogue.find("acme", "docs") == spec
    assert await opened(settings, spec) == SECRET


async def test_one_definition_that_cannot_be_sealed_does_not_keep_others_from_it(
    catalogue: Catalogue, settings: Settings, line: Connection, connection: AsyncpgConnection
) -> None:
    """An older server may have written a hidden value that nothing is stored of."""
    await catalogue.put("acme", "default", "docs", definition())
    await unseal(connection, "***")
    await connection.execute("UPDATE services SET org_id = 'a before all others'")
    await catalogue.put("acme", "default", "docs", definition())
    await connection.execute(
        """
        UPDATE services SET definition = jsonb_set(
            definition #- '{versions,1,endpoints,0,target,secrets_id}',
            '{versions,1,endpoints,0,target,headers,X-Key}', to_jsonb($1::text)
        ) WHERE org_id = 'acme'
        """,
        SECRET,
    )
    assert await Resealer(settings, line).seal_plain() == 1


async def test_what_was_registered_while_it_was_being_sealed_stays(
    catalogue: Catalogue, settings: Settings, line: Connection, connection: AsyncpgConnection
) -> None:
    await catalogue.put("acme", "default", "docs", definition())
    await unseal(connection)
    ((plain, before),) = await services.unsealed(line, 10)
    spec = await catalogue.put("acme", "default", "docs", definition("newer"))
    assert not await services.seal(line, plain, before, spec.versions.values(), [])
    assert await opened(settings, spec) == "newer"


async def pruned(line: Connection, grace_seconds: float = -1.0) -> int:
    found = await store.prune(line, UPSTREAM_ENDPOINT, grace_seconds=grace_seconds, rows_max=10)
    assert found.last is None
    return found.removed


async def submit(engine: Engine, **options: Any) -> str:
    ticket = await engine.submit(
        UPSTREAM_ENDPOINT, b"{}", org="acme", queue_key="docs.v1.post__a", **options
    )
    return ticket.id


@pytest.mark.parametrize("options", [{}, {"delay": 3600.0}])
async def test_retired_secrets_stay_until_the_last_job_of_before_has_ended(
    catalogue: Catalogue,
    engine: Engine,
    line: Connection,
    connection: AsyncpgConnection,
    options: Any,
) -> None:
    await catalogue.put("acme", "default", "docs", definition())
    await catalogue.put("acme", "default", "docs", definition(path="/kept"))
    job_id = await submit(engine, **options)
    await connection.execute("UPDATE jobs SET created_at = now() - interval '1 hour'")
    assert await pruned(line) == 0
    await engine.cancel(job_id, org="acme")
    assert await pruned(line) == 1
    assert await connection.fetchval("SELECT endpoint_id FROM service_secrets") == (
        "docs.v1.post__kept"
    )


async def test_retired_secrets_stay_while_a_job_that_needs_them_is_held(
    catalogue: Catalogue, engine: Engine, line: Connection, connection: AsyncpgConnection
) -> None:
    await catalogue.put("acme", "default", "docs", definition())
    await submit(engine)
    await catalogue.delete("acme", "docs")
    async with holding(connection):
        await connection.execute(
            "UPDATE jobs SET state = 'dispatching', lease = 7::bigint << 40,"
            " created_at = now() - interval '1 hour'"
        )
    assert await pruned(line) == 0
    await connection.execute("DELETE FROM jobs")
    assert await pruned(line) == 1


async def test_jobs_of_after_do_not_keep_what_was_retired_before(
    catalogue: Catalogue, engine: Engine, line: Connection
) -> None:
    await catalogue.put("acme", "default", "docs", definition())
    await catalogue.delete("acme", "docs")
    await submit(engine)
    assert await pruned(line, grace_seconds=3600.0) == 0
    assert await pruned(line) == 1


async def test_a_run_that_goes_on_keeps_what_its_tasks_are_sent_with(
    catalogue: Catalogue, line: Connection, connection: AsyncpgConnection
) -> None:
    spec = await catalogue.put("acme", "default", "docs", definition())
    await catalogue.delete("acme", "docs")
    await connection.execute(
        """
        INSERT INTO runs (org_id, id, group_id, number, lane, endpoint, service, service_endpoint,
            secrets_id)
        VALUES ('acme', uuidv7(), uuidv7(), 1, 'bulk', $1, 'docs', 'post__a', $2)
        """,
        UPSTREAM_ENDPOINT,
        named(spec),
    )
    assert await pruned(line) == 0
    await connection.execute("UPDATE runs SET total = 0, latched_at = now(), completed_at = now()")
    assert await pruned(line) == 1


async def test_retired_secrets_are_looked_at_page_by_page_by_index(
    catalogue: Catalogue, engine: Engine, line: Connection, connection: AsyncpgConnection
) -> None:
    """One that is still needed does not hide those behind it."""
    for number in range(3):
        await catalogue.put("acme", "default", f"docs{number}", definition())
        await catalogue.delete("acme", f"docs{number}")
    await engine.submit(UPSTREAM_ENDPOINT, b"{}", org="acme", queue_key="docs0.v1.post__a")
    await connection.execute("UPDATE jobs SET created_at = now() - interval '1 hour'")
    removed, after = [], None
    for _ in range(4):
        page = await store.prune(
            line, UPSTREAM_ENDPOINT, grace_seconds=-1.0, rows_max=1, after=after
        )
        removed.append(page.removed)
        after = page.last
    assert (removed, after) == ([0, 1, 1, 0], None)


async def test_a_prune_reads_the_jobs_of_those_it_looks_at_and_no_others(
    catalogue: Catalogue, connection: AsyncpgConnection
) -> None:
    await connection.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload, created_at)
        SELECT 'other' || n % 10, uuidv7(), 'bulk', $1, 'docs.v1.post__a', 0, '{}',
               now() - interval '1 hour'
        FROM generate_series(1, 2000) AS n
        """),
        UPSTREAM_ENDPOINT,
    )
    await catalogue.put("acme", "default", "docs", definition())
    await catalogue.delete("acme", "docs")
    for name, value in PINNED_PLANS.items():
        await connection.execute(f"SET {name} = {value}")
    plan = await explain_query(
        connection,
        sql,
        "service_secrets/prune",
        grace_seconds=-1.0,
        endpoint=UPSTREAM_ENDPOINT,
        rows_max=10,
        after_at="2000-01-01",
        after_org="",
        after_id=UUID(int=0),
    )
    assert plan.rows_read("jobs") == 0
    assert plan.indexes("jobs", "queue") == {"queue_order", "jobs_pkey"}
    assert plan.indexes("postponed") == {"postponed_pkey"}
    assert plan.indexes("claims") == {"claims_held"}
