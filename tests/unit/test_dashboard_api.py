"""Calls of the API within the process: what they carry, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from coatcheck.dashboard.api import Api, ApiProblem
from coatcheck.http.response import Message, Receive, Scope, Send

Answer = Callable[[Send], Awaitable[None]]


class App:
    """An application that answers as it is told, and remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.scope: Scope = {}
        self.body: Message = {}
        self.has_ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.body = scope, await receive()
        try:
            await self._answer(send)
        finally:
            self.has_ended.set()


def api(app: App) -> Api:
    return Api(app, b"cck_key", "page-1")


def answering(status: int, *pieces: bytes, headers: Any = ()) -> Answer:
    async def answer(send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return answer


async def test_a_call_carries_the_visitors_credential_and_the_pages_request_id() -> None:
    app = App(answering(200, b'{"a": ', b"1}"))
    query = {"state": "failed", "q": "a b&c", "cursor": None}
    assert await api(app).get("/jobs/a%2Fb", query) == {"a": 1}
    assert dict(app.scope["headers"]) == {
        b"authorization": b"Bearer cck_key",
        b"x-request-id": b"page-1",
    }
    assert (app.scope["path"], app.scope["raw_path"]) == ("/jobs/a/b", b"/jobs/a%2Fb")
    assert app.scope["query_string"] == b"state=failed&q=a+b%26c"


async def test_json_is_sent_as_json_and_no_answer_is_none() -> None:
    app = App(answering(204))
    assert await api(app).post("/jobs", {"ä": 1}) is None
    assert app.body == {"type": "http.request", "body": '{"ä":1}'.encode(), "more_body": False}
    assert (b"content-type", b"application/json") in app.scope["headers"]


async def test_a_problem_is_raised_with_what_it_says() -> None:
    body = b'{"code": "rate_limited", "detail": "Too many.", "requestId": "page-1", "details": []}'
    refusing = answering(429, body, headers=[(b"retry-after", b"7")])
    for ask in (api(App(refusing)).get("/x"), api(App(refusing)).open("/x")):
        with pytest.raises(ApiProblem) as raised:
            await ask
        problem = raised.value
        assert (problem.status, problem.problem_code) == (429, "rate_limited")
        assert (problem.detail, problem.retry_after) == ("Too many.", "7")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"details": [1, null]}'])
async def test_a_problem_that_says_nothing_is_raised_all_the_same(body: bytes) -> None:
    with pytest.raises(ApiProblem) as raised:
        await api(App(answering(502, body))).get("/x")
    assert (raised.value.status, raised.value.details) == (502, [])


async def test_a_stream_is_read_as_it_comes_and_ended_by_who_stops_reading() -> None:
    async def for_ever(send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        while True:
            await send({"type": "http.response.body", "body": b"more", "more_body": True})

    app = App(for_ever)
    opened = await api(app).open("/events")
    assert opened.headers == {"a": "b"}
    async with aclosing(opened.pieces) as pieces:  # type: ignore[type-var]
        assert await anext(pieces) == b"more"
        assert await anext(pieces) == b"more"
        assert not app.has_ended.is_set()
    assert app.has_ended.is_set()


async def test_a_stream_of_which_only_the_head_is_wanted_ends_though_nobody_reads_it() -> None:
    before = asyncio.all_tasks()
    app = App(answering(200))
    opened = await Api(app, b"cck_key", "page-1", head=True).open("/events")
    assert (opened.status, app.scope["method"]) == (200, "HEAD")
    await asyncio.gather(*(asyncio.all_tasks() - before))
    assert app.has_ended.is_set()


async def test_what_breaks_a_stream_breaks_its_reader() -> None:
    class BrokenError(Exception):
        pass

    async def broken_later(send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise BrokenError

    async def broken_at_once(send: Send) -> None:
        raise BrokenError

    opened = await api(App(broken_later)).open("/events")
    assert await anext(opened.pieces) == b"half"
    with pytest.raises(BrokenError):
        await anext(opened.pieces)
    with pytest.raises(BrokenError):
        await api(App(broken_at_once)).open("/events")
