"""Chat completions as OpenAI's clients ask for them, said in Ollama's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from coatcheck.domain.errors import InvalidBody
from coatcheck.http.bodies import read_json
from coatcheck.products.llm.images import IMAGE_URLS_MAX, is_image_url
from coatcheck.products.llm.openai.answers import ChatAnswering
from coatcheck.products.llm.openai.fields import (
    AS_THEY_ARE,
    OPTIONS,
    Answering,
    CompletionOrder,
    Fields,
    choice_options,
    raw,
    read_choices,
    read_field,
    read_include_usage,
    read_logprobs,
    read_options,
    read_thinking,
    refuse_what_would_be_lost,
    wrong,
)
from coatcheck.products.llm.openai.tools import Tool, ToolOffer, offer

_DATA_URI: Final = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)
_ASSISTANT: Final = "assistant"


class Conversation:
    """Messages, added one after the other. Raises InvalidParameter for what cannot be said."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.image_urls: dict[str, str] = {}
        """Images that have to be fetched, by the fields that they came in."""
        self._names: dict[str, str] = {}
        """Of the functions that were called, by the ids of the calls."""

    def say(
        self, role: str, text: str, images: Sequence[str] = (), *, thinking: str | None = None
    ) -> dict[str, Any]:
        """Add a message. ``images`` are those that ``image`` gave."""
        message: dict[str, Any] = {
            "role": "system" if role == "developer" else role,
            "content": text,
        }
        if images:
            message["images"] = list(images)
        if thinking:
            message["thinking"] = thinking
        self.messages.append(message)
        return message

    def call(self, call_id: str, name: str, arguments: str, place: str) -> None:
        """Add a call to what the model said last. ``place`` is the field of ``arguments``."""
        encoded = arguments.encode() or b"{}"
        try:
            is_object = isinstance(read_json(encoded), dict)
        except InvalidBody:
            is_object = False
        if not is_object:
            raise wrong(place, "must be a JSON object, as text")
        if not self.messages or self.messages[-1]["role"] != _ASSISTANT:
            self.say(_ASSISTANT, "")
        call: dict[str, Any] = {"function": {"name": name, "arguments": msgspec.Raw(encoded)}}
        calls = self.messages[-1].setdefault("tool_calls", [])
        calls.append({"id": call_id} | call if call_id else call)
        self._names[call_id] = name

    def answers_call(self, message: dict[str, Any], call_id: str) -> None:
        """Say which call a message of a tool answers."""
        message["tool_call_id"] = call_id
        if call_id in self._names:
            message["tool_name"] = self._names[call_id]

    def image(self, url: str, place: str) -> str:
        """An image for a message: its base64, or the address that a worker fetches it from."""
        found = _DATA_URI.match(url)
        if found is not None and not is_image_url(url[found.end() :]):
            return url[found.end() :]
        # An address within a data URI would be fetched, uncounted, beside one that is not.
        if not is_image_url(url):
            raise wrong(
                place, "must be an http(s) URL, or hold the image: data:image/png;base64,..."
            )
        if len(self.image_urls) >= IMAGE_URLS_MAX:
            raise wrong(
                place, f"is one URL too many: {IMAGE_URLS_MAX} images of a request are fetched"
            )
        self.image_urls[place] = url
        return url

    def instruct(self, text: str) -> None:
        """Tell the model something before all else. Many know of one such message only."""
        if self.messages and self.messages[0]["role"] == "system":
            first = self.messages[0]
            first["content"] = "\n\n".join(part for part in (first["content"], text) if part)
        else:
            self.messages.insert(0, {"role": "system", "content": text})


_ONLY: Final[Mapping[str, tuple[object, ...]]] = {
    "audio": (),
    "function_call": (),
    "functions": (),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "moderation": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
_REASONS: Final[Mapping[str, str]] = {
    "function_call": "is not supported: use `tool_choice`",
    "functions": "is not supported: use `tools`",
    "store": "must be false: an answer is kept with its job, which the header `X-Job-Id` names",
}
_READ: Final = frozenset({*AS_THEY_ARE, *OPTIONS} - {"max_output_tokens"}) | frozenset(
    {
        "logprobs",
        "messages",
        "n",
        "options",
        "parallel_tool_calls",
        "reasoning_effort",
        "response_format",
        "stop",
        "stream",
        "stream_options",
        "think",
        "tool_choice",
        "tools",
        "top_logprobs",
    }
)


class _ChatPart(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="type"):
    prompt_cache_breakpoint: Any = None


class _Text(_ChatPart, tag="text"):
    text: str


class _ChatRefusal(_ChatPart, tag="refusal"):
    refusal: str


class _ImageUrl(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    detail: str | None = None


class _Image(_ChatPart, tag="image_url"):
    image_url: _ImageUrl


class _CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class _ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    function: _CalledFunction
    id: str = ""
    type: Literal["function"] = "function"
    index: int | None = None


class _ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    """Any message; those that a client got from us can be sent back as they came."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Text | _ChatRefusal | _Image] | None = None
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


def read_order(given: Fields) -> CompletionOrder:
    """The order in Ollama's words. Raises InvalidParameter for what cannot be said in them."""
    refuse_what_would_be_lost(given, _READ, _ONLY, _REASONS)
    stream = read_field(given, "stream", bool) or False
    tools = read_field(given, "tools", list[Tool]) or []
    offered = offer([each.function for each in tools], read_field(given, "tool_choice", object))
    parallel: bool | None = read_field(given, "parallel_tool_calls", bool)
    logprobs = read_logprobs(given)
    effort: str | None = read_field(given, "reasoning_effort", str)
    return chat_order(
        given,
        _conversation(given),
        _as_written(given, offered),
        offered,
        stream=stream,
        choices=read_choices(given),
        fields={
            "format": _format(given),
            "think": read_thinking(given, effort, "reasoning_effort"),
            **logprobs,
        },
        answering=ChatAnswering(
            include_usage=read_include_usage(given, stream=stream),
            forced=offered.forced,
            one_call=parallel is False,
            logprobs=bool(logprobs),
        ),
    )


def chat_order(
    given: Fields,
    conversation: Conversation,
    tools: Sequence[object],
    offered: ToolOffer,
    *,
    stream: bool,
    choices: int,
    fields: Mapping[str, msgspec.Raw | None],
    answering: Answering,
) -> CompletionOrder:
    """A chat. ``tools`` are those that are offered, as Ollama has them; ``fields`` go on as they
    are, those that are None left out. A call that has to be made is what the answer is held to,
    in the place of any other format."""
    said = {name: given[name] for name in AS_THEY_ARE if name in given}
    wanted = dict(fields)
    if offered.forced is not None:
        conversation.instruct(offered.forced.instruction())
        wanted["format"] = raw(offered.forced.format())
    elif tools:
        wanted["tools"] = raw(tools)
    options = read_options(given)
    if options:
        wanted["options"] = raw(options)
    said["messages"] = raw(conversation.messages)
    said |= {name: value for name, value in wanted.items() if value is not None}
    turns = [
        {"options": raw(choice_options(options, at))} if options else {} for at in range(1, choices)
    ]
    return CompletionOrder("chat", said, answering, stream, turns, conversation.image_urls)


def _conversation(given: Fields) -> Conversation:
    messages = read_field(given, "messages", list[_ChatMessage])
    if not messages:
        raise wrong("messages", "must have at least one message")
    conversation = Conversation()
    for at, message in enumerate(messages):
        _add(conversation, message, f"messages[{at}]")
    return conversation


def _add(conversation: Conversation, given: _ChatMessage, place: str) -> None:
    text, images = _content(conversation, given, place)
    message = conversation.say(given.role, text, images, thinking=given.reasoning)
    for at, call in enumerate(given.tool_calls or ()):
        field = f"{place}.tool_calls[{at}].function.arguments"
        conversation.call(call.id, call.function.name, call.function.arguments, field)
    if given.tool_call_id is not None:
        conversation.answers_call(message, given.tool_call_id)


def _content(conversation: Conversation, given: _ChatMessage, place: str) -> tuple[str, list[str]]:
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
            case _ChatRefusal():
                texts.append(part.refusal)
            case _Image():
                field = f"{place}.content[{at}].image_url.url"
                images.append(conversation.image(part.image_url.url, field))
    return "\n".join(texts), images


def _as_written(given: Fields, offered: ToolOffer) -> list[msgspec.Raw]:
    """The tools that are offered, each as it was written."""
    written = read_field(given, "tools", list[msgspec.Raw]) or []
    names = {each.name for each in offered.functions}
    read = msgspec.json.Decoder(Tool).decode
    return [each for each in written if read(each).function.name in names]


def _format(given: Fields) -> msgspec.Raw | None:
    wanted = read_field(given, "response_format", _ResponseFormat)
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return msgspec.Raw(b'"json"')
    if wanted.json_schema is None:
        raise wrong("response_format.json_schema", "is needed with the type json_schema")
    return wanted.json_schema.schema
