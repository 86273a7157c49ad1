from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from coatcheck.client import FlowBacklog, QueueBacklog, UnexpectedAnswer
from tests.client.cases import JOB_URL, job
from tests.client.conftest import Connect

LISTING = "/api/v1/orgs/default/workspaces/default/hosted-services/docs/jobs"


def query(target: str) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(target).query).items()}


async def test_a_page_has_jobs_that_can_be_worked_with(connect: Connect, scripted: Any) -> None:
    page = {
        "items": [job("failed"), job("queued")],
        "total": 42,
        "total_is_exact": True,
        "next": "x",
    }
    server = await scripted({"json": page}, {"json": job("completed")})
    client = connect(server.url)
    listed = await client.list("docs", status="failed", lane="bulk", offset=10, limit=2)
    assert (listed.total, listed.total_is_exact, listed.next) == (42, True, "x")
    assert [item.status for item in listed.items] == ["failed", "queued"]
    await client.do(listed.items[1].refresh)
    assert listed.items[1].status == "completed"
    assert server.asked[0].path == LISTING
    assert query(server.asked[0].target) == {
        "offset": "10",
        "limit": "2",
        "status": "failed",
        "lane": "bulk",
    }
    assert server.asked[1].target == JOB_URL


async def test_all_jobs_are_asked_for_page_by_page(connect: Connect, scripted: Any) -> None:
    def page(*statuses: str, following: str | None) -> dict[str, Any]:
        items = [job(status) for status in statuses]
        return {"json": {"items": items, "total": 3, "total_is_exact": True, "next": following}}

    server = await scripted(
        page("queued", "failed", following="cursor 1"),
        page("completed", following="cursor 2"),
        page(following=None),
    )
    jobs = await connect(server.url).all_jobs("docs", lane="bulk")
    assert [item.status for item in jobs] == ["queued", "failed", "completed"]
    queries = [query(asked.target) for asked in server.asked]
    assert [asked.get("cursor") for asked in queries] == [None, "cursor 1", "cursor 2"]
    assert {(asked["lane"], asked["limit"]) for asked in queries} == {("bulk", "200")}


async def test_a_large_batch_is_asked_for_in_parts(connect: Connect, scripted: Any) -> None:
    ids = [f"id-{number}" for number in range(401)]
    server = await scripted(
        {"json": {"items": [job("queued")], "not_found": ids[1:200]}},
        {"json": {"items": [], "not_found": ids[200:400]}},
        {"json": {"items": [job("failed")], "not_found": []}},
    )
    batch = await connect(server.url).batch_status("docs", ids)
    assert [item.status for item in batch.items] == ["queued", "failed"]
    assert batch.not_found == tuple(ids[1:400])
    asked = [query(request.target)["job_ids"].split(",") for request in server.asked]
    assert [len(part) for part in asked] == [200, 200, 1]
    assert [job_id for part in asked for job_id in part] == ids
    assert server.asked[0].path == f"{LISTING}/batch-status"


async def test_an_empty_batch_asks_nothing(connect: Connect, scripted: Any) -> None:
    server = await scripted()
    batch = await connect(server.url).batch_status("docs", [])
    assert (batch.items, batch.not_found) == ((), ())


async def test_usage_is_typed(connect: Connect, scripted: Any) -> None:
    row = {
        "day": "2026-01-31",
        "endpoint": "docs.post__analyze",
        "flow": "docs.v1.post__analyze",
        "jobs": 3,
        "completed": 2,
        "failed": 1,
        "cancelled": 0,
        "attempts": 5,
        "run_seconds": 1.25,
        "payload_bytes": 10,
        "result_bytes": 20,
        "something_new": True,
    }
    answer = {"org_id": "default", "first_day": "2026-01-01", "items": [row]}
    hourly = {"items": [{**row, "hour": "2026-01-31T22:00:00Z"}]}
    server = await scripted({"json": answer}, {"json": {"items": "?"}}, {"json": hourly})
    client = connect(server.url)
    (used,) = await client.usage(date(2026, 1, 1), date(2026, 1, 31))
    assert (used.day, used.jobs, used.run_seconds) == (date(2026, 1, 31), 3, 1.25)
    assert used.queue_key == used.flow == "docs.v1.post__analyze"
    assert query(server.asked[0].target) == {"from": "2026-01-01", "to": "2026-01-31"}
    with pytest.raises(UnexpectedAnswer):
        await client.usage()
    (used,) = await client.usage(granularity="hour")
    assert used.hour == datetime(2026, 1, 31, 22, tzinfo=UTC)
    assert query(server.asked[2].target) == {"granularity": "hour"}


async def test_the_queues_of_an_overview_have_their_old_names_too(
    connect: Connect, scripted: Any
) -> None:
    queue = {"org_id": "default", "flow": "import-7", "label": "import-7", "lane": "bulk"}
    answer = {
        "org_id": "default",
        "generated_at": "2026-01-31T22:00:00Z",
        "bucket_seconds": 60,
        "flows": [queue],
    }
    server = await scripted({"json": answer})
    overview = await connect(server.url).overview()
    assert overview.queues == overview.flows == (QueueBacklog(*queue.values()),)
    (longest,) = overview.queues
    assert longest.queue_key == longest.flow == "import-7"
    assert FlowBacklog is QueueBacklog
