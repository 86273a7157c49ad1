"""A worker calls a real http upstream with what was stored, and stores what it answers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck import State
from coatcheck.core.upstream_calls import (
    ANSWER_INLINE_BYTES_MAX,
    ARTIFACT_NAME,
    decode_answer,
    shown_result,
)
from coatcheck.products.gateway.submit_routes import response_headers
from tests.egress.upstream_server import Request, UpstreamServer, head, plain, upstream_server
from tests.products.gateway.upstream_jobs import UpstreamJobs
from tests.waiting import eventually_async

JSON = ("Content-Type", "application/json")


@pytest.fixture
async def jobs(dsn: str, tmp_path: Path) -> AsyncIterator[UpstreamJobs]:
    async with UpstreamJobs(dsn, tmp_path) as opened:
        yield opened


@pytest.fixture
async def upstream() -> AsyncIterator[UpstreamServer]:
    async with upstream_server() as server:
        yield server


async def test_the_stored_request_is_what_the_upstream_gets(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    ticket = await jobs.submit(
        upstream.url("/v1/pages/a%2Fb?q=%C3%A9&q=2"),
        method="put",
        headers=[
            (b"content-type", b"application/json; charset=utf-8"),
            (b"accept-language", b"fr"),
            (b"x-custom", b"caf\xe9"),
        ],
        body=b'{"page": 1.0}',
        request_id="req-1",
    )
    view = await jobs.wait_for_end(ticket)

    assert view.state is State.COMPLETED
    (request,) = upstream.requests
    assert (request.method, request.target) == ("PUT", "/v1/pages/a%2Fb?q=%C3%A9&q=2")
    assert request.body == b'{"page": 1.0}'
    assert request.header("host") == f"127.0.0.1:{upstream.port}"
    assert request.header("content-type") == "application/json; charset=utf-8"
    assert request.header("accept-language") == "fr"
    assert request.header("x-custom") == "caf\xe9"
    assert request.header("x-request-id") == "req-1"
    assert request.header("x-coatcheck-job-id") == ticket.id
    assert request.header("x-coatcheck-attempt") == "1"
    assert request.header("idempotency-key") == ticket.id
    assert request.header("content-length") == "13"


async def test_the_callers_credentials_and_connection_headers_stay_here(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    private = [
        (b"authorization", b"Bearer canary"),
        (b"x-api-key", b"canary"),
        (b"cookie", b"session=canary"),
        (b"proxy-authorization", b"canary"),
        (b"connection", b"keep-alive, x-hop"),
        (b"x-hop", b"canary"),
        (b"te", b"canary"),
        (b"upgrade", b"canary"),
        (b"host", b"canary.example"),
        (b"content-length", b"999"),
        (b"expect", b"canary"),
        (b"accept-encoding", b"canary"),
        (b"x-forwarded-for", b"canary"),
        (b"x-hsl-lane", b"canary"),
        (b"x-coatcheck-job-id", b"canary"),
        (b"prefer", b"wait=canary"),
    ]
    ticket = await jobs.submit(upstream.url(), headers=private)
    stored = await jobs.sql.fetchval("SELECT payload FROM jobs WHERE id = $1", ticket.uuid)
    await jobs.wait_for_end(ticket)

    assert stored is None or b"canary" not in stored
    assert "canary" not in repr(upstream.requests)
    assert upstream.requests[0].header("accept-encoding") == "identity"


async def test_the_registrations_own_headers_win_over_the_callers(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    await jobs.wait_for_end(
        await jobs.submit(
            upstream.url(),
            headers=[(b"x-tenant", b"spoofed"), (b"idempotency-key", b"theirs")],
            own_headers={"Authorization": "Bearer upstream-secret", "X-Tenant": "acme"},
        )
    )

    (request,) = upstream.requests
    assert request.header("authorization") == "Bearer upstream-secret"
    assert request.header("x-tenant") == "acme"
    assert request.header("idempotency-key") == "theirs"


@pytest.mark.parametrize(
    ("content_type", "body", "field", "shown"),
    [
        ("application/json", b'{"a":  1.0, "b": [1, "\\u0000"]}', "body_json", {"a": 1.0}),
        ("application/problem+json; charset=UTF-8", b'{"a": 1.0}', "body_json", {"a": 1.0}),
        ("application/json", b'\r\n {"a":\n1.0}\n\t', "body_json", {"a": 1.0}),
        ("application/json", b'{"a": NaN}', "body_text", '{"a": NaN}'),
        ("application/json", b'{"a": ', "body_text", '{"a": '),
        ("application/json", b'"\xff"', "body_base64", None),
        ("application/json", b"[" * 100_000, "body_text", "[" * 100_000),
        ("text/plain", "caf\xe9 \x00".encode(), "body_text", "caf\xe9 \x00"),
        ("text/plain; charset=latin-1", b"caf\xe9", "body_base64", None),
        ("text/csv", b"a,b\r\n1,2\r\n", "body_text", "a,b\r\n1,2\r\n"),
        ("image/svg+xml", b"<svg/>", "body_text", "<svg/>"),
        ("image/png", b"\x89PNG\r\n\x00", "body_base64", None),
        ("", b"who knows", "body_base64", None),
    ],
)
async def test_the_answer_can_be_made_again_byte_for_byte(
    jobs: UpstreamJobs,
    upstream: UpstreamServer,
    content_type: str,
    body: bytes,
    field: str,
    shown: object,
) -> None:
    typed = (("Content-Type", content_type),) if content_type else ()
    upstream.answer = plain(
        body,
        "201 Created",
        (
            *typed,
            ("ETag", '"7"'),
            ("X-Version", "canary"),
            ("Set-Cookie", "session=canary"),
            ("Connection", "keep-alive, X-Hop"),
            ("X-Hop", "canary"),
            ("Strict-Transport-Security", "max-age=canary"),
            ("Idempotent-Replayed", "canary"),
            ("RateLimit-Remaining", "canary"),
        ),
    )
    view = await jobs.wait_for_end(await jobs.submit(upstream.url()))

    assert view.result is not None
    assert b"canary" not in view.result
    answer = decode_answer(view.result)
    assert (answer.status, answer.size, answer.body()) == (201, len(body), body)
    assert field in json.loads(view.result)
    assert (b"etag", b'"7"') in response_headers(answer)
    if content_type:
        assert (b"content-type", content_type.encode()) in response_headers(answer)
    policy = (b"content-security-policy", b"default-src 'none'; sandbox")
    assert policy in response_headers(answer)
    seen = json.loads(shown_result(view.result))
    if field == "body_json":
        assert seen == json.loads(body)
    elif shown is not None:
        assert seen == shown
    else:
        assert (seen["bytes"], "body_base64" in seen) == (len(body), True)


async def test_a_packed_answer_is_kept_packed(jobs: UpstreamJobs, upstream: UpstreamServer) -> None:
    upstream.answer = plain(b"not really gzip", headers=(JSON, ("Content-Encoding", "gzip")))
    view = await jobs.wait_for_end(await jobs.submit(upstream.url()))

    assert view.result is not None
    answer = decode_answer(view.result)
    assert (answer.body(), answer.body_base64 is not None) == (b"not really gzip", True)
    assert (b"content-encoding", b"gzip") in response_headers(answer)


async def test_an_empty_answer_has_no_body(jobs: UpstreamJobs, upstream: UpstreamServer) -> None:
    upstream.answer = plain(status="204 No Content", headers=(("X-Version", "7"),))
    view = await jobs.wait_for_end(await jobs.submit(upstream.url(), method="DELETE"))

    assert view.result is not None
    answer = decode_answer(view.result)
    assert (answer.status, answer.body(), answer.size) == (204, b"", 0)
    assert shown_result(view.result) == b"null"


async def test_an_answer_of_unknown_length_is_taken_in_to_its_end(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    async def chunked(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (JSON, ("Transfer-Encoding", "chunked"))))
        for piece in (b'{"a"', b": ", b"1}"):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    upstream.answer = chunked
    view = await jobs.wait_for_end(await jobs.submit(upstream.url()))

    assert view.result is not None
    assert decode_answer(view.result).body() == b'{"a": 1}'


@pytest.mark.parametrize("size", [ANSWER_INLINE_BYTES_MAX, ANSWER_INLINE_BYTES_MAX + 1, 5_000_000])
async def test_a_long_answer_becomes_an_artifact_and_leaves_no_file_behind(
    jobs: UpstreamJobs, upstream: UpstreamServer, size: int
) -> None:
    body = os.urandom(size)
    upstream.answer = plain(body, headers=(("Content-Type", "audio/wav"),))
    ticket = await jobs.submit(upstream.url())
    view = await jobs.wait_for_end(ticket)

    assert view.result is not None, view.error_message
    answer = decode_answer(view.result)
    artifacts = await jobs.engine.artifacts(ticket.id)
    assert answer.size == size
    if size <= ANSWER_INLINE_BYTES_MAX:
        assert (answer.body(), list(artifacts)) == (body, [])
        return
    assert (answer.body(), answer.artifact) == (None, ARTIFACT_NAME)
    (artifact,) = artifacts
    assert (artifact.name, artifact.media_type, artifact.size) == (ARTIFACT_NAME, "audio/wav", size)
    assert artifact.sha256 == hashlib.sha256(body).digest()
    assert b"".join([piece async for piece in jobs.engine.read_artifact(artifact)]) == body
    assert json.loads(shown_result(view.result)) == {
        "media_type": "audio/wav",
        "bytes": size,
        "artifact": ARTIFACT_NAME,
    }
    left = [path for path in (jobs.folder / "temp").rglob("*") if path.is_file()]
    assert [path for path in left if path.suffix != ".lock"] == []


async def test_progress_counts_the_bytes_of_a_long_answer(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    go_on = asyncio.Event()
    half = 2 * ANSWER_INLINE_BYTES_MAX

    async def in_two_halves(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Length", str(2 * half)),)) + bytes(half))
        await writer.drain()
        await go_on.wait()
        writer.write(bytes(half))

    upstream.answer = in_two_halves
    ticket = await jobs.submit(upstream.url())
    view = await jobs.wait_for_job(
        ticket, lambda view: (view.progress or 0.0) > 0.48, "almost half of it is there"
    )

    assert view.progress_note is not None
    received, of, length, unit = view.progress_note.split(" ")
    assert (of, length, unit) == ("of", str(2 * half), "bytes")
    assert view.progress == pytest.approx(int(received) / (2 * half))
    assert view.progress <= 0.5
    go_on.set()
    assert (await jobs.wait_for_end(ticket)).state is State.COMPLETED


async def test_jobs_share_connections(jobs: UpstreamJobs, upstream: UpstreamServer) -> None:
    for _ in range(5):
        await jobs.wait_for_end(await jobs.submit(upstream.url()))

    assert (upstream.connections, len(upstream.requests)) == (1, 5)
    await jobs.stop_working()
    await upstream.until_left()


async def test_cancelling_the_job_closes_the_connection(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    called = asyncio.Event()

    async def never(request: Request, writer: asyncio.StreamWriter) -> None:
        called.set()
        await asyncio.Event().wait()

    upstream.answer = never
    ticket = await jobs.submit(upstream.url())
    await called.wait()
    await jobs.engine.cancel(ticket.id)
    view = await jobs.wait_for_end(ticket)

    assert view.state is State.CANCELLED

    async def look() -> bool:
        return jobs.connections_of_this_process(upstream.port) == 0

    await eventually_async(look, "the connection is closed")


async def test_a_worker_that_drains_gives_the_job_back_and_closes_the_connection(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    called = asyncio.Event()

    async def never(request: Request, writer: asyncio.StreamWriter) -> None:
        called.set()
        await asyncio.Event().wait()

    upstream.answer = never
    ticket = await jobs.submit(upstream.url())
    await called.wait()
    await jobs.stop_working()
    view = await jobs.engine.get(ticket.id)

    assert (view.state, view.failures, view.interruptions) == (State.QUEUED, 0, 1)
    assert jobs.connections_of_this_process(upstream.port) == 0


async def test_a_long_answer_is_never_all_in_memory(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    pieces, piece = 256, bytes(1024 * 1024)

    async def long(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Length", str(pieces * len(piece))),)))
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()

    upstream.answer = long
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    view = await jobs.wait_for_end(await jobs.submit(upstream.url()))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert view.result is not None, view.error_message
    assert decode_answer(view.result).size == pieces * len(piece)
    assert grown_kib < 128 * 1024
