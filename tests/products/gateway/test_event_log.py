"""The lines of requests and of jobs' ends: what they say, and what they never say."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.logs import configure_logging
from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "not-for-any-log"


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    EVENTS.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def opened(log_format: Any = "json") -> io.StringIO:
    written = io.StringIO()
    EVENTS.open(configure_logging("info", log_format, written))
    return written


def lines(written: io.StringIO, logger: str) -> list[dict[str, Any]]:
    EVENTS.flush()
    found = [json.loads(line) for line in written.getvalue().splitlines()]
    return [line for line in found if line["logger"] == logger]


async def until_ended(written: io.StringIO, job_id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        ends = lines(written, "coatcheck.jobs")
        return next((line for line in ends if line["job_id"] == job_id), None)

    found: dict[str, Any] = await eventually_async(look, f"a line of the end of {job_id}")
    return found


async def test_a_job_is_followed_by_the_request_that_made_it(shared: Deployment) -> None:
    written = opened()
    ticket = await hand_in(shared.http, "/echo", {"value": SECRET}, X_Request_Id="the-maker")
    ended = await until_ended(written, ticket["job_id"])
    assert ended.pop("time").endswith("Z")
    assert ended.pop("ms") >= 0
    assert ended == {
        "level": "info",
        "logger": "coatcheck.jobs",
        "message": "job ended",
        "request_id": "the-maker",
        "job_id": ticket["job_id"],
        "org": "default",
        "endpoint": "docs.post__echo",
        "state": "completed",
        "attempt": 1,
        "error_code": None,
    }
    (request,) = [
        line for line in lines(written, "coatcheck.requests") if line["request_id"] == "the-maker"
    ]
    assert (request["method"], request["status"]) == ("POST", 202)
    assert request["route"] == "/api/v1/orgs/{org}/services/{service}/async/{path:path}"
    assert (request["org"], request["job_id"]) == ("default", ticket["job_id"])
    assert request["ms"] > 0
    assert SECRET not in written.getvalue()


async def test_reads_cancels_and_failures_have_their_lines(shared: Deployment) -> None:
    written = opened()
    ticket = await hand_in(shared.http, "/flaky", X_Request_Id="flaky")
    job = await end_of(shared.http, ticket)
    failed = await until_ended(written, ticket["job_id"])
    assert (failed["state"], failed["attempt"]) == ("failed", job["attempt_count"])
    assert (failed["error_code"], failed["request_id"]) == ("max_retries_exhausted", "flaky")
    alerts = lines(written, "coatcheck.telemetry.alerts")
    assert [(each["job_id"], each["request_id"]) for each in alerts] == [
        (ticket["job_id"], "flaky")
    ]
    later = await hand_in(shared.http, "/echo", X_Coatcheck_Delay="3600", X_Request_Id="later")
    cancelled = await shared.http.post(later["cancel_url"], headers={"X-Request-Id": "canceller"})
    assert cancelled.status_code == 200
    end = await until_ended(written, later["job_id"])
    assert (end["state"], end["request_id"], end["ms"]) == ("cancelled", "later", None)
    by_id = {line["request_id"]: line for line in lines(written, "coatcheck.requests")}
    assert by_id["canceller"]["job_id"] == later["job_id"]


async def test_what_strangers_write_into_paths_is_not_logged(shared: Deployment) -> None:
    written = opened()
    for path in (f"/nowhere/{SECRET}", f"/api/v1/orgs/{SECRET}/services/docs/jobs/{SECRET}"):
        await shared.http.get(path, headers={"Authorization": "Bearer nothing"})
    refused = lines(written, "coatcheck.requests")
    assert [(line["route"], line["status"]) for line in refused] == [
        ("none", 404),
        ("/api/v1/orgs/{org}/services/{service}/jobs/{id}", 401),
    ]
    assert [(line["org"], line["job_id"]) for line in refused] == [(None, None)] * 2
    assert SECRET not in written.getvalue()


async def test_a_terminal_gets_lines_for_people(shared: Deployment) -> None:
    written = opened("pretty")
    await shared.http.get("/healthz", headers={"X-Request-Id": "looks"})
    EVENTS.flush()
    assert "GET /healthz 200 in " in written.getvalue()
    assert "request_id=looks" in written.getvalue()


async def test_nothing_is_written_when_it_is_off(shared: Deployment) -> None:
    written = opened()
    EVENTS.close()
    await end_of(shared.http, await hand_in(shared.http, "/echo"))
    await shared.http.get(paths.jobs())
    EVENTS.flush()
    assert lines(written, "coatcheck.requests") == lines(written, "coatcheck.jobs") == []
