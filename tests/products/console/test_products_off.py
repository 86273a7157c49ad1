"""Jobs of products that are off, or are no product's, as the console and webhooks show them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from coatcheck.dashboard import pages
from coatcheck.domain.ids import new_id
from coatcheck.domain.webhooks import DeliveryEvent, SubjectKind
from coatcheck.hosting import webhook_payloads
from tests.browser.signing_in import sign_in, visiting
from tests.deployment import Deployment

JOBS = "/api/v1/orgs/default/jobs"


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """With the console alone, and no product to show any job."""
    async with Deployment(dsn, tmp_path, products=("console",)) as opened:
        yield opened


async def shown(deployment: Deployment, job: str) -> dict[str, Any]:
    answer = await deployment.http.get(f"{JOBS}/{job}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_job_of_a_product_that_is_off_is_shown_plainly_and_cancelled(
    deployment: Deployment,
) -> None:
    ticket = await deployment.engine.submit("llm.post__chat", {"model": "small"}, queue_key="small")
    job = await shown(deployment, ticket.id)
    assert (job["surface"], job["service"], job["endpoint"]) == ("llm", "llm", "llm.post__chat")
    assert (job["urls"]["surface"], job["urls"]["retry"], job["result"]) == (None, None, None)
    hidden = await deployment.http.get(f"{JOBS}/{ticket.id}/input")
    assert (hidden.status_code, hidden.json()["code"]) == (409, "input_not_kept")
    explained = await deployment.http.get(f"{JOBS}/{ticket.id}/explain")
    assert "No worker serves llm.post__chat" in explained.json()["summary"]
    cancelled = await deployment.http.post(f"{JOBS}/{ticket.id}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    refused = await deployment.http.post(f"{JOBS}/{ticket.id}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_retryable")
    assert "is off on this server" in refused.json()["message"]


async def test_jobs_that_are_no_products_are_listed(deployment: Deployment) -> None:
    own = await deployment.engine.submit("chores.post__sweep", {"room": "attic"})
    chat = await deployment.engine.submit("llm.post__chat", {"model": "small"}, queue_key="small")
    listed = (await deployment.http.get(JOBS)).json()["items"]
    assert [(each["id"], each["surface"]) for each in listed] == [
        (chat.id, "llm"),
        (own.id, "chores"),
    ]


async def test_a_surface_that_is_off_cannot_be_asked_for(dsn: str, tmp_path: Path) -> None:
    async with Deployment(dsn, tmp_path, products=("console", "gateway")) as deployment:
        own = await deployment.engine.submit("chores.post__sweep", {"room": "attic"})
        await deployment.engine.submit("llm.post__chat", {"model": "small"}, queue_key="small")
        gateway = (await deployment.http.get(JOBS, params={"surface": "gateway"})).json()["items"]
        assert [each["id"] for each in gateway] == [own.id]
        refused = await deployment.http.get(JOBS, params={"surface": "llm"})
        assert refused.status_code == 400
        bulk = {"action": "cancel", "filter": {"surface": "llm"}}
        answer = await deployment.http.post(f"{JOBS}/bulk", json=bulk)
        assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    ("products", "offered"),
    [
        (("console", "gateway"), {"", "gateway"}),
        ((), {"", "batches", "gateway", "graphs", "llm", "speech"}),
    ],
)
async def test_the_dashboard_offers_the_products_that_are_on(
    dsn: str, tmp_path: Path, products: tuple[str, ...], offered: set[str]
) -> None:
    async with (
        Deployment(dsn, tmp_path, pages=pages.routes, products=products) as deployment,
        visiting(deployment.http.base_url) as visitor,
    ):
        await sign_in(visitor, deployment.key)
        page = (await visitor.get("/ui/jobs")).text
    choice = re.search(r'<select[^>]*name="surface".*?</select>', page, re.DOTALL)
    assert choice is not None
    assert set(re.findall(r'<option value="(\w*)"', choice[0])) == offered


def event_of(
    kind: SubjectKind, subject: UUID, event: str, at: datetime, facts: dict[str, Any]
) -> DeliveryEvent:
    return DeliveryEvent("default", new_id(), new_id(), kind, subject, None, event, facts, at)


async def test_webhooks_say_what_the_engine_knows(deployment: Deployment) -> None:
    render = webhook_payloads(deployment.products, deployment.context).body
    ticket = await deployment.engine.submit("chores.post__sweep", {"room": "attic"})
    facts = {"state": "queued", "attempt": 0, "endpoint": "chores.post__sweep"}
    at = datetime.now(UTC)
    queued = event_of(SubjectKind.JOB, ticket.uuid, "job.queued", at, facts)
    told = msgspec.json.decode(await render(queued))
    assert told["data"] == {
        "id": ticket.id,
        "org_id": "default",
        "endpoint": "chores.post__sweep",
        "status": "queued",
        "attempt_count": 0,
        "error_code": None,
        "terminal": False,
    }
    counts = {"status": "completed", "total": 3}
    noted = {"as": "endpoint", **counts}
    batch = await render(event_of(SubjectKind.BATCH, ticket.uuid, "batch.completed", at, noted))
    assert msgspec.json.decode(batch)["data"] == {"id": ticket.id, **counts}
