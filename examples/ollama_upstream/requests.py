"""Request parsing as in Ollama: unknown fields are ignored, wrong types are refused."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any

from examples.ollama_upstream.durations import keep_alive_seconds
from examples.ollama_upstream.failures import Refused

_GO_TYPES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "int",
    dict: "map[string]interface {}",
    list: "[]interface {}",
}
_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
}


@dataclass(slots=True)
class Asked:
    """One prompt, from any route."""

    model: str
    prompt: str
    """The complete input of the model, as one text."""
    question: str
    """The last message."""
    asker: str = "user"
    """The role of the last message: user, tool, system, assistant."""
    stream: bool = True
    keep_seconds: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    format: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    think: bool | None = None
    top_logprobs: int | None = None
    """Alternative tokens with each one; None without log probabilities."""
    raw: bool = False
    width: int = 64
    height: int = 64
    steps: int = 4


def body_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    if not body.strip():
        raise Refused(400, "missing request body")
    try:
        value = json.loads(body)
    except ValueError as error:
        raise Refused(400, f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refused(400, f"json: cannot unmarshal {_JSON_TYPES.get(type(value), 'null')}")
    return value


def chat(body: dict[str, Any]) -> Asked:
    """Parse ``POST /api/chat``. Without messages it only loads the model."""
    messages = _field(body, "messages", list, [], "ChatRequest")
    for message in messages:
        if not isinstance(message, dict):
            raise _mistyped("ChatRequest.messages", message, "api.Message")
        if not isinstance(message.get("content", ""), str):
            raise _mistyped("ChatRequest.messages.content", message["content"], "string")
    last = messages[-1] if messages else {}
    asked = _common(body, "ChatRequest")
    asked.prompt = "\n".join(
        f"{message.get('role')}: {message.get('content', '')}" for message in messages
    )
    asked.question = last.get("content") or ""
    asked.asker = last.get("role", "user")
    asked.tools = _field(body, "tools", list, [], "ChatRequest")
    asked.images = [
        image for message in messages for image in decode_images(message.get("images") or [])
    ]
    return asked


def generate(body: dict[str, Any]) -> Asked:
    """Parse ``POST /api/generate``. Without a prompt it only loads the model."""
    prompt = _field(body, "prompt", str, "", "GenerateRequest")
    system = _field(body, "system", str, "", "GenerateRequest")
    suffix = _field(body, "suffix", str, "", "GenerateRequest")
    asked = _common(body, "GenerateRequest")
    asked.raw = _field(body, "raw", bool, False, "GenerateRequest")
    if asked.raw and (system or body.get("template") or body.get("context")):
        raise Refused(400, "raw mode does not support template, system, or context")
    asked.prompt = "\n".join(part for part in (system, prompt, suffix) if part) if prompt else ""
    asked.question = prompt
    asked.images = decode_images(body.get("images") or [])
    asked.width = _field(body, "width", int, 64, "GenerateRequest")
    asked.height = _field(body, "height", int, 64, "GenerateRequest")
    asked.steps = _field(body, "steps", int, 4, "GenerateRequest")
    return asked


def texts_to_embed(body: dict[str, Any]) -> list[str]:
    """The texts of ``POST /api/embed``."""
    given = body.get("input")
    if given is None or given == "":
        return []
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Refused(400, "invalid input type")
    return texts


def model_of(body: dict[str, Any], request: str) -> str:
    name: str = _field(body, "model", str, "", request)
    return name


def _common(body: dict[str, Any], request: str) -> Asked:
    think = body.get("think")
    if think not in (None, True, False, "low", "medium", "high", "max"):
        raise Refused(400, f"invalid think value: {think!r}")
    return Asked(
        model=model_of(body, request),
        prompt="",
        question="",
        stream=_field(body, "stream", bool, True, request),
        keep_seconds=keep_alive_seconds(body.get("keep_alive")),
        options=_options(_field(body, "options", dict, {}, request)),
        format=_format(body.get("format")),
        think=None if think is None else bool(think),
        top_logprobs=(
            _field(body, "top_logprobs", int, 0, request)
            if _field(body, "logprobs", bool, False, request)
            else None
        ),
    )


def _format(value: object) -> str | dict[str, Any] | None:
    if value is None or value == "":
        return None
    if value == "json" or isinstance(value, dict):
        return value
    raise Refused(400, f'invalid format: {json.dumps(value)}; expected "json" or a JSON schema')


def _options(options: dict[str, Any]) -> dict[str, Any]:
    for name in ("num_predict", "num_ctx", "seed", "top_k"):
        value = options.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused(500, f'option "{name}" must be of type integer')
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty"):
        value = options.get(name, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused(500, f'option "{name}" must be of type float32')
    stop = options.get("stop", [])
    if not isinstance(stop, list) or not all(isinstance(text, str) for text in stop):
        raise Refused(500, 'option "stop" must be of type array')
    return options


def decode_images(images: object) -> list[bytes]:
    if not isinstance(images, list):
        raise _mistyped("images", images, "[]api.ImageData")
    decoded = []
    for image in images:
        if not isinstance(image, str):
            raise _mistyped("images", image, "api.ImageData")
        try:
            decoded.append(base64.b64decode(image, validate=True))
        except binascii.Error:
            raise Refused(400, "illegal base64 data at input byte 0") from None
    return decoded


def _field(body: dict[str, Any], name: str, kind: type, default: Any, request: str) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _mistyped(f"{request}.{name}", value, _GO_TYPES[kind])
    return value


def _mistyped(name: str, value: object, wanted: str) -> Refused:
    given = _JSON_TYPES.get(type(value), "null")
    return Refused(
        400, f"json: cannot unmarshal {given} into Go struct field {name} of type {wanted}"
    )
