"""Webhooks, services, API keys and usage: looked at and looked after."""

from __future__ import annotations

import httpx2
import pytest
from playwright.async_api import expect

from tests.browser.chromium import (
    PHONE,
    is_wider_than_its_window,
    scripts_have_run,
    violations,
)
from tests.browser.conftest import OpenPage
from tests.browser.errands import ORG, ended
from tests.browser.signing_in import sign_in, token_in
from tests.deployment import Deployment, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLICK_TWICE = """button => {
    let sent = 0;
    addEventListener("submit", (event) => { if (!event.defaultPrevented) sent += 1; });
    button.click();
    button.click();
    return sent;
}"""


async def test_an_endpoint_is_registered_tried_paused_rotated_and_deleted(
    deployment: Deployment, open_page: OpenPage
) -> None:
    page = await open_page("/ui/webhooks")
    assert await violations(page) == []
    if not await page.get_by_label("URL").is_visible():
        await page.get_by_text("Register an endpoint").click()
    await page.get_by_label("URL").fill("http://127.0.0.1:9/hooks")
    await page.get_by_label("Description").fill("The till")
    await page.get_by_label("job.failed").check()
    await page.get_by_label("*", exact=True).uncheck()
    await page.get_by_role("button", name="Register").click()
    await expect(page.get_by_role("heading", name="http://127.0.0.1:9/hooks")).to_be_visible()
    endpoint = f"{ORG}/webhooks/endpoints/{page.url.rpartition('/')[2]}"
    made = (await deployment.http.get(endpoint)).json()
    assert (made["events"], made["description"]) == (["job.failed"], "The till")

    await page.get_by_role("button", name="Send test event").click()
    await expect(page.get_by_text("Test event queued.")).to_be_visible()
    await expect(page.get_by_role("cell", name="webhook.test")).to_be_visible()
    assert await violations(page) == []
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator(".heading .badge")).to_have_text("paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".heading .badge")).to_have_text("active")

    secret = (await deployment.http.get(f"{endpoint}/secret")).json()["secret"]
    assert secret not in await page.content()
    await page.get_by_role("button", name="Show secret").click()
    await expect(page.locator("#secret")).to_contain_text(secret)
    await scripts_have_run(page)
    await page.get_by_role("button", name="Rotate").click()
    await page.get_by_role("button", name="Rotate secret").click()
    await expect(page.get_by_text("Secret rotated.")).to_be_visible()
    assert (await deployment.http.get(f"{endpoint}/secret")).json()["previous"] == secret

    await scripts_have_run(page)
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("button", name="Delete endpoint").click()
    await expect(page.get_by_text("Endpoint deleted.")).to_be_visible()
    assert (await deployment.http.get(endpoint)).status_code == 404


async def test_an_operator_looks_at_another_organisation(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    await deployment.create_org("looked-at")
    theirs = bearer(await deployment.create_key("looked-at"))
    path = "/api/v1/orgs/looked-at/services/errands/async/greet"
    job = (await deployment.http.post(path, json={}, headers=theirs)).json()
    await sign_in(visitor, deployment.key)
    token = token_in((await visitor.get("/ui/orgs")).text)
    assert job["job_id"] not in (await visitor.get("/ui/jobs")).text
    chosen = await visitor.post("/ui/orgs", data={"csrf": token, "org": "looked-at"})
    assert chosen.status_code == 303
    assert job["job_id"] in (await visitor.get("/ui/jobs")).text
    pages = ("webhooks", "services", "keys", "usage", f"jobs/{job['job_id']}")
    for page in pages:
        assert (await visitor.get(f"/ui/{page}")).status_code == 200
    # Their paths name no organisation, so they are nobody's but their own.
    assert "Batches of other organisations are not shown" in (await visitor.get("/ui/batches")).text


async def test_a_key_is_made_shown_once_and_revoked(
    deployment: Deployment, open_page: OpenPage
) -> None:
    page = await open_page("/ui/keys")
    await page.get_by_text("Create a key").click()
    assert await violations(page) == []
    await page.get_by_label("Name").fill("for the till")
    await page.get_by_label("Expires").select_option("30")
    await page.get_by_label("submit").uncheck()
    assert await page.get_by_role("button", name="Create key").evaluate(CLICK_TWICE) == 1
    key = await page.locator("#new-key").inner_text()
    me = (await deployment.http.get("/api/v1/me", headers=bearer(key))).json()
    assert me["scopes"] == ["read"]

    await page.get_by_role("link", name="Done").click()
    await expect(page.get_by_role("cell", name="for the till")).to_have_count(1)
    assert key not in await page.content()
    await scripts_have_run(page)
    await page.get_by_role("row").filter(has_text=me["key_id"]).get_by_role("button").click()
    await page.get_by_role("button", name="Revoke key").click()
    await expect(page.get_by_text("Key revoked.")).to_be_visible()
    shown = (await deployment.http.get(f"{ORG}/api-keys/{me['key_id']}")).json()
    assert shown["revoked_at"] is not None


async def test_services_and_usage_are_shown_and_fit_a_phone(
    deployment: Deployment, open_page: OpenPage
) -> None:
    await ended(deployment, "/greet")
    page = await open_page("/ui/services", viewport=PHONE, color_scheme="dark")
    one = "/ui/services/default/errands"
    for path in ("/ui/services", one, "/ui/usage", "/ui/webhooks", "/ui/keys"):
        await page.goto(path)
        assert not await is_wider_than_its_window(page)
        if path in ("/ui/services", one, "/ui/usage"):  # the others are looked at elsewhere
            assert await violations(page) == []
    page = await open_page("/ui/services")
    await page.get_by_role("link", name="errands").click()
    await expect(page.get_by_role("cell", name="POST /greet")).to_be_visible()
    await page.get_by_role("link", name="Usage").click()
    await expect(page.get_by_role("cell", name="errands.post__greet").first).to_be_visible()


async def test_the_endpoints_of_a_service_are_shown_page_by_page(
    deployment: Deployment, open_page: OpenPage
) -> None:
    target = {"type": "http", "url": "http://127.0.0.1/"}
    endpoints = [{"method": "GET", "path": f"/p{at}", "target": target} for at in range(70)]
    versions = {"1": {"endpoints": endpoints}, "2": {"endpoints": endpoints}}
    made = await deployment.http.put(
        f"{ORG}/workspaces/team/hosted-services/books", json={"versions": versions}
    )
    assert made.status_code == 200, made.text
    page = await open_page("/ui/services")
    row = page.get_by_role("row").filter(has_text="books")
    await expect(row.get_by_role("cell", name="140")).to_be_visible()
    await row.get_by_role("link", name="books").click()
    await expect(page.get_by_role("cell", name="GET /p")).to_have_count(100)
    await page.get_by_role("link", name="Next").click()
    await expect(page.get_by_role("cell", name="GET /p")).to_have_count(40)
    await page.get_by_role("link", name="First page").click()
    await expect(page.get_by_role("cell", name="2 latest")).to_have_count(70)


async def test_usage_is_downloaded_for_the_days_that_are_shown(
    deployment: Deployment, open_page: OpenPage
) -> None:
    await ended(deployment, "/greet")
    page = await open_page("/ui/usage?from=2026-01-01&to=2026-01-31")
    await expect(page.get_by_text("No jobs finished in this period")).to_be_visible()
    await page.goto("/ui/usage")
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="CSV").click()
    download = await downloading.value
    assert download.suggested_filename == "usage-default.csv"
    table = (await download.path()).read_text()
    assert "errands.post__greet" in table
    await page.get_by_label("Group by").select_option("hour")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("heading", name="By hour")).to_be_visible()
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="CSV").click()
    hours = (await (await downloading.value).path()).read_text()
    assert hours.startswith("day,hour,")
    assert "errands.post__greet" in hours
