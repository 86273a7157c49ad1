"""A job that was handed in as a part of a trace is run as a part of it, wherever its handler is."""

from __future__ import annotations

import json

import pytest
from opentelemetry import trace

from coatcheck import Service
from coatcheck.telemetry import context, tracing
from tests.deployment import Deployment, lane_slots
from tests.worker.isolated_handlers import service as isolated

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"

places = Service("places")


@places.post("/inline")
async def inline() -> list[str | None]:
    return seen()


@places.post("/thread")
def thread() -> list[str | None]:
    return seen()


def seen() -> list[str | None]:
    """The trace as OpenTelemetry has it, and as our own log lines do."""
    about = trace.get_current_span().get_span_context()
    theirs = f"{about.trace_id:032x}" if about.is_valid else None
    ours = context.traceparent.get()
    return [theirs, ours]


async def test_the_trace_is_current_in_every_kind_of_handler_and_in_no_job_after_it(
    deployment: Deployment,
) -> None:
    endpoints = ["places.post__inline", "places.post__thread", "isolated.post__trace"]
    with tracing.passing(TRACEPARENT):
        traced = [await deployment.engine.submit(endpoint) for endpoint in endpoints]
    others = [await deployment.engine.submit(endpoint) for endpoint in endpoints]
    # One slot: what comes after a traced job runs where that one ran.
    await deployment.start_worker(places, isolated, lane_concurrency=lane_slots(standard=1))

    for ticket in traced:
        assert await result(deployment, ticket.id) == [TRACE_ID, TRACEPARENT]
    for ticket in others:
        assert await result(deployment, ticket.id) == [None, None]


@pytest.mark.parametrize(
    "came", [f"00-{TRACE_ID}-b7ad6b7169203331-00", "00-short-b7ad6b7169203331-01"]
)
async def test_what_nobody_records_is_not_kept(deployment: Deployment, came: str) -> None:
    with tracing.passing(came):
        ticket = await deployment.engine.submit("places.post__inline")
    kept = await deployment.sql.fetchval("SELECT traceparent FROM jobs WHERE id = $1", ticket.uuid)
    assert kept is None


async def test_many_at_once_keep_it_too(deployment: Deployment) -> None:
    from coatcheck import Submission

    with tracing.passing(TRACEPARENT):
        await deployment.engine.submit_many([Submission("places.post__inline")] * 3)
    kept = await deployment.sql.fetch("SELECT traceparent FROM jobs")
    assert [row[0] for row in kept] == [TRACEPARENT] * 3


async def result(deployment: Deployment, job_id: str) -> list[str | None]:
    job = await deployment.engine.wait(job_id)
    assert job.result is not None, f"{job.error_code}: {job.error_message}"
    value: list[str | None] = json.loads(job.result)
    return value
