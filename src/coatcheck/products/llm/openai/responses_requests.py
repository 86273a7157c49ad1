"""Translates requests of OpenAI's Responses API, a chat as a list of items, into Ollama's chats.

Nothing is stored between two requests except their jobs: clients send the whole conversation each
time, as with chat completions. Fields that rely on state at OpenAI are rejected with a hint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from coatcheck.products.llm.openai.fields import (
    PASSED_THROUGH,
    Fields,
    TranslatedRequest,
    invalid,
    logprobs_fields,
    read_field,
    read_thinking,
    read_value,
    reject_unsupported,
)
from coatcheck.products.llm.openai.requests import Conversation, chat_request
from coatcheck.products.llm.openai.responses_answers import RequestEcho, ResponseTranslator
from coatcheck.products.llm.openai.tools import OfferedFunction, offer

_SUPPORTED: Final = frozenset(
    {
        *PASSED_THROUGH,
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "options",
        "parallel_tool_calls",
        "reasoning",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "think",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
    }
)
_ALLOWED_VALUES: Final[Mapping[str, tuple[object, ...]]] = {
    "background": (False,),
    "context_management": (),
    "conversation": (),
    "max_tool_calls": (),
    "moderation": (),
    "previous_response_id": (),
    "prompt": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
}
_WHOLE: Final = (
    "is not supported: nothing is stored between requests. Send the conversation in `input`"
)
_REASONS: Final[Mapping[str, str]] = {
    "background": "must be false: with the header `Prefer: respond-async` the answer is a ticket",
    "conversation": _WHOLE,
    "previous_response_id": _WHOLE,
    "prompt": "is not supported: send the prompt itself, in `input` or `instructions`",
    "store": "must be false: an answer is stored with its job, which the header `X-Job-Id` names",
}
_LOGPROBS: Final = "message.output_text.logprobs"
_INCLUDED: Final = frozenset({_LOGPROBS, "reasoning.encrypted_content"})
"""The supported values of ``include``. Reasoning is never encrypted here."""


class _Part(msgspec.Struct, tag_field="type"):
    pass


class _InputText(_Part, tag="input_text"):
    text: str


class _OutputText(_Part, tag="output_text"):
    text: str


class _Refusal(_Part, tag="refusal"):
    refusal: str


class _InputImage(_Part, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


_Content = str | list[_InputText | _OutputText | _Refusal | _InputImage]


class _Message(msgspec.Struct, tag_field="type", tag="message"):
    role: Literal["system", "developer", "user", "assistant"]
    content: _Content


class _FunctionCall(msgspec.Struct, tag_field="type", tag="function_call"):
    call_id: str
    name: str
    arguments: str


class _CallOutput(msgspec.Struct, tag_field="type", tag="function_call_output"):
    call_id: str
    output: _Content


class _ReasoningText(msgspec.Struct):
    text: str


class _Reasoning(msgspec.Struct, tag_field="type", tag="reasoning"):
    summary: list[_ReasoningText] = []
    content: list[_ReasoningText] | None = None


_Item = _Message | _FunctionCall | _CallOutput | _Reasoning
_KINDS: Final = ("message", "function_call", "function_call_output", "reasoning")
_ANY_ITEM: Final[Any] = _Item


class _Format(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"]
    schema: msgspec.Raw = msgspec.Raw(b"{}")


class _TextSettings(msgspec.Struct, forbid_unknown_fields=True):
    format: _Format | None = None
    verbosity: Literal["medium"] | None = None


class _ReasoningSettings(msgspec.Struct, forbid_unknown_fields=True):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class _FunctionTool(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_obfuscation: bool | None = None


def translate_response(given: Fields) -> TranslatedRequest:
    """Translate a response request. Raises InvalidParameter for what Ollama cannot express."""
    reject_unsupported(given, _SUPPORTED, _ALLOWED_VALUES, _REASONS)
    stream = read_field(given, "stream", bool) or False
    if read_field(given, "stream_options", _StreamOptions) is not None and not stream:
        raise invalid("stream_options", "may only be set when stream is true")
    functions = _functions(given)
    offered = offer(functions, read_field(given, "tool_choice", object))
    parallel: bool | None = read_field(given, "parallel_tool_calls", bool)
    reasoning = read_field(given, "reasoning", _ReasoningSettings) or _ReasoningSettings()
    logprobs = _logprobs(given)
    return chat_request(
        given,
        _conversation(given),
        [{"type": "function", "function": each} for each in offered.functions],
        offered,
        stream=stream,
        choices=1,
        fields={
            "format": _format(given),
            "think": read_thinking(given, reasoning.effort, "reasoning.effort"),
            "truncate": _truncate(given),
            **logprobs,
        },
        translator=ResponseTranslator(
            RequestEcho.read(given),
            forced=offered.forced,
            one_call=parallel is False,
            logprobs=bool(logprobs),
        ),
    )


def _conversation(given: Fields) -> Conversation:
    conversation = Conversation()
    instructions: str | None = read_field(given, "instructions", str)
    if instructions:
        conversation.add_message("system", instructions)
    asked: Any = read_field(given, "input", object)
    if isinstance(asked, str):
        conversation.add_message("user", asked)
    elif isinstance(asked, list):
        thoughts: str | None = None
        for at, written in enumerate(read_field(given, "input", list[msgspec.Raw]) or ()):
            path = f"input[{at}]"
            item = _item(written, asked[at], path)
            thoughts = _add(conversation, item, path, thoughts)
    if not asked or not isinstance(asked, (str, list)):
        raise invalid("input", "must be a non-empty text or a non-empty list of items")
    return conversation


def _item(written: msgspec.Raw, given: object, path: str) -> _Item:
    if not isinstance(given, dict):
        raise invalid(path, "must be an item: an object")
    kind = given.get("type", "message")
    if kind == "item_reference":
        raise invalid(path, "is a reference: nothing is stored between requests. Send the item")
    if kind not in _KINDS:
        raise invalid(f"{path}.type", f"must be one of {', '.join(_KINDS)}")
    data = bytes(written) if "type" in given else msgspec.json.encode({**given, "type": kind})
    item: _Item = read_value(data, _ANY_ITEM, path)
    return item


def _add(conversation: Conversation, item: _Item, path: str, thoughts: str | None) -> str | None:
    """Add an item. Reasoning comes before the item it belongs to, so it is returned until then."""
    match item:
        case _Reasoning():
            return "".join(part.text for part in item.content or item.summary) or None
        case _Message():
            text, images = _content(conversation, item.content, f"{path}.content")
            thinking = thoughts if item.role == "assistant" else None
            conversation.add_message(item.role, text, images, thinking=thinking)
        case _FunctionCall():
            if thoughts:
                conversation.add_message("assistant", "", thinking=thoughts)
            conversation.add_call(item.call_id, item.name, item.arguments, f"{path}.arguments")
        case _CallOutput():
            text, images = _content(conversation, item.output, f"{path}.output")
            message = conversation.add_message("tool", text, images)
            conversation.link_to_call(message, item.call_id)
    return None


def _content(conversation: Conversation, given: _Content, path: str) -> tuple[str, list[str]]:
    if isinstance(given, str):
        return given, []
    texts: list[str] = []
    images: list[str] = []
    for at, part in enumerate(given):
        match part:
            case _InputText() | _OutputText():
                texts.append(part.text)
            case _Refusal():
                texts.append(part.refusal)
            case _InputImage():
                field = f"{path}[{at}].image_url"
                if part.image_url is None:
                    raise invalid(
                        field, "is required: there are no stored files, so there are no ids"
                    )
                images.append(conversation.image(part.image_url, field))
    return "\n".join(texts), images


def _functions(given: Fields) -> Sequence[OfferedFunction]:
    functions = []
    for at, tool in enumerate(read_field(given, "tools", list[_FunctionTool]) or ()):
        if tool.type != "function":
            raise invalid(
                f"tools[{at}].type",
                f"cannot be {tool.type}: only function tools are supported",
            )
        if not tool.name:
            raise invalid(f"tools[{at}].name", "is missing")
        functions.append(OfferedFunction(tool.name, tool.description, tool.parameters, tool.strict))
    return functions


def _format(given: Fields) -> msgspec.Raw | None:
    text = read_field(given, "text", _TextSettings)
    if text is None or text.format is None or text.format.type == "text":
        return None
    return msgspec.Raw(b'"json"') if text.format.type == "json_object" else text.format.schema


def _truncate(given: Fields) -> msgspec.Raw | None:
    """``truncate``: targets drop the beginning of a long conversation unless it is false."""
    requested: str | None = read_field(given, "truncation", str)
    if requested not in (None, "auto", "disabled"):
        raise invalid("truncation", "must be auto or disabled")
    return msgspec.Raw(b"false") if requested == "disabled" else None


def _logprobs(given: Fields) -> Mapping[str, msgspec.Raw]:
    included = read_field(given, "include", list[str]) or []
    for each in included:
        if each not in _INCLUDED:
            raise invalid("include", f"has {each}, which is not supported")
    most: int | None = read_field(given, "top_logprobs", int)
    return logprobs_fields(
        requested=_LOGPROBS in included or bool(most), most=most, most_field="top_logprobs"
    )
