"""The browser that pages are tried in, and what is held against each page that it shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    async_playwright,
    expect,
)

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 375, "height": 740}
PATIENCE_MILLISECONDS = 30_000
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The system's Chromium; CHROMIUM names another."""
    given = os.environ.get("CHROMIUM")
    return given or next(filter(None, map(shutil.which, _NAMES)), None)


@asynccontextmanager
async def open_chromium(executable: str) -> AsyncIterator[Browser]:
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    async with async_playwright() as playwright:
        # Without its sandbox: it refuses to have one as root, and shows our own pages only.
        browser = await playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()


class Complaints:
    """What a page's console says is wrong: script errors, refused content, failed loads.

    A test that provokes one says so: ``complaints.expect("409")``.
    """

    def __init__(self) -> None:
        self._heard: list[str] = []
        self._expected: list[str] = []

    def expect(self, part: str) -> None:
        """Let pass what has this in its text."""
        self._expected.append(part)

    def unexpected(self) -> list[str]:
        return [heard for heard in self._heard if not any(part in heard for part in self._expected)]

    def console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._heard.append(f"{message.location.get('url', '')}: {message.text}")

    def page_error(self, error: Error) -> None:
        self._heard.append(str(error))


async def violations(page: Page) -> list[str]:
    """What axe-core finds against WCAG 2.2 AA on the page as it is now."""
    await page.evaluate(AXE.read_text())
    found: dict[str, Any] = await page.evaluate(
        """async () => await axe.run(document, {
            runOnly: {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa",
                                            "best-practice"]},
            resultTypes: ["violations"]})"""
    )
    return [
        f"{rule['id']} ({rule['impact']}): {node['target']} {node['html'][:200]} "
        f"{node['failureSummary'][:300]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


async def is_wider_than_its_window(page: Page) -> bool:
    """Whether one has to scroll sideways."""
    return bool(
        await page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
    )


async def scripts_have_run(page: Page) -> None:
    """For a page that was reached by a click: its text may be there before its scripts have run,
    and a form that is sent then is not asked about in a dialog."""
    await page.wait_for_load_state("domcontentloaded")


async def look_away(page: Page, *, away: bool) -> None:
    """Have the page believe that its window is hidden, or is seen again."""
    await page.evaluate(
        """away => {
            Object.defineProperty(document, "hidden", {value: away, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        away,
    )
