"""Translates OpenAI's chat completion requests into Ollama's chats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from coatcheck.domain.errors import InvalidBody
from coatcheck.http.bodies import read_json
from coatcheck.products.llm.images import IMAGE_URLS_MAX, is_image_url
from coatcheck.products.llm.openai.answers import ChatTranslator
from coatcheck.products.llm.openai.fields import (
    OPTIONS,
    PASSED_THROUGH,
    AnswerTranslator,
    Fields,
    TranslatedRequest,
    choice_options,
    invalid,
    raw,
    read_choices,
    read_field,
    read_include_usage,
    read_logprobs,
    read_options,
    read_thinking,
    reject_unsupported,
)
from coatcheck.products.llm.openai.tools import Tool, ToolOffer, offer

_DATA_URI: Final = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)
_ASSISTANT: Final = "assistant"


class Conversation:
    """Builds Ollama's messages. Raises InvalidParameter for what they cannot express."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.image_urls: dict[str, str] = {}
        """The URLs of images to fetch, by their fields in the request."""
        self._names: dict[str, str] = {}
        """The names of the called functions, by the ids of the calls."""

    def add_message(
        self, role: str, text: str, images: Sequence[str] = (), *, thinking: str | None = None
    ) -> dict[str, Any]:
        """Add a message. ``images`` are results of ``image``."""
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

    def add_call(self, call_id: str, name: str, arguments: str, path: str) -> None:
        """Add a call to the model's last message. ``path`` is the field of ``arguments``."""
        encoded = arguments.encode() or b"{}"
        try:
            is_object = isinstance(read_json(encoded), dict)
        except InvalidBody:
            is_object = False
        if not is_object:
            raise invalid(path, "must be a JSON object, as text")
        if not self.messages or self.messages[-1]["role"] != _ASSISTANT:
            self.add_message(_ASSISTANT, "")
        call: dict[str, Any] = {"function": {"name": name, "arguments": msgspec.Raw(encoded)}}
        calls = self.messages[-1].setdefault("tool_calls", [])
        calls.append({"id": call_id} | call if call_id else call)
        self._names[call_id] = name

    def link_to_call(self, message: dict[str, Any], call_id: str) -> None:
        """Set the call that a tool's message answers."""
        message["tool_call_id"] = call_id
        if call_id in self._names:
            message["tool_name"] = self._names[call_id]

    def image(self, url: str, path: str) -> str:
        """An image for a message: its base64, or the URL that a worker fetches it from."""
        found = _DATA_URI.match(url)
        if found is not None and not is_image_url(url[found.end() :]):
            return url[found.end() :]
        # A URL within a data URI would be fetched without being counted.
        if not is_image_url(url):
            raise invalid(
                path, "must be an http(s) URL or contain the image: data:image/png;base64,..."
            )
        if len(self.image_urls) >= IMAGE_URLS_MAX:
            raise invalid(
                path,
                f"is one URL too many: at most {IMAGE_URLS_MAX} images are fetched per request",
            )
        self.image_urls[path] = url
        return url

    def add_instruction(self, text: str) -> None:
        """Add an instruction to the system message. Many models accept only one such message."""
        if self.messages and self.messages[0]["role"] == "system":
            first = self.messages[0]
            first["content"] = "\n\n".join(part for part in (first["content"], text) if part)
        else:
            self.messages.insert(0, {"role": "system", "content": text})


_ALLOWED_VALUES: Final[Mapping[str, tuple[object, ...]]] = {
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
    "store": "must be false: an answer is stored with its job, which the header `X-Job-Id` names",
}
_SUPPORTED: Final = frozenset({*PASSED_THROUGH, *OPTIONS} - {"max_output_tokens"}) | frozenset(
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
    """Any message. A client can send back the messages of our answers unchanged."""

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


def translate_chat(given: Fields) -> TranslatedRequest:
    """Translate a chat completion. Raises InvalidParameter for what Ollama cannot express."""
    reject_unsupported(given, _SUPPORTED, _ALLOWED_VALUES, _REASONS)
    stream = read_field(given, "stream", bool) or False
    tools = read_field(given, "tools", list[Tool]) or []
    offered = offer([each.function for each in tools], read_field(given, "tool_choice", object))
    parallel: bool | None = read_field(given, "parallel_tool_calls", bool)
    logprobs = read_logprobs(given)
    effort: str | None = read_field(given, "reasoning_effort", str)
    return chat_request(
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
        translator=ChatTranslator(
            include_usage=read_include_usage(given, stream=stream),
            forced=offered.forced,
            one_call=parallel is False,
            logprobs=bool(logprobs),
        ),
    )


def chat_request(
    given: Fields,
    conversation: Conversation,
    tools: Sequence[object],
    offered: ToolOffer,
    *,
    stream: bool,
    choices: int,
    fields: Mapping[str, msgspec.Raw | None],
    translator: AnswerTranslator,
) -> TranslatedRequest:
    """A chat. ``tools`` are the offered tools in Ollama's form. ``fields`` are passed on, except
    those that are None. A forced call sets the format of the answer, in place of any other."""
    request = {name: given[name] for name in PASSED_THROUGH if name in given}
    optional = dict(fields)
    if offered.forced is not None:
        conversation.add_instruction(offered.forced.instruction())
        optional["format"] = raw(offered.forced.format())
    elif tools:
        optional["tools"] = raw(tools)
    options = read_options(given)
    if options:
        optional["options"] = raw(options)
    request["messages"] = raw(conversation.messages)
    request |= {name: value for name, value in optional.items() if value is not None}
    turns = [
        {"options": raw(choice_options(options, at))} if options else {} for at in range(1, choices)
    ]
    return TranslatedRequest("chat", request, translator, stream, turns, conversation.image_urls)


def _conversation(given: Fields) -> Conversation:
    messages = read_field(given, "messages", list[_ChatMessage])
    if not messages:
        raise invalid("messages", "must have at least one message")
    conversation = Conversation()
    for at, message in enumerate(messages):
        _add(conversation, message, f"messages[{at}]")
    return conversation


def _add(conversation: Conversation, given: _ChatMessage, path: str) -> None:
    text, images = _content(conversation, given, path)
    message = conversation.add_message(given.role, text, images, thinking=given.reasoning)
    for at, call in enumerate(given.tool_calls or ()):
        field = f"{path}.tool_calls[{at}].function.arguments"
        conversation.add_call(call.id, call.function.name, call.function.arguments, field)
    if given.tool_call_id is not None:
        conversation.link_to_call(message, given.tool_call_id)


def _content(conversation: Conversation, given: _ChatMessage, path: str) -> tuple[str, list[str]]:
    """The text and the images of a message, which are separate in Ollama's API."""
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
                field = f"{path}.content[{at}].image_url.url"
                images.append(conversation.image(part.image_url.url, field))
    return "\n".join(texts), images


def _as_written(given: Fields, offered: ToolOffer) -> list[msgspec.Raw]:
    """The offered tools, each as it was written."""
    written = read_field(given, "tools", list[msgspec.Raw]) or []
    names = {each.name for each in offered.functions}
    read = msgspec.json.Decoder(Tool).decode
    return [each for each in written if read(each).function.name in names]


def _format(given: Fields) -> msgspec.Raw | None:
    requested = read_field(given, "response_format", _ResponseFormat)
    if requested is None or requested.type == "text":
        return None
    if requested.type == "json_object":
        return msgspec.Raw(b'"json"')
    if requested.json_schema is None:
        raise invalid("response_format.json_schema", "is required with the type json_schema")
    return requested.json_schema.schema
