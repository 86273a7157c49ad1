"""Chat completions as OpenAI's clients ask for them, said in Ollama's words.

Whatever would be silently lost on the way is refused, so that nobody takes an answer for what it is
not. What has no effect on an answer (a user's name, hints for caches) is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from coatcheck.control.json_bodies import read_json
from coatcheck.domain.errors import InvalidBody, InvalidParameter

Fields = Mapping[str, msgspec.Raw]
"""A JSON object's members, each as it was written."""

_Kind = TypeVar("_Kind")

_encode: Final = msgspec.json.Encoder().encode

_AS_THEY_ARE: Final = ("model", "keep_alive", "webhook_url", "state_webhook_url")
"""Fields of Ollama's and of ours that go on untouched."""
_WITHOUT_EFFECT: Final = frozenset(
    {
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
    }
)
_ONLY: Final[Mapping[str, tuple[object, ...]]] = {
    "audio": (),
    "function_call": (),
    "functions": (),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "moderation": (),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields that targets know nothing of, and the values under which that makes no difference."""
_READ: Final = frozenset(
    {
        *_AS_THEY_ARE,
        "frequency_penalty",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "options",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "think",
        "tool_choice",
        "tools",
        "top_p",
    }
)
_OPTIONS: Final[Mapping[str, tuple[str, Any]]] = {
    "frequency_penalty": ("frequency_penalty", float),
    "presence_penalty": ("presence_penalty", float),
    "seed": ("seed", int),
    "temperature": ("temperature", float),
    "top_p": ("top_p", float),
    "max_tokens": ("num_predict", int),
    "max_completion_tokens": ("num_predict", int),
}
"""What becomes an option of the model, and how Ollama calls it; of two the later counts."""
_THINKING: Final[Mapping[str, object]] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
}
_STOP: Final[Any] = str | list[str]
_DATA_URI: Final = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)


class ChatOrder(NamedTuple):
    """What was asked for: ``fields`` in Ollama's words, and how it is to be answered."""

    fields: dict[str, msgspec.Raw]
    stream: bool
    include_usage: bool


class _Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="type"):
    prompt_cache_breakpoint: Any = None


class _Text(_Part, tag="text"):
    text: str


class _Refusal(_Part, tag="refusal"):
    refusal: str


class _ImageUrl(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    detail: str | None = None


class _Image(_Part, tag="image_url"):
    image_url: _ImageUrl


class _CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class _ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    function: _CalledFunction
    id: str = ""
    type: Literal["function"] = "function"
    index: int | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """Any message; those that a client got from us can be sent back as they came."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Text | _Refusal | _Image] | None = None
    name: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None


class _JsonSchema(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw(b"{}")


class _ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _Tool(msgspec.Struct):
    type: Literal["function"]
    function: dict[str, msgspec.Raw]


def read_order(given: Fields) -> ChatOrder:
    """The order in Ollama's words. Raises InvalidParameter for what cannot be said in them."""
    _refuse_what_would_be_lost(given)
    stream = _read(given, "stream", bool) or False
    fields = {name: given[name] for name in _AS_THEY_ARE if name in given}
    fields["messages"] = msgspec.Raw(_encode(_messages(given)))
    options = _options(given)
    if options:
        fields["options"] = msgspec.Raw(_encode(options))
    tools = _tools(given)
    if tools is not None:
        fields["tools"] = tools
    wanted_format = _format(given)
    if wanted_format is not None:
        fields["format"] = wanted_format
    thinking = _thinking(given)
    if thinking is not None:
        fields["think"] = thinking
    return ChatOrder(fields, stream, _include_usage(given, stream=stream))


def _refuse_what_would_be_lost(given: Fields) -> None:
    for name, raw in given.items():
        if name in _READ or name in _WITHOUT_EFFECT:
            continue
        if name not in _ONLY:
            raise InvalidParameter(name, "is not a field", "body")
        value = msgspec.json.decode(raw)
        # `True == 1` in Python, and not in JSON.
        if value is not None and not any(
            value == each and type(value) is type(each) for each in _ONLY[name]
        ):
            raise _wrong(name, "is not supported by the models that are served here")


def _read(given: Fields, name: str, kind: type[_Kind]) -> _Kind | None:
    """A field as ``kind``; None if it is null or not there."""
    raw = given.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        issue, _, place = str(error).partition(" - at `$")
        raise _wrong(name + place.removesuffix("`"), issue[:1].lower() + issue[1:]) from None


def _messages(given: Fields) -> list[dict[str, Any]]:
    messages = _read(given, "messages", list[_Message])
    if not messages:
        raise _wrong("messages", "must have at least one message")
    names: dict[str, str] = {}
    """Of the functions that were called, by the ids of the calls."""
    return [_message(each, f"messages[{at}]", names) for at, each in enumerate(messages)]


def _message(given: _Message, place: str, names: dict[str, str]) -> dict[str, Any]:
    role = "system" if given.role == "developer" else given.role
    text, images = _content(given, place)
    message: dict[str, Any] = {"role": role, "content": text}
    if images:
        message["images"] = images
    if given.reasoning:
        message["thinking"] = given.reasoning
    if given.tool_calls:
        message["tool_calls"] = [
            _tool_call(call, f"{place}.tool_calls[{at}]")
            for at, call in enumerate(given.tool_calls)
        ]
        names |= {call.id: call.function.name for call in given.tool_calls}
    if given.tool_call_id is not None:
        message["tool_call_id"] = given.tool_call_id
        if given.tool_call_id in names:
            message["tool_name"] = names[given.tool_call_id]
    return message


def _content(given: _Message, place: str) -> tuple[str, list[str]]:
    """The text and the images of a message, which Ollama keeps apart."""
    if given.content is None:
        return given.refusal or "", []
    if isinstance(given.content, str):
        return given.content, []
    texts: list[str] = []
    images: list[str] = []
    for at, part in enumerate(given.content):
        match part:
            case _Text():
                texts.append(part.text)
            case _Refusal():
                texts.append(part.refusal)
            case _Image():
                images.append(_image(part.image_url.url, f"{place}.content[{at}].image_url.url"))
    return "\n".join(texts), images


def _image(url: str, place: str) -> str:
    """The image itself, in base64: whoever asks is not made to fetch things here."""
    found = _DATA_URI.match(url)
    if found is None:
        raise _wrong(place, "must hold the image itself: data:image/png;base64,...")
    return url[found.end() :]


def _tool_call(given: _ToolCall, place: str) -> dict[str, Any]:
    arguments = given.function.arguments.encode() or b"{}"
    try:
        is_object = isinstance(read_json(arguments), dict)
    except InvalidBody:
        is_object = False
    if not is_object:
        raise _wrong(f"{place}.function.arguments", "must be a JSON object, as text")
    call: dict[str, Any] = {
        "function": {"name": given.function.name, "arguments": msgspec.Raw(arguments)}
    }
    return {"id": given.id} | call if given.id else call


def _options(given: Fields) -> dict[str, Any]:
    """The options of the model. Those under OpenAI's names go before Ollama's own."""
    options: dict[str, Any] = _read(given, "options", dict[str, msgspec.Raw]) or {}
    for name, (native, kind) in _OPTIONS.items():
        if _read(given, name, kind) is not None:
            options[native] = given[name]
    stop: str | list[str] | None = _read(given, "stop", _STOP)
    if stop is not None:
        options["stop"] = [stop] if isinstance(stop, str) else stop
    return options


def _tools(given: Fields) -> msgspec.Raw | None:
    tools = _read(given, "tools", list[_Tool])
    choice = _read(given, "tool_choice", object)
    if choice not in (None, "auto", "none"):
        raise _wrong(
            "tool_choice", "must be auto or none: no model that is served here can be made to call"
        )
    return given["tools"] if tools and choice != "none" else None


def _format(given: Fields) -> msgspec.Raw | None:
    wanted = _read(given, "response_format", _ResponseFormat)
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return msgspec.Raw(b'"json"')
    if wanted.json_schema is None:
        raise _wrong("response_format.json_schema", "is needed with the type json_schema")
    return wanted.json_schema.schema


def _thinking(given: Fields) -> msgspec.Raw | None:
    effort = _read(given, "reasoning_effort", str)
    if effort is None:
        return given.get("think")
    if effort not in _THINKING:
        raise _wrong("reasoning_effort", f"must be one of {', '.join(_THINKING)}")
    return msgspec.Raw(_encode(_THINKING[effort]))


def _include_usage(given: Fields, *, stream: bool) -> bool:
    options = _read(given, "stream_options", _StreamOptions)
    if options is None:
        return False
    if not stream:
        raise _wrong("stream_options", "may only be set when stream is true")
    return bool(options.include_usage)


def _wrong(field: str, issue: str) -> InvalidParameter:
    return InvalidParameter(field, issue, "body")
