"""Streams and answers that wait: so many of a key, of an organisation, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from coatcheck import Service
from coatcheck.dashboard import pages
from coatcheck.domain.tenants import Scope
from coatcheck.http.app import create_app
from coatcheck.http.routing import HoldsOpen
from tests.all_products import SURFACES
from tests.browser.signing_in import sign_in
from tests.deployment import Deployment, bearer
from tests.waiting import eventually_async

JOBS = "/api/v1/orgs/{org}/jobs"
patient = Service("patient")


@patient.post("/wait", sync_timeout=60)
async def wait() -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(
        dsn,
        tmp_path,
        pages=pages.routes,
        operator_org="operators",
        held_answers_per_key=2,
        held_answers_per_org=3,
    ) as made:
        await made.create_org("other")
        await made.create_org("operators")
        await made.start_worker(patient)
        yield made


async def job_of(deployment: Deployment, key: str, org: str = "default") -> str:
    """The path of a job that does not end."""
    path = f"/api/v1/orgs/{org}/services/patient/async/wait"
    answer = await deployment.http.post(path, headers=bearer(key))
    assert answer.status_code == 202, answer.text
    return answer.headers["location"]


@asynccontextmanager
async def following(deployment: Deployment, job: str, key: str) -> AsyncIterator[httpx2.Response]:
    """A job's events, from the first one on, if the stream was not refused."""
    async with deployment.http.stream("GET", f"{job}/events", headers=bearer(key)) as answer:
        pieces = answer.aiter_bytes()  # its end would be the stream's
        if answer.is_success:
            await anext(pieces)
        else:
            await answer.aread()
        yield answer


def assert_refused(answer: httpx2.Response, whose: str) -> None:
    body: Any = answer.json()
    assert (answer.status_code, body["code"]) == (429, "too_many_held_answers")
    assert whose in body["detail"]
    assert int(answer.headers["retry-after"]) > 0


async def held(deployment: Deployment, count: int) -> None:
    """Until so many answers are held open."""

    async def counted() -> bool:
        return deployment.context.open_responses.count == count

    await eventually_async(counted, f"{count} answers are held")


async def test_streams_of_one_key_are_refused_from_a_number_on(deployment: Deployment) -> None:
    job = await job_of(deployment, deployment.key)
    async with AsyncExitStack() as open_streams:
        first = await open_streams.enter_async_context(following(deployment, job, deployment.key))
        async with following(deployment, job, deployment.key) as second:
            assert (first.status_code, second.status_code) == (200, 200)
            async with following(deployment, job, deployment.key) as third:
                assert_refused(third, "2 answers of this credential")
            # What is not held is answered, also to this key.
            assert (await deployment.http.get(job)).status_code == 200
        await held(deployment, 1)
        async with following(deployment, job, deployment.key) as again:
            assert again.status_code == 200


@pytest.mark.parametrize("kind", ["long-poll", "submit", "call", "console"])
async def test_whatever_waits_takes_a_place(deployment: Deployment, kind: str) -> None:
    job = await job_of(deployment, deployment.key)
    base = "/api/v1/orgs/default/services/patient"
    asked = {
        "long-poll": lambda: deployment.http.get(job, headers={"Prefer": "wait=50"}),
        "submit": lambda: deployment.http.post(f"{base}/async/wait?wait=50"),
        "call": lambda: deployment.http.post(f"{base}/wait"),
        "console": lambda: deployment.http.get(
            f"/api/v1/orgs/default/jobs/{job.rpartition('/')[2]}?wait=50"
        ),
    }[kind]
    async with following(deployment, job, deployment.key):
        waiting = asyncio.create_task(asked())
        await held(deployment, 2)
        assert_refused(await asked(), "of this credential")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_caller_who_does_not_wait_takes_no_place(deployment: Deployment) -> None:
    job = await job_of(deployment, deployment.key)
    base = "/api/v1/orgs/default/services/patient"
    async with (
        following(deployment, job, deployment.key),
        following(deployment, job, deployment.key),
    ):
        headers = {"Prefer": "respond-async"}
        assert (await deployment.http.post(f"{base}/wait", headers=headers)).status_code == 202
        assert (
            await deployment.http.post(f"{base}/async/wait", headers=headers)
        ).status_code == 202


async def test_the_keys_of_an_organisation_share_its_number(deployment: Deployment) -> None:
    second = await deployment.create_key()
    job = await job_of(deployment, deployment.key)
    async with (
        following(deployment, job, deployment.key),
        following(deployment, job, deployment.key),
        following(deployment, job, second) as third,
        following(deployment, job, second) as fourth,
    ):
        assert third.status_code == 200
        assert_refused(fourth, "3 answers of this organisation")


async def test_another_organisation_and_the_operators_find_a_place(deployment: Deployment) -> None:
    job = await job_of(deployment, deployment.key)
    operator = await deployment.create_key("operators")
    job_id = job.rpartition("/")[2]
    async with AsyncExitStack() as streams:
        for _ in range(2):
            await streams.enter_async_context(following(deployment, job, deployment.key))
        for _ in range(4):
            console = JOBS.format(org="default") + f"/{job_id}"
            answer = await streams.enter_async_context(following(deployment, console, operator))
            assert answer.status_code == 200
        await streams.enter_async_context(
            following(
                deployment, job, await deployment.create_key(user="another", scopes=[Scope.READ])
            )
        )


async def test_a_live_page_takes_one_place(deployment: Deployment) -> None:
    job = await job_of(deployment, deployment.key)
    await sign_in(deployment.http, deployment.key)
    live = f"/ui/jobs/{job.rpartition('/')[2]}/live"
    async with following(deployment, job, deployment.key):
        async with deployment.http.stream("GET", live) as answer:
            assert answer.status_code == 200
            await held(deployment, 2)
            refused = await deployment.http.get("/ui/live")
            assert refused.status_code == 429
        await held(deployment, 1)


async def test_every_operation_that_streams_or_waits_says_so(deployment: Deployment) -> None:
    app = create_app(deployment.context, SURFACES, pages.routes)
    declared = {each.name: each.held for each in app.routes if each.held is not HoldsOpen.NEVER}
    always = {name for name, each in declared.items() if each is HoldsOpen.ALWAYS}
    unless_async = {name for name, each in declared.items() if each is HoldsOpen.UNLESS_ASYNC}
    assert {"ui_live", "ui_job_live", "ui_batch_live", "job_events"} <= always
    assert {"take_webhook_messages", "ollama_embed", "ollama_embeddings"} <= always
    assert {each.name for each in app.routes if each.path.endswith("/events")} <= always
    assert unless_async == {
        "call",
        "call_version",
        "ollama_chat",
        "ollama_generate",
        "openai_chat",
        "openai_completion",
        "openai_embeddings",
        "openai_response",
    }
    for each in app.routes:
        if any(parameter.name == "wait" for parameter in each.parameters):
            assert each.name in declared, each.name
