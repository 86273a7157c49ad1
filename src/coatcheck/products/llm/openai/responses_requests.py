"""OpenAI's Responses API, said in Ollama's words: a chat that is written down as items.

Nothing is kept between two requests but their jobs: a conversation is sent whole each time, as it
is to chat completions. What relies on a state that OpenAI keeps is refused, saying what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from coatcheck.products.llm.openai.fields import (
    AS_THEY_ARE,
    CompletionOrder,
    Fields,
    logprobs_fields,
    read_field,
    read_thinking,
    refuse_what_would_be_lost,
    wrong,
)
from coatcheck.products.llm.openai.requests import Conversation, chat_order
from coatcheck.products.llm.openai.responses_answers import RequestEcho, ResponseAnswering
from coatcheck.products.llm.openai.tools import OfferedFunction, offer

_READ: Final = frozenset(
    {
        *AS_THEY_ARE,
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
_ONLY: Final[Mapping[str, tuple[object, ...]]] = {
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
    "is not supported: nothing is kept between requests. Send the conversation in `input`"
)
_REASONS: Final[Mapping[str, str]] = {
    "background": "must be false: with the header `Prefer: respond-async` the answer is a ticket",
    "conversation": _WHOLE,
    "previous_response_id": _WHOLE,
    "prompt": "is not supported: send the prompt itself, in `input` or `instructions`",
    "store": "must be false: an answer is kept with its job, which the header `X-Job-Id` names",
}
_LOGPROBS: Final = "message.output_text.logprobs"
_INCLUDED: Final = frozenset({_LOGPROBS, "reasoning.encrypted_content"})
"""What may be asked for besides. Nothing that is thought here is encrypted."""


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
_decode_item: Final = msgspec.json.Decoder(_Item).decode


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


def read_response_order(given: Fields) -> CompletionOrder:
    """Raises InvalidParameter for what cannot be said in Ollama's words."""
    refuse_what_would_be_lost(given, _READ, _ONLY, _REASONS)
    stream = read_field(given, "stream", bool) or False
    if read_field(given, "stream_options", _StreamOptions) is not None and not stream:
        raise wrong("stream_options", "may only be set when stream is true")
    functions = _functions(given)
    offered = offer(functions, read_field(given, "tool_choice", object))
    parallel: bool | None = read_field(given, "parallel_tool_calls", bool)
    reasoning = read_field(given, "reasoning", _ReasoningSettings) or _ReasoningSettings()
    logprobs = _logprobs(given)
    return chat_order(
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
        answering=ResponseAnswering(
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
        conversation.say("system", instructions)
    asked: Any = read_field(given, "input", object)
    if isinstance(asked, str):
        conversation.say("user", asked)
    elif isinstance(asked, list):
        thoughts: str | None = None
        for at, written in enumerate(read_field(given, "input", list[msgspec.Raw]) or ()):
            place = f"input[{at}]"
            item = _item(written, asked[at], place)
            thoughts = _add(conversation, item, place, thoughts)
    if not asked or not isinstance(asked, (str, list)):
        raise wrong("input", "must be a text, or a list of items, that is not empty")
    return conversation


def _item(written: msgspec.Raw, given: object, place: str) -> _Item:
    if not isinstance(given, dict):
        raise wrong(place, "must be an item: an object")
    kind = given.get("type", "message")
    if kind == "item_reference":
        raise wrong(place, "is a reference: nothing is kept between requests. Send the item itself")
    if kind not in _KINDS:
        raise wrong(f"{place}.type", f"must be one of {', '.join(_KINDS)}")
    data = bytes(written) if "type" in given else msgspec.json.encode({**given, "type": kind})
    try:
        item: _Item = _decode_item(data)
    except msgspec.ValidationError as error:
        issue, _, within = str(error).partition(" - at `$")
        issue = issue[:1].lower() + issue[1:]
        raise wrong(place + within.removesuffix("`"), issue) from None
    return item


def _add(conversation: Conversation, item: _Item, place: str, thoughts: str | None) -> str | None:
    """Add an item. Thoughts come before what they led to: they are given back until then."""
    match item:
        case _Reasoning():
            return "".join(part.text for part in item.content or item.summary) or None
        case _Message():
            text, images = _content(conversation, item.content, f"{place}.content")
            thinking = thoughts if item.role == "assistant" else None
            conversation.say(item.role, text, images, thinking=thinking)
        case _FunctionCall():
            if thoughts:
                conversation.say("assistant", "", thinking=thoughts)
            conversation.call(item.call_id, item.name, item.arguments, f"{place}.arguments")
        case _CallOutput():
            text, images = _content(conversation, item.output, f"{place}.output")
            message = conversation.say("tool", text, images)
            conversation.answers_call(message, item.call_id)
    return None


def _content(conversation: Conversation, given: _Content, place: str) -> tuple[str, list[str]]:
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
                field = f"{place}[{at}].image_url"
                if part.image_url is None:
                    raise wrong(field, "is needed: no files are kept here, so there are no ids")
                images.append(conversation.image(part.image_url, field))
    return "\n".join(texts), images


def _functions(given: Fields) -> Sequence[OfferedFunction]:
    functions = []
    for at, tool in enumerate(read_field(given, "tools", list[_FunctionTool]) or ()):
        if tool.type != "function":
            raise wrong(
                f"tools[{at}].type",
                f"cannot be {tool.type}: models that are served here call functions only",
            )
        if not tool.name:
            raise wrong(f"tools[{at}].name", "is missing")
        functions.append(OfferedFunction(tool.name, tool.description, tool.parameters, tool.strict))
    return functions


def _format(given: Fields) -> msgspec.Raw | None:
    text = read_field(given, "text", _TextSettings)
    if text is None or text.format is None or text.format.type == "text":
        return None
    return msgspec.Raw(b'"json"') if text.format.type == "json_object" else text.format.schema


def _truncate(given: Fields) -> msgspec.Raw | None:
    """Targets leave out the beginning of what is too long unless they are told not to."""
    wanted: str | None = read_field(given, "truncation", str)
    if wanted not in (None, "auto", "disabled"):
        raise wrong("truncation", "must be auto or disabled")
    return msgspec.Raw(b"false") if wanted == "disabled" else None


def _logprobs(given: Fields) -> Mapping[str, msgspec.Raw]:
    included = read_field(given, "include", list[str]) or []
    for each in included:
        if each not in _INCLUDED:
            raise wrong("include", f"has {each}, which no model that is served here gives")
    most: int | None = read_field(given, "top_logprobs", int)
    return logprobs_fields(
        wanted=_LOGPROBS in included or bool(most), most=most, most_field="top_logprobs"
    )
