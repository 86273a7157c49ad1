"""A chat that a target has answered: its result, its files, its story."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import ollama
import pytest
import pytest_asyncio

from examples.ollama_upstream import Fault, OllamaUpstream
from tests.databases import Databases
from tests.deployment import Deployment, bearer
from tests.products.gateway.sse import following
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "llama3.2"
PAINTER = "x/z-image-turbo"
SLOW = "slow"
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[OllamaUpstream]:
    async with OllamaUpstream([MODEL, PAINTER, SLOW], tokens_per_second=0) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(
    upstream: OllamaUpstream, databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    """A deployment with one target, as COATCHECK_LLM_URL names it, and a worker that asks it."""
    folder = tmp_path_factory.mktemp("deployment")
    async with (
        databases.fresh() as dsn,
        Deployment(dsn, folder, llm_url=upstream.url) as opened,
    ):
        await opened.start_llm_worker()
        opened.start_maintenance()
        yield opened


async def queued(deployment: Deployment, body: dict[str, Any]) -> str:
    answer = await deployment.http.post("/jobs", json=body)
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def ended(deployment: Deployment, job_id: str) -> dict[str, Any]:
    answer = await deployment.http.get(f"/jobs/{job_id}", params={"wait": 60})
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def direct(upstream: OllamaUpstream, body: dict[str, Any]) -> dict[str, Any]:
    """What the target says to the same request, but for the times it took."""
    answer = await ollama.AsyncClient(upstream.url).chat(**body)
    return untimed(answer.model_dump())


def untimed(answer: dict[str, Any]) -> dict[str, Any]:
    ollama.ChatResponse.model_validate(answer)
    return {
        name: value
        for name, value in answer.items()
        if value is not None and not name.endswith("_duration") and name != "created_at"
    }


async def test_the_result_is_what_the_target_would_have_said(
    deployment: Deployment, upstream: OllamaUpstream
) -> None:
    job = await ended(deployment, await queued(deployment, CHAT))
    assert (job["state"], job["terminal"], job["error"]) == ("done", True, None)
    assert (job["attempt"], job["model"], job["target"]) == (1, f"{MODEL}:latest", "default")
    assert job["waiting"] is None
    assert job["artifacts"] == []
    assert job["created_at"] <= job["started_at"] <= job["finished_at"] < job["expires_at"]
    said, expected = untimed(job["result"]), await direct(upstream, CHAT)
    assert said["message"]["content"] == expected["message"]["content"] != ""
    assert said["done_reason"] == expected["done_reason"]


async def test_who_waits_for_it_gets_it_with_the_submission(deployment: Deployment) -> None:
    answer = await deployment.http.post("/jobs", json=CHAT, headers={"Prefer": "wait=30"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["state"] == "done"
    assert answer.json()["result"]["message"]["content"]
    assert answer.headers["location"] == answer.json()["urls"]["poll"]
    assert answer.headers["preference-applied"] == "wait=30"
    assert answer.headers["etag"]


async def test_a_known_key_brings_the_result_again(deployment: Deployment) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8), "Prefer": "wait=30"}
    first = await deployment.http.post("/jobs", json=CHAT, headers=headers)
    again = await deployment.http.post("/jobs", json=CHAT, headers=headers)
    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"


async def test_the_prompt_is_gone_when_the_job_has_ended(deployment: Deployment) -> None:
    job = await ended(deployment, await queued(deployment, CHAT))
    view = await deployment.engine.get(job["job_id"])
    rows = await deployment.context.tenants.fetch(
        "SELECT payload FROM jobs WHERE id = $1", view.uuid
    )
    assert rows[0]["payload"] is None


async def test_an_answer_too_long_for_a_row_is_shown_whole(deployment: Deployment) -> None:
    body = {"model": PAINTER, "prompt": "a large coat", "width": 1024, "height": 1024}
    job = await ended(deployment, await queued(deployment, body))
    image, artifact = job["artifacts"]
    assert (artifact["name"], artifact["media_type"]) == ("result.json", "application/json")
    assert artifact["bytes"] > 256 * 1024
    fetched = await deployment.http.get(artifact["url"])
    assert fetched.json() == job["result"]
    assert hashlib.sha256(fetched.content).hexdigest() == artifact["sha256"]
    assert len(fetched.content) == artifact["bytes"]
    # An event has no room for it.
    async with following(deployment.http, f"/jobs/{job['job_id']}/events") as stream:
        end = (await stream.rest())[-1]
    assert (end.data["result"], end.data["artifacts"]) == (None, [image, artifact])


async def test_an_image_is_a_file_of_its_job(deployment: Deployment) -> None:
    body = {"model": PAINTER, "prompt": "a coat", "width": 64, "height": 64}
    job = await ended(deployment, await queued(deployment, body))
    assert job["state"] == "done", job
    (artifact,) = job["artifacts"]
    assert (artifact["name"], artifact["media_type"]) == ("image-1.png", "image/png")
    assert artifact["url"] == f"/jobs/{job['job_id']}/artifacts/image-1.png"
    whole = await deployment.http.get(artifact["url"])
    assert whole.status_code == 200
    assert whole.content.startswith(b"\x89PNG")
    assert whole.headers["content-type"] == "image/png"
    assert whole.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in whole.headers["content-security-policy"]
    assert whole.headers["x-content-type-options"] == "nosniff"
    part = await deployment.http.get(artifact["url"], headers={"Range": "bytes=1-3"})
    assert (part.status_code, part.content) == (206, b"PNG")
    assert part.headers["content-range"] == f"bytes 1-3/{artifact['bytes']}"
    beyond = await deployment.http.get(artifact["url"], headers={"Range": "bytes=99999999-"})
    assert beyond.status_code == 416
    same = await deployment.http.get(
        artifact["url"], headers={"If-None-Match": whole.headers["etag"]}
    )
    assert (same.status_code, same.content) == (304, b"")
    head = await deployment.http.head(artifact["url"])
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(artifact["bytes"])
    stranger = bearer(await deployment.create_key(user="stranger"))
    assert (await deployment.http.get(artifact["url"], headers=stranger)).status_code == 404
    assert (await deployment.http.get(f"/jobs/{job['job_id']}/artifacts/other")).status_code == 404


async def test_the_events_are_the_targets_words_as_they_come(deployment: Deployment) -> None:
    job_id = await queued(deployment, CHAT)
    async with following(deployment.http, f"/jobs/{job_id}/events") as stream:
        events = await stream.rest()
    chunks = [event.data["data"] for event in events if event.name == "chunk"]
    said = "".join(chunk["message"]["content"] for chunk in chunks)
    end = events[-1]
    assert end.name == "end"
    assert end.data["state"] == "done"
    assert said == end.data["result"]["message"]["content"]
    assert chunks[-1]["done"]
    shown = [event.data["state"] for event in events if event.name == "state"]
    assert set(shown) <= {"queued", "loading", "working"}


async def test_a_reader_who_lost_the_stream_goes_on_where_it_stopped(
    deployment: Deployment,
) -> None:
    job_id = await queued(deployment, CHAT)
    await ended(deployment, job_id)
    async with following(deployment.http, f"/jobs/{job_id}/events") as stream:
        whole = [event for event in await stream.rest() if event.name == "chunk"]
    seen = whole[2].id
    assert seen is not None
    async with following(
        deployment.http, f"/jobs/{job_id}/events", {"Last-Event-ID": seen}
    ) as stream:
        rest = [event for event in await stream.rest() if event.name == "chunk"]
    assert rest == whole[3:]


async def test_loading_and_working_are_shown(
    deployment: Deployment, upstream: OllamaUpstream
) -> None:
    upstream.tuning.load_seconds = 60.0
    job_id = await queued(deployment, {**CHAT, "model": SLOW})

    async def shown(state: str) -> dict[str, Any] | None:
        job: dict[str, Any] = (await deployment.http.get(f"/jobs/{job_id}")).json()
        return job if job["state"] == state else None

    loading = await eventually_async(lambda: shown("loading"), "its model is being loaded")
    assert (loading["target"], loading["waiting"], loading["attempt"]) == ("default", None, 1)
    listed = await deployment.http.get("/jobs", params={"state": "loading"})
    assert [each["job_id"] for each in listed.json()["items"]] == [job_id]
    assert (await deployment.http.get("/jobs", params={"state": "queued"})).json()["items"] == []
    cancelled = await deployment.http.post(f"/jobs/{job_id}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "working")
    job = await ended(deployment, job_id)
    assert (job["state"], job["error"]["code"]) == ("failed", "cancelled")
    upstream.tuning.load_seconds = 0.0


async def test_a_model_that_nobody_has_fails_with_the_targets_words(deployment: Deployment) -> None:
    job = await ended(deployment, await queued(deployment, {**CHAT, "model": "nobody-has-this"}))
    assert (job["state"], job["error"]["code"]) == ("failed", "model_not_found")
    assert "nobody-has-this" in job["error"]["message"]
    assert job["result"] is None


async def test_a_job_between_two_attempts_says_what_went_wrong(
    deployment: Deployment, upstream: OllamaUpstream
) -> None:
    # Of chats alone: a worker that looks whether the target is there would take it otherwise.
    wait = {"Retry-After": "600"}
    upstream.plan(Fault("error", path="/api/chat", status=503, headers=wait, times=1))
    job_id = await queued(deployment, CHAT)

    async def backing_off() -> dict[str, Any] | None:
        job: dict[str, Any] = (await deployment.http.get(f"/jobs/{job_id}")).json()
        return job if job["waiting"] and job["waiting"]["reason"] == "backoff" else None

    job = await eventually_async(backing_off, "it waits for another attempt")
    assert (job["state"], job["attempt"], job["error"]) == ("queued", 1, None)
    assert job["waiting"]["detail"].startswith("The last attempt failed: ")
    assert job["waiting"]["next_try_at"] > job["waiting"]["since"]
    await deployment.http.post(f"/jobs/{job_id}/cancel")


async def test_a_target_that_is_asleep_is_waited_for_and_spends_no_attempt(
    deployment: Deployment, upstream: OllamaUpstream
) -> None:
    await upstream.go_away()
    job_id = await queued(deployment, CHAT)

    async def unreachable() -> dict[str, Any] | None:
        job: dict[str, Any] = (await deployment.http.get(f"/jobs/{job_id}")).json()
        why = job["waiting"]
        return job if why and why["reason"] == "target_unreachable" else None

    job = await eventually_async(unreachable, "it says that the target cannot be reached")
    assert (job["state"], job["attempt"], job["error"]) == ("queued", 0, None)
    assert job["waiting"]["next_try_at"] > job["waiting"]["since"]
    second = await queued(deployment, CHAT)
    await upstream.come_back()
    for each in (job_id, second):
        done = await ended(deployment, each)
        assert (done["state"], done["attempt"]) == ("done", 1)


async def test_two_readers_follow_one_job(deployment: Deployment) -> None:
    job_id = await queued(deployment, CHAT)

    async def chunks() -> list[Any]:
        async with following(deployment.http, f"/jobs/{job_id}/events") as stream:
            return [event.data for event in await stream.rest() if event.name == "chunk"]

    one, other = await asyncio.gather(chunks(), chunks())
    assert one == other != []


async def test_what_is_stored_is_what_was_sent(
    deployment: Deployment, upstream: OllamaUpstream
) -> None:
    job = await ended(
        deployment, await queued(deployment, {**CHAT, "webhook_url": None, "odd": [1, 2]})
    )
    assert job["state"] == "done"
    sent = json.loads(upstream.seen.bodies("/api/chat")[-1])
    assert sent == {**CHAT, "odd": [1, 2], "stream": True}
