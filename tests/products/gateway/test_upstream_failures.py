"""What becomes of a job whose upstream is away, refuses, or breaks off."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from coatcheck import JobView, State
from coatcheck.core.upstream_calls import ANSWER_BYTES_MAX
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.egress import Guard
from coatcheck.settings.egress_allow import parse_allow
from tests.egress.names import Busy, Names
from tests.egress.upstream_server import Request, UpstreamServer, head, plain, upstream_server
from tests.ports import free_port
from tests.products.gateway.upstream_jobs import UpstreamJobs


@pytest.fixture
def names() -> Names:
    return Names(
        rebinding__example__com=[["127.0.0.1"], ["169.254.169.254"]],
        internal__example__com=[["10.0.0.1"]],
    )


@pytest.fixture
async def jobs(dsn: str, tmp_path: Path, names: Names) -> AsyncIterator[UpstreamJobs]:
    guard = Guard(parse_allow("127.0.0.0/8"), resolver=names)
    async with UpstreamJobs(dsn, tmp_path, guard) as opened:
        yield opened


@pytest.fixture
async def upstream() -> AsyncIterator[UpstreamServer]:
    async with upstream_server() as server:
        yield server


async def waiting_again(jobs: UpstreamJobs, url: str, *, timeout_seconds: float = 30.0) -> JobView:
    """The job after its first try, which did not end it."""
    ticket = await jobs.submit(url, timeout_seconds=timeout_seconds)
    return await jobs.wait_for_job(
        ticket,
        lambda view: view.failures + view.unreachables > 0 or view.terminal,
        "the first try is over",
    )


def reset(writer: asyncio.StreamWriter) -> None:
    """Close as a crashed process would: with a reset instead of an end."""
    taken: socket.socket = writer.get_extra_info("socket")
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def test_a_refused_connection_costs_no_attempt(jobs: UpstreamJobs) -> None:
    view = await waiting_again(jobs, f"http://127.0.0.1:{free_port()}/")

    assert (view.state, view.error_code) == (State.RETRYING, "target_unreachable")
    assert (view.failures, view.unreachables) == (0, 1)


async def test_a_name_that_nobody_knows_costs_no_attempt(jobs: UpstreamJobs) -> None:
    view = await waiting_again(jobs, "https://nowhere.example.com/")

    assert (view.error_code, view.failures, view.unreachables) == ("target_unreachable", 0, 1)


async def test_a_connection_that_is_not_accepted_in_time_costs_no_attempt(
    jobs: UpstreamJobs,
) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        # With the backlog full, the kernel leaves further connections without an answer.
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)
        view = await waiting_again(jobs, f"http://127.0.0.1:{address[1]}/", timeout_seconds=1.0)
        for each in waiting:
            each.close()

    assert (view.error_code, view.failures, view.unreachables) == ("target_unreachable", 0, 1)


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_connection_lost_before_an_answer_costs_no_attempt(
    jobs: UpstreamJobs, upstream: UpstreamServer, how: str
) -> None:
    async def lose(request: Request, writer: asyncio.StreamWriter) -> None:
        reset(writer) if how == "reset" else writer.close()

    upstream.answer = lose
    view = await waiting_again(jobs, upstream.url())

    assert (view.error_code, view.failures, view.unreachables) == ("target_unreachable", 0, 1)
    assert len(upstream.requests) == 1


async def test_the_job_completes_once_the_upstream_is_back(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    answers = [plain(status="503 Service Unavailable"), plain(b"back")]

    async def one_after_the_other(request: Request, writer: asyncio.StreamWriter) -> None:
        await answers.pop(0)(request, writer)

    upstream.answer = one_after_the_other
    jobs.start_maintenance()
    ticket = await jobs.submit(upstream.url())
    await jobs.wait_for_state(ticket, State.RETRYING)
    await jobs.make_due(ticket)

    assert (await jobs.wait_for_end(ticket)).state is State.COMPLETED
    sent = [request.header("x-coatcheck-attempt") for request in upstream.requests]
    keys = {request.header("idempotency-key") for request in upstream.requests}
    assert (sent, keys) == (["1", "2"], {ticket.id})


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 429])
async def test_5xx_and_429_are_tried_again_and_spend_an_attempt(
    jobs: UpstreamJobs, upstream: UpstreamServer, status: int
) -> None:
    upstream.answer = plain(
        b"  overloaded, said caf\xc3\xa9", f"{status} No", (("Content-Type", "text/plain"),)
    )
    view = await waiting_again(jobs, upstream.url())

    assert (view.state, view.error_code) == (State.RETRYING, f"upstream_status_{status}")
    assert (view.failures, view.unreachables) == (1, 0)
    assert view.error_message == f"The upstream answered {status}: overloaded, said caf\xe9"


async def test_retry_after_is_obeyed(jobs: UpstreamJobs, upstream: UpstreamServer) -> None:
    upstream.answer = plain(status="503 No", headers=(("Retry-After", "120"),))
    view = await waiting_again(jobs, upstream.url())

    assert timedelta(seconds=119) < view.run_at - view.updated_at < timedelta(seconds=121)


async def test_retry_after_as_a_date_goes_by_the_upstreams_own_clock(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    theirs = datetime(2001, 1, 1, tzinfo=UTC)
    upstream.answer = plain(
        status="429 No",
        headers=(
            ("Date", format_datetime(theirs, usegmt=True)),
            ("Retry-After", format_datetime(theirs + timedelta(seconds=90), usegmt=True)),
        ),
    )
    view = await waiting_again(jobs, upstream.url())

    assert timedelta(seconds=89) < view.run_at - view.updated_at < timedelta(seconds=91)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 451])
async def test_other_4xx_fail_for_good(
    jobs: UpstreamJobs, upstream: UpstreamServer, status: int
) -> None:
    upstream.answer = plain(
        b'{"detail": "no"}', f"{status} No", (("Content-Type", "application/json"),)
    )
    view = await jobs.wait_for_end(await jobs.submit(upstream.url(), retries=5))

    assert (view.state, view.error_code) == (State.FAILED, f"upstream_status_{status}")
    assert view.error_message == f'The upstream answered {status}: {{"detail": "no"}}'
    assert len(upstream.requests) == 1


async def test_of_an_error_page_only_the_beginning_is_kept(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    upstream.answer = plain("\xe9".encode() * 50_000, "404 No", (("Content-Type", "text/html"),))
    view = await jobs.wait_for_end(await jobs.submit(upstream.url()))

    assert view.error_message == "The upstream answered 404: " + "\xe9" * 500


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_not_followed_and_fails_the_job(
    jobs: UpstreamJobs, upstream: UpstreamServer, status: int
) -> None:
    async with upstream_server() as elsewhere:
        upstream.answer = plain(status=f"{status} Moved", headers=(("Location", elsewhere.url()),))
        view = await jobs.wait_for_end(await jobs.submit(upstream.url(), retries=5))

        assert (view.state, view.error_code) == (State.FAILED, "upstream_redirect")
        assert elsewhere.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://internal.example.com/",
        "https://[::1]/",
        "https://2130706433/",
        "http://user@127.0.0.1/",
        "file:///etc/passwd",
    ],
)
async def test_a_forbidden_url_fails_the_job_at_the_connection(
    jobs: UpstreamJobs, url: str
) -> None:
    view = await jobs.wait_for_end(await jobs.submit(url, retries=5))

    assert (view.state, view.error_code, view.failures) == (State.FAILED, "url_forbidden", 1)


async def test_a_name_that_was_good_at_registration_and_leads_inside_now_is_refused(
    jobs: UpstreamJobs, upstream: UpstreamServer, names: Names
) -> None:
    url = upstream.url(host="rebinding.example.com")
    await Guard(parse_allow("127.0.0.0/8"), resolver=names).check_url(url)
    view = await jobs.wait_for_end(await jobs.submit(url))

    assert (view.state, view.error_code) == (State.FAILED, "url_forbidden")
    assert upstream.connections == 0


async def test_a_name_that_is_not_looked_up_now_costs_no_attempt(dsn: str, tmp_path: Path) -> None:
    busy = Busy()
    async with UpstreamJobs(dsn, tmp_path, Guard(resolver=busy)) as jobs:
        view = await waiting_again(jobs, "https://example.com/")

    assert (view.failures, view.unreachables, view.terminal) == (0, 1, False)
    assert busy.orgs[0] == view.org


async def test_an_upstream_that_is_silent_for_too_long_is_tried_again(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    async def never(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    upstream.answer = never
    view = await waiting_again(jobs, upstream.url(), timeout_seconds=1.5)

    assert (view.state, view.error_code, view.failures) == (State.RETRYING, "upstream_timeout", 1)
    assert jobs.connections_of_this_process(upstream.port) == 0


async def test_an_answer_that_trickles_is_bounded_by_the_same_time(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    async def trickle(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Length", "1000000"),)))
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    upstream.answer = trickle
    view = await waiting_again(jobs, upstream.url(), timeout_seconds=1.5)

    assert (view.error_code, view.failures) == ("upstream_timeout", 1)


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("sent", [10, 3_000_000])
async def test_an_answer_that_breaks_off_is_tried_again_and_nothing_of_it_is_kept(
    jobs: UpstreamJobs, upstream: UpstreamServer, how: str, sent: int
) -> None:
    async def break_off(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Length", "4000000"),)) + bytes(sent))
        await writer.drain()
        reset(writer) if how == "reset" else writer.close()

    upstream.answer = break_off
    view = await waiting_again(jobs, upstream.url())

    assert (view.state, view.error_code, view.failures) == (State.RETRYING, "upstream_broke_off", 1)
    assert (view.result, list(await jobs.engine.artifacts(view.id))) == (None, [])


async def test_what_is_not_http_is_tried_again(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    async def greet(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")

    upstream.answer = greet
    view = await waiting_again(jobs, upstream.url())

    assert (view.error_code, view.failures) == ("upstream_not_http", 1)


async def test_an_answer_that_says_it_is_too_large_is_not_taken_in(
    jobs: UpstreamJobs, upstream: UpstreamServer
) -> None:
    async def boast(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Length", str(ANSWER_BYTES_MAX + 1)),)))
        await writer.drain()
        await asyncio.Event().wait()

    upstream.answer = boast
    view = await jobs.wait_for_end(await jobs.submit(upstream.url(), retries=5))

    assert (view.state, view.error_code) == (State.FAILED, "upstream_answer_too_large")


async def test_an_answer_that_turns_out_too_large_is_cut_off(
    jobs: UpstreamJobs, upstream: UpstreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coatcheck.products.gateway.executor.ANSWER_BYTES_MAX", 3 * 1024 * 1024)

    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Transfer-Encoding", "chunked"),)))
        while True:
            writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
            await writer.drain()

    upstream.answer = endless
    view = await jobs.wait_for_end(await jobs.submit(upstream.url(), retries=5))

    assert (view.state, view.error_code) == (State.FAILED, "upstream_answer_too_large")
    await upstream.until_left()


@pytest.mark.parametrize(
    "call",
    [
        {"url": "http://127.0.0.1/", "method": "GE T"},
        {"url": "http://127.0.0.1/", "method": "POST", "body_base64": "?"},
        {"url": "http://127.0.0.1/", "method": "POST", "headers": [["x", "a\r\nb: c"]]},
        {"url": "http://127.0.0.1/", "method": "POST", "headers": [["a b", "c"]]},
        {"url": "http://127.0.0.1/", "method": "POST", "headers": [["x", "\u4e2d"]]},
        {"url": "http://127.0.0.1/", "method": "POST", "timeout_seconds": 0},
        {"url": "http://127.0.0.1/", "method": "POST", "extra": 1},
    ],
)
async def test_a_call_that_cannot_be_made_fails_for_good(
    jobs: UpstreamJobs, upstream: UpstreamServer, call: dict[str, object]
) -> None:
    call = {**call, "url": upstream.url()}
    view = await jobs.wait_for_end(await jobs.engine.submit(UPSTREAM_ENDPOINT, {"call": call}))

    assert view.state is State.FAILED
    assert view.error_code in {"invalid_input", "upstream_request_invalid"}
    assert upstream.requests == []
