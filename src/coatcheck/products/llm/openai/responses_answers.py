"""Translates a target's answer into OpenAI's Responses API: items, whole or event by event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal, Self
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from coatcheck.domain.ids import to_text
from coatcheck.products.llm.openai.answers import KEEP_ALIVE
from coatcheck.products.llm.openai.fields import Fields
from coatcheck.products.llm.openai.native import (
    ChoiceReader,
    FunctionCall,
    Native,
    NativeOutput,
    TokenLogprob,
    created_seconds,
    read_native,
    whole_choice,
)
from coatcheck.products.llm.openai.tools import ForcedCall

_encode: Final = msgspec.json.Encoder().encode

ItemStatus = Literal["in_progress", "completed", "incomplete"]
_ECHOED: Final = (
    *("instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning"),
    *("temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
)


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """A text of the model."""

    text: str
    annotations: Sequence[Any] = ()
    logprobs: Sequence[TokenLogprob] = ()


class SummaryText(msgspec.Struct, frozen=True, tag_field="type", tag="summary_text"):
    """A text of the model's reasoning."""

    text: str


class MessageItem(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """A message of the model."""

    id: str
    status: ItemStatus
    content: Sequence[OutputText]
    role: Literal["assistant"] = "assistant"


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    """The model's reasoning, which comes before its answer."""

    id: str
    summary: Sequence[SummaryText]
    status: ItemStatus


class FunctionCallItem(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    """A function that the model wants called. ``arguments`` is a JSON object, as text."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


Item = MessageItem | ReasoningItem | FunctionCallItem


class InputTokens(msgspec.Struct, frozen=True):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokens(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True):
    """How many tokens were read and written. Targets do not say how many were reasoning."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokens = InputTokens()
    output_tokens_details: OutputTokens = OutputTokens()


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class RequestEcho(msgspec.Struct, frozen=True):
    """The fields of the request that the response repeats."""

    given: Mapping[str, Any]

    @classmethod
    def read(cls, fields: Fields) -> Self:
        return cls({name: msgspec.json.decode(fields[name]) for name in _ECHOED if name in fields})

    def get(self, name: str, default: Any = None) -> Any:
        value = self.given.get(name)
        return default if value is None else value


class ResponseObject(msgspec.Struct, frozen=True):
    """An answer, and fields of its request. ``output`` has its items."""

    id: str
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete"]
    output: Sequence[Item]
    instructions: str | None
    max_output_tokens: int | None
    metadata: Any
    parallel_tool_calls: bool
    reasoning: Any
    temperature: float | None
    text: Any
    tool_choice: Any
    tools: Any
    top_logprobs: int
    top_p: float | None
    truncation: str
    user: str | None
    usage: ResponseUsage | None
    completed_at: int | UnsetType = UNSET
    incomplete_details: IncompleteDetails | None = None
    error: None = None
    background: bool = False
    previous_response_id: None = None
    service_tier: Literal["default"] = "default"
    store: bool = False
    object: Literal["response"] = "response"


@dataclass(frozen=True, slots=True)
class ResponseTranslator:
    """Translates the answer to one response request."""

    echo: RequestEcho
    forced: ForcedCall | None = None
    one_call: bool = False
    logprobs: bool = False

    def whole(self, job: UUID, model: str, data: bytes, /) -> ResponseObject:
        native = read_native(data)
        output = whole_choice(self.reader(job), native)
        items = _Items(job)
        for _ in items.add(output):
            pass
        for _ in items.end(cut_off=output.finish == "length"):
            pass
        return self.response(job, native.model or model, items.done, native)

    def framing(self, job: UUID, model: str, /) -> ResponseEvents:
        return ResponseEvents(job, model, self)

    def reader(self, job: UUID) -> ChoiceReader:
        return ChoiceReader(
            job, 0, forced=self.forced, one_call=self.one_call, logprobs=self.logprobs
        )

    def response(
        self, job: UUID, model: str, output: Sequence[Item], end: Native | None = None
    ) -> ResponseObject:
        """The response so far; ``end`` is the target's last object."""
        echo = self.echo.get
        is_cut_off = end is not None and end.is_cut_off
        usage = None
        if end is not None:
            read, written = end.prompt_eval_count or 0, end.eval_count or 0
            usage = ResponseUsage(read, written, read + written)
        return ResponseObject(
            id=response_id(job),
            created_at=created_seconds(job),
            model=model,
            status="in_progress" if end is None else "incomplete" if is_cut_off else "completed",
            output=output,
            instructions=echo("instructions"),
            max_output_tokens=echo("max_output_tokens"),
            metadata=echo("metadata", {}),
            parallel_tool_calls=echo("parallel_tool_calls", True),
            reasoning={"effort": None, "summary": None} | echo("reasoning", {}),
            temperature=echo("temperature"),
            text={"format": {"type": "text"}} | echo("text", {}),
            tool_choice=echo("tool_choice", "auto"),
            tools=echo("tools", []),
            top_logprobs=echo("top_logprobs", 0),
            top_p=echo("top_p"),
            truncation=echo("truncation", "auto"),
            user=echo("user"),
            usage=usage,
            incomplete_details=IncompleteDetails() if is_cut_off else None,
        )


def response_id(job: UUID) -> str:
    return f"resp_{to_text(job)}"


Event = tuple[str, Mapping[str, Any]]
"""The type of an event, and its other fields."""


class _Items:
    """The items of one response, as they come. The generators yield the events of their growth."""

    def __init__(self, job: UUID) -> None:
        self._job = job
        self.done: list[Item] = []
        self._text: list[str] | None = None
        self._thoughts: list[str] | None = None
        self._arguments: list[str] | None = None
        self._call: FunctionCall | None = None
        self._logprobs: list[TokenLogprob] = []

    def add(self, output: NativeOutput) -> Iterator[Event]:
        """Add output of the target."""
        if output.thoughts:
            yield from self._add_thoughts(output.thoughts)
        if output.text:
            yield from self._add_text(output.text, output.logprobs)
        for call in output.calls:
            yield from self._begin_call(call)
            yield from self._add_arguments(call.arguments)
        if output.call is not None:
            yield from self._begin_call(output.call)
        if output.arguments:
            yield from self._add_arguments(output.arguments)

    def end(self, *, cut_off: bool) -> Iterator[Event]:
        """Close the last item."""
        status: ItemStatus = "incomplete" if cut_off else "completed"
        if not self.done and not self._is_open:
            yield from self._add_text("", ())  # an empty answer has an item too
        yield from self._close(status)

    @property
    def _is_open(self) -> bool:
        return not (self._text is None and self._thoughts is None and self._call is None)

    def _add_thoughts(self, thoughts: str) -> Iterator[Event]:
        if self._thoughts is None:
            yield from self._close("completed")
            self._thoughts = []
            yield from self._added(ReasoningItem(self._id("rs"), [], "in_progress"))
            part = {"summary_index": 0, "part": SummaryText("")}
            yield "response.reasoning_summary_part.added", self._of_item("rs", part)
        self._thoughts.append(thoughts)
        new = {"summary_index": 0, "delta": thoughts}
        yield "response.reasoning_summary_text.delta", self._of_item("rs", new)

    def _add_text(self, text: str, logprobs: Sequence[TokenLogprob]) -> Iterator[Event]:
        if self._text is None:
            yield from self._close("completed")
            self._text, self._logprobs = [], []
            yield from self._added(MessageItem(self._id("msg"), "in_progress", []))
            part = {"content_index": 0, "part": OutputText("")}
            yield "response.content_part.added", self._of_item("msg", part)
        self._text.append(text)
        self._logprobs += logprobs
        new = {"content_index": 0, "delta": text, "logprobs": logprobs}
        yield "response.output_text.delta", self._of_item("msg", new)

    def _begin_call(self, call: FunctionCall) -> Iterator[Event]:
        yield from self._close("completed")
        self._call, self._arguments = call, []
        yield from self._added(self._call_item(call, "", "in_progress"))

    def _add_arguments(self, arguments: str) -> Iterator[Event]:
        assert self._arguments is not None, "a call has begun"
        self._arguments.append(arguments)
        yield "response.function_call_arguments.delta", self._of_item("fc", {"delta": arguments})

    def _close(self, status: ItemStatus) -> Iterator[Event]:
        """Close the open item."""
        item: Item
        if self._thoughts is not None:
            text, self._thoughts = "".join(self._thoughts), None
            whole = {"summary_index": 0, "text": text}
            yield "response.reasoning_summary_text.done", self._of_item("rs", whole)
            part = {"summary_index": 0, "part": SummaryText(text)}
            yield "response.reasoning_summary_part.done", self._of_item("rs", part)
            item = ReasoningItem(self._id("rs"), [SummaryText(text)], status)
        elif self._text is not None:
            text, self._text = "".join(self._text), None
            whole = {"content_index": 0, "text": text, "logprobs": self._logprobs}
            yield "response.output_text.done", self._of_item("msg", whole)
            output = OutputText(text, logprobs=self._logprobs)
            part = {"content_index": 0, "part": output}
            yield "response.content_part.done", self._of_item("msg", part)
            item = MessageItem(self._id("msg"), status, [output])
        elif self._call is not None and self._arguments is not None:
            call, arguments = self._call, "".join(self._arguments)
            self._call = self._arguments = None
            whole = {"name": call.name, "arguments": arguments}
            yield "response.function_call_arguments.done", self._of_item("fc", whole)
            item = self._call_item(call, arguments, status)
        else:
            return
        yield "response.output_item.done", {"output_index": len(self.done), "item": item}
        self.done.append(item)

    def _added(self, item: Item) -> Iterator[Event]:
        yield "response.output_item.added", {"output_index": len(self.done), "item": item}

    def _call_item(
        self, call: FunctionCall, arguments: str, status: ItemStatus
    ) -> FunctionCallItem:
        return FunctionCallItem(self._id("fc"), call.id, call.name, arguments, status)

    def _of_item(self, kind: str, what: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"item_id": self._id(kind), "output_index": len(self.done), **what}

    def _id(self, kind: str) -> str:
        return f"{kind}_{to_text(self._job)}_{len(self.done)}"


class ResponseEvents:
    """The stream of a response: named events, numbered from 0. Stored chunks have an id."""

    media_type = b"text/event-stream"

    def __init__(self, job: UUID, model: str, translator: ResponseTranslator) -> None:
        self._job = job
        self._model = model
        self._translator = translator
        self.restart()

    def restart(self) -> None:
        self._reader = self._translator.reader(self._job)
        self._items = _Items(self._job)
        self._begun = False
        self._ended = False
        self._events = 0

    def output(self, seq: int | None, data: bytes) -> bytes:
        if self._ended:  # a response has one answer, even if an idempotency key leads to several
            return b""
        native = read_native(data)
        self._model = native.model or self._model
        output = self._reader.read(native)
        events = [self._next(*each) for each in self._translate(native, output)]
        if seq is not None and events:
            # The last event has the id: a client that has it has all of them.
            events[-1] = b"id: %d\n" % seq + events[-1]
        return b"".join(events)

    def idle(self) -> bytes:
        return KEEP_ALIVE

    def error(self, _: HTTPStatus, code: str, message: str) -> bytes:
        what = {"code": code, "message": message, "param": None}
        return _event("error", self._events, what)

    def end(self) -> bytes:
        return b""

    def _translate(self, native: Native, output: NativeOutput) -> Iterator[Event]:
        if not self._begun:
            self._begun = True
            begun = self._translator.response(self._job, self._model, [])
            yield "response.created", {"response": begun}
            yield "response.in_progress", {"response": begun}
        yield from self._items.add(output)
        if native.done:
            self._ended = True
            yield from self._items.end(cut_off=native.is_cut_off)
            whole = self._translator.response(self._job, self._model, self._items.done, native)
            yield f"response.{whole.status}", {"response": whole}

    def _next(self, name: str, what: Mapping[str, Any]) -> bytes:
        event = _event(name, self._events, what)
        self._events += 1
        return event


def _event(name: str, number: int, what: Mapping[str, Any]) -> bytes:
    data = _encode({"type": name, "sequence_number": number, **what})
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
