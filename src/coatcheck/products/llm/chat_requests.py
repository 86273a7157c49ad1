"""Reads the body of a chat request, and makes the payload of a job from it.

Every field reaches the target unchanged, unknown ones included: the target defines the API, not
Coatcheck. Only the fields below are read, and Coatcheck's own are removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar, assert_never

import msgspec

from coatcheck.domain.errors import InvalidBody, InvalidParameter
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.http.bodies import read_json
from coatcheck.http.request import Request
from coatcheck.http.upload_limits import UploadSlots
from coatcheck.products.llm.model import LLM_PAYLOAD_BYTES_MAX, LlmKind, LlmRequest, model_name

Value = TypeVar("Value")
Fields = Mapping[str, msgspec.Raw]
"""A JSON object whose values are the bytes that were sent."""

MODEL: Final = "model"
STREAM: Final = "stream"
MESSAGES: Final = "messages"
PROMPT: Final = "prompt"
INPUT: Final = "input"
PROMPT_FIELDS: Final[Mapping[LlmKind, str]] = {"chat": MESSAGES, "generate": PROMPT, "embed": INPUT}
"""The field with the prompt."""
WEBHOOK_URL: Final = "webhook_url"
STATE_WEBHOOK_URL: Final = "state_webhook_url"
OWN_FIELDS: Final = frozenset({WEBHOOK_URL, STATE_WEBHOOK_URL})
"""Fields that are not sent to targets."""
ENVELOPE_BYTES_MAX: Final = 4_096
"""The size of a payload without the body."""

_NULL: Final = b"null"
_TRUE: Final = msgspec.Raw(b"true")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@asynccontextmanager
async def fields_of(request: Request, room: UploadSlots) -> AsyncIterator[dict[str, msgspec.Raw]]:
    """The fields of the body, which is a JSON object. Raises InvalidBody.

    The Content-Type does not matter: Ollama's own examples say that the body is a form. A large
    body takes room in memory until the context ends: keep nothing of it after that.
    """
    length = request.length_max
    if length is not None and length <= PAYLOAD_BYTES_MAX:
        yield _read(await request.body(PAYLOAD_BYTES_MAX))
        request.forget_body()
        return
    async with room.slot(request.principal.org):
        yield _read(await request.long_body(LLM_PAYLOAD_BYTES_MAX))
        request.forget_body()


def _read(data: bytes) -> dict[str, msgspec.Raw]:
    if not data:
        raise InvalidBody("A JSON body is needed.")
    if not isinstance(read_json(data), dict):
        raise InvalidBody("The body must be a JSON object.")
    return _decode(data)


def read_model(fields: Fields) -> str:
    """The canonical name of the model. Raises InvalidParameter."""
    text = _typed(fields, MODEL, str, "text")
    if text is None:
        raise InvalidParameter(MODEL, "is missing: the name of the model", "body")
    return model_name(text)


def read_stream(fields: Fields) -> bool | None:
    """The value of ``stream``; None if it is absent."""
    return _typed(fields, STREAM, bool, "true or false")


def read_url(fields: Fields, name: str) -> str | None:
    return _typed(fields, name, str, "a URL")


def payload_of(
    kind: LlmKind,
    model: str,
    fields: Fields,
    turns: Sequence[Fields] = (),
    *,
    fetch_images: bool = False,
) -> bytes:
    """The payload of the job. The same request makes the same bytes, streamed or not."""
    given = {
        name: value for name, value in fields.items() if name not in OWN_FIELDS and name != STREAM
    }
    if kind != "embed":
        given[STREAM] = _TRUE
    return _encode(LlmRequest(kind, model, msgspec.Raw(_encode(given)), turns, fetch_images))


def check_shape(kind: LlmKind, fields: Fields) -> None:
    """Raises InvalidParameter for a body that no target accepts, before a job waits for that."""
    match kind:
        case "chat":
            _typed(fields, MESSAGES, list[dict[str, msgspec.Raw]], "a list of objects")
        case "generate":
            _typed(fields, PROMPT, str, "text")
        case "embed":
            _typed(fields, INPUT, list[str], "a list of texts")
        case _:
            assert_never(kind)
    read_stream(fields)


def has(fields: Fields, name: str) -> bool:
    """Whether the field is set. Null counts as absent, as for Ollama."""
    return name in fields and bytes(fields[name]) != _NULL


def _typed(fields: Fields, name: str, kind: type[Value], expected: str) -> Value | None:
    if not has(fields, name):
        return None
    try:
        return msgspec.json.decode(fields[name], type=kind)
    except msgspec.ValidationError:
        raise InvalidParameter(name, f"must be {expected}", "body") from None
