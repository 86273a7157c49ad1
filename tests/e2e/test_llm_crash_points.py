"""Kills the worker, and PostgreSQL, at every point of a chat: it ends once, with one whole answer.

What was said before the death is void; who follows the stream is told so before it begins again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from coatcheck import State, Ticket
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from coatcheck.domain.job import JobView
from coatcheck.products.llm.executor import LlmExecutor
from coatcheck.products.llm.model import LLM_ENDPOINTS
from examples.ollama_upstream import OllamaUpstream
from tests.crash_points import VICTIM
from tests.deployment import Deployment
from tests.e2e.faults import history, invariants
from tests.e2e.faults.roles import end_leases_of_the_struck, start_role
from tests.waiting import eventually_async

TOKENS = 12
MODEL = "llama3.2:latest"
LLM_POINTS = {
    "llm.claimed": 1,
    "llm.chunk_stored": 5,
    "llm.answered": 1,
}
"""Each point, and at which passing of it the worker dies."""

GATE = 4713
"""The advisory lock that holds a statement up."""
HELD_UP_AT = {
    "the claim": ("BEFORE INSERT ON llm_assignments", "true"),
    "a chunk": ("BEFORE INSERT ON job_events", "NEW.kind = 'json'"),
    "the end": ("BEFORE UPDATE ON jobs", "NEW.state = 'completed'"),
}
"""What PostgreSQL is killed in the middle of: its trigger, and when that fires."""


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        await history.keep(opened.sql)
        yield opened


@pytest.fixture
async def deployment_on_own_server(
    pg_server: EmbeddedPostgres, tmp_path: Path
) -> AsyncIterator[Deployment]:
    await migrate(pg_server.dsn)
    async with Deployment(pg_server.dsn, tmp_path, servers=0) as opened:
        await history.keep(opened.sql)
        yield opened
        if not pg_server.is_running():
            await asyncio.to_thread(pg_server.start)


@pytest.fixture
async def upstream() -> AsyncIterator[OllamaUpstream]:
    async with OllamaUpstream(tokens_per_second=0, answer_tokens=TOKENS) as opened:
        yield opened


async def ask(deployment: Deployment) -> Ticket:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "stream": True}
    payload = {"kind": "chat", "model": MODEL, "body": body}
    return await deployment.engine.submit(LLM_ENDPOINTS["chat"], payload, flow=MODEL)


@asynccontextmanager
async def worked(deployment: Deployment, upstream: OllamaUpstream) -> AsyncIterator[None]:
    """Upkeep, and a worker for chats, in this process."""
    deployment.start_maintenance()
    settings = deployment.settings_with(llm_url=upstream.url)
    async with LlmExecutor(settings, deployment.database) as executor:
        worker = await deployment.run_worker(executor.worker())
        yield
        await deployment.stop_worker(worker)


async def ended_once_and_whole(deployment: Deployment, ticket: Ticket) -> tuple[JobView, int]:
    """The job, and how often its stream began again."""
    view = await deployment.wait_for_end(ticket)
    assert view.state is State.COMPLETED, f"{view.error_code}: {view.error_message}"
    await invariants.one_end(deployment, view)
    events = await deployment.engine.events(ticket.id, limit=1_000)
    chunks = [json.loads(event.data) for event in events if event.kind == "json"]
    marks = [place for place, chunk in enumerate(chunks) if "coatcheck" in chunk]
    valid = chunks[marks[-1] + 1 :] if marks else chunks
    assert len(valid) == TOKENS + 1
    assert [chunk["done"] for chunk in valid] == [False] * TOKENS + [True]
    assert view.result is not None
    answer = json.loads(view.result)["inline"]
    said = "".join(chunk["message"]["content"] for chunk in valid)
    assert answer == valid[-1] | {"message": {"role": "assistant", "content": said}}
    return view, len(marks)


async def somebody_waits_at_the_gate(deployment: Deployment) -> None:
    async def look() -> bool:
        waiting: bool = await deployment.sql.fetchval(
            "SELECT count(*) > 0 FROM pg_locks"
            " WHERE locktype = 'advisory' AND objid = $1 AND NOT granted",
            GATE,
        )
        return waiting

    await eventually_async(look, "a statement is held up")


@pytest.mark.crash
@pytest.mark.parametrize("point", sorted(LLM_POINTS))
async def test_a_chat_ends_once_though_its_worker_dies_at(
    deployment: Deployment, upstream: OllamaUpstream, point: str
) -> None:
    ticket = await ask(deployment)
    process = start_role(
        deployment, "llm_worker", crash_at=f"{point}:{LLM_POINTS[point]}", llm_url=upstream.url
    )
    await deployment.strike(process)
    await invariants.no_dead_state(deployment)
    await end_leases_of_the_struck(deployment)  # its permit counts until its lease ends

    async with worked(deployment, upstream):
        view, began_again = await ended_once_and_whole(deployment, ticket)
    asked_before = 0 if point == "llm.claimed" else 1
    assert view.failures == 0
    if VICTIM.is_exact:
        assert (view.crashes, began_again) == (1, 1)
    assert VICTIM.allows(upstream.seen.paths["/api/chat"], asked_before + 1)
    await invariants.stale_writes_change_nothing(deployment, view)
    print(f"{point}: {VICTIM.value} struck there, one end, one whole answer")


@pytest.mark.crash
@pytest.mark.parametrize("what", sorted(HELD_UP_AT))
async def test_a_chat_ends_once_though_postgresql_dies_in_the_middle_of(
    deployment_on_own_server: Deployment,
    pg_server: EmbeddedPostgres,
    upstream: OllamaUpstream,
    what: str,
) -> None:
    deployment = deployment_on_own_server
    when, condition = HELD_UP_AT[what]
    ticket = await ask(deployment)
    await deployment.sql.execute(
        f"""
        CREATE FUNCTION wait_for_the_gate() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock({GATE}); RETURN NEW; END $$;
        CREATE TRIGGER wait_for_the_gate {when} FOR EACH ROW
        WHEN ({condition}) EXECUTE FUNCTION wait_for_the_gate()
        """
    )
    await deployment.sql.execute("SELECT pg_advisory_lock($1)", GATE)
    async with worked(deployment, upstream):
        await somebody_waits_at_the_gate(deployment)
        await asyncio.to_thread(pg_server.kill)  # and with it goes the gate
        await asyncio.to_thread(pg_server.start)
        await deployment.reconnect()
        view, _ = await ended_once_and_whole(deployment, ticket)
    assert view.failures == 0
