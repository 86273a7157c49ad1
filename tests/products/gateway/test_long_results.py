"""Results that are too long for a page: left out there, and whole where the job is."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from coatcheck.domain.limits import EVENT_RESULT_BYTES_MAX, RESULT_INLINE_BYTES_MAX
from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import hand_in
from tests.products.gateway.sse import following

pytestmark = pytest.mark.asyncio(loop_scope="module")

BATCH = paths.jobs() + "/batch-status"
LONG = "x" * (RESULT_INLINE_BYTES_MAX + 1)
VERY_LONG = "y" * 700_000
"""Longer than an event may be, and yet a body that is taken."""


async def ended(http: httpx2.AsyncClient, value: str) -> dict[str, Any]:
    ticket = await hand_in(http, "/echo", {"value": value})
    answer = await http.get(ticket["poll_url"], params={"wait": "30"})
    assert answer.status_code == 200
    job: dict[str, Any] = answer.json()
    return job


async def test_a_job_is_shown_with_its_whole_result(shared: Deployment) -> None:
    job = await ended(shared.http, LONG)
    assert (job["status"], job["result_summary"]) == ("completed", LONG)
    assert (job["result_omitted"], job["result_url"]) == (False, None)


async def test_its_head_says_how_long_it_is(shared: Deployment) -> None:
    job = await ended(shared.http, LONG)
    as_it_is = {"Accept-Encoding": "identity"}
    whole = await shared.http.get(paths.job(job["id"]), headers=as_it_is)
    head = await shared.http.head(paths.job(job["id"]))
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert head.headers["etag"] == whole.headers["etag"]
    known = {"If-None-Match": whole.headers["etag"]}
    assert (await shared.http.get(paths.job(job["id"]), headers=known)).status_code == 304


async def test_many_jobs_leave_out_a_result_that_is_long(shared: Deployment) -> None:
    long, short = await ended(shared.http, LONG), await ended(shared.http, "short")
    answer = await shared.http.get(BATCH, params={"job_ids": f"{long['id']},{short['id']}"})
    first, second = answer.json()["items"]
    assert first == long | {
        "result_summary": None,
        "result_omitted": True,
        "result_url": paths.job(long["id"]),
    }
    assert second == short
    whole = await shared.http.get(first["result_url"])
    assert whole.json()["result_summary"] == LONG


async def test_the_more_jobs_are_asked_for_the_shorter_are_their_results(
    shared: Deployment,
) -> None:
    job = await ended(shared.http, "x" * 40_000)
    few = await shared.http.get(BATCH, params={"job_ids": ",".join([job["id"]] * 64)})
    assert few.json()["items"] == [job] * 64
    many = await shared.http.get(BATCH, params={"job_ids": ",".join([job["id"]] * 200)})
    assert [each["result_omitted"] for each in many.json()["items"]] == [True] * 200


async def test_a_list_says_which_jobs_have_a_result(shared: Deployment) -> None:
    job = await ended(shared.http, "short")
    answer = await shared.http.get(paths.jobs(), params={"limit": "1", "status": "completed"})
    (listed,) = answer.json()["items"]
    assert listed == job | {
        "result_summary": None,
        "result_omitted": True,
        "result_url": paths.job(job["id"]),
    }


async def test_a_synchronous_caller_gets_the_result_itself(shared: Deployment) -> None:
    answer = await shared.http.post(paths.call("/echo"), json={"value": VERY_LONG})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == VERY_LONG


async def test_an_event_leaves_out_what_is_longer_than_an_event(shared: Deployment) -> None:
    long, very_long = await ended(shared.http, LONG), await ended(shared.http, VERY_LONG)
    assert len(LONG) < EVENT_RESULT_BYTES_MAX < len(VERY_LONG)
    async with following(shared.http, paths.job(long["id"]) + "/events") as stream:
        assert (await stream.rest())[-1].data == long
    async with following(shared.http, paths.job(very_long["id"]) + "/events") as stream:
        end = (await stream.rest())[-1].data
    assert (end["result_summary"], end["result_omitted"]) == (None, True)
    assert end["result_url"] == paths.job(very_long["id"])


async def test_readers_of_one_result_all_get_it(shared: Deployment) -> None:
    job = await ended(shared.http, VERY_LONG)
    answers = await asyncio.gather(*(shared.http.get(paths.job(job["id"])) for _ in range(20)))
    assert [answer.json() for answer in answers] == [job] * 20
