"""Row-level security: whom it holds, whom it does not, and what reading behind it costs."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg
import pytest

from coatcheck import Engine, Submission
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.migrate import migrate
from coatcheck.domain.ids import new_ids
from coatcheck.domain.listing import PageQuery
from coatcheck.products.speech.model import SPEECH_TYPES, SpeechReader
from coatcheck.products.speech.repository import SpeechRepository, sql
from tests.databases import Databases, run
from tests.db.plans import explain_query
from tests.db.rows import connected, recorded

OTHERS = 5_000
MINE = 300


@asynccontextmanager
async def database_of(databases: Databases) -> AsyncIterator[str]:
    """The URL of an empty database whose owner is a role of its own that may do nothing else."""
    name = f"owned_{secrets.token_hex(8)}"
    server = databases.maintenance_dsn
    await run(server, f"CREATE ROLE {name} LOGIN")
    await run(server, f"CREATE DATABASE {name} OWNER {name}")
    try:
        yield _as(databases.dsn_of(name), name)
    finally:
        await run(server, f"DROP DATABASE {name} WITH (FORCE)")
        await run(server, f"DROP ROLE {name}")


def _as(dsn: str, user: str) -> str:
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}"))


async def test_an_owner_that_is_no_superuser_is_not_held_and_reads_for_users_behind_it(
    databases: Databases,
) -> None:
    async with database_of(databases) as dsn:
        owner = urlsplit(dsn).username
        # Somebody else has made the role: it is the whole server's.
        with pytest.raises(
            asyncpg.InsufficientPrivilegeError,
            match=rf"{owner} may not act as coatcheck_user; .*GRANT coatcheck_user TO {owner};",
        ):
            await migrate(dsn)
        await run(databases.maintenance_dsn, f"GRANT coatcheck_user TO {owner}")
        await migrate(dsn)
        async with Engine(dsn) as engine:
            many = [Submission("docs.post__x", owner="user:ann") for _ in range(3)]
            tickets = await engine.submit_many(many)  # by COPY, which security would forbid
            assert (await engine.get(tickets[0].id)).owner == "user:ann"
            assert (
                await engine.extension(SpeechRepository).tasks(SpeechReader("default", "ann")) == []
            )
        async with connected(dsn) as connection:
            assert await connection.fetchval("SELECT count(*) FROM jobs") == 3
            async with connection.transaction():
                await sql.fetch(connection, "set_user_role", org="default", user="ann")
                assert await connection.fetchval("SELECT count(id) FROM jobs") == 3
            async with connection.transaction():
                await sql.fetch(connection, "set_user_role", org="default", user="bob")
                assert await connection.fetchval("SELECT count(id) FROM jobs") == 0


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection with the plans that reads for users have."""
    opened = await asyncpg.connect(dsn, server_settings=dict(PINNED_PLANS))
    yield opened
    await opened.close()


async def test_a_users_page_reads_that_page_and_a_task_one_row(
    dsn: str, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    ids = [UUID(bytes=each) for each in new_ids(OTHERS + MINE)]
    users = ["ann" if number % (OTHERS // MINE + 1) == 0 else "bob" for number in range(len(ids))]
    await connection.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, payload, owner, state)
        SELECT 'acme', id, 'standard', 'speech.post__generate', name, 3, '{}', 'user:' || name,
               'staged'
        FROM unnest($1::uuid[], $2::text[]) AS made (id, name)
        """),
        ids,
        users,
    )
    await connection.execute(
        """
        INSERT INTO generations (org_id, id, user_id, job_id, voice_id, language, text)
        SELECT 'acme', id, name, id, id, 'en', 'Hello'
        FROM unnest($1::uuid[], $2::text[]) AS made (id, name)
        """,
        ids,
        users,
    )
    mine = [each for each, user in zip(ids, users, strict=True) if user == "ann"]
    async with Engine(dsn) as engine:
        page = await engine.extension(SpeechRepository).tasks(
            SpeechReader("acme", "ann"), PageQuery(limit=20)
        )
    assert [task.view.uuid for task in page] == sorted(mine, reverse=True)[:20]

    async with connection.transaction():
        ann = {"org": "acme", "user": "ann"}
        await sql.fetch(connection, "set_user_role", **ann)
        listing = await explain_query(
            connection,
            sql,
            "tasks",
            **ann,
            characters_max=200,
            **PageQuery().arguments(),
            states=None,
            endpoints=[*SPEECH_TYPES],
            limit=20,
        )
        one = await explain_query(
            connection, sql, "task", **ann, characters_max=200, generation=mine[0]
        )
    for plan, most in ((listing, 20), (one, 1)):
        for table in ("generations", "jobs"):
            assert plan.sequential_scans(table) == 0
            assert plan.rows_read(table) <= most
    assert listing.indexes("generations") == {"generations_of_user"}
