"""A process of these tests: ``python -m tests.e2e.faults.process ROLE [argument]``.

Roles: ``worker`` works, ``disposing_worker`` also deletes the inputs of its jobs, ``batch_worker``
takes lists in and writes exports, ``llm_worker`` asks models, ``remote_worker`` has jobs done
elsewhere, ``upkeep`` keeps up, ``deliver`` delivers webhooks, ``serve`` answers HTTP, ``submit``,
``hand_in`` (with an input), ``cancel``, ``look`` (at a job that is done elsewhere) and those of
batches are what a server does. Settings come from the environment, as for the real commands. What
happens is said on stdout, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable

from coatcheck import Engine, Settings, Ticket
from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import store_pieces
from coatcheck.cli.environment import prepare
from coatcheck.cli.process import delivering, run_until_signal
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.database import Database
from coatcheck.db.election import session_that_ends_if_silent
from coatcheck.domain.ids import from_text, new_id, to_text
from coatcheck.domain.inputs import StoredInput
from coatcheck.domain.job import ClaimedJob
from coatcheck.encoding import encode
from coatcheck.http.app import create_app
from coatcheck.http.context import open_server_context
from coatcheck.http.server import HttpServer, listen
from coatcheck.maintenance.usage import StripeClient, StripeMeter
from coatcheck.products.batches.executor import BatchExecutor
from coatcheck.products.batches.model import NewBatch, NewPart, NewTask, RunFilter
from coatcheck.products.batches.repository import BatchRepository
from coatcheck.products.llm.executor import LlmExecutor
from coatcheck.worker.input_disposal import InputDisposal
from coatcheck.worker.worker import Worker
from tests.all_products import SURFACES, maintenance, payloads
from tests.e2e.faults.remote_work import remote_calls, remote_worker
from tests.e2e.faults.services import NAME_VARIABLE, lab

NOTE = "lab.post__note"
CONTENT = b"a customer's content, in three pieces; "


def say(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


async def work(
    settings: Settings, stop: asyncio.Event, on_ended: Callable[[ClaimedJob], None] | None = None
) -> None:
    worker = Worker(
        settings,
        [lab],
        name=os.environ.get(NAME_VARIABLE, ""),
        on_ended={} if on_ended is None else {NOTE: on_ended},
    )
    await run_until_stopped(worker, stop)


async def run_until_stopped(worker: Worker, stop: asyncio.Event) -> None:
    async def announce() -> None:
        await worker.ready.wait()
        say("ready", boot=worker.boot, clock=time.time())

    async def stop_on_signal() -> None:
        await stop.wait()
        worker.stop()

    tasks = [asyncio.create_task(announce()), asyncio.create_task(stop_on_signal())]
    try:
        await worker.run()
    finally:
        for task in tasks:
            task.cancel()
    say("ended", rejected=worker.rejected)


async def work_on_batches(settings: Settings, stop: asyncio.Event) -> None:
    async with (
        Database.of_worker(settings.database_url) as database,
        BatchExecutor(settings, database) as executor,
    ):
        await run_until_stopped(executor.worker(), stop)


async def ask_models(settings: Settings, stop: asyncio.Event) -> None:
    async with (
        Database.of_worker(settings.database_url) as database,
        LlmExecutor(settings, database) as executor,
    ):
        await run_until_stopped(executor.worker(), stop)


async def work_remotely(settings: Settings, stop: asyncio.Event) -> None:
    async with remote_worker(settings) as worker:
        await run_until_stopped(worker, stop)


async def work_and_dispose(settings: Settings, stop: asyncio.Event) -> None:
    async with (
        Database.of_worker(settings.database_url) as database,
        InputDisposal(database, BlobContainer.open(settings.blob_url)) as disposal,
    ):
        await work(settings, stop, disposal.ended)


async def keep_up(settings: Settings, stop: asyncio.Event) -> None:
    upkeep = maintenance(settings)
    upkeep.start()
    say("ready")
    await stop.wait()
    await upkeep.stop()
    say("ended")


async def deliver(settings: Settings, stop: asyncio.Event) -> None:
    async with (
        await Engine.connect(settings) as engine,
        open_server_context(settings, engine) as parts,
        delivering(settings, payloads(parts).body, engine.database),
    ):
        say("ready")
        await stop.wait()
    say("ended")


async def meter(settings: Settings, stop: asyncio.Event, stripe_url: str) -> None:
    """What the upkeep of a server does that has a key of Stripe's; of one that the test runs."""
    line = Connection(
        settings.database_url,
        name="upkeep",
        server_settings={**PINNED_PLANS, **session_that_ends_if_silent()},
    )
    client = StripeClient(settings.stripe_api_key, base_url=stripe_url)
    loop = StripeMeter(line, client, settings.stripe_meters)
    loop.start()
    say("ready")
    await stop.wait()
    await loop.stop()
    await line.close()
    say("ended")


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    async with (
        await Engine.connect(settings) as engine,
        open_server_context(settings, engine) as parts,
    ):
        server = HttpServer(create_app(parts, SURFACES), drain_seconds=5, draining=parts.draining)
        listening = listen("127.0.0.1", 0)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        say("ready", port=listening.getsockname()[1])
        await stop.wait()
        server.stop()
        await serving
    say("ended")


async def submit(settings: Settings, submissions: list[dict[str, object]]) -> None:
    async with Engine(settings, [lab]) as engine:
        say("ready")
        for submission in submissions:
            ticket = await engine.submit(**submission)  # type: ignore[arg-type]
            say("acknowledged", id=ticket.id, created=ticket.created)


async def hand_in(settings: Settings, payload: object, key: str) -> None:
    async with Engine(settings, [lab]) as engine:
        say("ready")
        ticket = await submit_with_content(engine, payload, key)
        say("acknowledged", id=ticket.id, created=ticket.created)


async def submit_with_content(engine: Engine, payload: object, key: str) -> Ticket:
    """What a server does with an upload: its pieces first, then its job."""
    job = new_id()

    async def content() -> AsyncIterator[bytes]:
        yield CONTENT * 3

    stored = await store_pieces(
        engine.blobs, await engine.new_input_key(job), content(), piece_bytes=len(CONTENT)
    )
    return await engine.submit_with_input(
        NOTE,
        payload,
        StoredInput(stored.key, stored.size, stored.pieces, stored.sha256),
        job_id=job,
        idempotency_key=key,
    )


async def cancel(settings: Settings, job_id: str) -> None:
    async with Engine(settings, [lab]) as engine:
        say("ready")
        view = await engine.cancel(job_id)
        say("acknowledged", id=job_id, state=view.state)


async def look(settings: Settings, job_id: str) -> None:
    async with Engine(settings, [lab]) as engine, remote_calls(settings, engine.database) as calls:
        say("ready")
        while not (await engine.get(job_id)).terminal:
            await calls.look("default", from_text(job_id))
        say("acknowledged", id=job_id)


async def create_batch(settings: Settings, payload: object, count: int, key: str) -> None:
    async with Engine(settings, [lab]) as engine:
        say("ready")
        created = await engine.extension(BatchRepository).create(
            new_batch(key), NewPart(new_id(), "inline"), [NewTask(encode(payload))] * count
        )
        say("acknowledged", id=to_text(created.uuid), created=created.created)


def new_batch(key: str | None) -> NewBatch:
    """A batch of the deployment's notes, of one attempt each, told of by webhook."""
    return NewBatch(
        org="default",
        uuid=new_id(),
        run=new_id(),
        owner="",
        service="lab",
        service_endpoint="/note",
        endpoint=NOTE,
        usage_queue_key="",
        lane="standard",
        failures_max=0,
        is_open=False,
        payload_prefix=b"",
        payload_suffix=b"",
        concurrency=None,
        rate_per_second=None,
        rate_key=None,
        rate_key_per_second=None,
        webhook_url="https://hooks.invalid/",
        webhook_events=["completed"],
        metadata=None,
        keep_seconds=3600,
        idempotency_key=key,
        fingerprint=None,
        request_id=None,
    )


async def cancel_batch(settings: Settings, batch: str) -> None:
    async with Engine(settings, [lab]) as engine:
        say("ready")
        await engine.extension(BatchRepository).cancel(batch, org="default")
        say("acknowledged", id=batch)


async def rerun_batch(settings: Settings, batch: str, key: str) -> None:
    async with Engine(settings, [lab]) as engine:
        say("ready")
        await engine.extension(BatchRepository).rerun(
            batch, RunFilter(), org="default", idempotency_key=key
        )
        say("acknowledged", id=batch)


def main() -> None:
    role, *arguments = sys.argv[1:]
    settings = Settings.from_environment()
    prepare(settings)
    match role:
        case "worker":
            run_until_signal(lambda stop: work(settings, stop))
        case "disposing_worker":
            run_until_signal(lambda stop: work_and_dispose(settings, stop))
        case "batch_worker":
            run_until_signal(lambda stop: work_on_batches(settings, stop))
        case "llm_worker":
            run_until_signal(lambda stop: ask_models(settings, stop))
        case "remote_worker":
            run_until_signal(lambda stop: work_remotely(settings, stop))
        case "upkeep":
            run_until_signal(lambda stop: keep_up(settings, stop))
        case "deliver":
            run_until_signal(lambda stop: deliver(settings, stop))
        case "meter":
            run_until_signal(lambda stop: meter(settings, stop, arguments[0]))
        case "serve":
            run_until_signal(lambda stop: serve(settings, stop))
        case "submit":
            run_until_signal(lambda _: submit(settings, json.loads(arguments[0])))
        case "hand_in":
            run_until_signal(lambda _: hand_in(settings, json.loads(arguments[0]), arguments[1]))
        case "cancel":
            run_until_signal(lambda _: cancel(settings, arguments[0]))
        case "look":
            run_until_signal(lambda _: look(settings, arguments[0]))
        case "create_batch":
            payload, count, key = json.loads(arguments[0]), int(arguments[1]), arguments[2]
            run_until_signal(lambda _: create_batch(settings, payload, count, key))
        case "cancel_batch":
            run_until_signal(lambda _: cancel_batch(settings, arguments[0]))
        case "rerun_batch":
            run_until_signal(lambda _: rerun_batch(settings, *arguments))
        case _:
            raise SystemExit(f"there is no role {role}")


if __name__ == "__main__":
    main()
