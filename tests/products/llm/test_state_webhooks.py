"""Webhooks of chats: every state in the surface's words, signed, and once each."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from coatcheck.products.llm import webhook_payloads
from examples.ollama_upstream import Fault
from tests.databases import Databases
from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.products.llm.conftest import NOBODY_LISTENS
from tests.products.llm.talking import Talking, talking
from tests.waiting import eventually_async
from tests.webhooks.webhook_deliveries import WebhookDeliveries, first_secret, verified

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL, FRESH = "llama3.2", "mistral"
PAINTER = "x/z-image-turbo"
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
SMALL = {"model": PAINTER, "prompt": "a coat", "width": 8, "height": 8}
LARGE = {"model": PAINTER, "prompt": "a coat", "width": 1024, "height": 1024}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talk(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Talking]:
    """One target, and a server that delivers."""
    models = {"models": [MODEL, FRESH, PAINTER]}
    async with (
        databases.fresh() as dsn,
        talking(dsn, tmp_path_factory.mktemp("deployment"), upstream=models) as opened,
        WebhookDeliveries(opened.deployment).delivering(),
    ):
        opened.deployment.start_maintenance()
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def receiver() -> AsyncIterator[UpstreamServer]:
    async with upstream_server() as server:
        yield server


async def load(talk: Talking, model: str) -> None:
    """Have this model loaded."""
    job_id = await queued(talk.deployment, {**CHAT, "model": model})
    assert (
        await talk.deployment.http.get(f"/jobs/{job_id}", params={"wait": 60})
    ).status_code == 200


async def queued(deployment: Deployment, body: dict[str, Any]) -> str:
    answer = await deployment.http.post("/jobs", json=body)
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def told(receiver: UpstreamServer, times: int) -> list[dict[str, Any]]:
    """What the receiver was told, once it was told so often, in the order of the events."""

    async def look() -> bool:
        return len(receiver.requests) >= times

    await eventually_async(look, f"the receiver was told {times} times")
    assert len(receiver.requests) == times
    ids = {request.header("webhook-id") for request in receiver.requests}
    assert len(ids) == times
    # Ids are drawn in the order of the events; what is said at nearly one time may overtake.
    requests = sorted(receiver.requests, key=lambda request: str(request.header("webhook-id")))
    return [verified(request, first_secret()) for request in requests]


async def told_of_done(receiver: UpstreamServer) -> dict[str, Any]:
    """What the receiver was told of a job that is done, whatever it was told before."""

    async def look() -> dict[str, Any] | None:
        bodies = [verified(request, first_secret()) for request in receiver.requests]
        return next((body for body in bodies if body["state"] == "done"), None)

    found: dict[str, Any] = await eventually_async(look, "the receiver was told of the end")
    return found


def steps(bodies: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(body["previous_state"], body["state"]) for body in bodies]


async def test_every_state_is_told_in_the_surfaces_words(
    talk: Talking, receiver: UpstreamServer
) -> None:
    chat = {**CHAT, "model": FRESH}
    job_id = await queued(talk.deployment, {**chat, "state_webhook_url": receiver.url()})
    bodies = await told(receiver, 3)
    assert steps(bodies) == [("queued", "loading"), ("loading", "working"), ("working", "done")]
    job = (await talk.deployment.http.get(f"/jobs/{job_id}")).json()
    loading, _, done = bodies
    assert set(done) == {
        *("type", "timestamp", "job_id", "state", "previous_state"),
        *("model", "attempt", "error", "result", "artifacts"),
    }
    assert {body["job_id"] for body in bodies} == {job_id}
    assert {body["model"] for body in bodies} == {f"{FRESH}:latest"}
    assert {body["attempt"] for body in bodies} == {1}
    assert [body["type"] for body in bodies] == ["job.loading", "job.working", "job.done"]
    assert (loading["result"], loading["error"], loading["artifacts"]) == (None, None, [])
    assert done["result"] == job["result"]


async def test_a_model_that_is_there_is_not_loaded_again(
    talk: Talking, receiver: UpstreamServer
) -> None:
    await load(talk, MODEL)
    await queued(talk.deployment, {**CHAT, "state_webhook_url": receiver.url()})
    assert steps(await told(receiver, 2)) == [("queued", "working"), ("working", "done")]


async def test_another_attempt_is_told_with_its_reason(
    talk: Talking, receiver: UpstreamServer
) -> None:
    await load(talk, MODEL)
    talk.upstream.plan(Fault("cut", path="/api/chat", after_tokens=3, times=1))
    await queued(talk.deployment, {**CHAT, "state_webhook_url": receiver.url()})
    bodies = await told(receiver, 4)
    assert steps(bodies) == [
        ("queued", "working"),
        ("working", "queued"),
        ("queued", "working"),
        ("working", "done"),
    ]
    again, end = bodies[1], bodies[-1]
    assert (again["attempt"], again["error"]["code"]) == (0, "target_connection_lost")
    assert (end["attempt"], end["error"]) == (1, None)


async def test_a_failure_is_told_with_the_targets_words(
    talk: Talking, receiver: UpstreamServer
) -> None:
    await load(talk, MODEL)
    talk.upstream.plan(
        Fault("error", path="/api/chat", status=400, message="that makes no sense", times=1)
    )
    await queued(talk.deployment, {**CHAT, "state_webhook_url": receiver.url()})
    end = (await told(receiver, 2))[-1]
    assert (end["previous_state"], end["state"], end["type"]) == ("working", "failed", "job.failed")
    assert end["error"]["code"] == "invalid_request"
    assert "that makes no sense" in end["error"]["message"]


async def test_a_cancellation_is_told(talk: Talking, receiver: UpstreamServer) -> None:
    await load(talk, MODEL)
    talk.upstream.plan(Fault("hang", times=1))
    job_id = await queued(talk.deployment, {**CHAT, "state_webhook_url": receiver.url()})
    await told(receiver, 1)
    await talk.deployment.http.post(f"/jobs/{job_id}/cancel")
    end = (await told(receiver, 2))[-1]
    assert steps([end]) == [("working", "failed")]
    assert end["error"]["code"] == "cancelled"


async def test_small_files_come_along(talk: Talking, receiver: UpstreamServer) -> None:
    await queued(talk.deployment, {**SMALL, "state_webhook_url": receiver.url()})
    (picture,) = (await told_of_done(receiver))["artifacts"]
    assert set(picture) == {"name", "media_type", "bytes", "sha256", "content_base64"}
    content = base64.b64decode(picture["content_base64"])
    assert content.startswith(b"\x89PNG")
    assert len(content) == picture["bytes"]
    assert hashlib.sha256(content).hexdigest() == picture["sha256"]
    assert (picture["name"], picture["media_type"]) == ("image-1.png", "image/png")


async def test_large_files_come_by_url(talk: Talking, receiver: UpstreamServer) -> None:
    await queued(talk.deployment, {**LARGE, "state_webhook_url": receiver.url()})
    done = await told_of_done(receiver)
    assert done["result"] is None
    assert [each["name"] for each in done["artifacts"]] == ["image-1.png", "result.json"]
    for artifact in done["artifacts"]:
        assert set(artifact) == {"name", "media_type", "bytes", "sha256", "url"}
        fetched = await talk.deployment.http.get(artifact["url"], headers={"Authorization": ""})
        assert fetched.status_code == 200, fetched.text
        assert hashlib.sha256(fetched.content).hexdigest() == artifact["sha256"]


async def test_only_so_many_bytes_come_along(
    talk: Talking, receiver: UpstreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_payloads, "ARTIFACTS_INLINE_BYTES_MAX", 10)
    await queued(talk.deployment, {**SMALL, "state_webhook_url": receiver.url()})
    (picture,) = (await told_of_done(receiver))["artifacts"]
    assert set(picture) == {"name", "media_type", "bytes", "sha256", "url"}


async def test_who_asks_for_the_end_is_told_that_alone_in_an_envelope(
    talk: Talking, receiver: UpstreamServer
) -> None:
    job_id = await queued(talk.deployment, {**CHAT, "webhook_url": receiver.url()})
    (body,) = await told(receiver, 1)
    assert (body["type"], body["state"]) == ("job.completed", "completed")
    assert body["data"] == (await talk.deployment.http.get(f"/jobs/{job_id}")).json()


async def test_who_is_told_after_the_job_has_gone_is_told_the_facts(
    databases: Databases, tmp_path: Path, receiver: UpstreamServer
) -> None:
    async with (
        databases.fresh() as dsn,
        Deployment(dsn, tmp_path, llm_url=NOBODY_LISTENS) as deployment,
    ):
        hooks = WebhookDeliveries(deployment)
        both = {"webhook_url": receiver.url("/end"), "state_webhook_url": receiver.url("/states")}
        job_id = await queued(deployment, {**CHAT, **both})
        await deployment.http.post(f"/jobs/{job_id}/cancel")
        await hooks.forget_jobs()
        async with hooks.delivering():
            await told(receiver, 2)
    bodies = {request.target: verified(request, first_secret()) for request in receiver.requests}
    flat, data = bodies["/states"], bodies["/end"]["data"]
    assert (flat["state"], flat["expired"], flat["result"]) == ("failed", True, None)
    assert flat["error"]["code"] == data["error"]["code"] == "cancelled"
    assert (data["job_id"], data["state"], data["expired"]) == (job_id, "failed", True)
