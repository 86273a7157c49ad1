from __future__ import annotations

import json
import logging
import re

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from coatcheck.control.problems import (
    UnexpectedErrors,
    answer_coatcheck_error,
    answer_http_exception,
)
from coatcheck.control.request_ids import RequestIds
from coatcheck.domain import errors, ids
from tests.http.conftest import serving

PROBLEM_FIELDS = {
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "message",
    "timestamp",
    "requestId",
    "details",
}
ERRORS: dict[str, tuple[Exception, int, str]] = {
    "bad": (errors.InvalidSubmission("lane: no such lane"), 400, "invalid_submission"),
    "input": (
        errors.InvalidInput([errors.FieldIssue("content", "is missing")]),
        422,
        "invalid_input",
    ),
    "key": (errors.IdempotencyMismatch("another payload"), 422, "idempotency_mismatch"),
    "absent": (errors.JobNotFound("row 17 of /srv/x"), 404, "job_not_found"),
    "ended": (errors.JobAlreadyEnded("completed"), 409, "job_already_ended"),
    "away": (errors.DatabaseUnavailable("10.0.0.7 refused"), 503, "database_unavailable"),
    "unknown": (errors.OutcomeUnknown("reset by 10.0.0.7"), 503, "outcome_unknown"),
    "schema": (errors.SchemaMismatch("lacks 2 steps"), 503, "schema_mismatch"),
    "inside": (errors.CoatcheckError("secret inside"), 500, "internal"),
    "surprise": (RuntimeError("secret inside"), 500, "internal"),
}


async def fail(request: Request) -> Response:
    raise ERRORS[request.path_params["name"]][0]


async def break_off(_: Request) -> Response:
    async def pieces():  # type: ignore[no-untyped-def]
        yield b"begun"
        raise RuntimeError("half-way")

    return StreamingResponse(pieces())


def failing_app() -> Starlette:
    return Starlette(
        routes=[Route("/fail/{name}", fail), Route("/break-off", break_off)],
        middleware=[Middleware(RequestIds), Middleware(UnexpectedErrors)],
        exception_handlers={
            errors.CoatcheckError: answer_coatcheck_error,
            HTTPException: answer_http_exception,
        },
    )


@pytest.mark.parametrize("name", ERRORS)
async def test_every_error_is_a_problem_that_tells_nothing_of_the_inside(name: str) -> None:
    error, status, code = ERRORS[name]
    async with serving(failing_app()) as client:
        answer = await client.get(f"/fail/{name}", headers={"X-Request-Id": "mine"})
    problem = answer.json()
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["X-Request-Id"] == "mine"
    assert set(problem) == PROBLEM_FIELDS
    assert problem["status"] == status
    assert problem["code"] == code
    assert problem["detail"] == problem["message"]
    assert problem["instance"] == f"/fail/{name}"
    assert problem["requestId"] == "mine"
    assert problem["timestamp"].endswith("Z")
    assert ("Retry-After" in answer.headers) == (status == 503)
    if status in {404, 500, 503}:
        assert str(error) not in answer.text


async def test_invalid_input_names_each_field() -> None:
    async with serving(failing_app()) as client:
        answer = await client.get("/fail/input")
    assert answer.json()["details"] == [
        {"field": "content", "issue": "is missing", "location": "body"}
    ]


async def test_an_unexpected_error_is_logged_with_its_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str | None] = []

    class Watch(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            from coatcheck.telemetry import context

            seen.append(context.request_id.get())
            return True

    caplog.handler.addFilter(Watch())
    async with serving(failing_app()) as client:
        await client.get("/fail/surprise", headers={"X-Request-Id": "mine"})
    [record] = [r for r in caplog.records if "unexpected error" in r.message]
    assert record.exc_info is not None
    assert "mine" in seen


async def test_an_answer_that_broke_half_way_is_cut_and_not_finished() -> None:
    async with serving(failing_app()) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/break-off")


async def test_an_unknown_path_and_a_wrong_method_are_problems(client: httpx2.AsyncClient) -> None:
    absent = await client.get("/nothing/here")
    assert absent.status_code == 404
    assert absent.json()["code"] == "not_found"
    refused = await client.post("/healthz")
    assert refused.status_code == 405
    assert refused.json()["code"] == "method_not_allowed"
    assert set(refused.headers["Allow"].split(", ")) == {"GET", "HEAD"}
    slash = await client.get("/healthz/")
    assert slash.status_code == 404


async def test_a_request_without_an_id_gets_a_ulid(client: httpx2.AsyncClient) -> None:
    given = (await client.get("/healthz")).headers["X-Request-Id"]
    assert ids.to_text(ids.from_text(given)) == given


@pytest.mark.parametrize("unfit", ["", "a b", "x" * 129, "caf\u00e9"])
async def test_an_id_that_could_spoil_a_log_line_is_replaced(
    client: httpx2.AsyncClient, unfit: str
) -> None:
    answer = await client.get("/nothing", headers={"X-Request-Id": unfit.encode("latin-1")})
    given = answer.headers["X-Request-Id"]
    assert re.fullmatch(r"[0-9A-Z]{26}", given)
    assert json.loads(answer.text)["requestId"] == given
