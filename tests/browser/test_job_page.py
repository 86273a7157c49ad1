"""A job's page: live while it goes on, and what can be done about it."""

from __future__ import annotations

import asyncio
import re

import httpx2
import pytest
from playwright.async_api import Route, expect

from coatcheck.domain.job import ConcurrencyLimit
from tests.browser.chromium import look_away, violations
from tests.browser.conftest import OpenPage
from tests.browser.errands import end_of, ended, hand_in, waiting_at
from tests.browser.errands_service import PIXEL, gates
from tests.browser.signing_in import sign_in
from tests.deployment import Deployment
from tests.products.graphs.archives import post, zipped
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_progress_log_and_end_are_shown_as_they_come(
    deployment: Deployment, open_page: OpenPage
) -> None:
    job_id = await waiting_at(deployment, "its page", then="its end")
    page = await open_page(f"/ui/jobs/{job_id}")
    badge = page.locator("#job-head .badge")
    await expect(badge).to_have_text("processing")
    await expect(page.get_by_text("halfway there")).to_be_visible()
    await expect(page.get_by_role("log")).to_contain_text("waiting at its page")
    assert await violations(page) == []
    await page.evaluate("window.sameDocument = true")

    gates.opened["its page"].set()
    await expect(page.get_by_role("log")).to_contain_text("through its page")
    await look_away(page, away=True)
    await eventually_async(none_is_followed, "what nobody sees is not followed")
    await look_away(page, away=False)
    gates.opened["its end"].set()
    await expect(badge).to_have_text("completed")
    await expect(page.get_by_role("log")).to_contain_text("through its end")
    await expect(page.locator("#result")).to_have_text('"its page"')
    await expect(page.locator("#job-timeline")).to_contain_text("completed")
    await expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    assert await page.evaluate("window.sameDocument")
    # Each line once, although the page and both its streams had the log.
    for line in ("waiting at its page", "through its page"):
        assert await page.get_by_role("log").get_by_text(line).count() == 1


async def test_the_log_of_a_job_that_runs_shows_its_newest_line(
    deployment: Deployment, open_page: OpenPage
) -> None:
    tall = "a tall gate" + "\n." * 60
    job_id = await waiting_at(deployment, tall, then="a low gate")
    page = await open_page(f"/ui/jobs/{job_id}")
    log = page.get_by_role("log")
    for gate, line in ((tall, "through a tall gate"), ("a low gate", "through a low gate")):
        gates.opened[gate].set()
        await expect(log).to_contain_text(line)
        below, hidden = await log.evaluate(
            """log => [
                log.lastElementChild.getBoundingClientRect().bottom
                    - log.getBoundingClientRect().bottom,
                log.scrollHeight - log.clientHeight,
            ]"""
        )
        assert hidden > 0
        assert below <= 1


async def test_a_job_that_waits_says_what_for_and_who_is_before_it(
    deployment: Deployment, open_page: OpenPage
) -> None:
    endpoint = "errands.post__queue"
    await deployment.engine.set_limit(ConcurrencyLimit("*", "endpoint", endpoint, 1))
    first = await hand_in(deployment, "/queue", gate="first in line")
    await gates.begun["first in line"].wait()
    second = await hand_in(deployment, "/queue", gate="second in line")
    gates.opened["second in line"].set()
    page = await open_page(f"/ui/jobs/{second}")
    waits = page.locator("#explanation")
    await expect(waits).to_contain_text("Why this job is waiting")
    await expect(waits).to_contain_text("1 of 1 in use")
    await expect(waits.get_by_role("link", name=first)).to_be_visible()
    assert await violations(page) == []
    gates.opened["first in line"].set()
    await expect(page.locator("#job-head .badge")).to_have_text("completed")
    await expect(waits).to_have_count(0)


async def test_a_job_is_cancelled_by_keyboard_alone(
    deployment: Deployment, open_page: OpenPage
) -> None:
    job_id = await waiting_at(deployment, "by keyboard")
    page = await open_page(f"/ui/jobs/{job_id}")
    await page.get_by_role("button", name="Cancel").focus()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Cancel this job?")
    # The focus is back where it was, although the button was made anew below the question, and
    # before the dialog tells of its end: a key may be quicker than that.
    await page.evaluate(
        """() => new Promise(made => {
            const { dataset } = document.documentElement;
            const look = () => { dataset.focusAtClose = document.activeElement.innerText; };
            document.addEventListener("close", look, { capture: true, once: true });
            document.addEventListener("htmx:afterSettle", () => made(), { once: true });
            htmx.trigger("#job-looks", "sse:changed");
        })"""
    )
    await page.keyboard.press("Escape")
    await expect(page.locator("html")).to_have_attribute("data-focus-at-close", "Cancel")
    await expect(dialog).to_be_hidden()
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator("#job-head .badge")).to_have_text("cancelled")
    assert (await end_of(deployment, job_id))["state"] == "cancelled"


async def test_a_change_that_comes_while_the_page_asks_is_shown(
    deployment: Deployment, open_page: OpenPage
) -> None:
    job_id = await waiting_at(deployment, "while it asks")
    page = await open_page(f"/ui/jobs/{job_id}")
    badge = page.locator("#job-head .badge")
    await expect(badge).to_have_text("processing")
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer_late(route: Route) -> None:
        answer = await route.fetch()
        asked.set()
        await may_answer.wait()
        await route.fulfill(response=answer)

    await page.route(f"**/ui/jobs/{job_id}", answer_late, times=1)
    await page.evaluate(
        """() => {
            const { dataset } = document.documentElement;
            document.addEventListener("htmx:sseClose", () => { dataset.stream = "over"; });
            htmx.trigger(document.querySelector("[hx-trigger*='sse:changed']"), "sse:changed");
        }"""
    )
    await asked.wait()
    gates.opened["while it asks"].set()
    await expect(page.locator("html")).to_have_attribute("data-stream", "over")
    may_answer.set()
    await expect(badge).to_have_text("completed")


async def test_a_failed_job_says_why_and_is_retried_as_a_new_one(
    deployment: Deployment, open_page: OpenPage
) -> None:
    job = await ended(deployment, "/break", message="The dragon came.", code="dragon")
    page = await open_page(f"/ui/jobs/{job['id']}")
    await expect(page.locator("#job-outcome")).to_contain_text("The dragon came.")
    await expect(page.locator("#job-timeline")).to_contain_text("dragon")
    assert await violations(page) == []
    await page.get_by_role("button", name="Retry").click()
    await page.get_by_role("button", name="Retry job").click()
    await page.wait_for_url(lambda url: job["id"] not in url)
    await expect(page.get_by_role("link", name=job["id"])).to_be_visible()
    new = page.url.rpartition("/")[2]
    assert (await end_of(deployment, new))["retry_of"] == job["id"]
    await page.goto(f"/ui/jobs/{job['id']}")
    await expect(page.get_by_role("link", name=new)).to_be_visible()


async def test_without_scripts_a_question_is_asked_on_a_page_of_its_own(
    deployment: Deployment, open_page: OpenPage
) -> None:
    job_id = await waiting_at(deployment, "no scripts")
    page = await open_page(f"/ui/jobs/{job_id}", java_script_enabled=False)
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("heading", name="Cancel this job?")).to_be_visible()
    keep = page.get_by_role("link", name="Go back")
    await expect(keep).to_have_attribute("href", f"/ui/jobs/{job_id}")
    await page.get_by_role("button", name="Confirm").click()
    await expect(page.locator(".notice")).to_have_text(
        re.compile("Job cancelled|Cancellation requested")
    )
    assert (await end_of(deployment, job_id))["state"] == "cancelled"


async def test_pictures_and_sounds_are_shown_and_everything_else_is_only_to_be_kept(
    deployment: Deployment, open_page: OpenPage, visitor: httpx2.AsyncClient
) -> None:
    job = await ended(deployment, "/leave")
    page = await open_page(f"/ui/jobs/{job['id']}")
    await expect(page.get_by_alt_text("dot.png")).to_have_js_property("naturalWidth", 1)
    sound = page.get_by_label("beep.wav")
    await sound.evaluate("each => new Promise(done => { each.oncanplay = done; each.load(); })")
    assert await sound.evaluate("each => each.duration") == pytest.approx(0.1)

    await sign_in(visitor, deployment.key)
    files = f"/ui/jobs/{job['id']}/files"
    picture = await visitor.get(f"{files}/dot.png")
    assert (picture.content, picture.headers["content-type"]) == (PIXEL, "image/png")
    stored_page = await visitor.get(f"{files}/note.html")
    assert stored_page.headers["content-type"] == "application/octet-stream"
    assert stored_page.headers["content-disposition"].startswith("attachment")
    for answer in (picture, stored_page):
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
    part = await visitor.get(f"{files}/beep.wav", headers={"Range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, b"RIFF")
    answered = await visitor.get(f"{files}/dot.png/receipt")
    assert answered.status_code == 200, answered.text
    receipt = answered.json()
    assert receipt["receipt"]["name"] == "dot.png"
    assert (await visitor.get(f"{files}/no.png")).status_code == 404
    known = {"If-None-Match": picture.headers["etag"]}
    assert (await visitor.get(f"{files}/dot.png", headers=known)).status_code == 304


async def test_what_a_webhook_was_told_is_replayed(
    deployment: Deployment, open_page: OpenPage
) -> None:
    told = {"X-Webhook-Url": "http://127.0.0.1:9/nobody"}
    job = await end_of(deployment, await hand_in(deployment, "/greet", headers=told))
    page = await open_page(f"/ui/jobs/{job['id']}")
    await page.locator("#deliveries").get_by_role("button", name="Resend").click()
    await page.get_by_role("button", name="Resend delivery").click()
    await expect(page.get_by_text("Delivery queued again.")).to_be_visible()
    assert page.url.endswith(f"/ui/jobs/{job['id']}")


async def test_a_deletion_receipt_is_shown_and_downloaded(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    handed_in = await post(deployment.http, zipped({"a.py": "x = 1\n"}), "the dashboard's")
    job_id = handed_in.json()["jobId"]
    assert (await deployment.http.post(f"/v1/graphs/jobs/{job_id}/cancel")).status_code == 200
    await sign_in(visitor, deployment.key)
    page = (await visitor.get(f"/ui/jobs/{job_id}")).text
    assert "call graph" in page
    assert "Deletion receipt" in page
    assert "blob store" in page
    receipt = await visitor.get(f"/ui/jobs/{job_id}/receipt")
    assert receipt.headers["content-disposition"].startswith("attachment")
    assert receipt.json()["receipt"]["jobId"] == job_id
    # Nothing of an archive is kept, so there is nothing to retry with.
    assert "/retry" not in page
    assert (await visitor.get(f"/ui/jobs/{job_id}/input")).status_code == 409


async def test_whoever_leaves_a_page_is_followed_no_more(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    await eventually_async(none_is_followed, "pages of earlier tests are gone")
    job_id = await waiting_at(deployment, "left")
    await sign_in(visitor, deployment.key)
    async with visitor.stream("GET", f"/ui/jobs/{job_id}/live") as stream:
        async for piece in stream.aiter_text():
            if "waiting at left" in piece:
                break
        assert streams_within() == 1
    await eventually_async(none_is_followed, "the stream within has ended")
    gates.opened["left"].set()
    await end_of(deployment, job_id)


async def none_is_followed() -> bool:
    return streams_within() == 0


def streams_within() -> int:
    """How many of the API's answers pages are reading on."""
    return sum("Api.open" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def test_a_job_of_another_organisation_is_not_there(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    job = await ended(deployment, "/greet")
    await deployment.create_org("strangers")
    await sign_in(visitor, await deployment.create_key("strangers"))
    for path in ("", "/live", "/input", "/receipt", "/files/dot.png"):
        assert (await visitor.get(f"/ui/jobs/{job['id']}{path}")).status_code == 404
    listed = await visitor.get("/ui/jobs")
    assert "No jobs yet" in listed.text
