"""Pages of other origins: what browsers are told, and whom nothing is opened to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest

from coatcheck.settings import Settings
from tests.http.conftest import control_plane

APP = "https://app.example.com"
ALLOW = "access-control-allow-origin"
JOBS = "/api/v1/orgs/default/jobs"


@pytest.fixture
async def opened(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    async with control_plane(replace(settings, cors_origins=(APP,))) as client:
        yield client


def preflight(origin: str = APP) -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-custom",
    }


async def test_a_browser_that_asks_first_is_answered_without_a_credential(
    opened: httpx2.AsyncClient,
) -> None:
    for path in (JOBS, "/v1/chat/completions", "/v1/graphs/call", "/nowhere"):
        answer = await opened.options(path, headers=preflight())
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers[ALLOW] == APP
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == "authorization,x-custom"
        assert int(answer.headers["access-control-max-age"]) > 0
        assert "access-control-allow-credentials" not in answer.headers


async def test_refusals_and_answers_can_be_read_by_the_page(opened: httpx2.AsyncClient) -> None:
    for path, status in ((JOBS, 401), ("/nowhere", 404), ("/healthz", 200)):
        answer = await opened.get(path, headers={"Origin": APP})
        assert (answer.status_code, answer.headers[ALLOW]) == (status, APP)
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
        assert "origin" in answer.headers.get_list("vary")


async def test_other_origins_and_the_dashboard_are_told_nothing(
    opened: httpx2.AsyncClient,
) -> None:
    for origin in ("https://evil.example.com", "null", f"{APP}.evil.example.com", f"{APP}:444"):
        for answer in (
            await opened.options(JOBS, headers=preflight(origin)),
            await opened.get("/healthz", headers={"Origin": origin}),
        ):
            assert ALLOW not in answer.headers
            assert "access-control-allow-methods" not in answer.headers
    for path in ("/ui", "/ui/jobs"):
        assert ALLOW not in (await opened.get(path, headers={"Origin": APP})).headers
        assert ALLOW not in (await opened.options(path, headers=preflight())).headers


async def test_any_origin_is_a_star_and_never_a_cookie(settings: Settings) -> None:
    async with control_plane(replace(settings, cors_origins=("*",))) as client:
        answer = await client.get("/healthz", headers={"Origin": "https://anybody.example"})
        assert answer.headers[ALLOW] == "*"
        assert "access-control-allow-credentials" not in answer.headers


async def test_nothing_is_opened_unless_it_is_set(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/healthz", headers={"Origin": APP})
    assert ALLOW not in answer.headers
    asked = await client.options(JOBS, headers=preflight())
    assert asked.status_code == 405
    assert ALLOW not in asked.headers


async def test_a_page_may_send_and_read_the_headers_of_every_product(
    opened: httpx2.AsyncClient,
) -> None:
    """The lists as browsers have been given them; the products' headers stand in their places."""
    asked = await opened.options(
        JOBS, headers={"Origin": APP, "Access-Control-Request-Method": "POST"}
    )
    assert asked.headers["access-control-allow-headers"] == (
        "Accept, Authorization, Content-Encoding, Content-Type, Idempotency-Key, If-None-Match, "
        "Last-Event-ID, OpenAI-Organization, OpenAI-Project, Prefer, Range, Traceparent, "
        "X-Api-Key, X-Coatcheck-Delay, X-HSL-Lane, X-HSL-Target-Method, X-Idempotency-Key, "
        "X-Request-Id, X-State-Webhook-Url, X-Webhook-Url"
    )
    assert asked.headers["access-control-expose-headers"] == (
        "Accept-Ranges, Content-Disposition, Content-Range, ETag, Idempotency-Mismatch, "
        "Idempotent-Replayed, Link, Location, Preference-Applied, RateLimit, RateLimit-Limit, "
        "RateLimit-Policy, RateLimit-Remaining, RateLimit-Reset, Retry-After, Warning, "
        "X-Api-Version, X-Job-Id, X-Request-Id, X-Usage-Units"
    )
