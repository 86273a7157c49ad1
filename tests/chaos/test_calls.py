"""Calls of the load: each attempt is in the history, and is repeated until it is clear."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as Received
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chaos.history import History, read
from chaos.load import calls as calls_module
from chaos.load.calls import Answer, Calls, Request, Servers
from chaos.load.following import Lost, Reader, Sight, Ticket
from chaos.site import Site

SUBMIT = Request(
    operation="submit",
    method="POST",
    path="/submit",
    org="a",
    key="key-1",
    expect="completed",
    json={"word": "canary"},
    job_of=lambda answer: answer.json["job_id"],
)


class Server:
    """Answers what it is told to, one after the other."""

    def __init__(self, history: History, site: Site, answers: list[Response | None]) -> None:
        self.site = site
        self.answers = answers
        self.received: list[Received] = []
        self.servers = Servers([site.url], {"a": "the key of a"})
        self.calls = Calls(self.servers, history, "gateway", random.Random(1))
        self.rows: Callable[[], list[dict[str, Any]]] = lambda: [
            row for row in read(history.path) if row["kind"] != "began"
        ]


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setattr(calls_module, "AGAIN_SECONDS", (0.0, 0.0))

    async def serve(request: Received) -> Response:
        served.received.append(request)
        answer = served.answers.pop(0)
        if answer is None:
            raise ConnectionError("cut off")
        return answer

    routes = [Route("/{path:path}", serve, methods=["GET", "POST"])]
    history = History(tmp_path / "history.ndjson")
    async with Site(_Cutting(Starlette(routes=routes))) as site:
        served = Server(history, site, [])
        yield served
        await served.servers.close()
    history.close()


class _Cutting:
    """Lets a connection end in the middle of an answer where the application raises."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        broken = False

        async def send_or_break(message: Any) -> None:
            nonlocal broken
            if message.get("status") == 500 and (b"x-said", b"1") not in message["headers"]:
                # One that was begun is cut off; for one that was not, the server would say 500.
                broken = True
                await send(message | {"status": 202, "headers": [(b"content-length", b"99")]})
            elif not broken:
                await send(message)

        await self._app(scope, receive, send_or_break)


def said(status: int, body: Any, **headers: str) -> Response:
    return JSONResponse(body, status, {"x-said": "1", **headers})


async def test_what_is_taken_at_once_is_two_lines(server: Server) -> None:
    server.answers = [said(202, {"job_id": "01M7"})]

    await server.calls.settled(SUBMIT)

    invoked, ok = server.rows()
    assert invoked | {"t": 0} == {
        "t": 0,
        "kind": "invoked",
        "call": 1,
        "surface": "gateway",
        "operation": "submit",
        "org": "a",
        "key": "key-1",
        "job": None,
        "expect": "completed",
    }
    assert (ok["kind"], ok["call"], ok["job"], ok["status"]) == ("ok", 1, "01M7", 202)
    (request,) = server.received
    assert request.headers["idempotency-key"] == "key-1"
    assert request.headers["authorization"] == "Bearer the key of a"


async def test_an_unclear_call_is_repeated_under_its_key_until_it_is_clear(server: Server) -> None:
    unavailable = said(
        503,
        {"code": "outcome_unknown"},
        **{"content-type": "application/json", "retry-after": "1"},
    )
    server.answers = [None, unavailable, said(202, {"job_id": "01M7"})]

    answer = await server.calls.settled(SUBMIT)

    assert answer.status == 202
    rows = server.rows()
    assert [(row["kind"], row["call"], row.get("repeats")) for row in rows] == [
        ("invoked", 1, None),
        ("unknown", 1, None),
        ("invoked", 2, 1),
        ("unknown", 2, None),
        ("invoked", 3, 1),
        ("ok", 3, None),
    ]
    assert rows[3]["why"] == "503 outcome_unknown"
    assert {request.headers["idempotency-key"] for request in server.received} == {"key-1"}


async def test_an_error_that_nobody_foresaw_is_noted_whoever_repeats_the_call(
    server: Server,
) -> None:
    server.answers = [said(500, {}), said(202, {"job_id": "1"})]
    assert (await server.calls.settled(SUBMIT)).ok

    server.answers = [said(500, {}), said(200, {})]
    assert (await server.calls.surely_read("a", "/jobs/1")).ok

    noted = [row["detail"] for row in server.rows() if row["kind"] == "violation"]
    assert [detail.rpartition(" ")[2] for detail in noted] == ["500", "500"]


async def test_a_fault_that_does_not_say_when_to_come_back_is_noted(server: Server) -> None:
    server.answers = [said(503, {}), said(202, {"job_id": "1"})]
    assert (await server.calls.settled(SUBMIT)).ok

    (noted,) = [row["check"] for row in server.rows() if row["kind"] == "violation"]
    assert noted == "a 503 has a Retry-After"


async def test_a_refusal_is_clear(server: Server) -> None:
    server.answers = [said(409, {"code": "job_already_ended"})]

    answer = await server.calls.settled(SUBMIT)

    assert not answer.ok
    failed = server.rows()[-1]
    assert (failed["kind"], failed["status"], failed["code"]) == (
        "failed",
        409,
        "job_already_ended",
    )


async def test_who_is_asked_to_wait_asks_again(server: Server) -> None:
    server.answers = [
        said(429, {"code": "queue_full"}, **{"retry-after": "0"}),
        said(202, {"job_id": "1"}),
    ]

    assert (await server.calls.settled(SUBMIT)).ok

    assert [row["kind"] for row in server.rows()] == ["invoked", "failed", "invoked", "ok"]


async def test_a_call_that_waited_for_a_job_that_failed_is_clear(server: Server) -> None:
    server.answers = [said(502, {"code": "worker_lost", "job_id": "1"}, location="/jobs/1")]

    assert (await server.calls.settled(SUBMIT)).ok

    assert server.rows()[-1]["kind"] == "ok"


def _show(body: Any) -> Sight:
    return Sight(body["state"], body["terminal"], body["result"])


TICKET = Ticket("a", "01M7", "/jobs/01M7", _show)


async def test_a_reader_notes_what_is_new_and_stops_at_the_end(server: Server) -> None:
    queued = {"state": "queued", "terminal": False, "result": None}
    ended = {"state": "completed", "terminal": True, "result": 3}
    server.answers = [
        *(said(200, queued, **{"retry-after": "0"}) for _ in range(2)),
        said(503, {}, **{"retry-after": "1"}),
        said(200, ended),
    ]

    assert await Reader(server.calls).poll(TICKET) == ended

    rows = server.rows()
    assert [(row["kind"], row["state"], row["terminal"]) for row in rows] == [
        ("seen", "queued", False),
        ("seen", "completed", True),
    ]
    assert rows[0]["result_digest"] is None
    assert rows[1]["result_digest"]
    assert rows[1]["asked"] <= rows[1]["t"]


async def test_a_job_that_is_gone_is_a_violation(server: Server) -> None:
    server.answers = [said(404, {"code": "job_not_found"})]

    with pytest.raises(Lost):
        await Reader(server.calls).poll(TICKET)

    (violation,) = server.rows()
    assert (violation["kind"], violation["job"]) == ("violation", "01M7")


def _events(*blocks: str) -> Response:
    return Response("".join(f"{block}\n\n" for block in blocks), headers={"x-said": "1"})


async def test_a_broken_stream_goes_on_after_the_last_event_that_is_kept(server: Server) -> None:
    server.answers = [
        _events("id: 1\nevent: log\ndata: {}", ": still here"),
        None,
        _events("id: 2\nevent: log\ndata: {}", "event: end\ndata: {}"),
    ]

    heard = await Reader(server.calls).listen(TICKET)

    assert [event.id for event in heard] == ["1", "2", None]
    asked = [request.headers.get("last-event-id") for request in server.received]
    assert asked == [None, "1", "1"]
    assert server.rows() == []


async def test_an_event_that_comes_twice_is_a_violation(server: Server) -> None:
    server.answers = [
        _events("id: 5\nevent: log\ndata: {}"),
        _events("id: 5\nevent: log\ndata: {}", "event: end\ndata: {}"),
    ]

    await Reader(server.calls).listen(TICKET)

    (violation,) = server.rows()
    assert violation["detail"] == "5 after 5"


def test_an_answer_that_is_no_json_has_no_code() -> None:
    assert Answer(0.0, 502, httpx2.Headers({"content-type": "text/html"}), b"<html>").code is None
