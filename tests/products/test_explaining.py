"""What people are told over HTTP: what happens in an organisation, and why a job waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from coatcheck.domain.job import ConcurrencyLimit
from coatcheck.domain.tenants import USER_SCOPES
from coatcheck.tls import trusted_authorities
from tests.databases import Databases
from tests.db.rows import connected
from tests.deployment import Deployment, bearer
from tests.products.gateway.asking import end_of, hand_in
from tests.products.gateway.docs_service import docs, gates

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO = "docs.post__echo"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    """A deployment that the admins of ``default`` operate, with a worker for ``docs``."""
    async with (
        databases.fresh() as dsn,
        Deployment(dsn, tmp_path_factory.mktemp("deployment"), operator_org="default") as opened,
    ):
        await opened.start_worker(docs)
        await opened.create_org("guests")
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def held_back(deployment: Deployment) -> AsyncIterator[None]:
    """No job of ``/echo`` starts."""
    limit = ConcurrencyLimit("default", "endpoint", ECHO, 0)
    await deployment.engine.set_limit(limit)
    yield
    await deployment.engine.clear_limit(limit.org, limit.scope, limit.name)


async def overview(deployment: Deployment, org: str = "default", key: str | None = None) -> Any:
    path = "/api/v1/operator/overview" if org == "*" else f"/api/v1/orgs/{org}/overview"
    answer = await deployment.http.get(
        path, params={"minutes": 60}, headers=bearer(key or deployment.key)
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def total(seen: Any, name: str) -> int:
    return sum(point[name] for point in seen["series"])


async def test_an_overview_shows_what_happened_to_jobs_and_how_long_it_took(
    deployment: Deployment,
) -> None:
    tickets = [await hand_in(deployment.http, "/echo", {"value": n}) for n in range(3)]
    tickets.append(await hand_in(deployment.http, "/fail", {}))
    for ticket in tickets:
        await end_of(deployment.http, ticket)
    await deployment.engine.flush_stats()
    for org in ("default", "*"):
        seen = await overview(deployment, org)
        assert seen["org_id"] == org
        counts = {
            name: total(seen, name) for name in ("submitted", "started", "completed", "failed")
        }
        assert counts == {"submitted": 4, "started": 4, "completed": 3, "failed": 1}
        assert len(seen["failures"]) == 1
        assert any(point["start_p99"] is not None for point in seen["series"])
        assert any(point["run_p50"] is not None for point in seen["series"])
        assert seen["workers_alive"] == 1
        assert seen["workers"][0]["slots"]
    member = await deployment.create_key("guests", "guest", USER_SCOPES)
    theirs = await overview(deployment, "guests", member)
    assert total(theirs, "submitted") == 0
    assert (theirs["workers_alive"], theirs["workers"], theirs["flows"]) == (1, [], [])


async def test_the_overview_of_all_is_for_operators(deployment: Deployment) -> None:
    admin_elsewhere = await deployment.create_key("guests", "boss")
    answer = await deployment.http.get("/api/v1/operator/overview", headers=bearer(admin_elsewhere))
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")


async def test_a_job_says_whose_job_it_waits_for_to_who_may_see_that(
    deployment: Deployment,
) -> None:
    limit = ConcurrencyLimit("default", "endpoint", "docs.post__held", 1)
    await deployment.engine.set_limit(limit)
    try:
        first = await hand_in(deployment.http, "/held", {"gate": "explained"})
        await gates.begun["explained"].wait()
        second = await hand_in(deployment.http, "/held", {"gate": "explained"})
        answer = await deployment.http.get(second["poll_url"] + "/explain")
        body = answer.json()
        assert answer.headers["retry-after"] == str(body["retry_after"])
        assert (body["job_id"], body["state"], body["terminal"]) == (
            second["job_id"],
            "queued",
            False,
        )
        (blocker,) = body["blockers"]
        assert (blocker["kind"], blocker["limit"], blocker["held"]) == ("concurrency_limit", 1, 1)
        assert blocker["holders"] == [first["job_id"]]
        assert blocker["message"] in body["summary"]
        member = bearer(await deployment.create_key("default", "member", USER_SCOPES))
        third = await hand_in(deployment.http, "/held", {"gate": "explained"}, **member)
        shown = await deployment.http.get(third["poll_url"] + "/explain", headers=member)
        assert shown.json()["position"] == 2
        assert shown.json()["blockers"][0]["holders"] == []
        running = (await deployment.http.get(first["poll_url"] + "/explain")).json()
        assert [each["kind"] for each in running["blockers"]] == ["running"]
        gates.opened["explained"].set()
        await end_of(deployment.http, second)
        ended = (await deployment.http.get(second["poll_url"] + "/explain")).json()
        assert (ended["terminal"], ended["blockers"], ended["eta"]) == (True, [], None)
    finally:
        await deployment.engine.clear_limit(limit.org, limit.scope, limit.name)


async def test_strangers_are_not_told_the_ids_of_other_strangers_jobs(
    deployment: Deployment,
) -> None:
    limit = ConcurrencyLimit("default", "endpoint", "docs.post__held", 1)
    await deployment.engine.set_limit(limit)
    try:
        first = await hand_in(deployment.http, "/held", {"gate": "open to all"})
        await gates.begun["open to all"].wait()
        second = await hand_in(deployment.http, "/held", {"gate": "open to all"})
        async with connected(deployment.settings.database_url) as connection:
            await connection.execute(
                "UPDATE jobs SET owner = '*' WHERE endpoint = $1 AND finished_at IS NULL",
                limit.name,
            )
        admin_elsewhere = bearer(await deployment.create_key("guests", "boss"))
        async with httpx2.AsyncClient(
            base_url=deployment.http.base_url, verify=trusted_authorities(trust_env=False)
        ) as outside:
            for stranger in ({}, admin_elsewhere):
                told = await outside.get(second["poll_url"] + "/explain", headers=stranger)
                (blocker,) = told.json()["blockers"]
                assert (blocker["kind"], blocker["holders"]) == ("concurrency_limit", [])
        own = await deployment.http.get(second["poll_url"] + "/explain")
        assert own.json()["blockers"][0]["holders"] == [first["job_id"]]
        gates.opened["open to all"].set()
        await end_of(deployment.http, second)
    finally:
        await deployment.engine.clear_limit(limit.org, limit.scope, limit.name)


@pytest.mark.usefixtures("held_back")
async def test_who_has_waited_long_is_asked_back_by_their_place_in_the_line(
    deployment: Deployment,
) -> None:
    tickets = [await hand_in(deployment.http, "/echo", {}) for _ in range(30)]
    await deployment.engine.flush_stats()  # what was started before is not added later
    async with connected(deployment.settings.database_url) as connection:
        await connection.execute(
            """
            WITH aged AS (
                UPDATE jobs SET created_at = created_at - interval '1 hour',
                       run_at = run_at - interval '1 hour'
                WHERE state = 'queued' AND endpoint = $1
            )
            UPDATE queue SET run_at = run_at - interval '1 hour' WHERE endpoint = $1
            """,
            ECHO,
        )
        # Six were started in the last minute in which any were: one in ten seconds.
        await connection.execute("UPDATE job_roll_ups SET started = 0")
        await connection.execute(
            """
            INSERT INTO job_roll_ups
            SELECT 'default', 60, date_trunc('minute', now()) - interval '5 minutes', 'standard',
                   0, 6, 0, 0, 0, 0, 0, '{6}', '{6}'
            """
        )
    server = await deployment.start_server()  # which has not yet forecast anything
    answer = await server.http.get(tickets[-1]["poll_url"])
    assert answer.headers["retry-after"] == "60"
    told = (await server.http.get(tickets[-1]["poll_url"] + "/explain")).json()
    assert told["position"] == 30
    assert [each["kind"] for each in told["blockers"]] == ["paused", "queued_behind"]
    for ticket in tickets:
        await deployment.http.post(ticket["cancel_url"])


@pytest.mark.usefixtures("held_back")
async def test_a_batch_says_what_its_next_task_waits_for(deployment: Deployment) -> None:
    await deployment.engine.flush_stats()
    before = total(await overview(deployment), "submitted")
    made = await deployment.http.post(
        "/v1/jobs", json={"service": "docs", "endpoint": "/echo", "tasks": [{}, {}, {}]}
    )
    assert made.status_code == 201, made.text
    await deployment.engine.flush_stats()
    assert total(await overview(deployment), "submitted") == before + 3
    url = f"/v1/jobs/{made.json()['id']}"
    told = (await deployment.http.get(f"{url}/explain")).json()
    assert (told["job_id"], told["state"]) == (made.json()["id"], "running")
    assert told["summary"].startswith("0 of 3 tasks ended; 0 running. The endpoint")
    assert told["blockers"][0]["kind"] == "paused"
    task = (await deployment.http.get(f"{url}/tasks")).json()["items"][-1]
    of_task = (await deployment.http.get(f"{url}/tasks/{task['id']}/explain")).json()
    assert (of_task["job_id"], of_task["state"]) == (task["id"], "queued")
    assert of_task["blockers"][0]["kind"] == "paused"
    await deployment.http.post(f"{url}/cancel")
