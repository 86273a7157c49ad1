"""Batches: progress without a reload, what failed and why, running it again, taking it home."""

from __future__ import annotations

import zipfile

import pytest
from playwright.async_api import expect

from tests.browser.chromium import PHONE, is_wider_than_its_window, scripts_have_run, violations
from tests.browser.conftest import OpenPage
from tests.browser.errands import batch, end_of_batch
from tests.browser.errands_service import gates
from tests.deployment import Deployment

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_progress_of_a_batch_is_shown_as_it_goes_on(
    deployment: Deployment, open_page: OpenPage
) -> None:
    tasks = [{"number": 1}, {"number": 2}, {"number": 3, "gate": "batch page"}]
    made = await batch(deployment, tasks)
    page = await open_page(f"/ui/batches/{made['id']}")
    await page.evaluate("window.sameDocument = true")
    await expect(page.locator("#batch-progress")).to_contain_text("2 of 3 tasks finished")
    await expect(page.locator("#batch-main .heading .badge")).to_have_text("running")
    gates.opened["batch page"].set()
    await expect(page.locator("#batch-main .heading .badge")).to_have_text("completed")
    await expect(page.locator("#batch-progress")).to_contain_text("3 of 3 tasks finished")
    await expect(page.get_by_role("button", name="Rerun all")).to_be_visible()
    assert await page.evaluate("window.sameDocument")


async def test_failed_tasks_are_counted_by_code_found_by_status_and_run_again(
    deployment: Deployment, open_page: OpenPage
) -> None:
    made = await batch(deployment, [{"number": number} for number in (1, -2, -3)])
    await end_of_batch(deployment, made["id"])
    page = await open_page(f"/ui/batches/{made['id']}")
    assert await violations(page) == []
    await expect(page.locator("#failures")).to_contain_text("negative 2")
    await page.get_by_role("link", name="failed", exact=True).click()
    await expect(page.locator("#tasks tbody tr")).to_have_count(2)
    await page.locator("#tasks tbody a").first.click()
    await expect(page.locator("main")).to_contain_text("It is negative.")
    await expect(page.locator("main")).to_contain_text('"number": -2')
    assert await violations(page) == []

    await page.goto(f"/ui/batches/{made['id']}")
    await page.get_by_role("button", name="Rerun failed").click()
    await page.get_by_role("button", name="Rerun tasks").click()
    await expect(page.get_by_text("New run started.")).to_be_visible()
    after = await end_of_batch(deployment, made["id"])
    assert [run["counts"]["total"] for run in after["runs"]] == [3, 2]

    await page.goto(f"/ui/batches/{made['id']}")
    await page.locator("#runs").get_by_role("link", name="all", exact=True).click()
    await expect(page.get_by_text("The latest result of each task across all runs")).to_be_visible()
    await expect(page.locator("#tasks tbody tr")).to_have_count(3)
    await expect(page.locator("#batch-progress")).to_contain_text("3 of 3 tasks finished")
    assert await violations(page) == []


async def test_results_are_exported_and_downloaded(
    deployment: Deployment, open_page: OpenPage
) -> None:
    made = await batch(deployment, [{"number": 7}])
    await end_of_batch(deployment, made["id"])
    page = await open_page(f"/ui/batches/{made['id']}")
    await page.get_by_role("button", name="Export").click()
    link = page.locator("#exports").get_by_role("link", name="Download")
    await expect(link).to_be_visible()
    async with page.expect_download() as downloading:
        await link.click()
    results = zipfile.ZipFile(await (await downloading.value).path())
    assert results.testzip() is None
    assert results.namelist()


async def test_a_batch_is_cancelled_and_listed_as_such(
    deployment: Deployment, open_page: OpenPage
) -> None:
    made = await batch(deployment, [{"number": 1, "gate": "never"}] * 3, concurrency=1)
    page = await open_page("/ui/batches", viewport=PHONE)
    assert not await is_wider_than_its_window(page)
    assert await violations(page) == []
    await page.get_by_role("link", name=made["id"]).click()
    await expect(page.locator("#batch-main")).to_be_visible()
    assert not await is_wider_than_its_window(page)
    await scripts_have_run(page)
    await page.locator("#batch-main").evaluate("each => { each.dataset.asked = 'yes'; }")
    await page.get_by_role("button", name="Cancel").click()
    # The answer counts, although the page has been made anew below the question.
    await expect(page.locator("#batch-main[data-asked]")).to_have_count(0)
    await page.get_by_role("button", name="Cancel batch").click()
    await expect(page.get_by_text("Cancellation requested.")).to_be_visible()
    gates.opened["never"].set()
    assert (await end_of_batch(deployment, made["id"]))["status"] == "cancelled"
    await page.goto("/ui/batches")
    shown = page.locator("tr", has=page.get_by_role("link", name=made["id"]))
    await expect(shown.locator(".badge")).to_have_text("cancelled")
