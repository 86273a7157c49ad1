"""Images that are given by their addresses: fetched behind the guard, within bounds, or refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from coatcheck.products.llm import images as fetched_images
from tests.databases import Databases
from tests.products.llm.talking import Talking, talking

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))


class ImageHost:
    """Answers every request with the bytes that a test says."""

    def __init__(self) -> None:
        self.answer = b""
        self.requests: list[bytes] = []
        self.ended = asyncio.Event()
        """Set to close connections that were answered."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            await writer.drain()
            await self.ended.wait()
        except ConnectionError:
            pass  # it was more than the caller wanted to read
        finally:
            writer.close()

    def says(self, body: bytes, *, status: str = "200 OK", headers: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        self.answer = head.encode() + body


@asynccontextmanager
async def image_host() -> AsyncIterator[tuple[ImageHost, str]]:
    host = ImageHost()
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield host, f"http://127.0.0.1:{port}/cat.png?secret=1"
        host.ended.set()


@pytest.fixture
async def talk(databases: Databases, tmp_path: Path) -> AsyncIterator[Talking]:
    async with databases.fresh() as dsn, talking(dsn, tmp_path) as opened:
        yield opened


def showing(*urls: str) -> list[Any]:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, *images]}]


async def test_an_image_is_fetched_and_sent_along(talk: Talking) -> None:
    async with image_host() as (host, url), talk.openai() as client:
        host.says(PNG, headers="content-type: text/plain\r\n")
        await client.chat.completions.create(model="llava", messages=showing(url, url))
    sent = json.loads(talk.upstream.seen.bodies("/api/chat")[-1])["messages"]
    assert sent[0]["images"] == [base64.b64encode(PNG).decode()] * 2
    (asked,) = host.requests
    assert asked.startswith(b"GET /cat.png?secret=1 HTTP/1.1")
    assert b"authorization" not in asked.lower()


@pytest.mark.parametrize(
    ("body", "head", "why"),
    [
        (b"<svg/>", {}, "not a PNG, JPEG, GIF or WebP"),
        (PNG, {"status": "404 Not Found"}, "answers 404"),
        (PNG, {"status": "302 Found", "headers": "location: /other.png\r\n"}, "redirects"),
        (PNG + bytes(5_000), {}, "too large"),
    ],
)
async def test_what_cannot_be_used_is_refused_with_its_reason(
    talk: Talking,
    monkeypatch: pytest.MonkeyPatch,
    body: bytes,
    head: dict[str, str],
    why: str,
) -> None:
    monkeypatch.setattr(fetched_images, "IMAGES_BYTES_MAX", 4_096)
    async with image_host() as (host, url), talk.openai() as client:
        host.says(body, **head)
        with pytest.raises(openai.BadRequestError, match=why) as refused:
            await client.chat.completions.create(model="llava", messages=showing(url))
    assert refused.value.code == "image_unavailable"
    assert "secret" not in refused.value.message
    assert talk.upstream.seen.bodies("/api/chat") == []


async def test_a_host_that_does_not_answer_is_not_waited_for(
    talk: Talking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_images, "FETCH_SECONDS_MAX", 0.5)
    async with image_host() as (host, url), talk.openai() as client:
        host.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + PNG
        with pytest.raises(openai.BadRequestError, match=r"within 0\.5 seconds"):
            await client.chat.completions.create(model="llava", messages=showing(url))


async def test_an_address_inside_is_refused_before_there_is_a_job(
    databases: Databases, tmp_path: Path
) -> None:
    async with (
        databases.fresh() as dsn,
        talking(dsn, tmp_path, egress_allow=()) as talk,
        image_host() as (host, url),
        talk.openai() as client,
    ):
        host.says(PNG)
        for forbidden in (url, "http://169.254.169.254/latest", "https://localhost/cat.png"):
            with pytest.raises(openai.UnprocessableEntityError) as refused:
                await client.chat.completions.create(model="llava", messages=showing(forbidden))
            assert refused.value.code == "url_forbidden"
            assert "messages[0].content[1].image_url.url" in refused.value.message
        jobs = await talk.deployment.http.get("/jobs")
    assert jobs.json()["items"] == []
    assert host.requests == []


async def test_the_address_is_checked_again_when_it_is_fetched(talk: Talking) -> None:
    """A name may lead elsewhere by then: the worker's own guard decides."""
    fetcher = fetched_images.ImageFetcher(talk.deployment.settings)
    strict = fetched_images.ImageFetcher(
        type(talk.deployment.settings)(
            database_url=talk.deployment.settings.database_url,
            blob_url=talk.deployment.settings.blob_url,
            egress_allow=(),
        )
    )
    async with image_host() as (host, url):
        host.says(PNG)
        body = json.dumps({"messages": [{"role": "user", "content": "", "images": [url]}]}).encode()
        assert base64.b64encode(PNG) in await fetcher.inline_images(body, "default")
        with pytest.raises(Exception, match="may not be fetched"):
            await strict.inline_images(body, "default")
    assert len(host.requests) == 1
    for each in (fetcher, strict):
        await each.aclose()


async def test_ollamas_own_route_fetches_nothing(talk: Talking) -> None:
    async with image_host() as (host, url):
        host.says(PNG)
        body = {"model": "llava", "messages": [{"role": "user", "content": "x", "images": [url]}]}
        answer: httpx2.Response = await talk.deployment.http.post("/api/chat", json=body)
    assert answer.status_code == 400
    assert host.requests == []
