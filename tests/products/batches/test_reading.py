"""Waiting for jobs, reading them again only if they changed, following them, listing them."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.domain.tenants import Scope
from coatcheck.http import event_stream
from tests.deployment import Deployment, bearer
from tests.products.batches.asking import (
    ADD,
    JOBS,
    end_of,
    know_sums,
    problem,
    submit,
    told,
)
from tests.products.batches.sums import gates
from tests.products.gateway.sse import following
from tests.products.gateway.test_draining import until_asked


async def test_a_job_as_it_was_is_304_and_one_that_moved_is_not(
    working_deployment: Deployment,
) -> None:
    http, gate = working_deployment.http, "etags"
    job = await submit(http, [{"gate": gate}], endpoint="/wait")
    await gates.begun[gate].wait()
    async with asyncio.timeout(30):
        while True:  # until its task is shown as running
            seen = await http.get(job["urls"]["poll"])
            if seen.json()["counts"]["running"] == 1:
                break
    tag = seen.headers["ETag"]
    for wait in ({}, {"wait": "0.05"}):
        same = await http.get(job["urls"]["poll"], params=wait, headers={"If-None-Match": tag})
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", tag)
    gates.opened[gate].set()
    moved = await http.get(
        job["urls"]["poll"], params={"wait": "60"}, headers={"If-None-Match": tag}
    )
    assert moved.status_code in (200, 202)
    assert moved.headers["ETag"] != tag


async def test_a_stream_shows_states_and_counts_and_ends_with_the_job(
    working_deployment: Deployment,
) -> None:
    http, gate = working_deployment.http, "followed"
    job = await submit(http, [{"gate": gate}, {"wrong": 1}], endpoint="/wait")
    async with following(http, job["urls"]["events"]) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        first = await stream.until("state")
        assert first[-1].data["id"] == job["id"]
        await gates.begun[gate].wait()
        gates.opened[gate].set()
        rest = await stream.rest()
    assert rest[-1].name == "end"
    assert rest[-1].data["status"] == "completed"
    progress = [event.data for event in rest if event.name == "progress"]
    assert progress[-1]["counts"]["succeeded"] == 1
    assert progress[-1]["counts"]["failed"] == 1
    assert progress[-1]["progress"] == 1.0
    assert all(event.id is None for event in first + rest)


async def test_a_stream_of_a_job_that_has_ended_says_so_and_closes(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    job = await end_of(http, await submit(http, [{"a": 1}]))
    async with following(http, job["urls"]["events"]) as stream:
        events = await stream.rest()
    assert [event.name for event in events] == ["progress", "end"]


async def test_a_silent_stream_says_that_it_is_still_there(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.05)
    await know_sums(deployment)
    job = await submit(deployment.http, type="open", status=202)
    async with following(deployment.http, job["urls"]["events"]) as stream:
        while (event := await stream.next()) is not None and event.comment is None:
            pass
    assert event is not None
    assert event.comment == "still here"


async def test_a_stream_ends_when_its_job_is_deleted(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, type="open", status=202)
    async with following(deployment.http, job["urls"]["events"]) as stream:
        await stream.until("state")
        assert (await deployment.http.delete(job["urls"]["poll"])).status_code == 204
        assert "end" not in [event.name for event in await stream.rest()]


async def test_a_server_that_stops_lets_its_waiters_go(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, [{"a": 1}])
    second = await deployment.start_server()
    async with following(second.http, job["urls"]["events"]) as stream:
        await stream.until("state")
        poll = asyncio.create_task(second.http.get(job["urls"]["poll"], params={"wait": "60"}))
        await until_asked(second, 2)
        await second.stop()
        rest = await stream.rest()
    assert rest[-1].name == "reconnect"
    assert (await poll).status_code == 202


async def test_an_admin_sees_and_steers_what_a_colleague_handed_in_and_others_do_not(
    deployment: Deployment,
) -> None:
    await know_sums(deployment)
    scopes = {Scope.READ, Scope.SUBMIT}
    colleague = bearer(await deployment.create_key(user="colleague", scopes=scopes))
    body = ADD | {"tasks": [{"a": 2}]}
    theirs = told(await deployment.http.post(JOBS, json=body, headers=colleague), 201)
    somebody = bearer(await deployment.create_key(user="somebody", scopes=scopes))
    for url in (theirs["urls"]["poll"], theirs["urls"]["tasks"]):
        assert told(await deployment.http.get(url), 200)
        problem(await deployment.http.get(url, headers=somebody), 404, "job_not_found")
    cancel = theirs["urls"]["cancel"]
    problem(await deployment.http.post(cancel, headers=somebody), 404, "job_not_found")
    assert (await deployment.http.post(cancel)).status_code in (200, 202)
