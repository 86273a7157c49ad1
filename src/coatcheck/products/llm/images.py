"""The images of an answer as files."""

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
from coatcheck.settings import Settings
from coatcheck.version import __version__

_UNKNOWN: Final = ("application/octet-stream", "bin")


@dataclass(frozen=True, slots=True)
class Image:
    """An image under the name that it is attached by."""

    name: str
    media_type: str
    data: bytes


def read_images(encoded: Iterable[str]) -> Iterator[Image]:
    """``image-1.png`` and so on. What is no base64 stays in the answer only."""
    for number, text in enumerate(encoded, start=1):
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            continue
        media_type, ending = _kind(data)
        yield Image(f"image-{number}.{ending}", media_type, data)


def is_image(beginning: bytes) -> bool:
    """Whether the first bytes are those of an image that is known here."""
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
"""In one request."""
IMAGES_BYTES_MAX: Final = 20 * 1024 * 1024
"""Of all images that one request names; in base64 they fit into the largest body."""
FETCH_SECONDS_MAX: Final = 20.0
"""For all of them together: a target's place is held meanwhile."""
_CONNECTIONS_MAX: Final = 32
UNAVAILABLE: Final = "image_unavailable"

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_messages: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode


def image_guard(settings: Settings) -> Guard:
    """What may be fetched: anything public, with TLS or without, and what is allowed besides."""
    return guard_of(settings, plain_http=True)


def is_image_url(text: str) -> bool:
    """Whether it is an address, and no image in base64: that has no colon."""
    return text[:8].lower().startswith(("http://", "https://"))


class ImageFetcher:
    """Puts images in the place of their URLs."""

    def __init__(self, settings: Settings) -> None:
        self._client = image_guard(settings).client(
            timeout=FETCH_SECONDS_MAX,
            limits=httpx2.Limits(max_connections=_CONNECTIONS_MAX, max_keepalive_connections=0),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def put_in(self, body: bytes, org: str) -> bytes:
        """The body of a chat with every image in base64. Raises FailJob, saying which one could not
        be had, and why."""
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
            raise _unavailable(url, "cannot be fetched: its server gave no answer") from error
        except CoatcheckError as error:  # forbidden, or not looked up now
            raise _unavailable(url, f"may not be fetched: {error}") from error
        if not is_image(bytes(read[:16])):
            raise _unavailable(url, "is no PNG, JPEG, GIF or WebP image")
        return bytes(read)


class _ImageBudget:
    """How many bytes more the images of one request may have."""

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
    return FailJob(f"{which} {why}.", code=UNAVAILABLE)
