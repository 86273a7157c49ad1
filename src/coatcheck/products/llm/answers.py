"""Composes the whole answer from the objects of a target's stream.

The result is what an Ollama-shaped target answers to ``"stream": false``: texts are joined, tool
calls, images and log probabilities are collected, and everything else is as in the last object, in
the target's own bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from coatcheck.domain.limits import RESULT_BYTES_MAX
from coatcheck.products.llm.model import OTHER_CHOICES, LlmKind

ANSWER_BYTES_MAX: Final = RESULT_BYTES_MAX
STREAM_BYTES_MAX: Final = 16 * ANSWER_BYTES_MAX
"""For all objects together. Each object repeats the model's name and the time around a token."""


class AnswerInvalid(Exception):
    """A line of the stream is not what an Ollama-shaped target sends."""


class AnswerTooLarge(Exception):
    """The answer, or its stream, is longer than allowed."""


class TargetError(Exception):
    """The target ended its stream with an error. The text is the target's: never log it."""


class _AnswerMessage(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Object(msgspec.Struct):
    """The fields of one object of a stream that are read."""

    done: bool | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    message: _AnswerMessage | None = None
    response: str | None = None
    thinking: str | None = None
    image: str | None = None
    images: list[str] | None = None
    logprobs: list[msgspec.Raw] | None = None
    embeddings: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode: Final = msgspec.json.Decoder(_Object).decode
_decode_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class ChatAnswer:
    """Collects the objects of one stream, within bounds."""

    def __init__(self, kind: LlmKind, bytes_max: int | None = None) -> None:
        self._kind = kind
        self._bytes_max = ANSWER_BYTES_MAX if bytes_max is None else bytes_max
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._tool_calls: list[bytes] = []
        self._logprobs: list[bytes] = []
        self._last = b""
        self._objects = 0
        self._stream_bytes = 0
        self._kept_bytes = 0
        self.images: list[str] = []
        """The images in base64, in order."""
        self.done = False
        """Whether the target said that the answer is complete."""

    @property
    def objects(self) -> int:
        return self._objects

    def add(self, line: bytes) -> None:
        """Add one line of the stream. Raises AnswerInvalid, AnswerTooLarge or TargetError."""
        try:
            line.isascii() or line.decode()
            read = _decode(line)
        except _UNREADABLE:
            raise AnswerInvalid from None
        if not isinstance(read.error, msgspec.UnsetType) and bytes(read.error) != b"null":
            raise TargetError(_error_text(read.error))
        if self._kind == "embed":
            self._add_embeddings(line, read)
            return
        if isinstance(read.done, msgspec.UnsetType):
            raise AnswerInvalid
        self._last = line
        self._objects += 1
        self.done = read.done
        if self._kind == "chat":
            message = read.message or _AnswerMessage()
            self._keep(message.content, message.thinking, message.images)
            self._gather(self._tool_calls, message.tool_calls)
        else:
            self._keep(read.response, read.thinking, read.images)
            if read.image:
                self._keep(None, None, [read.image])
        self._gather(self._logprobs, read.logprobs)
        self._stream_bytes += len(line)
        if self._kept_bytes + len(line) > self._bytes_max or self._stream_bytes > STREAM_BYTES_MAX:
            raise AnswerTooLarge

    def _add_embeddings(self, line: bytes, read: _Object) -> None:
        """Embeddings come in one object, which does not say that it is the last."""
        if isinstance(read.embeddings, msgspec.UnsetType):
            raise AnswerInvalid
        if len(line) > self._bytes_max:
            raise AnswerTooLarge
        self._last = line
        self._objects += 1

    def whole(self) -> bytes:
        """The answer as JSON."""
        if self._objects == 1:
            return self._last
        fields = _decode_fields(self._last)
        if self._kind == "chat":
            message = _decode_fields(fields["message"]) if _holds(fields, "message") else {}
            message = _ordered({"role": msgspec.Raw(b'"assistant"')} | message, _MESSAGE_ORDER)
            self._put_texts(message, "content")
            _put(message, "images", self.images)
            _put(message, "tool_calls", [msgspec.Raw(each) for each in self._tool_calls])
            fields["message"] = msgspec.Raw(_encode(_ordered(message, _MESSAGE_ORDER)))
        else:
            self._put_texts(fields, "response")
            fields = _ordered(fields, _GENERATED_ORDER)
        _put(fields, "logprobs", [msgspec.Raw(each) for each in self._logprobs])
        return _encode(fields)

    def _put_texts(self, fields: dict[str, msgspec.Raw], name: str) -> None:
        fields[name] = msgspec.Raw(_encode("".join(self._texts)))
        _put(fields, "thinking", "".join(self._thoughts))

    def _keep(self, text: str | None, thought: str | None, images: list[str] | None) -> None:
        if text:
            self._texts.append(text)
            self._kept_bytes += _written_bytes(text)
        if thought:
            self._thoughts.append(thought)
            self._kept_bytes += _written_bytes(thought)
        for image in images or ():
            self.images.append(image)
            self._kept_bytes += len(image)

    def _gather(self, gathered: list[bytes], more: list[msgspec.Raw] | None) -> None:
        for each in more or ():
            gathered.append(bytes(each))
            self._kept_bytes += len(gathered[-1])


def all_choices(answers: Sequence[bytes]) -> bytes:
    """Several whole answers as one: the first, with the others in the field ``other_choices``."""
    if len(answers) == 1:
        return answers[0]
    first = _decode_fields(answers[0])
    others = [msgspec.Raw(each) for each in answers[1:]]
    return _encode(first | {OTHER_CHOICES: msgspec.Raw(_encode(others))})


def without_text(answer: bytes) -> bytes:
    """A whole answer as the last object of a stream whose text has been sent."""
    fields = _decode_fields(answer)
    nothing = msgspec.Raw(b'""')
    if "message" in fields:
        message = _decode_fields(fields["message"])
        message.pop("thinking", None)
        message.pop("tool_calls", None)
        message.pop("images", None)
        fields["message"] = msgspec.Raw(_encode(message | {"content": nothing}))
    if "response" in fields:
        fields["response"] = nothing
    for name in ("thinking", "logprobs", OTHER_CHOICES):
        fields.pop(name, None)
    return _encode(fields)


_MESSAGE_ORDER: Final = ("role", "content", "thinking", "images", "tool_calls")
_GENERATED_ORDER: Final = ("model", "created_at", "response", "thinking")


def _ordered(fields: Mapping[str, msgspec.Raw], order: tuple[str, ...]) -> dict[str, msgspec.Raw]:
    """The fields in the target's usual order, added ones included."""
    first = {name: fields[name] for name in order if name in fields}
    return first | {name: value for name, value in fields.items() if name not in first}


def _put(
    fields: dict[str, msgspec.Raw], name: str, value: str | list[str] | list[msgspec.Raw]
) -> None:
    """Set a field, or leave it out if it is empty, as targets do."""
    if value:
        fields[name] = msgspec.Raw(_encode(value))
    else:
        fields.pop(name, None)


def _holds(fields: Mapping[str, msgspec.Raw], name: str) -> bool:
    return name in fields and bytes(fields[name]) != b"null"


def _written_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _error_text(error: msgspec.Raw) -> str:
    try:
        text = msgspec.json.decode(error)
    except _UNREADABLE:
        return ""
    return text if isinstance(text, str) else ""
