"""Translates a target's answer into chat completions: whole, or chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, Literal, Protocol
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from coatcheck.domain.ids import to_text
from coatcheck.products.llm.openai.native import (
    ChoiceReader,
    FinishReason,
    FunctionCall,
    NativeOutput,
    TokenCounts,
    TokenLogprob,
    created_seconds,
    read_native,
    tokens_of,
    whole_choice,
)
from coatcheck.products.llm.openai.tools import ForcedCall
from coatcheck.products.llm.problem_formats import openai_error

KEEP_ALIVE: Final = b": still here\n"
"""A comment without an empty line after it. Once any event had an id, the openai package takes an
empty line for the end of an event without data, and fails to read that."""
_DONE: Final = b"data: [DONE]\n\n"
_encode: Final = msgspec.json.Encoder().encode


class EventMaker(Protocol):
    """Translates the objects of one attempt's stream into events, in order, from the first."""

    def events(self, data: bytes) -> list[bytes]:
        """The events for one object; none if it adds nothing. Raises Untranslatable."""

    def end(self) -> list[bytes]:
        """The events after the last object."""


class ServerSentEvents:
    """A stream that ends with ``[DONE]``."""

    media_type = b"text/event-stream"

    def __init__(self, make: Callable[[], EventMaker]) -> None:
        self._make = make
        self._maker = make()

    def output(self, seq: int | None, data: bytes) -> bytes:
        events = self._maker.events(data)
        if seq is not None and events:
            # The last event has the id: a client that has it has all of them.
            events[-1] = b"id: %d\n" % seq + events[-1]
        return b"".join(events)

    def restart(self) -> None:
        self._maker = self._make()

    def idle(self) -> bytes:
        return KEEP_ALIVE

    def error(self, status: HTTPStatus, code: str, message: str) -> bytes:
        return data_event({"error": openai_error(status, code, message)})

    def end(self) -> bytes:
        return b"".join([*self._maker.end(), _DONE])


def data_event(value: object) -> bytes:
    """An event without a name."""
    return b"data: %b\n\n" % _encode(value)


_NO_NAMESPACE: Final = "library"


class CompletionUsage(msgspec.Struct, frozen=True):
    """How many tokens were read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Function(msgspec.Struct, frozen=True):
    """A function that the model wants called. ``arguments`` is a JSON object, as text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call of the model."""

    id: str
    function: Function
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True):
    """A message of the model."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCall] | UnsetType = UNSET


class Logprobs(msgspec.Struct, frozen=True):
    """The log probability of each token of the text."""

    content: Sequence[TokenLogprob]
    refusal: None = None


class CompletionChoice(msgspec.Struct, frozen=True):
    """One answer."""

    message: Message
    finish_reason: FinishReason
    index: int = 0
    logprobs: Logprobs | None = None


class ChatCompletion(msgspec.Struct, frozen=True):
    """A whole answer."""

    id: str
    created: int
    model: str
    choices: Sequence[CompletionChoice]
    usage: CompletionUsage
    object: Literal["chat.completion"] = "chat.completion"


class FunctionDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The new part of a call: its function at the beginning, then more of the arguments."""

    arguments: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class ToolCallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call, or the new part of one that has begun."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The new part of a message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: Sequence[ToolCallDelta] | UnsetType = UNSET


class DeltaChoice(msgspec.Struct, frozen=True):
    """The new part of one answer."""

    delta: Delta
    finish_reason: FinishReason | None
    index: int = 0
    logprobs: Logprobs | None = None


class CompletionChunk(msgspec.Struct, frozen=True):
    """A part of an answer."""

    id: str
    created: int
    model: str
    choices: Sequence[DeltaChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: CompletionUsage | UnsetType | None = UNSET


class Model(msgspec.Struct, frozen=True):
    """A model that a target lists."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct, frozen=True):
    """The models of all targets."""

    data: Sequence[Model]
    object: Literal["list"] = "list"


@dataclass(frozen=True, slots=True)
class ChatTranslator:
    """Translates the answer to one chat completion request.

    ``forced``: the answer is a call. ``one_call``: it has at most one.
    """

    include_usage: bool = False
    forced: ForcedCall | None = None
    one_call: bool = False
    logprobs: bool = False

    def whole(self, job: UUID, model: str, data: bytes) -> ChatCompletion:
        """A target's whole answer as a chat completion. Raises Untranslatable."""
        native = read_native(data)
        choices = [
            _choice(at, whole_choice(self.reader(job, at), each))
            for at, each in enumerate(native.choices)
        ]
        return ChatCompletion(
            completion_id(job),
            created_seconds(job),
            native.model or model,
            choices,
            usage_of(tokens_of(native.choices)),
        )

    def framing(self, job: UUID, model: str) -> ServerSentEvents:
        return ServerSentEvents(lambda: ChunkMaker(job, model, self))

    def reader(self, job: UUID, choice: int) -> ChoiceReader:
        return ChoiceReader(
            job, choice, forced=self.forced, one_call=self.one_call, logprobs=self.logprobs
        )


class ChunkMaker:
    """Translates the objects of one attempt's stream into chunks, in order, from the first."""

    def __init__(self, job: UUID, model: str, translator: ChatTranslator) -> None:
        self._job = job
        self._model = model
        self._translator = translator
        self._tokens = TokenCounts()
        self._choice = 0
        self._begin_choice()

    def events(self, data: bytes) -> list[bytes]:
        """The events for one object. Raises Untranslatable."""
        native = read_native(data)
        self._model = native.model or self._model
        output = self._reader.read(native)
        delta = self._delta(output)
        logprobs = Logprobs(output.logprobs) if output.logprobs else None
        choice = DeltaChoice(delta, output.finish, self._choice, logprobs)
        if native.done:
            self._tokens.add(native)
            self._choice += 1
            self._begin_choice()
        elif delta == _NOTHING_NEW and logprobs is None:
            return []
        return [data_event(self._chunk([choice]))]

    def end(self) -> list[bytes]:
        """The event with the usage, if it was requested."""
        if not self._translator.include_usage:
            return []
        return [data_event(self._chunk([], usage_of(self._tokens)))]

    def _begin_choice(self) -> None:
        self._reader = self._translator.reader(self._job, self._choice)
        self._is_first = True
        self._calls = 0

    def _chunk(
        self, choices: Sequence[DeltaChoice], usage: CompletionUsage | None = None
    ) -> CompletionChunk:
        return CompletionChunk(
            completion_id(self._job),
            created_seconds(self._job),
            self._model,
            choices,
            usage=usage if self._translator.include_usage else UNSET,
        )

    def _delta(self, output: NativeOutput) -> Delta:
        text: str | UnsetType = output.text or UNSET
        role: Literal["assistant"] | UnsetType = UNSET
        if self._is_first:
            self._is_first = False
            role, text = "assistant", output.text
        return Delta(role, text, output.thoughts or UNSET, self._call_deltas(output) or UNSET)

    def _call_deltas(self, output: NativeOutput) -> list[ToolCallDelta]:
        """Whole calls, or the new part of a forced call."""
        calls = [_begun(at, call) for at, call in enumerate(output.calls, self._calls)]
        self._calls += len(calls)
        if output.call is not None:
            calls.append(
                _begun(0, msgspec.structs.replace(output.call, arguments=output.arguments))
            )
        elif output.arguments:
            calls.append(ToolCallDelta(0, FunctionDelta(output.arguments)))
        return calls


_NOTHING_NEW: Final = Delta()


def usage_of(tokens: TokenCounts) -> CompletionUsage:
    return CompletionUsage(tokens.read, tokens.written, tokens.read + tokens.written)


def completion_id(job: UUID) -> str:
    return f"chatcmpl-{to_text(job)}"


def model_list(models: Sequence[Mapping[str, Any]]) -> ModelList:
    """OpenAI's list of the models that targets list at ``/api/tags``."""
    return ModelList([_model(each) for each in models])


def _choice(at: int, output: NativeOutput) -> CompletionChoice:
    calls = [ToolCall(each.id, Function(each.name, each.arguments)) for each in output.calls]
    message = Message(
        # A message with calls and no text has no content.
        content=None if calls and not output.text else output.text,
        reasoning=output.thoughts or UNSET,
        tool_calls=calls or UNSET,
    )
    assert output.finish is not None, "a whole answer has ended"
    return CompletionChoice(
        message, output.finish, at, Logprobs(output.logprobs) if output.logprobs else None
    )


def _begun(at: int, call: FunctionCall) -> ToolCallDelta:
    return ToolCallDelta(at, FunctionDelta(call.arguments, call.name), call.id, "function")


def _model(listed: Mapping[str, Any]) -> Model:
    name = str(listed.get("name") or listed.get("model") or "")
    namespace, slash, _ = name.rpartition("/")
    return Model(name, _seconds(listed.get("modified_at")), namespace if slash else _NO_NAMESPACE)


def _seconds(moment: object) -> int:
    try:
        return int(datetime.fromisoformat(str(moment)).timestamp())
    except (ValueError, OverflowError):
        return 0
