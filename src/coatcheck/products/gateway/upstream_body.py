"""Takes an upstream's answer in: a short one for the result, a long one by way of a file."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Literal, Self

import msgspec

from coatcheck.core.upstream_calls import (
    ANSWER_BYTES_MAX,
    ANSWER_INLINE_BYTES_MAX,
    ARTIFACT_NAME,
    UpstreamAnswer,
)
from coatcheck.products.gateway.upstream_outcomes import too_large

_TEXT_TYPES: Final = frozenset(
    {
        "application/javascript",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/yaml",
    }
)
HELD_BYTES_MAX: Final = 64 * 1024
"""What of an answer is in memory while it comes in: many may come in at once, and slowly."""
_JSON_BLANKS: Final = b" \t\r\n"
_UTF8_NAMES: Final = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii"})


class AnswerBody:
    """A body as it comes in: in memory up to a bound, then in a file without a name; back in memory
    once it is whole, if it is short enough for a result.

    Such a file is gone when it is closed, and when the process is killed. A context manager.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = bytearray()
        self._file: BinaryIO | None = None
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    async def add(self, piece: bytes) -> None:
        """Take the next piece. Raises FailJob when there are too many bytes."""
        self.size += len(piece)
        if self.size > ANSWER_BYTES_MAX:
            raise too_large(ANSWER_BYTES_MAX)
        self._held += piece
        if len(self._held) > HELD_BYTES_MAX:
            await asyncio.to_thread(self._write)

    async def end(self) -> BinaryIO | None:
        """The file, to be read from its beginning, of a body that is too long for a result."""
        if self._file is None:
            return None
        await asyncio.to_thread(self._write)
        self._file.seek(0)
        if self.size > ANSWER_INLINE_BYTES_MAX:
            return self._file
        self._held += await asyncio.to_thread(self._file.read)
        return None

    def held(self) -> bytes:
        """All of a body that has ended, and for which there is no file."""
        return bytes(self._held)

    def _write(self) -> None:
        if self._file is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - see __exit__
        self._file.write(self._held)
        self._held.clear()


def inline_answer(status: int, headers: list[tuple[str, str]], body: bytes) -> UpstreamAnswer:
    """An answer with its body in it: as JSON or text where that keeps every byte of it."""
    answer = UpstreamAnswer(status, headers, size=len(body))
    if not body:
        return answer
    kind = _kind_of_text(headers, answer.media_type)
    if kind == "json" and _is_json(body):
        json = body.strip(_JSON_BLANKS)
        before, _, after = body.partition(json)
        return msgspec.structs.replace(
            answer,
            body_json=msgspec.Raw(json),
            blanks_before=before.decode("ascii"),
            blanks_after=after.decode("ascii"),
        )
    text = None if kind is None else _as_text(body)
    if text is not None:
        return msgspec.structs.replace(answer, body_text=text)
    return msgspec.structs.replace(answer, body_base64=base64.b64encode(body).decode("ascii"))


def artifact_answer(status: int, headers: list[tuple[str, str]], size: int) -> UpstreamAnswer:
    """An answer whose body is the job's artifact."""
    return UpstreamAnswer(status, headers, artifact=ARTIFACT_NAME, size=size)


def is_text(headers: list[tuple[str, str]]) -> bool:
    """Whether a body under these headers claims to be JSON or other text, in UTF-8."""
    return _kind_of_text(headers, UpstreamAnswer(0, headers).media_type) is not None


def storable_type(media_type: str) -> str:
    """The media type as an artifact may have it: what is none becomes that of plain bytes."""
    plain = media_type.isascii() and media_type.isprintable() and "/" in media_type[1:-1]
    return media_type if plain and len(media_type) <= 255 else "application/octet-stream"


def excerpt_of(headers: list[tuple[str, str]], beginning: bytes, characters_max: int) -> str:
    """The first words of a body, if it is text; else nothing."""
    if not is_text(headers):
        return ""
    return beginning.decode("utf-8", "ignore")[:characters_max].strip()


def _kind_of_text(
    headers: list[tuple[str, str]], content_type: str
) -> Literal["json", "text"] | None:
    """What a body in UTF-8 claims to be; None for one that is packed, or no text."""
    media_type, _, parameters = content_type.lower().partition(";")
    media_type = media_type.strip()
    charset = _charset(parameters)
    packed = any(name == "content-encoding" and value != "identity" for name, value in headers)
    if packed or charset not in _UTF8_NAMES:
        return None
    if media_type == "application/json" or media_type.endswith("+json"):
        return "json"
    if media_type.startswith("text/") or media_type in _TEXT_TYPES or media_type.endswith("+xml"):
        return "text"
    return None


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            return value.strip().strip('"')
    return ""


def _is_json(body: bytes) -> bool:
    try:
        body.decode()
        msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return False
    return True


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
