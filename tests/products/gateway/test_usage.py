"""What an organisation has used, over HTTP."""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime, timedelta

import pytest

from coatcheck.domain.tenants import Scope
from tests.deployment import Deployment, bearer
from tests.products.gateway.asking import end_of, hand_in, problem

USAGE = "/api/v1/orgs/default/usage"


async def test_jobs_that_ended_are_counted_by_day_and_endpoint(staffed: Deployment) -> None:
    today = datetime.now(UTC).date()
    for path in ("/process", "/process", "/fail"):
        await end_of(staffed.http, await hand_in(staffed.http, path))
    answer = await staffed.http.get(USAGE, params={"from": str(today - timedelta(days=1))})
    usage = answer.json()
    assert usage["org_id"] == "default"
    rows = {row["endpoint"]: row for row in usage["items"]}
    assert set(rows) == {"docs.post__process", "docs.post__fail"}
    process, fail = rows["docs.post__process"], rows["docs.post__fail"]
    assert (process["jobs"], process["completed"], process["failed"]) == (2, 2, 0)
    assert (fail["jobs"], fail["completed"], fail["failed"]) == (1, 0, 1)
    assert process["attempts"] == 2
    assert process["payload_bytes"] == 2 * len("{}")
    assert process["result_bytes"] > 0
    assert process["run_seconds"] >= 0


async def test_the_same_as_a_table(staffed: Deployment) -> None:
    await end_of(staffed.http, await hand_in(staffed.http, "/process"))
    shown = (await staffed.http.get(USAGE)).json()["items"]
    for options in ({"params": {"format": "csv"}}, {"headers": {"Accept": "text/csv"}}):
        answer = await staffed.http.get(USAGE, **options)
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        (row,) = csv.DictReader(answer.text.splitlines())
        assert row == {name: str(value) for name, value in shown[0].items()}


async def test_the_same_by_the_hour(staffed: Deployment) -> None:
    for path in ("/process", "/process", "/fail"):
        await end_of(staffed.http, await hand_in(staffed.http, path))
    days = (await staffed.http.get(USAGE)).json()["items"]
    answer = await staffed.http.get(USAGE, params={"granularity": "hour"})
    usage = answer.json()
    first, last = (date.fromisoformat(usage[name]) for name in ("first_day", "last_day"))
    assert last - first == timedelta(days=1)
    for row in usage["items"]:
        hour = datetime.fromisoformat(row["hour"])
        assert (hour.minute, hour.second, hour.utcoffset()) == (0, 0, timedelta())
        assert str(hour.date()) == row["day"]
    assert {"docs.post__process", "docs.post__fail"} == {row["endpoint"] for row in usage["items"]}
    for name in ("jobs", "completed", "failed", "attempts", "payload_bytes", "result_bytes"):
        assert sum(row[name] for row in usage["items"]) == sum(row[name] for row in days)
    table = await staffed.http.get(USAGE, params={"granularity": "hour", "format": "csv"})
    shown = list(csv.DictReader(table.text.splitlines()))
    assert shown == [{name: str(value) for name, value in row.items()} for row in usage["items"]]
    assert table.text.startswith("day,hour,endpoint,")
    plain = await staffed.http.get(USAGE, params={"granularity": "day"})
    assert plain.json()["items"] == days
    assert all("hour" not in row for row in days)


async def test_another_organisations_usage_is_not_shown(staffed: Deployment) -> None:
    await end_of(staffed.http, await hand_in(staffed.http, "/process"))
    await staffed.create_org("other")
    other = bearer(await staffed.create_key("other"))
    problem(await staffed.http.get(USAGE, headers=other), 404, "not_found")
    own = await staffed.http.get(USAGE.replace("default", "other"), headers=other)
    assert own.json()["items"] == []
    blind = bearer(await staffed.create_key(scopes=[Scope.SUBMIT]))
    problem(await staffed.http.get(USAGE, headers=blind), 403, "missing_scope")


@pytest.mark.parametrize(
    "query",
    [
        "from=yesterday",
        "to=2025-02-30",
        "from=2025-02-02&to=2025-02-01",
        "from=2020-01-01&to=2025-01-01",
        "from=2025-01-01&to=2026-01-20",
        "to=0001-01-01",
        "format=xml",
        "granularity=minute",
        "granularity=hour&from=2025-01-01&to=2025-02-01",
        "granularity=hour&to=0001-01-01",
        "colour=red",
    ],
)
async def test_days_that_make_no_span_are_refused(deployment: Deployment, query: str) -> None:
    found = problem(await deployment.http.get(f"{USAGE}?{query}"), 400, "invalid_parameter")
    assert [each["location"] for each in found["details"]] == ["query"]
