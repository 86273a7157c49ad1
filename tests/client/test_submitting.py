from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from coatcheck import Lane
from coatcheck.client import ConflictError, InvalidRequestError, JobFailed
from tests.client.cases import JOB_ID, JOB_URL, TICKET, job
from tests.client.conftest import TOKEN, Connect

SERVICE_URL = "/api/v1/orgs/acme/services/docs"
TICKET_ANSWER = {"status": 202, "json": TICKET, "headers": {"Location": JOB_URL}}


@dataclass
class Document:
    text: str


async def test_a_submission_says_what_it_was_told(connect: Connect, scripted: Any) -> None:
    server = await scripted({"json": job("completed", result_summary=1)})
    client = connect(server.url, org="acme")
    handle = await client.submit(
        "docs",
        "items/123",
        Document("x"),
        version=2,
        method="PUT",
        lane=Lane.URGENT,
        idempotency_key="batch-42",
        wait=10,
        headers={"Prefer": "handling=strict", "X-Request-Id": "mine"},
    )
    assert (handle.terminal, handle.result) == (True, 1)
    (asked,) = server.asked
    assert (asked.method, asked.target) == ("POST", f"{SERVICE_URL}/v2/async/items/123")
    assert asked.body == b'{"text":"x"}'
    said = {
        "authorization": f"Bearer {TOKEN}",
        "content-type": "application/json",
        "idempotency-key": "batch-42",
        "prefer": "wait=10, handling=strict",
        "x-hsl-lane": "urgent",
        "x-hsl-target-method": "PUT",
        "x-request-id": "mine",
    }
    assert asked.headers.items() >= said.items()
    assert asked.headers["user-agent"].startswith("coatcheck-python/")


async def test_a_submission_without_a_payload_has_no_body(connect: Connect, scripted: Any) -> None:
    server = await scripted(TICKET_ANSWER)
    await connect(server.url, None).submit("docs", "analyze")
    assert server.asked[0].body == b""
    assert "content-type" not in server.asked[0].headers
    assert "authorization" not in server.asked[0].headers


async def test_bytes_are_sent_as_they_are(connect: Connect, scripted: Any) -> None:
    server = await scripted(TICKET_ANSWER)
    await connect(server.url).submit(
        "docs", "analyze", b"<x/>", headers={"Content-Type": "application/xml"}
    )
    assert server.asked[0].body == b"<x/>"
    assert server.asked[0].headers["content-type"] == "application/xml"


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("analyze", {"idempotency_key": ""}, "an idempotency key"),
        ("analyze", {"headers": {"X-Mine": "open\nsesame"}}, "the header x-mine"),
        ("../jobs", {}, "a path"),
    ],
)
async def test_what_cannot_be_sent_is_refused_before_it_is(
    connect: Connect, scripted: Any, path: str, options: dict[str, Any], message: str
) -> None:
    server = await scripted()
    with pytest.raises(ValueError, match=message) as refused:
        await connect(server.url).submit("docs", path, **options)
    assert "sesame" not in str(refused.value)
    assert server.asked == []


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"json": {"n": 1}}, {"n": 1}),
        ({"json": None}, None),
        ({"text": "hello"}, "hello"),
        ({"text": "\x00\x01", "headers": {"Content-Type": "image/png"}}, b"\x00\x01"),
        ({"status": 204, "text": ""}, None),
        (
            {"status": 202, "json": {"poll_url": "/mine"}, "headers": {"Location": JOB_URL}},
            {"poll_url": "/mine"},
        ),
        ({"status": 202, "text": "later", "headers": {"Location": JOB_URL}}, "later"),
    ],
)
async def test_a_call_returns_what_the_endpoint_does(
    connect: Connect, scripted: Any, answer: dict[str, Any], result: Any
) -> None:
    server = await scripted(answer)
    client = connect(server.url, org="acme")
    assert await client.call("docs", "/items?page=2", method="GET", lane="bulk") == result
    (asked,) = server.asked
    assert (asked.method, asked.target) == ("GET", f"{SERVICE_URL}/items?page=2")
    assert asked.headers["x-hsl-lane"] == "bulk"
    assert "prefer" not in asked.headers


async def test_a_call_that_takes_long_becomes_a_wait(connect: Connect, scripted: Any) -> None:
    server = await scripted(
        TICKET_ANSWER,
        {"status": 202, "json": job("processing")},
        {"json": job("completed", result_summary="at last")},
    )
    client = connect(server.url)
    assert await client.call("docs", "analyze", {}, timeout=90) == "at last"
    assert server.asked[0].headers["prefer"] == "wait=60"
    assert [asked.path for asked in server.asked[1:]] == [JOB_URL, JOB_URL]


async def test_a_call_whose_job_fails_raises_the_same_early_and_late(
    connect: Connect, scripted: Any
) -> None:
    error = {"code": "handler_error", "message": "ValueError: x"}
    failed = {"json": job("failed", last_error=error)}
    refused = {"status": 502, "problem": error, "headers": {"Location": JOB_URL}}
    server = await scripted(refused, failed, TICKET_ANSWER, failed)
    client = connect(server.url)
    for _ in ("early", "late"):
        with pytest.raises(JobFailed) as raised:
            await client.call("docs", "analyze")
        assert (raised.value.code, raised.value.job.id) == ("handler_error", JOB_ID)
    assert client.pauses == [], "a job that has failed is not asked to fail again"


async def test_who_may_not_read_is_told_of_a_failed_call_all_the_same(
    connect: Connect, scripted: Any
) -> None:
    server = await scripted(
        {
            "status": 422,
            "problem": {"code": "invalid_input", "message": "text: missing"},
            "headers": {"Location": JOB_URL},
        },
        {"status": 403, "problem": {"code": "missing_scope", "message": "read"}},
    )
    with pytest.raises(InvalidRequestError) as raised:
        await connect(server.url).call("docs", "analyze")
    assert raised.value.code == "invalid_input"


async def test_cancelling_shows_the_job_as_it_is_then(connect: Connect, scripted: Any) -> None:
    server = await scripted({"status": 202, "json": job("cancel_requested")})
    handle = await connect(server.url).cancel(JOB_ID, service="docs")
    assert (handle.status, handle.terminal) == ("cancel_requested", False)
    assert (server.asked[0].method, server.asked[0].target) == ("POST", f"{JOB_URL}/cancel")


async def test_a_cancellation_whose_answer_was_lost_is_found_done(
    connect: Connect, scripted: Any
) -> None:
    conflict = {"status": 409, "problem": {"code": "job_already_ended", "message": "ended"}}
    server = await scripted({"drop": True}, conflict, {"json": job("cancelled")})
    handle = await connect(server.url).cancel(JOB_ID, service="docs")
    assert handle.status == "cancelled"


async def test_what_has_ended_otherwise_cannot_be_cancelled(
    connect: Connect, scripted: Any
) -> None:
    conflict = {"status": 409, "problem": {"code": "job_already_ended", "message": "ended"}}
    server = await scripted(conflict, {"json": job("completed")})
    with pytest.raises(ConflictError) as raised:
        await connect(server.url).cancel(JOB_ID, service="docs")
    assert raised.value.code == "job_already_ended"
