"""A scrape under rate limits, checked by what the scraped server saw.

Most pages are on a few hosts, so that each limit is the effective one for a while: first that of
the whole run, and at the end, when only the hosts with many pages are left, that of each host.
"""

import time
from dataclasses import dataclass
from http import HTTPStatus

from bench.batches.client import BatchClient
from bench.batches.local_server import Pages, serving
from bench.http.paced import NotServedError

HOSTS = 20
BUSY_HOSTS = 5
_BUSY_SHARE = 0.75
CONCURRENCY = 8
PER_SECOND = 120
HOST_PER_SECOND = 15
_PAGE_SECONDS = 0.05
_PAGE = b"<!doctype html><title>page</title>" + b"<p>text</p>" * 500
_COMPLETED_SECONDS_MAX = 300.0
_WAIT_SECONDS = 30


@dataclass(frozen=True)
class Scraped:
    """What the server measured, and the duration."""

    pages: int
    seconds: float
    at_once: int
    in_a_second: int
    of_a_host_in_a_second: int


async def scrape(client: BatchClient, urls: int) -> Scraped:
    addresses = [f"127.0.0.{number}" for number in range(1, HOSTS + 1)]
    pages = Pages(_PAGE, _PAGE_SECONDS)
    async with serving(addresses, pages.handle) as port:
        order = {
            "service": "scrape",
            "endpoint": "fetch",
            "tasks": [{"url": url} for url in _urls(addresses, port, urls)],
            "async": True,
            "concurrency": CONCURRENCY,
            "rate": {"per_second": PER_SECOND, "key": "url", "key_per_second": HOST_PER_SECOND},
        }
        begun = time.monotonic()
        job = await client.hand_in(order, HTTPStatus.ACCEPTED)
        while not job["terminal"]:
            if time.monotonic() - begun > _COMPLETED_SECONDS_MAX:
                raise NotServedError(f"the scrape came no further than {job['counts']}")
            job = await client.held(job, _WAIT_SECONDS)
        seconds = time.monotonic() - begun
    if job["counts"]["succeeded"] != urls:
        raise NotServedError(f"the scrape came to {job['counts']}")
    return Scraped(
        pages.requests,
        seconds,
        pages.at_once_max,
        pages.most_in_a_second(),
        pages.most_of_a_host_in_a_second(),
    )


def _urls(addresses: list[str], port: int, urls: int) -> list[str]:
    busy = int(urls * _BUSY_SHARE)
    hosts = [addresses[number % BUSY_HOSTS] for number in range(busy)]
    others = addresses[BUSY_HOSTS:]
    hosts += [others[number % len(others)] for number in range(urls - busy)]
    return [f"http://{host}:{port}/{number}" for number, host in enumerate(hosts)]
