"""What a handler reports is stored before its job is finished, and only while it holds the job."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from coatcheck import Job, JobEvent, Service, State, Ticket
from coatcheck.core import Engine
from coatcheck.core.queries import reports as store_reports
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.retry import Backoff
from coatcheck.worker import reports as reports_module
from tests.deployment import Deployment
from tests.waiting import eventually_async
from tests.worker.running.isolated_handlers import apart

lab = Service("lab")


@lab.post("/async")
async def report(job: Job) -> str:
    await job.progress(0.25, "a quarter")
    await job.log("from the loop", kind="async")
    await job.emit("chunk")
    await job.attach("made.txt", b"made here", media_type="text/plain")
    return "reported"


@lab.post("/thread")
def report_in_thread(job: Job) -> str:
    job.progress(0.25, "a quarter")
    job.log("from the thread", kind="thread")
    job.emit("chunk")
    job.attach("made.txt", b"made there", media_type="text/plain")
    return "reported"


@pytest.mark.parametrize(
    ("service", "endpoint", "kind", "made"),
    [
        (lab, "lab.post__async", "async", b"made here"),
        (lab, "lab.post__thread", "thread", b"made there"),
        (apart, "apart.post__report", "isolated", b"made apart"),
    ],
)
async def test_everything_reported_can_be_read_as_soon_as_the_job_has_ended(
    deployment: Deployment, service: Service, endpoint: str, kind: str, made: bytes
) -> None:
    await deployment.start_worker(service)
    ticket = await deployment.engine.submit(endpoint)
    view = await deployment.wait_for_end(ticket)
    log, chunk = await deployment.engine.events(ticket.id)
    (artifact,) = await deployment.engine.artifacts(ticket.id)

    assert view.state is State.COMPLETED
    assert (view.progress, view.progress_note) == (0.25, "a quarter")
    assert (log.kind, json.loads(log.data)["fields"]) == ("log", {"kind": kind})
    assert (chunk.kind, chunk.data) == ("text", b"chunk")
    assert (artifact.name, artifact.media_type) == ("made.txt", "text/plain")
    pieces = [piece async for piece in deployment.engine.read_artifact(artifact)]
    assert b"".join(pieces) == made


async def test_reports_of_a_running_job_can_be_followed_in_their_order(
    deployment: Deployment,
) -> None:
    service = Service("lab")
    more = asyncio.Event()

    @service.post("/talk")
    async def talk(job: Job) -> None:
        for number in range(5):
            await job.emit({"number": number})
        await more.wait()
        await job.emit("the last")

    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__talk")
    first = await _events(deployment.engine, ticket, at_least=5)
    running = await deployment.engine.get(ticket.id)
    more.set()
    await deployment.wait_for_end(ticket)
    rest = await deployment.engine.events(ticket.id, after=first[-1].seq)

    assert not running.terminal
    assert [json.loads(event.data)["number"] for event in first] == [0, 1, 2, 3, 4]
    assert [event.data for event in rest] == [b"the last"]


async def test_what_a_handler_says_after_its_lease_was_lost_is_dropped(
    deployment: Deployment,
) -> None:
    service = Service("lab")
    lost = asyncio.Event()
    said = asyncio.Event()

    @service.post("/talk")
    async def talk(job: Job) -> str:
        await job.log("while it was mine")
        await lost.wait()
        await job.log("too late")
        await job.progress(1.0, "too late")
        await job.attach("late.txt", b"too late")
        said.set()
        return "too late"

    worker = await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__talk")
    await _events(deployment.engine, ticket, at_least=1)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await deployment.take_lease_away(ticket)
    taken = await deployment.engine.get(ticket.id)
    lost.set()
    await said.wait()
    await deployment.stop_worker(worker)

    assert await deployment.engine.get(ticket.id) == taken
    (event,) = await deployment.engine.events(ticket.id)
    assert b"while it was mine" in event.data
    assert await deployment.engine.artifacts(ticket.id) == []
    assert [path for path in (deployment.folder / "blobs").rglob("*") if path.is_file()] == []
    assert worker.rejected == 1


async def test_a_database_that_is_away_while_a_job_attaches_costs_it_no_attempt(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service("lab")

    @service.post("/attach")
    async def attach(job: Job) -> str:
        await job.attach("made.txt", b"made once")
        return "attached"

    add = store_reports.add_artifact
    answers = iter(["lost", "refused"])

    async def away_at_first(*arguments: Any, **details: Any) -> Any:
        match next(answers, "heard"):
            case "lost":
                await add(*arguments, **details)
                raise OutcomeUnknown("its answer was lost")
            case "refused":
                raise DatabaseUnavailable("it is away")
        return await add(*arguments, **details)

    monkeypatch.setattr(store_reports, "add_artifact", away_at_first)
    monkeypatch.setattr(reports_module, "DATABASE_BACKOFF", Backoff(0.01, 0.01, 0.0))
    await deployment.start_worker(service)
    ticket = await deployment.engine.submit("lab.post__attach", retries=0)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.failures, view.interruptions) == (State.COMPLETED, 0, 0)
    (artifact,) = await deployment.engine.artifacts(ticket.id)
    assert artifact.size == len(b"made once")


@pytest.mark.parametrize("kind", ["awaited", "not_awaited", "caught", "plain", "isolated"])
async def test_a_blob_store_that_takes_nothing_costs_no_attempt(
    deployment: Deployment, kind: str
) -> None:
    """As when its disk is full or read-only: whatever the handler makes of it."""
    service = Service("lab")

    @service.post("/awaited")
    async def awaited(job: Job) -> str:
        await job.attach("made.txt", b"bytes")
        return "attached"

    @service.post("/not_awaited")
    async def not_awaited(job: Job) -> str:
        job.attach("made.txt", b"bytes")
        return "attached"

    @service.post("/caught")
    async def caught(job: Job) -> str:
        try:
            await job.attach("made.txt", b"bytes")
        except Exception as error:
            raise RuntimeError("something else") from error
        return "attached"

    @service.post("/plain")
    def plain(job: Job) -> str:
        job.attach("made.txt", b"bytes")
        return "attached"

    blobs = deployment.folder / "blobs"
    blobs.mkdir()
    in_the_way = blobs / "artifacts"
    in_the_way.write_bytes(b"a file, where their folder would be")
    deployment.start_maintenance()
    await deployment.start_worker(service, apart)
    name = "apart.post__attach" if kind == "isolated" else f"lab.post__{kind}"
    ticket = await deployment.engine.submit(name, retries=0)

    async def is_put_off() -> bool:
        return await deployment.state(ticket) is State.RETRYING

    await eventually_async(is_put_off, "it is to be tried again")
    view = await deployment.engine.get(ticket.id)
    assert (view.failures, view.unreachables, view.error_code) == (0, 1, "target_unreachable")
    assert view.error_message is not None
    assert "could not be stored: the blob store failed: Not a directory" in view.error_message

    in_the_way.unlink()
    await deployment.make_due(ticket)
    ended = await deployment.wait_for_end(ticket)
    assert (ended.state, ended.result, ended.failures) == (State.COMPLETED, b'"attached"', 0)
    assert [each.name for each in await deployment.engine.artifacts(ticket.id)] == ["made.txt"]


async def test_an_attachment_that_cannot_be_read_fails_the_attempt(deployment: Deployment) -> None:
    service = Service("lab")

    @service.post("/attach")
    async def attach(job: Job) -> str:
        file = deployment.folder / "vanishes"
        file.write_bytes(b"bytes")
        job.attach("lost.txt", file)
        file.unlink()
        return "never seen"

    await deployment.start_worker(service)
    view = await deployment.wait_for_end(
        await deployment.engine.submit("lab.post__attach", retries=0)
    )

    assert (view.state, view.result, view.failures) == (State.FAILED, None, 1)
    assert view.error_message is not None
    assert "report_not_stored: FileNotFoundError" in view.error_message


async def _events(engine: Engine, ticket: Ticket, *, at_least: int) -> list[JobEvent]:
    async def look() -> list[JobEvent] | None:
        found = await engine.events(ticket.id)
        return found if len(found) >= at_least else None

    found: list[JobEvent] = await eventually_async(look, f"{at_least} events are stored")
    return found
