"""Reports of usage: made once when a period has ended, read over HTTP, told by webhook."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coatcheck.core.queries import usage
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.ids import from_text
from coatcheck.maintenance.retention import StatsPruner
from coatcheck.maintenance.usage import UsageReporter
from coatcheck.maintenance.webhooks import WebhookDeliverer
from tests.all_products import payloads
from tests.deployment import Deployment, bearer
from tests.egress.upstream_server import upstream_server
from tests.products.gateway.asking import problem
from tests.waiting import eventually_async
from tests.webhooks.webhook_deliveries import verified

REPORTS = "/api/v1/orgs/default/usage/reports"
TODAY = datetime.now(UTC).date()


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name="usage reporter", server_settings=PINNED_PLANS)
    yield line
    await line.close()


async def use(
    line: Connection, day: date, jobs: int, *, org: str = "default", flow: str = ""
) -> None:
    await line.fetch(
        "INSERT INTO usage VALUES"
        " ($1, $2, $3::bigint, 1, 0, $3 + 1, 20, 30, 1.25, 'docs.post__work', $4)",
        org,
        day,
        jobs,
        flow,
    )


async def listed(deployment: Deployment) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await deployment.http.get(REPORTS)).json()["items"]
    return items


def month_before(day: date) -> tuple[date, date]:
    last = day.replace(day=1) - timedelta(days=1)
    return last.replace(day=1), last


async def test_a_month_is_reported_once_and_shown_as_json_and_csv(
    deployment: Deployment, line: Connection
) -> None:
    # Of yesterday's month: at the very beginning of a month the one before may not be due yet.
    first, last = month_before(TODAY - timedelta(days=1))
    await use(line, first, 3)
    await use(line, last, 4)
    await use(line, last, 1, flow="=1+1")
    await use(line, first - timedelta(days=1), 100)
    await use(line, TODAY, 100)
    assert await UsageReporter(line, "monthly").tick() > 0
    assert await UsageReporter(line, "monthly").tick() > 0
    made = [each for each in await listed(deployment) if each["first_day"] == str(first)]
    (summary,) = made
    assert (summary["period"], summary["last_day"]) == ("month", str(last))
    assert summary["totals"]["jobs"] == 3 + 4 + 1 + 3
    assert summary["totals"]["failed"] == 3
    assert summary["totals"]["run_seconds"] == 3.75
    shown = (await deployment.http.get(f"{REPORTS}/{summary['id']}")).json()
    assert shown["org_id"] == "default"
    assert {name: shown[name] for name in summary} == summary
    assert [(each["flow"], each["completed"]) for each in shown["items"]] == [("", 7), ("=1+1", 1)]
    table = await deployment.http.get(f"{REPORTS}/{summary['id']}", params={"format": "csv"})
    assert table.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(table.text.splitlines()))
    assert [row["flow"] for row in rows] == ["", "'=1+1"]
    assert rows[0] == {name: str(value) for name, value in shown["items"][0].items()}
    report = await deployment.engine.usage_report("default", from_text(summary["id"]))
    assert report is not None
    assert [each.queue_key for each in report.items] == ["", "=1+1"]
    assert [each.flow for each in report.items] == ["", "=1+1"]


async def test_what_a_downtime_left_out_is_made_later_and_nothing_twice(
    deployment: Deployment, line: Connection
) -> None:
    # Yesterday may not be due yet, an hour after midnight; days before it are.
    for days in (2, 3, 9, 60):
        await use(line, TODAY - timedelta(days=days), 1)
    reporter = UsageReporter(line, "daily")
    await asyncio.gather(*(reporter.tick() for _ in range(3)))
    made = await listed(deployment)
    days_made = [str(TODAY - timedelta(days=days)) for days in (2, 3, 9)]
    assert [each["first_day"] for each in made] == days_made
    await use(line, TODAY - timedelta(days=4), 1)
    await reporter.tick()
    assert len(await listed(deployment)) == 4
    assert [each for each in await listed(deployment) if each in made] == made


async def test_a_week_begins_on_monday(deployment: Deployment, line: Connection) -> None:
    monday = TODAY - timedelta(days=TODAY.weekday() + 14)
    await use(line, monday, 1)
    await use(line, monday + timedelta(days=6), 2)
    await UsageReporter(line, "weekly").tick()
    (week,) = await listed(deployment)
    assert (week["first_day"], week["last_day"]) == (str(monday), str(monday + timedelta(days=6)))
    assert week["totals"]["completed"] == 3


async def test_two_that_report_at_once_make_one_report_and_tell_of_it_once(
    deployment: Deployment, dsn: str, line: Connection
) -> None:
    """The rival waits for the first one's row, and then finds that there is one."""
    await deployment.engine.webhooks.create_endpoint("default", None, ["usage.report"], pulled=True)
    await use(line, TODAY - timedelta(days=2), 1)
    rivals = [Connection(dsn, name=f"rival {n}") for n in range(4)]
    try:
        await asyncio.gather(*(UsageReporter(each, "daily").tick() for each in rivals))
    finally:
        for each in rivals:
            await each.close()
    assert len(await listed(deployment)) == 1
    assert len(await deployment.engine.webhooks.deliveries("default", limit=10)) == 1


async def test_a_period_waits_for_what_is_not_rolled_up_yet(
    deployment: Deployment, line: Connection
) -> None:
    day = TODAY - timedelta(days=2)
    await use(line, day, 1)
    await line.fetch(
        "INSERT INTO usage_deltas (org_id, day, completed, failed, cancelled, attempts,"
        " payload_bytes, result_bytes, run_seconds, endpoint, flow)"
        " VALUES ('default', $1, 1, 0, 0, 1, 0, 0, 0, 'docs.post__work', '')",
        day,
    )
    await UsageReporter(line, "daily").tick()
    assert await listed(deployment) == []
    await line.fetch("DELETE FROM usage_deltas")
    await UsageReporter(line, "daily").tick()
    assert len(await listed(deployment)) == 1


async def test_an_endpoint_that_names_the_event_is_told(dsn: str, tmp_path: Path) -> None:
    async with (
        Deployment(dsn, tmp_path, webhook_loopback=True) as deployment,
        upstream_server() as receiver,
    ):
        webhooks = deployment.engine.webhooks
        endpoint = await webhooks.create_endpoint("default", receiver.url("/"), ["usage.report"])
        line = Connection(dsn, name="usage reporter")
        deliverer = WebhookDeliverer(
            deployment.settings, payloads(deployment.context).body, deployment.engine.database
        )
        await deliverer.begin()
        try:
            await use(line, TODAY - timedelta(days=2), 5)
            await UsageReporter(line, "daily").tick()

            async def is_told() -> bool:
                return bool(receiver.requests)

            await eventually_async(is_told, "the endpoint is told")
        finally:
            await deliverer.stop()
            await line.close()
        secret = (await webhooks.secret("default", endpoint.id)).secret
        body = verified(receiver.requests[0], secret)
        (report,) = await listed(deployment)
        assert body["type"] == "usage.report"
        assert body["data"] == {
            name: report[name] for name in ("id", "period", "first_day", "last_day", "totals")
        }


async def test_another_organisations_reports_are_not_shown(
    deployment: Deployment, line: Connection
) -> None:
    await deployment.create_org("other")
    other = bearer(await deployment.create_key("other"))
    await use(line, TODAY - timedelta(days=2), 1)
    await UsageReporter(line, "daily").tick()
    ((report),) = await listed(deployment)
    theirs = REPORTS.replace("default", "other")
    assert (await deployment.http.get(theirs, headers=other)).json() == {"items": []}
    problem(await deployment.http.get(f"{theirs}/{report['id']}", headers=other), 404, "not_found")
    problem(await deployment.http.get(REPORTS, headers=other), 404, "not_found")
    problem(await deployment.http.get(f"{REPORTS}/nothing"), 404, "not_found")
    problem(await deployment.http.get(f"{REPORTS}?colour=red"), 400, "invalid_parameter")


async def test_reports_are_kept_for_more_than_a_year(
    deployment: Deployment, line: Connection
) -> None:
    await use(line, TODAY - timedelta(days=2), 1)
    await use(line, TODAY - timedelta(days=3), 1)
    await UsageReporter(line, "daily").tick()
    await line.fetch(
        "UPDATE usage_reports SET created_at = now() - interval '401 days' WHERE first_day = $1",
        TODAY - timedelta(days=3),
    )
    assert await StatsPruner(line).tick() > 0
    (left,) = await usage.list_reports(line, "default")
    assert left.first_day == TODAY - timedelta(days=2)
