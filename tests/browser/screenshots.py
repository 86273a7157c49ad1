"""Makes the pictures of the documentation: `make screenshots`. It asserts nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.chromium import PHONE
from tests.browser.conftest import OpenPage
from tests.browser.print_shop import QUICK_THUMBNAILS, closing, documents
from tests.browser.sample_data import fill_roll_ups
from tests.deployment import Deployment
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOLDER = Path(os.environ.get("SCREENSHOTS", "docs/images"))
ORG = "/api/v1/orgs/default"
TALL = {"width": 1240, "height": 1100}
WIDE = {"width": 1280, "height": 760}
SHORT = {"width": 1180, "height": 700}
LANES = ("urgent", "standard", "standard", "bulk")


async def test_pictures(deployment: Deployment, open_page: OpenPage) -> None:
    await deployment.start_worker(documents)
    failed = await hand_in(deployment, "/render", template="certificate")
    for template in ("invoice", "letter", "label", "invoice", "report"):
        await hand_in(deployment, "/render", lane="urgent", template=template)
    await deployment.http.get(f"{ORG}/jobs/{failed}", params={"wait": "50"})
    # From here on the slots are held, and what comes then waits.
    batch = await hand_in_thumbnails(deployment)
    await until_counted(deployment, batch)
    for number in range(160):
        await hand_in(deployment, "/archive", lane=LANES[number % len(LANES)], number=number)
    await fill_roll_ups(deployment.settings.database_url, "default")
    try:
        await shoot(await open_page("/ui/", viewport=TALL), "overview")
        await shoot(await open_page("/ui/", viewport=WIDE, color_scheme="dark"), "overview-dark")
        await shoot(await open_page("/ui/", viewport=PHONE), "overview-phone")
        await shoot(await open_page(f"/ui/jobs/{failed}", viewport=SHORT), "failed-job")
        await shoot(await open_page("/ui/jobs", viewport=WIDE), "jobs")
        await shoot(await open_page(f"/ui/batches/{batch}", viewport=WIDE), "running-batch")
    finally:
        closing.set()


async def shoot(page: Page, name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    await expect(page.locator("h1")).to_be_visible()
    await page.evaluate("document.fonts.ready")
    await page.screenshot(path=FOLDER / f"{name}.png", scale="css")


async def hand_in(deployment: Deployment, path: str, lane: str = "standard", **input_: Any) -> str:
    answer = await deployment.http.post(
        f"{ORG}/services/documents/async{path}", json=input_, headers={"X-HSL-Lane": lane}
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


async def hand_in_thumbnails(deployment: Deployment) -> str:
    body = {
        "service": "documents",
        "endpoint": "/thumbnail",
        "tasks": [{"number": number} for number in range(200)],
    }
    answer = await deployment.http.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def until_counted(deployment: Deployment, batch: str) -> None:
    async def is_counted() -> bool:
        counts = (await deployment.http.get(f"/v1/jobs/{batch}")).json()["counts"]
        return bool(counts["succeeded"] + counts["failed"] >= QUICK_THUMBNAILS)

    await eventually_async(is_counted, "the quick tasks have ended")
