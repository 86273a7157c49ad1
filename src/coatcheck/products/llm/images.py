"""Images of chats: reads those in answers, and fetches those that requests name by URL."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx2
import msgspec

from coatcheck.domain.errors import CoatcheckError, FailJob
from coatcheck.egress import Guard, charged_to, guard_of
from coatcheck.products.llm.model import LlmFailure
from coatcheck.settings import Settings
from coatcheck.version import __version__

_UNKNOWN: Final = ("application/octet-stream", "bin")


@dataclass(frozen=True, slots=True)
class Image:
    """An image and the name of its artifact."""

    name: str
    media_type: str
    data: bytes


def read_images(encoded: Iterable[str]) -> Iterator[Image]:
    """Images named ``image-1.png`` and so on. Skips invalid base64, which stays in the answer."""
    for number, text in enumerate(encoded, start=1):
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            continue
        media_type, ending = _kind(data)
        yield Image(f"image-{number}.{ending}", media_type, data)


def is_image(beginning: bytes) -> bool:
    """Whether the first bytes are those of a known image format."""
    return _kind(beginning) is not _UNKNOWN


def _kind(data: bytes) -> tuple[str, str]:
    """The media type and the file name's ending, by the first bytes."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png", "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg", "jpg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif", "gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp", "webp"
    return _UNKNOWN


IMAGE_URLS_MAX: Final = 16
"""Per request."""
IMAGES_BYTES_MAX: Final = 20 * 1024 * 1024
"""For all images of a request together. In base64 they fit into the largest body."""
FETCH_SECONDS_MAX: Final = 20.0
"""For all images of a request together. The job holds a slot of its target meanwhile."""
_CONNECTIONS_MAX: Final = 32
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_messages: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode


def image_guard(settings: Settings) -> Guard:
    """The egress guard for images: public hosts, with or without TLS, and the allowed hosts."""
    return guard_of(settings, plain_http=True)


def is_image_url(text: str) -> bool:
    """Whether it is a URL and not an image in base64, which has no colon."""
    return text[:8].lower().startswith(("http://", "https://"))


class ImageFetcher:
    """Replaces the URLs of images by the images."""

    def __init__(self, settings: Settings) -> None:
        self._client = image_guard(settings).client(
            timeout=FETCH_SECONDS_MAX,
            limits=httpx2.Limits(max_connections=_CONNECTIONS_MAX, max_keepalive_connections=0),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def inline_images(self, body: bytes, org: str) -> bytes:
        """The body of a chat with every image in base64. Raises FailJob with the image that could
        not be fetched, and why."""
        fields = _decode(body)
        messages = _decode_messages(fields["messages"])
        urls = {
            image
            for message in messages
            for image in message.get("images") or ()
            if is_image_url(image)
        }
        fetched = await self._fetch_all(sorted(urls), org)
        for message in messages:
            if message.get("images"):
                message["images"] = [fetched.get(each, each) for each in message["images"]]
        return _encode(fields | {"messages": msgspec.Raw(_encode(messages))})

    async def _fetch_all(self, urls: list[str], org: str) -> dict[str, str]:
        room = _ImageBudget(IMAGES_BYTES_MAX)
        try:
            async with asyncio.timeout(FETCH_SECONDS_MAX), asyncio.TaskGroup() as fetching:
                tasks = {url: fetching.create_task(self._fetch(url, org, room)) for url in urls}
        except TimeoutError:
            raise _unavailable(
                None, f"could not be fetched within {FETCH_SECONDS_MAX:g} seconds"
            ) from None
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return {url: base64.b64encode(task.result()).decode() for url, task in tasks.items()}

    async def _fetch(self, url: str, org: str, room: _ImageBudget) -> bytes:
        headers = {
            "user-agent": f"coatcheck/{__version__}",
            "accept": "image/*",
            "accept-encoding": "identity",
        }
        try:
            async with self._client.stream(
                "GET", url, headers=headers, extensions=charged_to(org)
            ) as response:
                if response.status_code != HTTPStatus.OK:
                    raise _unavailable(url, _refused(response.status_code))
                read = bytearray()
                async for piece in response.aiter_raw():
                    room.take(url, len(piece))
                    read += piece
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _unavailable(url, "cannot be fetched: its server did not answer") from error
        except CoatcheckError as error:  # forbidden, or its name could not be resolved
            raise _unavailable(url, f"may not be fetched: {error}") from error
        if not is_image(bytes(read[:16])):
            raise _unavailable(url, "is not a PNG, JPEG, GIF or WebP image")
        return bytes(read)


class _ImageBudget:
    """How many more bytes the images of one request may have."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max

    def take(self, url: str, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _unavailable(
                url, f"is too large: all images of a request have at most {IMAGES_BYTES_MAX} bytes"
            )


def _refused(status: int) -> str:
    if 300 <= status < 400:
        return f"answers {status}: redirects are not followed; give the URL that it leads to"
    return f"answers {status}"


def _unavailable(url: str | None, why: str) -> FailJob:
    which = "The images" if url is None else f"The image {url.partition('?')[0][:200]}"
    return FailJob(f"{which} {why}.", code=LlmFailure.IMAGE_UNAVAILABLE)
