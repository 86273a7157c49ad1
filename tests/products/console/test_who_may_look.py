"""Users look after their own jobs, admins after their organisation's, operators after all."""

from __future__ import annotations

import pytest

from coatcheck import Service
from coatcheck.domain.tenants import USER_SCOPES
from tests.deployment import Deployment
from tests.products.console.callers import Caller
from tests.products.console.conftest import OPERATOR_ORG

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_user_sees_their_own_jobs_and_an_admin_all(
    shared: Deployment, user: Caller, admin: Caller, org: str
) -> None:
    other = Caller(shared, org, await shared.create_key(org, "eve", USER_SCOPES))
    theirs = (await user.ended("sweep", room="nook", key="theirs"))["id"]
    unowned = (await shared.engine.submit("chores.post__idle", org=org, lane="bulk")).id
    assert await user.listed() == [theirs]
    assert await other.listed() == []
    assert await admin.listed() == [unowned, theirs]
    for caller, sees in ((user, True), (other, False), (admin, True)):
        status = 200 if sees else 404
        for path in ("", "/timeline", "/log", "/input", "/explain", "/artifacts"):
            assert (await caller.ask("GET", f"jobs/{theirs}{path}")).status_code == status
        assert (theirs in await caller.listed(q=theirs)) is sees
        assert (theirs in await caller.listed(q="theirs")) is sees
        retried = await caller.post(f"jobs/{theirs}/retry")
        assert retried.status_code == (202 if sees else 404)
        if sees:
            assert retried.json()["owner"] == "user:bob", "whoever retries it, it stays theirs"
        order = {"action": "retry", "ids": [theirs]}
        (item,) = (await caller.post("jobs/bulk", order)).json()["items"]
        assert item["ok"] is sees
    assert (await user.ask("GET", f"jobs/{unowned}")).status_code == 404


async def test_an_operator_looks_after_every_organisation_and_nobody_else_does(
    shared: Deployment, user: Caller, admin: Caller, operator: Caller, org: str
) -> None:
    job = await user.ended("sweep", room="yard")
    assert (await operator.get(f"jobs/{job['id']}"))["owner"] == job["owner"]
    assert await operator.listed() == [job["id"]]
    retried = await operator.post(f"jobs/{job['id']}/retry")
    assert (retried.status_code, retried.json()["org_id"]) == (202, org)
    for path in ("usage", "api-keys", "webhooks/endpoints", "services", "overview"):
        assert (await operator.ask("GET", path)).status_code == 200, path
    orgs = [each["org_id"] for each in (await operator.get("/api/v1/operator/orgs"))["items"]]
    assert {org, OPERATOR_ORG} <= set(orgs)
    # What is done in an organisation's name is not theirs to do.
    for method, path in (
        ("POST", "services/chores/async/idle"),
        ("PUT", "workspaces/default/hosted-services/new"),
        ("GET", f"services/chores/jobs/{job['id']}"),
    ):
        assert (await operator.ask(method, path, json={})).status_code == 404, path

    plain = Caller(shared, org, await shared.create_key(OPERATOR_ORG, "otto", USER_SCOPES))
    stranger = Caller(shared, org, shared.key)
    for caller in (plain, stranger):
        for path in ("jobs", f"jobs/{job['id']}", "usage", "overview"):
            assert (await caller.ask("GET", path)).status_code == 404, path
    for caller in (plain, stranger, admin, user):
        refused = await caller.ask("GET", "/api/v1/operator/orgs")
        assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")


async def test_operators_forget_endpoints_without_a_worker_and_nobody_else_does(
    shared: Deployment, user: Caller, admin: Caller, operator: Caller
) -> None:
    errands = Service("errands")

    @errands.post("/run")
    async def run() -> None: ...

    await shared.stop_worker(await shared.start_worker(errands))
    place = "/api/v1/operator/services"
    for caller in (user, admin):
        refused = await caller.ask("DELETE", f"{place}/errands")
        assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    kept = await operator.ask("DELETE", f"{place}/chores.post__idle")
    assert kept.json() == {"forgotten": [], "served": ["chores.post__idle"]}
    forgotten = await operator.ask("DELETE", f"{place}/errands.post__run")
    assert forgotten.json() == {"forgotten": ["errands.post__run"], "served": []}
    names = [each["service_id"] for each in (await operator.get("services"))["items"]]
    assert "errands" not in names
    for name in ("errands", "errands.v2", "a.b.c.d", "a%20b"):
        absent = await operator.ask("DELETE", f"{place}/{name}")
        assert (absent.status_code, absent.json()["code"]) == (404, "not_found"), name


async def test_an_operator_finds_nothing_where_there_is_nothing(operator: Caller) -> None:
    assert await operator.get("/api/v1/orgs/no-such-org/jobs") == {"items": [], "next": None}
    answer = await operator.ask("GET", "/api/v1/orgs/a%20b/jobs")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
