"""The service that pictures show: documents that are rendered, some in vain, some slowly."""

from __future__ import annotations

import asyncio
import itertools

from coatcheck import FailJob, Job, RetryLater, Service

documents = Service("documents")
closing = asyncio.Event()
"""Ends what holds up the line."""

QUICK_THUMBNAILS = 140
_thumbnails = itertools.count()
MISSING = "Noto Serif CJK: no glyph for U+4E2D in line 3 of certificate.html"


@documents.post("/render", retries=2)
async def render(job: Job, template: str, pages: int = 12) -> dict[str, object]:
    await job.log(f"rendering {template}", pages=pages)
    await job.progress(0.4, f"page 5 of {pages}")
    if template == "certificate":
        await job.log(
            "Noto Serif CJK is not installed, and no fallback covers U+4E2D", font="serif"
        )
        raise RetryLater(MISSING, after=0.1, code="font_missing")
    return {"template": template, "pages": pages}


@documents.post("/archive")
async def archive(number: int) -> int:
    await closing.wait()
    return number


@documents.post("/thumbnail", retries=0)
async def thumbnail(number: int) -> int:
    if next(_thumbnails) >= QUICK_THUMBNAILS:
        await closing.wait()
    if number % 20 == 7:
        raise FailJob(f"page {number} is empty", code="empty_page")
    return number
