"""Windows of the browser that tests look through, one after the other.

To open one costs more than most tests do in it: so it is kept for the next test that wants one of
its kind, and is as good as new then: its session is set anew, and nothing that a page has stored is
left.
"""

from __future__ import annotations

from typing import Any

from playwright.async_api import Browser, Page

from tests.browser.chromium import DESKTOP, PATIENCE_MILLISECONDS, Complaints
from tests.browser.signing_in import session_cookie

NOWHERE = "/ui/nowhere"
"""A page of the same site that neither asks for anything nor follows anything."""


class Windows:
    """All windows of a test session."""

    def __init__(self, browser: Browser, base_url: str) -> None:
        self._browser = browser
        self._base_url = base_url
        self._kept: dict[str, list[Page]] = {}

    async def open(self, key: str | None, **options: Any) -> Page:
        """A window with a session of ``key``; ``options`` are those of a Playwright context."""
        kept = self._kept.get(_kind(key, options))
        page = kept.pop() if kept else await self._new(options)
        if key is not None:
            await page.context.add_cookies([await session_cookie(self._base_url, key)])
        return page

    async def _new(self, options: dict[str, Any]) -> Page:
        context = await self._browser.new_context(
            **{
                "base_url": self._base_url,
                "viewport": DESKTOP,
                "reduced_motion": "reduce",
                **options,
            }
        )
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        return page

    async def leave(self, page: Page, key: str | None, **options: Any) -> None:
        """Keep it for the next test. Nobody's are closed: their sessions are the test's own."""
        if key is None or not options.get("java_script_enabled", True) or page.is_closed():
            await page.context.close()
            return
        await page.unroute_all()
        await page.goto(NOWHERE)
        await page.evaluate("localStorage.clear()")
        self._kept.setdefault(_kind(key, options), []).append(page)


class Watch:
    """Hears what is wrong with a page, while a test looks at it."""

    def __init__(self, page: Page, complaints: Complaints) -> None:
        self._page = page
        self._heard = {"console": complaints.console, "pageerror": complaints.page_error}
        for event, hear in self._heard.items():
            page.on(event, hear)  # type: ignore[call-overload]  # one overload for each event

    def end(self) -> None:
        for event, hear in self._heard.items():
            self._page.remove_listener(event, hear)


def _kind(key: str | None, options: dict[str, Any]) -> str:
    return repr((key, sorted(options.items())))
