"""OpenAI's older completions API, translated to a target's ``/api/generate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from coatcheck.domain.ids import to_text
from coatcheck.products.llm.model import CHOICES_MAX
from coatcheck.products.llm.openai.answers import (
    CompletionUsage,
    ServerSentEvents,
    data_event,
    usage_of,
)
from coatcheck.products.llm.openai.fields import (
    OPTIONS,
    PASSED_THROUGH,
    Fields,
    TranslatedRequest,
    choice_options,
    invalid,
    logprobs_fields,
    raw,
    read_choices,
    read_field,
    read_include_usage,
    read_options,
    read_texts,
    reject_unsupported,
)
from coatcheck.products.llm.openai.native import (
    ChoiceReader,
    FinishReason,
    NativeOutput,
    TokenCounts,
    TokenLogprob,
    created_seconds,
    read_native,
    tokens_of,
    whole_choice,
)

_OLLAMA_FIELDS: Final = ("format", "raw", "system", "template", "think")
"""Ollama's fields that are passed through."""
_SUPPORTED: Final = frozenset({*PASSED_THROUGH, *OPTIONS, *_OLLAMA_FIELDS}) - {
    "max_completion_tokens",
    "max_output_tokens",
} | frozenset(
    {
        "best_of",
        "echo",
        "logprobs",
        "n",
        "options",
        "prompt",
        "stop",
        "stream",
        "stream_options",
        "suffix",
    }
)
_ALLOWED_VALUES: Final[Mapping[str, tuple[object, ...]]] = {"logit_bias": ({},)}
_LOGPROBS_MAX: Final = 5


class TextLogprobs(msgspec.Struct, frozen=True):
    """How likely each token was, and where it begins in the text."""

    tokens: Sequence[str]
    token_logprobs: Sequence[float]
    top_logprobs: Sequence[Mapping[str, float]] | None
    text_offset: Sequence[int]


class TextChoice(msgspec.Struct, frozen=True):
    """One answer, or the new part of it."""

    text: str
    index: int
    finish_reason: FinishReason | None
    logprobs: TextLogprobs | None = None
    reasoning: str | UnsetType = UNSET


class TextCompletion(msgspec.Struct, frozen=True):
    """A whole answer, or a part of it."""

    id: str
    created: int
    model: str
    choices: Sequence[TextChoice]
    object: Literal["text_completion"] = "text_completion"
    usage: CompletionUsage | UnsetType | None = UNSET


@dataclass(frozen=True, slots=True)
class TextTranslator:
    """Translates the answer to one completion request. ``echoes`` precede the texts, one for each
    answer."""

    echoes: Sequence[str] = ()
    include_usage: bool = False
    logprobs: bool = False

    def whole(self, job: UUID, model: str, data: bytes) -> TextCompletion:
        native = read_native(data)
        choices = []
        for at, each in enumerate(native.choices):
            output = whole_choice(self.reader(job, at), each)
            choices.append(_choice(at, output, self.echo(at), offset=0))
        return TextCompletion(
            _id(job),
            created_seconds(job),
            native.model or model,
            choices,
            usage=usage_of(tokens_of(native.choices)),
        )

    def framing(self, job: UUID, model: str) -> ServerSentEvents:
        return ServerSentEvents(lambda: _TextMaker(job, model, self))

    def reader(self, job: UUID, choice: int) -> ChoiceReader:
        return ChoiceReader(job, choice, logprobs=self.logprobs)

    def echo(self, choice: int) -> str:
        return self.echoes[choice] if choice < len(self.echoes) else ""


class _TextMaker:
    """Translates the objects of one attempt's stream into parts of an answer."""

    def __init__(self, job: UUID, model: str, translator: TextTranslator) -> None:
        self._job = job
        self._model = model
        self._translator = translator
        self._tokens = TokenCounts()
        self._choice = 0
        self._echo = ""
        self._offset = 0
        self._begin_choice()

    def events(self, data: bytes) -> list[bytes]:
        native = read_native(data)
        self._model = native.model or self._model
        output = self._reader.read(native)
        choice = _choice(self._choice, output, self._echo, offset=self._offset)
        self._echo = ""
        self._offset += len(choice.text)
        if native.done:
            self._tokens.add(native)
            self._choice += 1
            self._begin_choice()
        return [data_event(self._part([choice]))]

    def end(self) -> list[bytes]:
        if not self._translator.include_usage:
            return []
        return [data_event(self._part([], usage_of(self._tokens)))]

    def _begin_choice(self) -> None:
        self._reader = self._translator.reader(self._job, self._choice)
        self._echo = self._translator.echo(self._choice)
        self._offset = 0

    def _part(
        self, choices: Sequence[TextChoice], usage: CompletionUsage | None = None
    ) -> TextCompletion:
        return TextCompletion(
            _id(self._job),
            created_seconds(self._job),
            self._model,
            choices,
            usage=usage if self._translator.include_usage else UNSET,
        )


def translate_completion(given: Fields) -> TranslatedRequest:
    """Translate a completion request. Raises InvalidParameter for what Ollama cannot express."""
    reject_unsupported(given, _SUPPORTED, _ALLOWED_VALUES, {})
    prompts = read_texts(given, "prompt")
    if not prompts:
        raise invalid("prompt", "must be a text or a list of texts")
    choices = read_choices(given)
    if len(prompts) * choices > CHOICES_MAX:
        raise invalid("prompt", f"asks for more than {CHOICES_MAX} answers: `n` for each prompt")
    best_of: int | None = read_field(given, "best_of", int)
    if best_of not in (None, choices):
        raise invalid("best_of", "must equal `n`: answers are not ranked here")
    stream = read_field(given, "stream", bool) or False
    echo = read_field(given, "echo", bool) or False
    most: int | None = read_field(given, "logprobs", int)
    if most is not None and not 0 <= most <= _LOGPROBS_MAX:
        raise invalid("logprobs", f"must be 0 to {_LOGPROBS_MAX}")
    if most is not None and echo:
        raise invalid("echo", "must be false with `logprobs`: targets have none for a prompt")
    options = read_options(given)
    fields = {name: given[name] for name in (*PASSED_THROUGH, *_OLLAMA_FIELDS) if name in given}
    suffix: str | None = read_field(given, "suffix", str)
    if suffix is not None:
        fields["suffix"] = raw(suffix)
    fields |= logprobs_fields(requested=most is not None, most=most, most_field="logprobs")
    asked = [(prompt, choice) for prompt in prompts for choice in range(choices)]
    turns = [
        {"prompt": raw(prompt)}
        | ({"options": raw(choice_options(options, choice))} if options else {})
        for prompt, choice in asked
    ]
    return TranslatedRequest(
        "generate",
        fields | turns[0],
        TextTranslator(
            [prompt for prompt, _ in asked] if echo else (),
            read_include_usage(given, stream=stream),
            most is not None,
        ),
        stream,
        turns[1:],
    )


def _choice(at: int, output: NativeOutput, echo: str, *, offset: int) -> TextChoice:
    return TextChoice(
        echo + output.text,
        at,
        output.finish,
        _logprobs(output.logprobs, offset) if output.logprobs else None,
        output.thoughts or UNSET,
    )


def _logprobs(tokens: Sequence[TokenLogprob], offset: int) -> TextLogprobs:
    offsets = []
    for each in tokens:
        offsets.append(offset)
        offset += len(each.token)
    has_top = any(each.top_logprobs for each in tokens)
    return TextLogprobs(
        [each.token for each in tokens],
        [each.logprob for each in tokens],
        [{top.token: top.logprob for top in each.top_logprobs} for each in tokens]
        if has_top
        else None,
        offsets,
    )


def _id(job: UUID) -> str:
    return f"cmpl-{to_text(job)}"
