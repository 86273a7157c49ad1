"""What somebody was told of is on disk by then: its commit waited for that (docs/adr/0009).

Within each statement that moves a job PostgreSQL is asked whether the commit is going to wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from coatcheck import FailJob, Service
from coatcheck.core import Submission
from tests.deployment import Deployment

WATCH = """
CREATE TABLE commits (state text, waits text);
CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO commits
    VALUES (
        CASE TG_OP WHEN 'INSERT' THEN 'new' ELSE NEW.state::text END,
        current_setting('synchronous_commit')
    );
    RETURN NULL;
END $$;
CREATE TRIGGER note_commit AFTER INSERT OR UPDATE ON jobs
    FOR EACH ROW EXECUTE FUNCTION note_commit();
"""
WAITS, DOES_NOT = "on", "off"

lab = Service("lab")


@lab.post("/greet")
async def greet() -> str:
    return "hello"


@lab.post("/refuse")
async def refuse() -> None:
    raise FailJob("no")


@pytest.fixture
async def watched(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """The server of the tests waits for no disk, unless a database says so."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(WATCH)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = {WAITS}")
    await connection.close()
    async with Deployment(dsn, tmp_path, servers=0) as deployment:
        yield deployment


async def test_what_a_caller_is_told_of_waits_for_the_disk(watched: Deployment) -> None:
    engine = watched.engine
    ticket = await engine.submit("lab.post__greet")
    await engine.submit("lab.post__greet", idempotency_key="one")
    await engine.submit_many([Submission("lab.post__greet", idempotency_key="many")])
    await engine.submit_many([Submission("lab.post__greet")])
    await engine.cancel(ticket.id)

    assert await commits(watched) == {("new", WAITS), ("cancelled", WAITS)}


async def test_an_end_waits_for_the_disk_and_a_claim_alone_does_not(watched: Deployment) -> None:
    tickets = [await watched.engine.submit(f"lab.post__{name}") for name in ("greet", "refuse")]
    await watched.start_worker(lab)
    await watched.wait_for_ends(tickets)

    seen = await commits(watched)
    assert {("completed", WAITS), ("failed", WAITS), ("dispatching", DOES_NOT)} <= seen
    assert {state for state, waits in seen if waits == DOES_NOT} <= {"dispatching", "processing"}


async def commits(deployment: Deployment) -> set[tuple[str, str]]:
    """The moves there were, and whether their commits waited."""
    rows = await deployment.sql.fetch("SELECT DISTINCT state, waits FROM commits")
    return {(row["state"], row["waits"]) for row in rows}
