"""Jobs that fail: what they say, and whom it alerts."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway.asking import end_of, hand_in
from tests.products.gateway.sse import following

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_after_the_last_retry_the_job_fails_and_raises_an_alert(shared: Deployment) -> None:
    ticket = await hand_in(shared.http, "/flaky")
    job = await end_of(shared.http, ticket)
    assert (job["status"], job["attempt_count"]) == ("failed", 2)
    assert set(job["last_error"]) == {"code", "message", "cause"}
    assert job["last_error"]["code"] == "max_retries_exhausted"
    assert job["last_error"]["cause"] == "retry_later"
    assert "not today" in job["last_error"]["message"]
    async with following(shared.http, ticket["events_url"]) as stream:
        events = await stream.rest()
    assert [event.name for event in events] == ["alert", "end"]
    alert, end = events
    assert alert.id is not None
    assert alert.data["code"] == "max_retries_exhausted"
    assert end.data["last_error"] == job["last_error"]


async def test_what_cannot_be_mended_is_not_tried_again(shared: Deployment) -> None:
    job = await end_of(shared.http, await hand_in(shared.http, "/fail", {"reason": "no ink"}))
    assert (job["status"], job["attempt_count"]) == ("failed", 1)
    assert job["last_error"] == {
        "code": "asked_to_fail",
        "message": "no ink",
        "cause": "asked_to_fail",
    }


async def test_input_that_does_not_fit_fails_the_job_and_names_the_field(
    shared: Deployment,
) -> None:
    job = await end_of(shared.http, await hand_in(shared.http, "/analyze", {"content": 5}))
    assert job["status"] == "failed"
    assert job["last_error"]["code"] == "invalid_input"
    assert "content" in job["last_error"]["message"]
