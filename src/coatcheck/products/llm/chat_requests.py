"""Reads what a caller wants of a model, and makes it the payload of a job.

Every field reaches the target as it was written, also those that nobody here knows: it is the
target that is asked, not Coatcheck. Only the fields below are looked at; ours are taken out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar, assert_never

import msgspec

from coatcheck.domain.errors import InvalidBody, InvalidParameter
from coatcheck.domain.limits import LLM_PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX
from coatcheck.http.bodies import read_json
from coatcheck.http.request import Request
from coatcheck.http.upload_limits import UploadRoom
from coatcheck.products.llm.model import LlmKind, LlmRequest, model_name

Value = TypeVar("Value")
Fields = Mapping[str, msgspec.Raw]
"""A JSON object whose values are as they were written."""

MODEL: Final = "model"
STREAM: Final = "stream"
MESSAGES: Final = "messages"
PROMPT: Final = "prompt"
INPUT: Final = "input"
ASKED: Final[Mapping[LlmKind, str]] = {"chat": MESSAGES, "generate": PROMPT, "embed": INPUT}
"""The field that says what the model is asked."""
WEBHOOK_URL: Final = "webhook_url"
STATE_WEBHOOK_URL: Final = "state_webhook_url"
OWN_FIELDS: Final = frozenset({WEBHOOK_URL, STATE_WEBHOOK_URL})
"""What no target is to see."""
ENVELOPE_BYTES_MAX: Final = 4_096
"""What a payload has besides the body."""

_NULL: Final = b"null"
_TRUE: Final = msgspec.Raw(b"true")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@asynccontextmanager
async def fields_of(request: Request, room: UploadRoom) -> AsyncIterator[dict[str, msgspec.Raw]]:
    """The fields of the body, which is a JSON object. Raises as ``json_bodies`` does.

    Whatever the body says of its type: Ollama's own examples say that it is a form. A long body has
    its place in the room until this is left: do with it what there is to do by then, and keep
    nothing of it.
    """
    length = request.length_max
    if length is not None and length <= PAYLOAD_BYTES_MAX:
        yield _read(await request.body(PAYLOAD_BYTES_MAX))
        request.forget_body()
        return
    async with room.entered(request.principal.org):
        yield _read(await request.long_body(LLM_PAYLOAD_BYTES_MAX))
        request.forget_body()


def _read(data: bytes) -> dict[str, msgspec.Raw]:
    if not data:
        raise InvalidBody("A JSON body is needed.")
    if not isinstance(read_json(data), dict):
        raise InvalidBody("The body must be a JSON object.")
    return _decode(data)


def read_model(fields: Fields) -> str:
    """The model's name, as it is everywhere. Raises InvalidParameter."""
    text = _typed(fields, MODEL, str, "text")
    if text is None:
        raise InvalidParameter(MODEL, "is missing: the name of the model to ask", "body")
    return model_name(text)


def read_stream(fields: Fields) -> bool | None:
    """What was said of streaming; None if nothing was."""
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
    """The payload of the job. The same request gives the same bytes, streamed or not."""
    given = {
        name: value for name, value in fields.items() if name not in OWN_FIELDS and name != STREAM
    }
    if kind != "embed":
        given[STREAM] = _TRUE
    return _encode(LlmRequest(kind, model, msgspec.Raw(_encode(given)), turns, fetch_images))


def check_shape(kind: LlmKind, fields: Fields) -> None:
    """Raises InvalidParameter for what no target would take: a job would only wait to be told."""
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
    """Whether the field is there; null is as good as absent, as it is for Ollama."""
    return name in fields and bytes(fields[name]) != _NULL


def _typed(fields: Fields, name: str, kind: type[Value], called: str) -> Value | None:
    if not has(fields, name):
        return None
    try:
        return msgspec.json.decode(fields[name], type=kind)
    except msgspec.ValidationError:
        raise InvalidParameter(name, f"must be {called}", "body") from None
