"""Coming in, and going, in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.chromium import PHONE, Complaints, is_wider_than_its_window, violations
from tests.browser.conftest import OpenPage
from tests.deployment import Deployment

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_visitor_signs_in_lands_where_they_wanted_to_go_and_signs_out(
    deployment: Deployment, open_page: OpenPage
) -> None:
    page = await open_page("/ui/?minutes=360", key=None)
    assert page.url.endswith("/ui/sign-in?next=%2Fui%2F%3Fminutes%3D360")

    await page.get_by_label("API key or token").fill(deployment.key)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert page.url.endswith("/ui/?minutes=360")
    cookies = {each["name"]: each for each in await page.context.cookies(page.url)}
    assert cookies["coatcheck_session"]["httpOnly"]
    assert cookies["coatcheck_session"]["sameSite"] == "Lax"
    assert deployment.key not in cookies["coatcheck_session"]["value"]

    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("API key or token")).to_be_visible()
    await page.goto("/ui/")
    assert "/ui/sign-in" in page.url


async def test_a_wrong_key_is_said_to_be_wrong_beside_the_field(
    open_page: OpenPage, complaints: Complaints
) -> None:
    complaints.expect("422")
    page = await open_page("/ui/sign-in", key=None)
    await page.get_by_label("API key or token").fill("cck_nobody_nothing")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("This API key or token is not valid")
    assert await violations(page) == []


async def test_pages_fit_a_phone_and_the_theme_can_be_switched_and_is_remembered(
    open_page: OpenPage,
) -> None:
    page = await open_page("/ui/", viewport=PHONE, color_scheme="light")
    assert not await is_wider_than_its_window(page)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(ground)
    await page.get_by_role("button", name="Switch theme").click()
    dark = await page.evaluate(ground)
    assert dark != light
    await page.reload()
    assert await page.evaluate(ground) == dark
