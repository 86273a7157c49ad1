"""Organisations and keys as they are stored: each statement within its organisation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from coatcheck.core.queries import sql, tenants
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain import tenants as api_keys
from coatcheck.domain.tenants import USER_SCOPES, OrgLimits, RateLimit, Scope, StoredApiKey
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import explain_query

DIGEST = bytes(range(32))


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test")
    yield opened
    await opened.close()


async def make_key(line: Connection, org: str, **options: Any) -> StoredApiKey | None:
    given = {"user": "ada", "name": "", "digest": DIGEST, "scopes": USER_SCOPES} | options
    key_id = given.pop("key_id", None) or api_keys.mint().key_id
    return await tenants.create_key(line, org, key_id, **given)


async def test_an_organisation_comes_with_a_workspace_and_an_id_is_given_once(
    line: Connection, connection: AsyncpgConnection
) -> None:
    limits = OrgLimits(RateLimit(5, 60), 7)
    created = await tenants.create_org(line, "acme", "Acme", limits)
    assert created is not None
    assert (created.org_id, created.name, created.limits) == ("acme", "Acme", limits)
    assert created.subscription == "active"
    assert await tenants.create_org(line, "acme", "Other", OrgLimits()) is None
    assert await tenants.list_orgs(line) == [created]
    assert await tenants.find_orgs(line, ["acme", "nobody"]) == {"acme": created}
    workspaces = await connection.fetch("SELECT org_id, workspace_id FROM workspaces")
    assert [tuple(row) for row in workspaces] == [("acme", "default")]


async def test_a_key_needs_an_organisation(line: Connection, connection: AsyncpgConnection) -> None:
    assert await make_key(line, "nobody") is None
    assert await connection.fetchval("SELECT count(*) FROM users") == 0


async def test_what_is_revoked_stays_revoked_and_keeps_its_first_time(line: Connection) -> None:
    await tenants.create_org(line, "acme", "", OrgLimits())
    key = await make_key(line, "acme")
    assert key is not None
    assert await tenants.revoke(line, "acme", key.key_id)
    first = await tenants.get_key(line, "acme", key.key_id)
    assert await tenants.revoke(line, "acme", key.key_id)
    assert await tenants.get_key(line, "acme", key.key_id) == first
    # A creation that is sent again because its answer was lost does not undo it.
    again = await make_key(line, "acme", key_id=key.key_id)
    assert again == first
    assert await tenants.find_keys(line, [key.key_id]) == []


async def test_one_organisations_keys_are_out_of_anothers_reach(line: Connection) -> None:
    for org in ("acme", "other"):
        await tenants.create_org(line, org, "", OrgLimits())
    key = await make_key(line, "acme")
    assert key is not None
    assert await tenants.get_key(line, "other", key.key_id) is None
    assert not await tenants.revoke(line, "other", key.key_id)
    assert not await tenants.reset_key(line, "other", key.key_id, DIGEST)
    assert await tenants.list_keys(line, "other", after=None, limit=10) == []
    assert [found.key_id for found in await tenants.find_keys(line, [key.key_id])] == [key.key_id]


async def test_the_databases_clock_decides_when_a_key_ends(
    line: Connection, connection: AsyncpgConnection
) -> None:
    await tenants.create_org(line, "acme", "", OrgLimits())
    key = await make_key(line, "acme", seconds_to_live=3600)
    assert key is not None
    [found] = await tenants.find_keys(line, [key.key_id])
    assert found.seconds_left is not None
    assert 3500 < found.seconds_left <= 3600
    await connection.execute("UPDATE api_keys SET expires_at = now()")
    assert await tenants.find_keys(line, [key.key_id]) == []


async def test_a_key_whose_answer_was_lost_is_there_once(dsn: str, line: Connection) -> None:
    await tenants.create_org(line, "acme", "", OrgLimits())
    first = await make_key(line, "acme", key_id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    again = await make_key(line, "acme", key_id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert first == again
    assert len(await tenants.list_keys(line, "acme", after=None, limit=10)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"digest": b"short"},
        {"rate": RateLimit(0, 1)},
        {"rate": RateLimit(1, 0)},
    ],
)
async def test_a_row_that_makes_no_sense_cannot_be_written(
    line: Connection, options: dict[str, Any]
) -> None:
    await tenants.create_org(line, "acme", "", OrgLimits())
    with pytest.raises(asyncpg.CheckViolationError):
        await make_key(line, "acme", **options)


async def test_there_are_no_other_scopes(line: Connection, connection: AsyncpgConnection) -> None:
    await tenants.create_org(line, "acme", "", OrgLimits())
    await make_key(line, "acme", scopes=frozenset(Scope))
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("UPDATE api_keys SET scopes = ARRAY['root']")


async def test_a_look_up_reads_what_it_wants_among_many(
    dsn: str, line: Connection, connection: AsyncpgConnection
) -> None:
    await connection.execute(
        """
        INSERT INTO orgs (org_id, name) SELECT 'org' || n, '' FROM generate_series(1, 2000) AS n
        """
    )
    await connection.execute(
        """
        INSERT INTO api_keys (org_id, key_id, user_id, name, digest, scopes)
        SELECT 'org' || n % 2000 + 1, lpad(n::text, 26, '0'), '', '', $1, '{}'
        FROM generate_series(1, 20000) AS n
        """,
        DIGEST,
    )
    await connection.execute("ANALYZE")
    for name, value in PINNED_PLANS.items():
        await connection.execute("SELECT set_config($1, $2, false)", name, value)
    wanted = [f"{n:026}" for n in (1, 500, 20000)]
    plan = await explain_query(connection, sql, "tenants/find_keys", keys=wanted)
    assert plan.indexes("api_keys") == {"api_keys_by_id"}
    assert plan.indexes("orgs") == {"orgs_pkey"}
    assert plan.rows_read("api_keys") == plan.rows_read("orgs") == 3
