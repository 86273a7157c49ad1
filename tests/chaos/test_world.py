"""The world of a chaos run: what it answers, and what it notes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

from chaos import speech_remote, webhook_receiver
from chaos.history import History, read
from chaos.speech_remote import FAIL, LATE, LOSE, SLOW, spoken
from chaos.world import World
from coatcheck.settings import Settings
from tests.waiting import eventually_async

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHERS_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(History(tmp_path / "history.ndjson"), seed=1) as world:
        yield world
    world.history.close()


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield client


def rows(world: World, kind: str) -> list[dict[str, Any]]:
    return [row for row in read(world.history.path) if row["kind"] == kind]


async def deliver(
    world: World, http: httpx2.AsyncClient, *, message: str = "msg_1", secret: str = SECRET
) -> int:
    body = '{"type":"job.completed","data":{"id":"01M7"},"state":"completed"}'
    moment = datetime.now(UTC)
    headers = {
        "webhook-id": message,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Webhook(secret).sign(message, moment, body),
    }
    url = f"{world.receiver_url}/a/gateway/0"
    return (await http.post(url, content=body, headers=headers)).status_code


async def test_a_deployment_can_be_told_of_the_world(world: World) -> None:
    told = {"COATCHECK_DATABASE_URL": "postgresql://x/y", **world.environment}
    assert Settings.from_environment(told) != Settings(database_url="postgresql://x/y")


async def test_a_webhook_is_verified_and_noted(world: World, http: httpx2.AsyncClient) -> None:
    world.receiver.trust("a", SECRET)

    status = await deliver(world, http)

    (received,) = rows(world, "received")
    assert received["answered"] == status
    assert received["verified"]
    assert (received["webhook_id"], received["job"]) == ("msg_1", "01M7")
    assert (received["type"], received["state"]) == ("job.completed", "completed")
    assert (received["org"], received["surface"]) == ("a", "gateway")


async def test_a_webhook_that_somebody_else_signed_is_refused(
    world: World, http: httpx2.AsyncClient
) -> None:
    world.receiver.trust("a", SECRET)
    world.receiver.trust("b", OTHERS_SECRET)

    assert await deliver(world, http, secret=OTHERS_SECRET) == 400

    (received,) = rows(world, "received")
    assert not received["verified"]


async def test_a_message_that_was_refused_is_taken_the_second_time(
    world: World, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_receiver, "FAILS", 1.0)
    world.receiver.trust("a", SECRET)

    assert [await deliver(world, http) for _ in range(2)] == [500, 204]
    assert [row["delivery"] for row in rows(world, "received")] == [1, 2]


class Remote:
    """The remote that speaks, as a deployment asks it."""

    def __init__(self, world: World, http: httpx2.AsyncClient) -> None:
        self.url = world.environment["COATCHECK_SPEECH_REMOTE_URL"]
        self.http = http

    async def submit(self, token: str, text: str) -> str:
        body = {"token": token, "text": text, "language": "en", "voice_id": "v"}
        answer = await self.http.post(f"{self.url}/submit-job", json=body)
        job: str = answer.json()["job_id"]
        return job

    async def status(self, job: str) -> httpx2.Response:
        """What it says, once it is not confused."""

        async def look() -> list[httpx2.Response]:
            answer = await self.http.get(f"{self.url}/job-status", params={"job_id": job})
            return [answer] if answer.status_code != 500 else []

        return (await eventually_async(look, "it says something"))[0]

    async def ended(self, job: str) -> dict[str, Any]:
        async def look() -> list[dict[str, Any]]:
            told = (await self.status(job)).json()
            return [told] if told["status"] != "running" else []

        return (await eventually_async(look, "the work is done"))[0]


async def test_the_same_token_is_the_same_work(world: World, http: httpx2.AsyncClient) -> None:
    remote = Remote(world, http)

    first, second = [await remote.submit("t1", f"a text {SLOW}") for _ in range(2)]
    third = await remote.submit("t2", f"a text {SLOW}")

    assert first == second != third
    spawned = [(row["fresh"], row["live"], row["before"]) for row in rows(world, "upstream")]
    assert spawned == [(True, 1, []), (False, 1, ["running"]), (True, 2, ["running"])]


async def test_work_is_begun_before_it_is_said_to_be(
    world: World, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech_remote, "LATE_SECONDS", (600.0, 600.0))
    remote = Remote(world, http)
    submitting = asyncio.create_task(remote.submit("t1", f"a text {LATE}"))

    async def begun() -> list[str]:
        return [row["id"] for row in rows(world, "upstream") if row["event"] == "spawned"]

    [first] = await eventually_async(begun, "the work has begun")
    assert await remote.submit("t1", f"a text {LATE}") == first
    assert not submitting.done()
    submitting.cancel()


async def test_a_text_is_spoken_or_fails_as_it_says(world: World, http: httpx2.AsyncClient) -> None:
    remote = Remote(world, http)
    fine, doomed = await remote.submit("t1", "fine"), await remote.submit("t2", f"x {FAIL}")

    assert (await remote.ended(fine))["status"] == "completed"
    assert (await remote.ended(doomed))["status"] == "failed"

    async def audio() -> list[bytes]:
        answer = await http.get(f"{remote.url}/job-result", params={"job_id": fine})
        return [answer.content] if answer.is_success else []

    assert await eventually_async(audio, "the audio is there") == [spoken("fine")]


async def test_work_that_is_lost_is_lost_once(world: World, http: httpx2.AsyncClient) -> None:
    remote = Remote(world, http)
    lost = await remote.submit("t1", f"x {LOSE}")
    again = await remote.submit("t2", f"x {LOSE}")

    assert (await remote.status(lost)).status_code == 404
    assert (await remote.status(again)).status_code == 200


async def test_work_that_was_cancelled_has_ended(world: World, http: httpx2.AsyncClient) -> None:
    remote = Remote(world, http)
    job = await remote.submit("t1", f"never mind {SLOW}")

    for _ in range(2):
        answer = await http.post(f"{remote.url}/job-cancel", json={"job_id": job})
        assert answer.is_success

    assert (await remote.status(job)).json()["status"] == "cancelled"
    ended = [row["state"] for row in rows(world, "upstream") if row["event"] == "ended"]
    assert ended == ["cancelled"]


async def test_the_upstream_stumbles_once_and_refuses_always(
    world: World, http: httpx2.AsyncClient
) -> None:
    async def ask(job: str, end: str) -> int:
        headers = {"x-coatcheck-job-id": job, "x-coatcheck-attempt": "1"}
        body = {"word": "w", "seconds": 0, "end": end}
        answer = await http.post(f"{world.upstream_url}/work", json=body, headers=headers)
        return answer.status_code

    assert [await ask("1", "stumble"), await ask("1", "stumble")] == [500, 200]
    assert [await ask("2", "refuse"), await ask("2", "refuse")] == [404, 404]
    assert [row["call_number"] for row in rows(world, "upstream")] == [1, 2, 1, 2]
