"""Reads a target's answer, for its translation into OpenAI's formats.

Ids and times are derived from the job's, so that every read of a job gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, Literal
from uuid import UUID

import msgspec

from coatcheck.domain.ids import to_text
from coatcheck.products.llm.openai.tools import CallReader, ForcedCall

FinishReason = Literal["stop", "length", "tool_calls"]


class Untranslatable(Exception):
    """A target's answer does not have the shape of Ollama's answers."""

    code: ClassVar[str] = "target_answer_invalid"
    reason: ClassVar[str] = "The target's answer does not have the shape of Ollama's answers"


class NotCalled(Untranslatable):
    """A model that had to call a function answered something else."""

    code = "tool_not_called"
    reason = (
        "The model did not make the call that tool_choice requires; use a target that follows a "
        "JSON schema in `format`, or a tool_choice of auto"
    )


class NoLogprobs(Untranslatable):
    """A target returned no log probabilities, though they were requested."""

    code = "logprobs_not_supported"
    reason = (
        "The target returned no log probabilities: it needs Ollama 0.12.11 or later; omit "
        "logprobs, or use another target"
    )


class Logprob(msgspec.Struct, frozen=True):
    """A token and its log probability."""

    token: str
    logprob: float
    bytes: Sequence[int] | None = None


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token of the answer, and the alternatives to it."""

    token: str
    logprob: float
    bytes: Sequence[int] | None = None
    top_logprobs: Sequence[Logprob] = ()


class NativeFunction(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class NativeCall(msgspec.Struct):
    function: NativeFunction
    id: str | None = None


class _NativeMessage(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[NativeCall] | None = None


class Native(msgspec.Struct):
    """An object of a target's answer: of a stream or whole, of a chat or a completion."""

    model: str | None = None
    message: _NativeMessage | None = None
    response: str | None = None
    thinking: str | None = None
    logprobs: list[TokenLogprob] | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    other_choices: list[Native] | None = None
    embeddings: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Set in the answer of an embedding: an idempotency key may lead to any job."""

    @property
    def text(self) -> str:
        output = self.response if self.message is None else self.message.content
        return output or ""

    @property
    def thoughts(self) -> str:
        thoughts = self.thinking if self.message is None else self.message.thinking
        return thoughts or ""

    @property
    def calls(self) -> Sequence[NativeCall]:
        return (None if self.message is None else self.message.tool_calls) or ()

    @property
    def is_cut_off(self) -> bool:
        return self.done_reason == "length"

    @property
    def choices(self) -> Sequence[Native]:
        """This answer and the others that the same job asked for."""
        return [self, *(self.other_choices or ())]


class FunctionCall(msgspec.Struct, frozen=True):
    """A function call of a model. ``arguments`` is a JSON object, as text."""

    id: str
    name: str
    arguments: str


class TokenCounts(msgspec.Struct):
    """How many tokens were read and written, by all answers of a job."""

    read: int = 0
    written: int = 0

    def add(self, native: Native) -> None:
        self.read += native.prompt_eval_count or 0
        self.written += native.eval_count or 0


def tokens_of(natives: Iterable[Native]) -> TokenCounts:
    tokens = TokenCounts()
    for each in natives:
        tokens.add(each)
    return tokens


decode_native: Final = msgspec.json.Decoder(Native).decode


def read_native(data: bytes) -> Native:
    """Raises Untranslatable."""
    try:
        native = decode_native(data)
    except msgspec.ValidationError as error:
        raise Untranslatable from error
    if not isinstance(native.embeddings, msgspec.UnsetType):
        raise Untranslatable
    return native


class NativeOutput(msgspec.Struct, frozen=True):
    """The part that one object adds to an answer.

    ``calls`` are whole calls. A forced call comes in parts: ``call`` is one that has just begun,
    ``arguments`` the new part of its arguments.
    """

    text: str
    thoughts: str
    calls: Sequence[FunctionCall] = ()
    call: FunctionCall | None = None
    arguments: str = ""
    logprobs: Sequence[TokenLogprob] = ()
    finish: FinishReason | None = None


class ChoiceReader:
    """Reads the objects of one answer, in order."""

    def __init__(
        self,
        job: UUID,
        choice: int,
        *,
        forced: ForcedCall | None = None,
        one_call: bool = False,
        logprobs: bool = False,
    ) -> None:
        self._job = job
        self._choice = choice
        self._call = None if forced is None else CallReader(forced)
        self._call_begun = False
        self._one_call = one_call
        self._logprobs = logprobs
        self._has_logprobs = False
        self._has_text = False
        self._calls = 0

    def read(self, native: Native) -> NativeOutput:
        """Raises Untranslatable."""
        calls = self._whole_calls(native)
        if self._call is not None:
            return self._read_forced(native, self._call, calls)
        self._has_text = self._has_text or bool(native.text)
        self._has_logprobs = self._has_logprobs or bool(native.logprobs)
        if native.done and self._logprobs and self._has_text and not self._has_logprobs:
            raise NoLogprobs
        return NativeOutput(
            native.text,
            native.thoughts,
            calls,
            logprobs=(native.logprobs or ()) if self._logprobs else (),
            finish=self._finish(native, called=self._calls > 0),
        )

    def _whole_calls(self, native: Native) -> Sequence[FunctionCall]:
        """The calls in the target's own form. If only one at a time is requested, the first of
        several is kept: the model makes the others once it has the result of that one."""
        given = native.calls
        if self._one_call:
            given = given[: max(0, 1 - self._calls)]
        calls = [_called(self._id(at, each.id), each) for at, each in enumerate(given, self._calls)]
        self._calls += len(calls)
        return calls

    def _read_forced(
        self, native: Native, reader: CallReader, calls: Sequence[FunctionCall]
    ) -> NativeOutput:
        if self._calls:  # the model called by itself: its text is not a call
            finish = self._finish(native, called=True)
            return NativeOutput("", native.thoughts, calls, finish=finish)
        arguments = reader.read(native.text)
        if native.done:
            rest = reader.end()
            if rest is None and not native.is_cut_off:
                raise NotCalled
            arguments += rest or ""
        call = None
        if reader.name is not None and not self._call_begun:
            self._call_begun = True
            call = FunctionCall(self._id(0, None), reader.name, "")
        finish = self._finish(native, called=not native.is_cut_off)
        return NativeOutput("", native.thoughts, call=call, arguments=arguments, finish=finish)

    def _finish(self, native: Native, *, called: bool) -> FinishReason | None:
        if not native.done:
            return None
        if called:
            return "tool_calls"
        return "length" if native.is_cut_off else "stop"

    def _id(self, at: int, given: str | None) -> str:
        """A call's id: the target's, or one derived from the job's."""
        choice = f"_{self._choice}" if self._choice else ""
        return given or f"call_{to_text(self._job)}{choice}_{at}"


def whole_choice(reader: ChoiceReader, native: Native) -> NativeOutput:
    """A whole answer: its calls are whole, even a forced one. Raises Untranslatable."""
    # A whole answer is done, even if the target does not say so.
    output = reader.read(msgspec.structs.replace(native, done=True))
    if output.call is None:
        return output
    call = msgspec.structs.replace(output.call, arguments=output.arguments)
    return msgspec.structs.replace(output, calls=[call], call=None, arguments="")


def _called(call_id: str, call: NativeCall) -> FunctionCall:
    return FunctionCall(call_id, call.function.name, bytes(call.function.arguments).decode())


def created_seconds(job: UUID) -> int:
    """When the job was submitted, which is the beginning of its id."""
    return (job.int >> 80) // 1000
