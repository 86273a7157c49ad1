"""Names, errors, logs, results and URLs full of markup are shown as what they are: text."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.errands import ORG, batch, end_of, end_of_batch, hand_in
from tests.deployment import Deployment

pytestmark = pytest.mark.asyncio(loop_scope="session")

CORPUS = (
    "<script>window.pwned = 1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "' onmouseover='window.pwned=1' x='",
    "</pre></code></title><script>window.pwned=1</script>",
    "{{ 7 * 7 }}{% raw %}${7*7}",
    "javascript:window.pwned=1",
    "&lt;script&gt;\u202e\u2028data: <b>bold</b>\r\nevent: changed",
    '<div hx-get="/ui/keys" hx-trigger="load" hx-on:load="window.pwned=1"></div>',
)
EVERYTHING = " ".join(CORPUS)


async def assert_only_text(page: Page) -> None:
    """Nothing of it became an element, and nothing ran."""
    assert await page.evaluate("window.pwned") is None
    made = await page.evaluate(
        """document.querySelectorAll(
            'main script, main [onerror], main [onload], main [onmouseover], main b, '
            + 'main [hx-on\\\\:load], main [hx-trigger=load], a[href^="javascript:"]').length"""
    )
    assert made == 0


async def test_a_jobs_error_log_progress_and_result_are_text(
    deployment: Deployment, open_page: OpenPage
) -> None:
    key = {"Idempotency-Key": "<img/src=x/onerror=window.pwned=1>"}
    good = await end_of(
        deployment, await hand_in(deployment, "/echo", headers=key, text=EVERYTHING)
    )
    bad = await end_of(deployment, await hand_in(deployment, "/echo", text=EVERYTHING, fails=True))
    assert (good["state"], bad["state"]) == ("completed", "failed")
    page = await open_page("/ui/jobs")
    for job in (good, bad):
        await page.goto(f"/ui/jobs/{job['id']}")
        for each in CORPUS[:3]:
            await expect(page.get_by_role("log")).to_contain_text(each)
        await assert_only_text(page)
    await expect(page.locator("#job-outcome")).to_contain_text(CORPUS[0])
    await page.goto(f"/ui/jobs?q={key['Idempotency-Key']}")
    await assert_only_text(page)


async def test_what_comes_by_a_stream_is_text(deployment: Deployment, open_page: OpenPage) -> None:
    """A log line that would end its event, or its element, does neither."""
    queued = await hand_in(deployment, "/wait", gate=f"stream {EVERYTHING}"[:900])
    page = await open_page(f"/ui/jobs/{queued}")
    await expect(page.get_by_role("log")).to_contain_text(CORPUS[0])
    await assert_only_text(page)
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Cancel job").click()
    await end_of(deployment, queued)


async def test_a_search_and_filters_are_text(open_page: OpenPage) -> None:
    page = await open_page("/ui/jobs")
    await page.get_by_text("More filters").click()
    await page.get_by_label("Service").fill(CORPUS[2])
    await page.get_by_label("Error code").fill(CORPUS[0])
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Service")).to_have_value(CORPUS[2])
    await expect(page.get_by_text("No jobs match")).to_be_visible()
    await assert_only_text(page)


async def test_batches_keys_and_webhooks_are_text(
    deployment: Deployment, open_page: OpenPage
) -> None:
    tasks = [{"custom_id": each, "input": {"number": -1}} for each in CORPUS]
    metadata = {each: each for each in CORPUS}
    made = await batch(deployment, tasks, metadata=metadata)
    await end_of_batch(deployment, made["id"])
    page = await open_page(f"/ui/batches/{made['id']}")
    await expect(page.locator("#tasks")).to_contain_text(CORPUS[0])
    await assert_only_text(page)

    for each in CORPUS:
        assert (
            await deployment.http.post(f"{ORG}/api-keys", json={"name": each[:100]})
        ).status_code == 201
    await page.goto("/ui/keys")
    await expect(page.locator("main")).to_contain_text(CORPUS[0])
    await assert_only_text(page)

    endpoint = {"url": f"http://127.0.0.1:9/{CORPUS[1]}", "description": EVERYTHING[:500]}
    registered = await deployment.http.post(f"{ORG}/webhooks/endpoints", json=endpoint)
    if registered.status_code != 201:  # such a URL is refused, its description is not
        endpoint["url"] = "http://127.0.0.1:9/%3Cimg%20onerror=1%3E"
        registered = await deployment.http.post(f"{ORG}/webhooks/endpoints", json=endpoint)
    assert registered.status_code == 201, registered.text
    await page.goto("/ui/webhooks")
    await expect(page.locator("#endpoints")).to_contain_text(CORPUS[0])
    await assert_only_text(page)
    await page.goto(f"/ui/webhooks/endpoints/{registered.json()['id']}")
    await assert_only_text(page)
    await deployment.http.delete(f"{ORG}/webhooks/endpoints/{registered.json()['id']}")
