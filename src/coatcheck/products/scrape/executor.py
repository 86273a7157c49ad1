"""The built-in service that fetches pages, which a worker serves beside its own services.

All jobs of a process share their connections, which close with the executor. Bodies go to the blob
store, never into a row.
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
"""The service's name. Callers use it, so the catalogue lists the service."""

_CONNECT_SECONDS_MAX: Final = 10.0
_STORE_SECONDS_MAX: Final = 300.0
"""The time limit for storing a body in the blob store after the fetch."""
_ENCODING_OVERHEAD_BYTES: Final = 64 * 1024
"""How much longer a compressed body may be than its content."""
_DISCARDED_BYTES_MAX: Final = 16 * 1024
_DISCARD_SECONDS_MAX: Final = 1.0

_DEFAULT_HEADERS: Final = (
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
        self.service = Service(SCRAPE_SERVICE, product="scrape", _published=True)

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
            request = read_fetch(url, method, headers, timeout_seconds, max_bytes, bytes_max)
            return await unless_cancelled(job, self._fetch(job, url, request))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._gateway.close()

    async def _fetch(self, job: Job, url: str, request: Fetch) -> Fetched:
        began = time.monotonic()
        with PageBody(self._temp_dir, request.bytes_max) as body:
            limit = asyncio.timeout(request.timeout_seconds)
            try:
                async with limit:
                    page, response = await self._follow(job.org, request, body)
            except TimeoutError:
                if limit.expired():
                    raise outcomes.timed_out(request.timeout_seconds) from None
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
                artifact=None if request.method == "HEAD" else BODY_ARTIFACT,
            )
            if fetched.artifact is not None:
                await job.attach(
                    fetched.artifact,
                    await body.whole(),
                    media_type=media_type(fetched.content_type),
                )
            return fetched

    async def _follow(
        self, org: str, request: Fetch, body: PageBody
    ) -> tuple[str, httpx2.Response]:
        """Follow redirects to a page, and read it into ``body``. Returns its URL and response."""
        page, headers = request.url, _request_headers(request)
        connect_seconds = min(_CONNECT_SECONDS_MAX, request.timeout_seconds / 2)
        for _ in range(REDIRECTS_MAX + 1):
            response = await self._gateway.send(org, request.method, page, headers, connect_seconds)
            try:
                following = next_page(page, response)
                failure = outcomes.error_of_status(response)
                if following is None and failure is None:
                    await _read_body(response, body, request)
                    return page, response
                await _discard_body(response)
                if failure is not None:
                    raise failure
            finally:
                await response.aclose()
            assert following is not None
            headers = headers_for(following, page, headers)
            page = following
        raise outcomes.too_many_redirects(REDIRECTS_MAX)


def _request_headers(request: Fetch) -> list[tuple[str, str]]:
    given = {name for name, _ in request.headers}
    added = [(name, value) for name, value in _DEFAULT_HEADERS if name not in given]
    return [*request.headers, *added, ("accept-encoding", ACCEPT_ENCODING)]


async def _read_body(response: httpx2.Response, body: PageBody, request: Fetch) -> None:
    """Read a page into ``body``, decompressed."""
    if request.method == "HEAD":
        return
    decoder = unpacker(response.headers.get("content-encoding", ""))
    if decoder is None:
        raise outcomes.coding_unknown()
    sent_max = request.bytes_max + _ENCODING_OVERHEAD_BYTES
    if (_length(response) or 0) > sent_max:
        raise outcomes.too_large(request.bytes_max)
    try:
        async for sent in response.aiter_raw():
            if response.num_bytes_downloaded > sent_max:
                raise outcomes.too_large(request.bytes_max)
            for piece in decoder.pieces(sent):
                await body.add(piece)
        decoder.end()
    except BodyCorrupt as error:
        raise outcomes.corrupt() from error
    except httpx2.HTTPError as error:
        raise outcomes.body_interrupted() from error


async def _discard_body(response: httpx2.Response) -> None:
    """Read and discard a short body, so that its connection can be used again."""
    length = _length(response)
    if length is not None and length <= _DISCARDED_BYTES_MAX:
        with contextlib.suppress(httpx2.HTTPError, TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS_MAX):
                async for _ in response.aiter_raw():
                    pass


def _length(response: httpx2.Response) -> int | None:
    """The ``Content-Length`` of a response; None if it is missing or invalid."""
    length = response.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else None
