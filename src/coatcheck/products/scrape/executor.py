"""The built-in service that fetches pages, for a worker to serve beside its own.

All jobs of the process share their connections, which close with the executor. A body goes to the
blob store and is never in a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime
from pathlib import Path
from ssl import SSLContext
from types import TracebackType
from typing import Final, Self

import httpx2

from coatcheck.compression import ACCEPT_ENCODING, BodyCorrupt, unpacker
from coatcheck.domain.lanes import Lane
from coatcheck.egress import Guard, guard_of
from coatcheck.job import Job
from coatcheck.products.scrape import outcomes
from coatcheck.products.scrape.fetch import (
    BODY_ARTIFACT,
    REDIRECTS_MAX,
    TIMEOUT_SECONDS,
    TIMEOUT_SECONDS_MAX,
    Bytes,
    Fetch,
    Fetched,
    Headers,
    Method,
    PageBody,
    Seconds,
    Url,
    headers_for,
    media_type,
    next_page,
    read_fetch,
    shown_headers,
)
from coatcheck.products.scrape.outbound import Gateway
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.version import __version__
from coatcheck.worker.cancellation import unless_cancelled

SCRAPE_SERVICE: Final = "scrape"
"""Callers name it, so it is in the catalogue."""

_CONNECT_SECONDS_MAX: Final = 10.0
_STORE_SECONDS_MAX: Final = 300.0
"""What a body may take to reach the blob store, after it was fetched."""
_PACKING_BYTES: Final = 64 * 1024
"""How much longer than unpacked a body may be as it is sent."""
_UNWANTED_BYTES_MAX: Final = 16 * 1024
_UNWANTED_SECONDS_MAX: Final = 1.0

_OURS: Final = (
    ("user-agent", f"coatcheck/{__version__}"),
    ("accept", "*/*"),
)


class ScrapeExecutor:
    """Fetches pages. A context manager, around the worker's whole run.

    >>> async with ScrapeExecutor(settings) as scrape:
    ...     await Worker(settings, [docs, scrape.service]).run()
    """

    def __init__(
        self, settings: Settings, guard: Guard | None = None, *, tls: SSLContext | None = None
    ) -> None:
        self._temp_dir: Path = settings.temp_dir
        self._gateway = Gateway(
            settings.scrape_gateway,
            guard or guard_of(settings, plain_http=True),
            connections_max=sum(lane.concurrency for lane in settings.lanes.values()),
            tls=tls,
        )
        bytes_max = settings.scrape_bytes_max
        self.service = Service(SCRAPE_SERVICE, _builtin=True, _published=True)

        @self.service.post(
            "/fetch", lane=Lane.BULK, timeout=TIMEOUT_SECONDS_MAX + _STORE_SECONDS_MAX
        )
        async def fetch(
            job: Job,
            url: Url,
            method: Method = "GET",
            headers: Headers = {},  # noqa: B006 - it is only read
            timeout_seconds: Seconds = TIMEOUT_SECONDS,
            max_bytes: Bytes | None = None,
        ) -> Fetched:
            order = read_fetch(url, method, headers, timeout_seconds, max_bytes, bytes_max)
            return await unless_cancelled(job, self._fetch(job, url, order))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._gateway.close()

    async def _fetch(self, job: Job, url: str, order: Fetch) -> Fetched:
        began = time.monotonic()
        with PageBody(self._temp_dir, order.bytes_max) as body:
            limit = asyncio.timeout(order.timeout_seconds)
            try:
                async with limit:
                    page, response = await self._follow(job.org, order, body)
            except TimeoutError:
                if limit.expired():
                    raise outcomes.timed_out(order.timeout_seconds) from None
                raise
            shown = shown_headers(response)
            fetched = Fetched(
                url=url,
                final_url=page,
                status=response.status_code,
                headers=shown,
                content_type=shown.get("content-type"),
                size=body.size,
                sha256=body.sha256,
                fetched_at=datetime.now(UTC),
                elapsed_ms=round((time.monotonic() - began) * 1000),
                artifact=None if order.method == "HEAD" else BODY_ARTIFACT,
            )
            if fetched.artifact is not None:
                await job.attach(
                    fetched.artifact,
                    await body.whole(),
                    media_type=media_type(fetched.content_type),
                )
            return fetched

    async def _follow(self, org: str, order: Fetch, body: PageBody) -> tuple[str, httpx2.Response]:
        """The page at the end of the redirects, read into ``body``, and its URL."""
        page, headers = order.url, _request_headers(order)
        connect_seconds = min(_CONNECT_SECONDS_MAX, order.timeout_seconds / 2)
        for _ in range(REDIRECTS_MAX + 1):
            response = await self._gateway.send(org, order.method, page, headers, connect_seconds)
            try:
                following = next_page(page, response)
                refused = outcomes.refusal(response)
                if following is None and refused is None:
                    await _take_in(response, body, order)
                    return page, response
                await _let_pass(response)
                if refused is not None:
                    raise refused
            finally:
                await response.aclose()
            assert following is not None
            headers = headers_for(following, page, headers)
            page = following
        raise outcomes.too_many_redirects(REDIRECTS_MAX)


def _request_headers(order: Fetch) -> list[tuple[str, str]]:
    given = {name for name, _ in order.headers}
    added = [(name, value) for name, value in _OURS if name not in given]
    return [*order.headers, *added, ("accept-encoding", ACCEPT_ENCODING)]


async def _take_in(response: httpx2.Response, body: PageBody, order: Fetch) -> None:
    """Read a page into ``body``, unpacked."""
    if order.method == "HEAD":
        return
    unpacking = unpacker(response.headers.get("content-encoding", ""))
    if unpacking is None:
        raise outcomes.coding_unknown()
    sent_max = order.bytes_max + _PACKING_BYTES
    if (_length(response) or 0) > sent_max:
        raise outcomes.too_large(order.bytes_max)
    try:
        async for sent in response.aiter_raw():
            if response.num_bytes_downloaded > sent_max:
                raise outcomes.too_large(order.bytes_max)
            for piece in unpacking.pieces(sent):
                await body.add(piece)
        unpacking.end()
    except BodyCorrupt as error:
        raise outcomes.corrupt() from error
    except httpx2.HTTPError as error:
        raise outcomes.broke_off() from error


async def _let_pass(response: httpx2.Response) -> None:
    """Read a short body that nobody wants, so that its connection can be used again."""
    length = _length(response)
    if length is not None and length <= _UNWANTED_BYTES_MAX:
        with contextlib.suppress(httpx2.HTTPError, TimeoutError):
            async with asyncio.timeout(_UNWANTED_SECONDS_MAX):
                async for _ in response.aiter_raw():
                    pass


def _length(response: httpx2.Response) -> int | None:
    """The length of the body as it is sent, if the server says it."""
    length = response.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else None
