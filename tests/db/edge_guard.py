"""Triggers, for tests only, that refuse every step the domain's table does not know, and a commit
that leaves a queued job where no claim finds it.

They stand in the template database, so every test that uses the `dsn` fixture runs under it:
whatever statement makes an illegal step, in whatever test, fails there and then.

The first look after the step. One that looks before it would have PostgreSQL lock each row, and
take its newest version, before the constraints of a row are checked: that is not so without it, and
would hide what statements that meet do to each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

from coatcheck.domain.states import EDGES, INITIAL, State

if TYPE_CHECKING:
    AsyncpgConnection = asyncpg.Connection[asyncpg.Record]
else:
    AsyncpgConnection = asyncpg.Connection


async def install(dsn: str) -> None:
    """Guard the jobs of this database."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_statements())
    finally:
        await connection.close()


async def remove(connection: AsyncpgConnection) -> None:
    """Take the guard away, for a test that counts what the product's own statements do."""
    await connection.execute(
        "DROP TRIGGER only_legal_steps ON jobs; DROP TRIGGER only_legal_beginnings ON jobs;"
        "DROP TRIGGER queued_jobs_are_found ON jobs"
    )


@asynccontextmanager
async def unguarded(connection: AsyncpgConnection) -> AsyncIterator[None]:
    """Let a test put rows into any state: no trigger fires on this connection meanwhile."""
    await connection.execute("SET session_replication_role = replica")
    try:
        yield
    finally:
        await connection.execute("RESET session_replication_role")


def _statements() -> str:
    edges = ", ".join(f"('{source}', '{target}')" for source, target in sorted(EDGES))
    return f"""
        CREATE FUNCTION refuse_illegal_step() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'INSERT' THEN
                RAISE EXCEPTION 'a job cannot begin as %', NEW.state;
            END IF;
            RAISE EXCEPTION 'a job cannot go from % to %', OLD.state, NEW.state;
        END $$;

        CREATE TRIGGER only_legal_steps AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (
            OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN ({edges})
        )
        EXECUTE FUNCTION refuse_illegal_step();

        CREATE TRIGGER only_legal_beginnings AFTER INSERT ON jobs FOR EACH ROW
        WHEN (NEW.state NOT IN ({_literals(INITIAL)}))
        EXECUTE FUNCTION refuse_illegal_step();

        CREATE FUNCTION refuse_lost_job() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.id = ANY (coalesce((
                SELECT q.ids FROM queue AS q
                WHERE (q.lane, q.endpoint, q.org_id, q.flow, q.run_at)
                      = (NEW.lane, NEW.endpoint, NEW.org_id, NEW.flow, NEW.run_at)
                  AND q.id >= NEW.id
                ORDER BY q.id LIMIT 1
            ), '{{}}')) OR NOT EXISTS (
                SELECT FROM jobs AS j
                WHERE j.org_id = NEW.org_id AND j.id = NEW.id AND j.state = 'queued'
            ) OR EXISTS (
                SELECT FROM queue AS q
                WHERE (q.lane, q.endpoint, q.org_id, q.flow, q.run_at)
                      = (NEW.lane, NEW.endpoint, NEW.org_id, NEW.flow, NEW.run_at)
                  AND NEW.id = ANY (q.ids)
            ) THEN
                RETURN NULL;
            END IF;
            RAISE EXCEPTION 'the job % is queued, and no row of the queue names it', NEW.id;
        END $$;

        CREATE CONSTRAINT TRIGGER queued_jobs_are_found
        AFTER INSERT OR UPDATE OF state, lane, endpoint, flow, run_at ON jobs
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'queued')
        EXECUTE FUNCTION refuse_lost_job();
    """


def _literals(states: Iterable[State]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))
