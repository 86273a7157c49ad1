"""The first page, in a real browser: its charts, and that it stays current by itself."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.chromium import PHONE, is_wider_than_its_window, violations
from tests.browser.conftest import OpenPage
from tests.browser.sample_data import fill_roll_ups
from tests.deployment import Deployment

pytestmark = pytest.mark.asyncio(loop_scope="session")

GREET = "/api/v1/orgs/default/services/errands/async/greet"


async def test_it_shows_what_happens_without_being_loaded_again(
    deployment: Deployment, open_page: OpenPage
) -> None:
    page = await open_page("/ui/")
    submitted = page.locator(".tile", has_text="Submitted").locator("dd")
    before = await submitted.inner_text()
    await page.evaluate("window.isStillThisPage = true")
    await page.locator("#figures-summary").click()
    await page.locator("#figures-summary").focus()

    for _ in range(3):
        assert (await deployment.http.post(GREET, json={})).status_code == 202

    await expect(submitted).not_to_have_text(before, timeout=30_000)
    assert await page.evaluate("window.isStillThisPage")
    assert await page.locator("#figures").evaluate("each => each.open")
    assert await page.evaluate("document.activeElement.id") == "figures-summary"


async def test_its_charts_are_drawn_in_both_themes_and_have_tables_for_those_who_do_not_see_them(
    deployment: Deployment, open_page: OpenPage
) -> None:
    await fill_roll_ups(deployment.settings.database_url, "default", hours=1)
    for options in (
        {"color_scheme": "light", "timezone_id": "Asia/Kolkata"},
        {"color_scheme": "dark", "viewport": PHONE},
    ):
        page = await open_page("/ui/", **options)
        await expect(page.locator(".chart canvas")).to_have_count(3)
        assert await violations(page) == []
        assert not await is_wider_than_its_window(page)
        await page.locator("#figures-summary").click()
        assert await page.locator("#figures tbody tr").count() > 30
        # In UTC, as the table and everything else, wherever the reader is.
        labels = "timeLabels({scales: {x: {min: 0, max: 3600}}}, [0])"
        assert await page.evaluate(labels) == ["00:00"]


async def test_an_operator_sees_all_organisations_and_a_tenant_its_own(
    deployment: Deployment, open_page: OpenPage
) -> None:
    await deployment.create_org("tenant")
    page = await open_page("/ui/")
    await page.get_by_role("link", name="All organisations").click()
    await expect(page.get_by_role("heading", name="Workers")).to_be_visible()

    await page.get_by_title("Switch organisation").click()
    await page.get_by_title("View tenant").click()
    await expect(page.locator(".who .org")).to_have_text("tenant")
    await expect(page.locator(".tile", has_text="Submitted").locator("dd")).to_contain_text("0")

    theirs = await open_page("/ui/", key=await deployment.create_key("tenant"))
    await expect(theirs.get_by_role("heading", name="Overview")).to_be_visible()
    await expect(theirs.get_by_role("link", name="All organisations")).to_have_count(0)
    await expect(theirs.get_by_role("heading", name="Workers")).to_have_count(0)
