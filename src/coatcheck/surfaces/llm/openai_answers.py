"""What a target answered, in the shapes that OpenAI's clients expect: whole, or chunk by chunk.

Ids and times are made from the job's, so that everyone who reads the same job, or reads it again,
is answered the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from coatcheck.domain.ids import to_text

_encode: Final = msgspec.json.Encoder().encode

FinishReason = Literal["stop", "length", "tool_calls"]
_NO_NAMESPACE: Final = "library"


class Untranslatable(Exception):
    """What a target said has not the shape of Ollama's answers."""


class Usage(msgspec.Struct, frozen=True):
    """How many tokens were read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Function(msgspec.Struct, frozen=True):
    """A function that the model wants called. ``arguments`` is a JSON object, as text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """One call that the model wants made."""

    id: str
    function: Function
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True):
    """What the model said."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCall] | UnsetType = UNSET


class Choice(msgspec.Struct, frozen=True):
    """The one answer that there is."""

    message: Message
    finish_reason: FinishReason
    index: int = 0
    logprobs: None = None


class Completion(msgspec.Struct, frozen=True):
    """A whole answer."""

    id: str
    created: int
    model: str
    choices: Sequence[Choice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"


class ToolCallDelta(msgspec.Struct, frozen=True):
    """One call, whole: targets send none in parts."""

    index: int
    id: str
    function: Function
    type: Literal["function"] = "function"


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCallDelta] | UnsetType = UNSET


class DeltaChoice(msgspec.Struct, frozen=True):
    """What is new of the one answer that there is."""

    delta: Delta
    finish_reason: FinishReason | None
    index: int = 0
    logprobs: None = None


class Chunk(msgspec.Struct, frozen=True):
    """A part of an answer."""

    id: str
    created: int
    model: str
    choices: Sequence[DeltaChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | UnsetType | None = UNSET


class Model(msgspec.Struct, frozen=True):
    """A model that can be asked for."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct, frozen=True):
    """The models that there are."""

    data: Sequence[Model]
    object: Literal["list"] = "list"


class _NativeFunction(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _NativeCall(msgspec.Struct):
    function: _NativeFunction
    id: str | None = None


class _NativeMessage(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_NativeCall] | None = None


class _Native(msgspec.Struct):
    """An object of a target's, of a stream or whole: of a chat, or of a generation."""

    model: str | None = None
    message: _NativeMessage | None = None
    response: str | None = None
    thinking: str | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None

    @property
    def text(self) -> str:
        said = self.response if self.message is None else self.message.content
        return said or ""

    @property
    def thoughts(self) -> str:
        thought = self.thinking if self.message is None else self.message.thinking
        return thought or ""

    @property
    def calls(self) -> Sequence[_NativeCall]:
        return (None if self.message is None else self.message.tool_calls) or ()

    @property
    def usage(self) -> Usage:
        read, written = self.prompt_eval_count or 0, self.eval_count or 0
        return Usage(read, written, read + written)


_decode: Final = msgspec.json.Decoder(_Native).decode


def _read(data: bytes) -> _Native:
    try:
        return _decode(data)
    except msgspec.ValidationError as error:
        raise Untranslatable from error


class ChunkMaker:
    """Makes chunks of the objects of one attempt's stream, in their order, from its first on."""

    def __init__(self, job: UUID, model: str, *, include_usage: bool) -> None:
        self._job = job
        self._model = model
        self._include_usage = include_usage
        self._calls = 0
        self._is_first = True

    def chunks(self, data: bytes) -> list[bytes]:
        """What to send for one object: a chunk, and after the last one the usage, if asked for.

        Raises Untranslatable.
        """
        native = _read(data)
        chunks = [self._chunk(native, [DeltaChoice(self._delta(native), self._finish(native))])]
        if native.done and self._include_usage:
            chunks.append(self._chunk(native, [], native.usage))
        return [_encode(chunk) for chunk in chunks]

    def _chunk(
        self, native: _Native, choices: Sequence[DeltaChoice], usage: Usage | None = None
    ) -> Chunk:
        return Chunk(
            completion_id(self._job),
            created_seconds(self._job),
            native.model or self._model,
            choices,
            usage=usage if self._include_usage else UNSET,
        )

    def _delta(self, native: _Native) -> Delta:
        text: str | UnsetType = native.text or UNSET
        role: Literal["assistant"] | UnsetType = UNSET
        if self._is_first:
            self._is_first = False
            role, text = "assistant", native.text
        calls = [
            ToolCallDelta(at, *_called(self._job, at, call))
            for at, call in enumerate(native.calls, self._calls)
        ]
        self._calls += len(calls)
        return Delta(role, text, native.thoughts or UNSET, calls or UNSET)

    def _finish(self, native: _Native) -> FinishReason | None:
        return _finish_reason(native, called=self._calls > 0) if native.done else None


def completion(job: UUID, model: str, data: bytes) -> Completion:
    """A target's whole answer as a chat completion. Raises Untranslatable."""
    native = _read(data)
    calls = [ToolCall(*_called(job, at, call)) for at, call in enumerate(native.calls)]
    message = Message(
        # Whoever only calls says nothing.
        content=None if calls and not native.text else native.text,
        reasoning=native.thoughts or UNSET,
        tool_calls=calls or UNSET,
    )
    return Completion(
        completion_id(job),
        created_seconds(job),
        native.model or model,
        [Choice(message, _finish_reason(native, called=bool(calls)))],
        native.usage,
    )


def model_list(models: Sequence[Mapping[str, Any]]) -> ModelList:
    """The models that targets list, as their ``/api/tags`` shows each."""
    return ModelList([_model(each) for each in models])


def completion_id(job: UUID) -> str:
    return f"chatcmpl-{to_text(job)}"


def created_seconds(job: UUID) -> int:
    """When the job was handed in: its id begins with that."""
    return (job.int >> 80) // 1000


def _called(job: UUID, at: int, call: _NativeCall) -> tuple[str, Function]:
    """A call's id, the target's or one of our own, and what is called."""
    arguments = bytes(call.function.arguments).decode()
    return call.id or f"call_{to_text(job)}_{at}", Function(call.function.name, arguments)


def _finish_reason(native: _Native, *, called: bool) -> FinishReason:
    if called:
        return "tool_calls"
    return "length" if native.done_reason == "length" else "stop"


def _model(listed: Mapping[str, Any]) -> Model:
    name = str(listed.get("name") or listed.get("model") or "")
    namespace, slash, _ = name.rpartition("/")
    return Model(name, _seconds(listed.get("modified_at")), namespace if slash else _NO_NAMESPACE)


def _seconds(moment: object) -> int:
    try:
        return int(datetime.fromisoformat(str(moment)).timestamp())
    except (ValueError, OverflowError):
        return 0
