"""Submit, status, result, cancel."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from examples.tts_remote import Fault, TtsRemote
from tests.tts_remote.asking import LONG, SENTENCE, Asking, voices
from tests.waiting import eventually_async


async def test_a_token_has_one_job_and_its_first_order_counts(
    remote: TtsRemote, asking: Asking
) -> None:
    first = await asking.submit("One.", token="t-1")
    assert await asking.submit("Something else.", token="t-1") == first
    assert await asking.submit("One.", token="t-2") != first
    order = remote.jobs.order(first)
    assert order is not None
    assert order.text == "One."
    assert (remote.seen.jobs_made, remote.seen.jobs_found) == (2, 1)


async def test_racers_with_one_token_get_one_job(remote: TtsRemote, asking: Asking) -> None:
    job_ids = await asyncio.gather(*(asking.submit(token="one") for _ in range(20)))
    assert len(set(job_ids)) == 1
    assert (await asking.ended(job_ids[0]))["status"] == "completed"
    assert (remote.seen.jobs_made, remote.seen.jobs_begun) == (1, 1)
    assert remote.jobs.all() == [job_ids[0]]


async def test_without_a_token_every_submission_is_a_job(asking: Asking) -> None:
    assert await asking.submit() != await asking.submit()


@pytest.mark.parametrize("job_id", ["0" * 32, "", "..", "../jobs", "lock", "x" * 5_000, "a\0b"])
async def test_an_id_that_never_was_is_not_found(asking: Asking, job_id: str) -> None:
    named = {"job_id": job_id}
    answers = [
        await asking.http.get("/job-status", params=named),
        await asking.http.get("/job-result", params=named),
        await asking.http.post("/job-cancel", json={"job_id": job_id}),
    ]
    assert [answer.status_code for answer in answers] == [404, 404, 404]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b'{"language": "en"}',
        b'{"text": "One."}',
        b'{"text": 1, "language": "en"}',
        b'{"text": " ", "language": "en"}',
        b'{"text": "a\\u0000b", "language": "en"}',
        b'{"text": "\\ud800", "language": "en"}',
        b'{"text": "One.", "language": "e\\u0000"}',
        b'{"text": "One.", "language": "en", "token": ""}',
        b'{"text": "One.", "language": "en", "callback_url": "file:///etc/passwd"}',
        b'{"text": "' + b"a" * 100_001 + b'", "language": "en"}',
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(
    remote: TtsRemote, asking: Asking, body: bytes
) -> None:
    answer = await asking.http.post("/submit-job", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert remote.jobs.all() == []


async def test_other_paths_and_methods_are_refused(asking: Asking) -> None:
    assert (await asking.http.get("/submit")).status_code == 404
    assert (await asking.http.get("/submit-job")).status_code == 405
    assert (await asking.http.get("/job-status")).status_code == 400


async def test_a_bearer_is_asked_for_where_one_is_set(tmp_path: Path) -> None:
    async with TtsRemote(tmp_path, bearer="secret") as remote:
        async with Asking(remote.url) as anyone:
            answer = await anyone.http.post("/submit-job", json={"text": "One.", "language": "en"})
            assert answer.status_code == 401
        async with Asking(remote.url, Authorization="Bearer secret") as known:
            await known.submit()


async def test_a_job_that_runs_has_no_result_yet(remote: TtsRemote, asking: Asking) -> None:
    remote.plan(Fault("stuck_job"))
    job_id = await asking.submit()
    assert await asking.status(job_id) == {"job_id": job_id, "status": "running"}
    answer = await asking.result(job_id)
    assert (answer.status_code, answer.json()) == (409, {"error": "the job is running"})
    remote.clear_faults()
    assert (await asking.ended(job_id))["status"] == "completed"


async def test_as_many_speak_at_once_as_there_are_voices(tmp_path: Path) -> None:
    async with TtsRemote(tmp_path, voices=2) as remote, Asking(remote.url) as asking:
        job_ids = [await asking.submit(SENTENCE) for _ in range(6)]
        assert {(await asking.ended(each))["status"] for each in job_ids} == {"completed"}
        assert remote.seen.peak_speaking == 2


async def test_any_number_of_jobs_may_be_under_way(remote: TtsRemote, asking: Asking) -> None:
    remote.plan(Fault("stuck_job", times=None))
    job_ids = [await asking.submit(f"Job {number}.") for number in range(50)]

    async def all_stuck() -> bool:
        return remote.seen.faults["stuck_job"] == 50

    await eventually_async(all_stuck, "all jobs are under way")
    for job_id in job_ids:
        assert (await asking.cancel(job_id))["error"] == "cancelled"
    assert remote.seen.jobs_ended == {"cancelled": 50}


async def test_cancelling_stops_the_voice_and_stays(remote: TtsRemote, asking: Asking) -> None:
    job_id = await asking.submit(LONG)

    async def speaks() -> bool:
        draft = remote.jobs.draft(job_id)
        return draft.exists() and draft.stat().st_size > 0

    await eventually_async(speaks, "it speaks")
    cancelled = {"job_id": job_id, "status": "failed", "error": "cancelled"}
    assert await asking.cancel(job_id) == cancelled
    assert voices() == []
    assert not remote.jobs.draft(job_id).exists()
    assert await asking.cancel(job_id) == cancelled
    await remote.go_away()
    await remote.come_back()
    assert await asking.status(job_id) == cancelled
    assert remote.seen.jobs_begun == 1
    assert remote.seen.jobs_ended == {"cancelled": 1}


async def test_cancelling_what_has_ended_changes_nothing(asking: Asking) -> None:
    job_id = await asking.submit()
    ended = await asking.ended(job_id)
    assert await asking.cancel(job_id) == ended
    assert (await asking.result(job_id)).status_code == 200


async def test_a_failed_job_says_why_instead_of_a_result(remote: TtsRemote, asking: Asking) -> None:
    remote.plan(Fault("failed_job", message="no more memory"))
    job_id = await asking.submit()
    ended: dict[str, Any] = await asking.ended(job_id)
    assert ended == {"job_id": job_id, "status": "failed", "error": "no more memory"}
    answer = await asking.result(job_id)
    assert answer.status_code == 409
    assert answer.json() == {"error": "the job has failed: no more memory"}
