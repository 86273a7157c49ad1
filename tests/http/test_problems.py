from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator

import httpx2
import pytest

from coatcheck.domain import errors
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse
from coatcheck.products.batches import model as batch_errors
from coatcheck.products.graphs import submit_routes
from coatcheck.products.llm import jobs as llm_errors
from coatcheck.products.speech import model as speech_errors
from coatcheck.telemetry import context
from tests.http.conftest import app_of, serving
from tests.waiting import eventually_async

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
    "parameter": (errors.InvalidParameter("limit", "must be small"), 400, "invalid_parameter"),
    "body": (errors.InvalidBody("The body is not JSON."), 400, "invalid_body"),
    "lane": (errors.UnknownLane("no such lane"), 400, "unknown_lane"),
    "sync": (errors.NotAsyncEligible("synchronous only"), 400, "not_async_eligible"),
    "nobody": (errors.Unauthenticated("key 17 was revoked"), 401, "unauthenticated"),
    "plan": (errors.SubscriptionInactive("past due"), 402, "subscription_inactive"),
    "scope": (errors.MissingScope("lacks 'admin'"), 403, "missing_scope"),
    "nothing": (errors.NotFound("row 17 of /srv/x"), 404, "not_found"),
    "endpoint": (errors.EndpointNotFound("no such path"), 404, "not_found"),
    "models": (llm_errors.LlmNotConfigured("no target"), 404, "llm_not_configured"),
    "graphs": (submit_routes.GraphsNotInstalled("install it"), 501, "graphs_not_installed"),
    "absent": (errors.JobNotFound("row 17 of /srv/x"), 404, "job_not_found"),
    "slow": (errors.BodyTooSlow(30), 408, "body_too_slow"),
    "ended": (errors.JobAlreadyEnded("completed"), 409, "job_already_ended"),
    "taken": (errors.ServiceNameTaken("another one"), 409, "service_name_taken"),
    "webhooks": (errors.WebhookConflict("not so"), 409, "webhook_conflict"),
    "endpoints": (errors.TooManyWebhookEndpoints("50 are"), 409, "too_many_endpoints"),
    "deleted": (errors.WebhookEndpointDeleted("is gone"), 409, "endpoint_deleted"),
    "large": (errors.BodyTooLarge(1024), 413, "body_too_large"),
    "inflates": (errors.BodyInflatesTooMuch("too much"), 413, "compression_ratio"),
    "zipped": (errors.CompressedBody("as it is, please"), 415, "compressed_body"),
    "xml": (errors.WrongMediaType("JSON, please"), 415, "unsupported_media_type"),
    "input": (
        errors.InvalidInput([errors.FieldIssue("content", "is missing")]),
        422,
        "invalid_input",
    ),
    "archive": (errors.ArchiveRejected("encrypted", "encrypted"), 422, "archive_rejected"),
    "keyless": (errors.IdempotencyKeyRequired("a key"), 400, "idempotency_key_required"),
    "services": (errors.TooManyServices(200), 409, "too_many_services"),
    "foreign key": (errors.IdempotencyKeyInUse(), 409, "idempotency_key_in_use"),
    "key": (errors.IdempotencyMismatch("another payload"), 422, "idempotency_mismatch"),
    "look-ups": (errors.TooManyLookUps(5), 429, "too_many_look_ups"),
    "resolver": (errors.ResolverBusy(), 503, "resolver_busy"),
    "url": (errors.UrlForbidden("a private address"), 422, "url_forbidden"),
    "rate": (errors.RateLimited(7, [(b"ratelimit-limit", b"5")]), 429, "rate_limited"),
    "full": (errors.QueueFull(7), 429, "queue_full"),
    "held": (errors.TooManyHeldAnswers("of this key", 2), 429, "too_many_held_answers"),
    "bytes": (
        errors.TooManyBytesInFlight(5, "so many bytes", body_is_unread=True),
        429,
        "too_many_bytes_in_flight",
    ),
    "busy": (errors.ServerBusy(5, "all of them", body_is_unread=True), 503, "server_busy"),
    "code": (errors.NotServedAsCode("as a script"), 403, "not_served_as_code"),
    "timeout": (errors.TimeoutNotAllowed("timeout", 86400, 3600), 403, "timeout_not_allowed"),
    "away": (errors.DatabaseUnavailable("10.0.0.7 refused"), 503, "database_unavailable"),
    "unknown": (errors.OutcomeUnknown("reset by 10.0.0.7"), 503, "outcome_unknown"),
    "expired": (errors.SignedUrlExpired("Ask for another."), 410, "url_expired"),
    "used": (errors.UploadAlreadyUsed("It was taken."), 409, "upload_already_used"),
    "changed": (errors.BlobChanged("It is another."), 409, "blob_changed"),
    "batch": (batch_errors.BatchConflict("Not as it is."), 409, "batch_conflict"),
    "not open": (batch_errors.BatchNotOpen("It takes no more."), 409, "batch_not_open"),
    "batch ended": (batch_errors.BatchAlreadyEnded("It has."), 409, "batch_already_ended"),
    "too many runs": (batch_errors.TooManyRuns("It has."), 409, "too_many_runs"),
    "still runs": (batch_errors.BatchStillRuns("It does."), 409, "batch_still_runs"),
    "no task": (batch_errors.NothingToRerun("None is."), 409, "nothing_to_rerun"),
    "not put": (errors.UploadMissing("PUT it first."), 409, "upload_missing"),
    "input gone": (errors.InputNotKept("It is gone."), 409, "input_not_kept"),
    "not retried": (errors.NotRetryable("Rerun it."), 409, "not_retryable"),
    "blobs": (errors.BlobStoreUnavailable("10.0.0.7 refused"), 503, "blob_store_unavailable"),
    "audio": (speech_errors.AudioRejected("not_wave", "It is no WAV."), 422, "audio_rejected"),
    "user": (errors.UserRequired("Call as a user."), 403, "user_required"),
    "no remote": (speech_errors.SpeechNotConfigured("Set one."), 404, "speech_not_configured"),
    "voice": (speech_errors.VoiceNotFound("01ABC"), 404, "voice_not_found"),
    "generation": (speech_errors.GenerationNotFound("01ABC"), 404, "generation_not_found"),
    "not ended": (errors.JobNotEnded("It runs."), 409, "job_not_ended"),
    "schema": (errors.SchemaMismatch("lacks 2 steps"), 503, "schema_mismatch"),
    "no key": (errors.SealingKeyMissing("the key 0123 is not set"), 503, "sealing_key_missing"),
    "secrets": (errors.SecretsLost("Register it again."), 409, "secrets_lost"),
    "inside": (errors.CoatcheckError("secret inside"), 500, "internal"),
    "surprise": (RuntimeError("secret inside"), 500, "internal"),
}
NEVER_ANSWERED = {
    errors.BadRequest,  # what others are kinds of
    errors.ClientGone,
    errors.Conflict,  # what others are kinds of
    errors.DatabaseBeforeFirstRelease,  # raised at the start of a process
    errors.FileRejected,  # what others are kinds of
    errors.NotInstalled,  # what others are kinds of
    errors.LookUpRefused,  # what two others are kinds of
    errors.SessionsNotKept,
    errors.SettingsInvalid,
}
FRESH_ID = re.compile(r"[0-9A-Z]{26}-[0-9]+")
INSIDE = {401, 404, 500, 503}
"""Statuses whose errors may say more to the log than a caller may read."""


async def fail(request: Request) -> Response:
    raise ERRORS[request.params["name"]][0]


async def break_off(_: Request) -> StreamResponse:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"begun"
        raise RuntimeError("half-way")

    return StreamResponse(200, pieces(), [])


def failing_app() -> Dispatcher:
    return app_of({"/fail/{name}": fail, "/break-off": break_off})


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
    assert problem["instance"] == "urn:coatcheck:request:mine"
    assert problem["requestId"] == "mine"
    assert problem["timestamp"].endswith("Z")
    assert ("Retry-After" in answer.headers) == (status in {429, 503})
    assert ("WWW-Authenticate" in answer.headers) == (status == 401)
    # What these say was written for their caller.
    for_callers = (
        errors.EndpointNotFound,
        llm_errors.LlmNotConfigured,
        errors.ServerBusy,
        speech_errors.SpeechNotConfigured,
    )
    if status in INSIDE and not isinstance(error, for_callers):
        assert str(error) not in answer.text


def test_every_error_of_the_core_and_of_the_products_is_in_the_table() -> None:
    kinds = {
        kind
        for module in (errors, batch_errors, submit_routes, llm_errors, speech_errors)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, errors.CoatcheckError)
    }
    assert kinds - NEVER_ANSWERED == {type(error) for error, *_ in ERRORS.values()} & kinds


async def test_invalid_input_names_each_field() -> None:
    async with serving(failing_app()) as client:
        body = await client.get("/fail/input")
        query = await client.get("/fail/parameter")
    assert body.json()["details"] == [
        {"field": "content", "issue": "is missing", "location": "body"}
    ]
    assert query.json()["details"] == [
        {"field": "limit", "issue": "must be small", "location": "query"}
    ]


async def test_a_limit_that_was_met_is_named() -> None:
    async with serving(failing_app()) as client:
        answer = await client.get("/fail/rate")
    assert (answer.headers["Retry-After"], answer.headers["RateLimit-Limit"]) == ("7", "5")


class RequestIdsSeen(logging.Filter):
    """Notes under which request each line was logged."""

    def __init__(self, message_part: str) -> None:
        super().__init__()
        self._message_part = message_part
        self.ids: list[str | None] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if self._message_part in record.getMessage():
            assert record.exc_info is not None
            self.ids.append(context.request_id.get())
        return True


async def test_an_unexpected_error_is_logged_with_its_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = RequestIdsSeen("unexpected error in GET /fail/{name}")
    caplog.handler.addFilter(seen)
    async with serving(failing_app()) as client:
        await client.get("/fail/surprise", headers={"X-Request-Id": "mine"})
    assert seen.ids == ["mine"]


async def test_an_answer_that_broke_half_way_is_cut_and_not_finished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = RequestIdsSeen("unexpected error in the response to GET /break-off")
    caplog.handler.addFilter(seen)
    async with serving(failing_app()) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/break-off", headers={"X-Request-Id": "mine"})
        assert (await client.get("/fail/bad")).status_code == 400
    assert seen.ids == ["mine"]


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


async def test_an_unknown_method_is_refused_and_its_name_is_not_counted(
    client: httpx2.AsyncClient,
) -> None:
    refused = await client.request("PROPFIND", "/healthz")
    assert refused.status_code == 405

    async def counted() -> str | None:
        text = (await client.get("/metrics")).text
        return text if 'method="other",route="none",status="405"' in text else None

    assert "PROPFIND" not in await eventually_async(counted, "the 405 is counted")


async def test_head_is_get_without_the_body(client: httpx2.AsyncClient) -> None:
    for path in ("/healthz", "/docs", "/openapi.json"):
        head, get = await client.head(path), await client.get(path)
        assert (head.status_code, get.status_code) == (200, 200)
        assert head.content == b""
        for name in ("Content-Length", "Content-Type"):
            assert head.headers[name] == get.headers[name]
    absent = await client.head("/nothing")
    assert (absent.status_code, absent.content) == (404, b"")


async def test_a_request_without_an_id_gets_one_of_its_own(client: httpx2.AsyncClient) -> None:
    given = [(await client.get("/healthz")).headers["X-Request-Id"] for _ in range(3)]
    assert len(set(given)) == 3
    assert all(FRESH_ID.fullmatch(each) for each in given)


@pytest.mark.parametrize("unfit", ["", "a b", "x" * 129, "caf\u00e9", "tab\tbed"])
async def test_an_id_that_could_spoil_a_log_line_is_replaced(
    client: httpx2.AsyncClient, unfit: str
) -> None:
    answer = await client.get("/nothing", headers={b"X-Request-Id": unfit.encode("latin-1")})
    given = answer.headers["X-Request-Id"]
    assert FRESH_ID.fullmatch(given)
    assert answer.json()["requestId"] == given
