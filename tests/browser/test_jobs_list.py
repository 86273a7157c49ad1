"""The list of jobs: found by what they are, current without a reload, many ended at once."""

from __future__ import annotations

import httpx2
import pytest
from playwright.async_api import expect

from coatcheck.domain.tenants import Scope
from tests.browser.chromium import PHONE, Complaints, is_wider_than_its_window, violations
from tests.browser.conftest import OpenPage
from tests.browser.errands import ORG, end_of, ended, eventually_state, waiting_at
from tests.browser.errands_service import gates
from tests.browser.signing_in import sign_in, token_in
from tests.deployment import Deployment, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_jobs_are_found_by_state_by_error_and_by_name_and_the_url_says_which(
    deployment: Deployment, open_page: OpenPage
) -> None:
    good = await ended(deployment, "/greet")
    bad = await ended(deployment, "/break", code="found_by_this")
    page = await open_page("/ui/jobs")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.get_by_label("State").focus()
    await page.keyboard.press("ArrowDown")  # on the way, not what is meant
    await page.get_by_label("State").select_option("failed")
    await page.get_by_role("button", name="Filter").press("Enter")
    await page.wait_for_url("**/ui/jobs?*state=failed*")
    assert not [url for url in asked if "state=live" in url]
    await expect(page.get_by_role("link", name=bad["id"])).to_be_visible()
    await expect(page.get_by_role("link", name=good["id"])).to_have_count(0)

    await page.goto("/ui/jobs?error_code=found_by_this")
    await expect(page.get_by_label("Error code")).to_have_value("found_by_this")
    await expect(page.get_by_role("link", name=bad["id"])).to_be_visible()
    assert await page.locator("tbody tr").count() == 1
    assert await violations(page) == []

    await page.get_by_role("searchbox", name="Search").fill(good["id"])
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**q={good['id']}*")
    await expect(page.get_by_role("link", name=good["id"])).to_be_visible()

    await page.goto("/ui/jobs?error_code=nobody_has_this")
    await expect(page.get_by_text("No jobs match")).to_be_visible()


async def test_states_change_while_one_looks_and_a_list_that_cannot_says_so(
    deployment: Deployment, open_page: OpenPage, complaints: Complaints
) -> None:
    job_id = await waiting_at(deployment, "the list")
    page = await open_page("/ui/jobs")
    shown = page.locator("tr", has=page.get_by_role("link", name=job_id))
    await expect(shown.locator(".badge")).to_have_text("processing")
    await page.evaluate("window.sameDocument = true")
    link = page.get_by_role("link", name=job_id)
    await link.focus()
    gates.opened["the list"].set()
    await expect(shown.locator(".badge")).to_have_text("completed")
    assert await page.evaluate("window.sameDocument")
    await expect(link).to_be_focused()

    for part in ("ERR_FAILED", "htmx:"):
        complaints.expect(part)
    await page.route("**/ui/jobs", lambda route: route.abort())
    old = page.get_by_text("The server is not responding")
    await expect(old).to_be_visible()
    await page.unroute("**/ui/jobs")
    await expect(old).to_have_count(0)


async def test_chosen_jobs_are_cancelled_after_a_question_and_then_retried(
    deployment: Deployment, open_page: OpenPage
) -> None:
    jobs = [await waiting_at(deployment, f"bulk {number}") for number in range(2)]
    page = await open_page("/ui/jobs?state=live")
    await expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_disabled()
    for job_id in jobs:
        await page.get_by_label(f"Select job {job_id}").check()
    await expect(page.get_by_text("2 selected")).to_be_visible()

    await page.get_by_role("button", name="Cancel", exact=True).click()
    await page.get_by_role("button", name="Go back").click()
    for job_id in jobs:
        await eventually_state(deployment, job_id, "processing")

    await page.get_by_role("button", name="Cancel", exact=True).click()
    assert await violations(page) == []
    await page.get_by_role("button", name="Cancel jobs").click()
    await expect(page.get_by_text("Cancelled 2 jobs.")).to_be_visible()
    for job_id in jobs:
        assert (await end_of(deployment, job_id))["state"] == "cancelled"

    done = await ended(deployment, "/greet")
    await page.goto("/ui/jobs?state=ended&since=1h")
    for job_id in [*jobs, done["id"]]:
        await page.get_by_label(f"Select job {job_id}").check()
    for number in range(2):
        gates.opened[f"bulk {number}"].set()
    await page.get_by_role("button", name="Retry", exact=True).click()
    await page.get_by_role("button", name="Retry jobs").click()
    # What had completed is not done again, and the page says so.
    await expect(page.get_by_text("Retried 2 jobs. 1 job unchanged")).to_be_visible()
    for job_id in jobs:
        new = (await end_of(deployment, job_id))["retried_as"]
        assert (await end_of(deployment, new))["state"] == "completed"


async def test_all_that_match_a_filter_are_retried_and_no_others(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    meant = [await ended(deployment, "/break", code="to_be_retried") for _ in range(3)]
    other = await ended(deployment, "/break", code="to_be_left")
    await sign_in(visitor, deployment.key)
    page = await visitor.get("/ui/jobs?error_code=to_be_retried")
    fields = {
        "csrf": token_in(page.text),
        "everything": "yes",
        "state": "failed",
        "error_code": "to_be_retried",
        "since": "1h",
    }
    asked = await visitor.post("/ui/jobs/retry", data=fields)
    assert "Retry the selected jobs?" in asked.text  # no script has asked, so a page does
    done = await visitor.post("/ui/jobs/retry", data=fields | {"confirmed": "yes"})
    assert (done.status_code, "error_code=to_be_retried" in done.headers["location"]) == (303, True)
    assert "Retried 3 jobs." in (await visitor.get(done.headers["location"])).text
    for job in meant:
        assert (await end_of(deployment, job["id"]))["retried_as"] is not None
    assert (await end_of(deployment, other["id"]))["retried_as"] is None


async def test_a_page_of_the_list_has_an_end_and_is_come_back_to(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    oldest = await ended(deployment, "/break", code="the_oldest")
    newest = await ended(deployment, "/break", code="the_oldest")
    await sign_in(visitor, deployment.key)
    filters = "error_code=the_oldest&cursor="
    page = await visitor.get(f"/ui/jobs?{filters}{newest['id']}")
    assert (oldest["id"] in page.text, "Newest" in page.text, "Older" in page.text) == (1, 1, 0)
    end = await visitor.get(f"/ui/jobs?{filters}{oldest['id']}")
    assert "There are no older jobs." in end.text
    assert "Newest" in end.text
    fields = {"csrf": token_in(page.text), "error_code": "the_oldest", "confirmed": "yes"}
    back = await visitor.post("/ui/jobs/cancel", data=fields | {"cursor": newest["id"]})
    assert back.headers["location"] == f"/ui/jobs?{filters}{newest['id']}"
    assert f'name="cursor" value="{newest["id"]}"' in page.text


async def test_users_see_their_own_jobs_and_admins_those_of_all(
    deployment: Deployment, visitor: httpx2.AsyncClient
) -> None:
    users = {Scope.READ, Scope.SUBMIT}
    ada, bob = [await deployment.create_key(user=each, scopes=users) for each in ("ada", "bob")]
    handed_in = await deployment.http.post(
        f"{ORG}/services/errands/async/greet", json={}, headers=bearer(ada)
    )
    job_id = handed_in.json()["job_id"]
    await end_of(deployment, job_id)
    for key, status in ((ada, 200), (bob, 404), (deployment.key, 200)):
        visitor.cookies.clear()
        await sign_in(visitor, key)
        assert (job_id in (await visitor.get("/ui/jobs")).text) == (status == 200)
        assert (await visitor.get(f"/ui/jobs/{job_id}")).status_code == status


async def test_the_list_fits_a_phone(deployment: Deployment, open_page: OpenPage) -> None:
    job = await ended(deployment, "/greet")
    page = await open_page(f"/ui/jobs?q={job['id']}", viewport=PHONE, color_scheme="dark")
    assert not await is_wider_than_its_window(page)
    assert await violations(page) == []
