"""Queueing a chat: what is taken, what is kept of it, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from coatcheck.db.connection import Connection
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.products.llm.jobs import LARGE_BODIES_OF_ONE_ORG_MAX
from coatcheck.products.llm.model import LLM_PAYLOAD_BYTES_MAX, LlmRequest
from coatcheck.products.llm.submit_routes import ChatSubmitter
from tests.contract.raw import send
from tests.deployment import Deployment

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT: dict[str, Any] = {"model": "llama3", "messages": [{"role": "user", "content": "hello"}]}
_ULID_CHARACTERS = 26


async def stored(deployment: Deployment, job_id: str) -> LlmRequest:
    """The payload of a job, as its row has it."""
    (row,) = await rows(deployment, job_id)
    return msgspec.json.decode(row["payload"], type=LlmRequest)


async def rows(deployment: Deployment, job_id: str) -> Any:
    view = await deployment.engine.get(job_id, org="default")
    line = Connection(deployment.settings.database_url, name="look")
    try:
        return await line.fetch("SELECT * FROM jobs WHERE id = $1", view.uuid)
    finally:
        await line.close()


async def queue(deployment: Deployment, body: Any = CHAT, **headers: str) -> httpx2.Response:
    spelt = {name.replace("_", "-"): value for name, value in headers.items()}
    return await deployment.http.post("/jobs", json=body, headers=spelt)


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    return body


async def test_a_chat_is_answered_with_where_to_collect_it(waiting: Deployment) -> None:
    answer = await queue(waiting)
    assert answer.status_code == 202
    ticket = answer.json()
    assert len(ticket["job_id"]) == _ULID_CHARACTERS
    poll = f"/jobs/{ticket['job_id']}"
    assert ticket == {
        "job_id": ticket["job_id"],
        "state": "queued",
        "terminal": False,
        "urls": {"poll": poll, "events": f"{poll}/events", "cancel": f"{poll}/cancel"},
    }
    assert answer.headers["location"] == poll
    assert int(answer.headers["retry-after"]) >= 1
    assert f'<{poll}/events>; rel="events"' in answer.headers["link"]


async def test_every_field_is_kept_as_it_was_written_but_for_our_own(waiting: Deployment) -> None:
    body = (
        b'{"model": "llama3", "messages" : [ {"role":"user","content":"\\u0068i"} ],'
        b' "options":{"temperature": 1.50, "seed": 12345678901234567890},'
        b' "keep_alive" : -1, "format" : {"type":  "object"}, "unknown_to_us": [ 1,2 ],'
        b' "webhook_url": null, "stream" : false}'
    )
    answer = await waiting.http.post(
        "/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 202, answer.text
    kept = await stored(waiting, answer.json()["job_id"])
    assert (kept.kind, kept.model) == ("chat", "llama3:latest")
    assert bytes(kept.body) == (
        b'{"model":"llama3","messages":[ {"role":"user","content":"\\u0068i"} ],'
        b'"options":{"temperature": 1.50, "seed": 12345678901234567890},'
        b'"keep_alive":-1,"format":{"type":  "object"},"unknown_to_us":[ 1,2 ],"stream":true}'
    )


async def test_a_prompt_is_a_completion(waiting: Deployment) -> None:
    answer = await queue(waiting, {"model": "mistral:7b", "prompt": "Once"})
    kept = await stored(waiting, answer.json()["job_id"])
    assert (kept.kind, kept.model) == ("generate", "mistral:7b")
    assert json.loads(bytes(kept.body)) == {
        "model": "mistral:7b",
        "prompt": "Once",
        "stream": True,
    }


async def test_the_job_stands_in_its_models_line_and_is_kept_for_a_day(waiting: Deployment) -> None:
    (row,) = await rows(waiting, (await queue(waiting)).json()["job_id"])
    assert (row["flow"], row["lane"], row["endpoint"]) == (
        "llama3:latest",
        "standard",
        "llm.post__chat",
    )
    assert (row["keep_completed_seconds"], row["keep_failed_seconds"]) == (86_400, None)
    assert row["timeout_seconds"] == 3_600


async def test_images_of_megabytes_are_taken(waiting: Deployment) -> None:
    image = base64.b64encode(bytes(6 * 1024 * 1024)).decode()
    message = {"role": "user", "content": "what is this?", "images": [image]}
    answer = await queue(waiting, {"model": "llava", "messages": [message]})
    assert answer.status_code == 202, answer.text
    kept = await stored(waiting, answer.json()["job_id"])
    assert json.loads(bytes(kept.body))["messages"] == [message]


async def test_a_body_of_unknown_length_is_taken(waiting: Deployment) -> None:
    async def pieces() -> Any:
        yield b'{"model": "llama3", '
        yield b'"messages": []}'

    answer = await waiting.http.post(
        "/jobs", content=pieces(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize("lines", [10, 70_000])
async def test_a_gzip_body_may_be_as_long_as_any_once_it_is_inflated(
    waiting: Deployment, lines: int
) -> None:
    padding = " ".join(f"line {number} of what was said before" for number in range(lines))
    sent = gzip.compress(json.dumps({**CHAT, "padding": padding}).encode())
    assert len(sent) < PAYLOAD_BYTES_MAX
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = await waiting.http.post("/jobs", content=sent, headers=headers)
    assert answer.status_code == 202, answer.text
    kept = await stored(waiting, answer.json()["job_id"])
    assert json.loads(bytes(kept.body))["padding"] == padding


async def test_a_body_over_the_limit_is_refused_before_it_is_read(waiting: Deployment) -> None:
    length = b"Content-Length: %d" % (LLM_PAYLOAD_BYTES_MAX + 1)
    answer = await send(waiting, "POST", "/jobs", length)
    assert (answer.status, answer.problem()["code"]) == (413, "body_too_large")


async def test_a_large_body_keeps_its_place_until_it_was_handed_in(
    waiting: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was read and waited for a place again would be in memory beside the others."""
    hand_in, in_memory, most = ChatSubmitter.chat, 0, 0

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal in_memory, most
        in_memory += 1
        most = max(most, in_memory)
        try:
            return await hand_in(*arguments, **options)
        finally:
            in_memory -= 1

    monkeypatch.setattr(ChatSubmitter, "chat", counted)
    large = {**CHAT, "padding": "x" * (1024 * 1024)}
    answers = await asyncio.gather(
        *(queue(waiting, large) for _ in range(4 * LARGE_BODIES_OF_ONE_ORG_MAX))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert 0 < most <= LARGE_BODIES_OF_ONE_ORG_MAX


async def test_large_bodies_leave_their_places(waiting: Deployment) -> None:
    large = {**CHAT, "padding": "x" * (1024 * 1024)}
    for _ in range(LARGE_BODIES_OF_ONE_ORG_MAX + 1):
        assert (await queue(waiting, large)).status_code == 202


async def test_a_known_key_answers_the_job_that_it_made(waiting: Deployment, key: str) -> None:
    first = await queue(waiting, Idempotency_Key=key)
    again = await queue(waiting, {**CHAT, "stream": False}, X_Idempotency_Key=key)
    assert again.status_code == 202
    assert again.json()["job_id"] == first.json()["job_id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotency-mismatch" not in again.headers
    assert "idempotent-replayed" not in first.headers


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": []}, "model"),
        ({"model": "", "messages": []}, "model"),
        ({"model": "x" * 201, "messages": []}, "model"),
        ({"model": "a\nb", "messages": []}, "model"),
        ({"model": 5, "messages": []}, "model"),
        ({"model": "llama3"}, "messages"),
        ({"model": "llama3", "messages": None}, "messages"),
        ({"model": "llama3", "messages": "hello"}, "messages"),
        ({"model": "llama3", "messages": ["hello"]}, "messages"),
        ({"model": "llama3", "prompt": ["hello"]}, "prompt"),
        ({"model": "llama3", "prompt": "a", "messages": []}, "prompt"),
        ({"model": "llama3", "messages": [], "stream": "yes"}, "stream"),
        ({"model": "llama3", "messages": [], "webhook_url": 5}, "webhook_url"),
        ({"model": "llama3", "messages": [], "state_webhook_url": {}}, "state_webhook_url"),
    ],
)
async def test_what_no_target_would_take_is_refused(
    waiting: Deployment, body: dict[str, Any], field: str
) -> None:
    refused = problem(await queue(waiting, body), 400, "invalid_parameter")
    assert [(each["field"], each["location"]) for each in refused["details"]] == [(field, "body")]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"text"', b'{"model": NaN}', b'{"model": "a\\u0000"}', b"[" * 40],
)
async def test_what_is_no_json_object_is_refused(waiting: Deployment, body: bytes) -> None:
    answer = await waiting.http.post(
        "/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    problem(answer, 400, "invalid_body")


async def test_another_content_type_is_refused(waiting: Deployment) -> None:
    answer = await waiting.http.post(
        "/jobs", content=json.dumps(CHAT), headers={"Content-Type": "text/plain"}
    )
    problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize("field", ["webhook_url", "state_webhook_url"])
async def test_a_webhook_that_may_not_be_called_is_refused(waiting: Deployment, field: str) -> None:
    answer = await queue(waiting, {**CHAT, field: "https://169.254.169.254/latest"})
    assert field in problem(answer, 422, "url_forbidden")["detail"]


async def test_without_a_target_the_surface_says_what_to_set(dsn: str, tmp_path: Path) -> None:
    async with Deployment(dsn, tmp_path) as bare:
        refused = problem(await queue(bare), 404, "llm_not_configured")
        assert "COATCHECK_LLM_URL" in refused["detail"]
        assert "COATCHECK_LLM_TARGETS" in refused["detail"]
