"""ETags: reading a job again only if it has changed."""

from __future__ import annotations

import asyncio

import pytest

from tests.deployment import Deployment
from tests.products.gateway.asking import hand_in
from tests.products.gateway.docs_service import gates

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_change_ends_the_wait(shared: Deployment, gate: str) -> None:
    ticket, tag = await processing(shared, gate)
    asked = asyncio.create_task(
        shared.http.get(ticket["poll_url"], params={"wait": "30"}, headers={"If-None-Match": tag})
    )
    gates.opened[gate].set()
    answer = await asked
    assert answer.status_code == 202
    assert answer.headers["etag"] != tag
    assert answer.json()["progress"] == {"fraction": 0.5, "note": "half of it"}
    assert (await shared.http.post(ticket["cancel_url"])).headers["etag"] != answer.headers["etag"]


async def test_a_job_that_has_changed_already_is_answered_at_once(
    shared: Deployment, gate: str
) -> None:
    ticket, tag = await processing(shared, gate)
    cancelling = await shared.http.post(ticket["cancel_url"])
    assert cancelling.headers["etag"] != tag
    answer = await shared.http.get(
        ticket["poll_url"], params={"wait": "30"}, headers={"If-None-Match": tag}
    )
    assert answer.json()["status"] in ("cancel_requested", "cancelled")
    gates.opened[gate].set()
    ended = await shared.http.get(ticket["poll_url"], params={"wait": "30"})
    assert len({tag, cancelling.headers["etag"], ended.headers["etag"]}) == 3


async def processing(deployment: Deployment, gate: str) -> tuple[dict[str, str], str]:
    """The ticket of a job that runs and has nothing to show, and its tag."""
    ticket = await hand_in(deployment.http, "/advance", {"gate": gate})
    await gates.begun[gate].wait()
    seen = await deployment.http.get(ticket["poll_url"])
    while seen.json()["status"] != "processing":
        seen = await deployment.http.get(
            ticket["poll_url"],
            params={"wait": "30"},
            headers={"If-None-Match": seen.headers["etag"]},
        )
    return ticket, seen.headers["etag"]
