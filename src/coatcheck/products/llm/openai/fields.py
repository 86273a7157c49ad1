"""Fields that OpenAI's request bodies share, and the translated request that each becomes.

A field that the translation would silently lose is rejected, so that no answer looks as if the
field had been applied. Fields without effect on an answer (a user's name, hints for caches) are
ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import UUID

import msgspec

from coatcheck.domain.errors import InvalidParameter
from coatcheck.products.llm.model import CHOICES_MAX, LlmKind

if TYPE_CHECKING:
    from coatcheck.products.llm.relay import Framing

Fields = Mapping[str, msgspec.Raw]
"""The members of a JSON object, each as it was written."""

_Kind = TypeVar("_Kind")

_encode: Final = msgspec.json.Encoder().encode

PASSED_THROUGH: Final = ("model", "keep_alive", "webhook_url", "state_webhook_url")
"""Ollama's fields and ours that are passed through."""
IGNORED: Final = frozenset(
    {
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
    }
)
OPTIONS: Final[Mapping[str, tuple[str, Any]]] = {
    "frequency_penalty": ("frequency_penalty", float),
    "presence_penalty": ("presence_penalty", float),
    "seed": ("seed", int),
    "temperature": ("temperature", float),
    "top_p": ("top_p", float),
    "max_tokens": ("num_predict", int),
    "max_completion_tokens": ("num_predict", int),
    "max_output_tokens": ("num_predict", int),
}
"""Fields that become options of the model: Ollama's name, and the type. Of two with one name, the
later counts."""
_THINKING: Final[Mapping[str, object]] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
}
_STOP: Final[Any] = str | list[str]


class AnswerTranslator(Protocol):
    """Translates the answer to one request."""

    def whole(self, job: UUID, model: str, data: bytes, /) -> msgspec.Struct:
        """Translate a target's whole answer. Raises Untranslatable."""

    def framing(self, job: UUID, model: str, /) -> Framing:
        """The format of the same answer as a stream."""


@dataclass(frozen=True, slots=True)
class TranslatedRequest:
    """A request for a job, with ``fields`` of Ollama's API, and the translator of its answer.

    Each of ``turns`` is one more call with other fields (``LlmRequest``). ``image_urls`` are the
    images to fetch, by their fields in the request.
    """

    kind: LlmKind
    fields: dict[str, msgspec.Raw]
    translator: AnswerTranslator
    stream: bool = False
    turns: Sequence[Fields] = ()
    image_urls: Mapping[str, str] = field(default_factory=dict)


class _CompletionStreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


def reject_unsupported(
    given: Fields,
    read: Collection[str],
    only: Mapping[str, tuple[object, ...]],
    reasons: Mapping[str, str],
) -> None:
    """Raise InvalidParameter for a field that would be lost. ``read``: supported fields. ``only``:
    fields unknown to targets, with the values that make no difference. ``reasons``: hints for
    those that are rejected."""
    for name, raw in given.items():
        if name in read or name in IGNORED:
            continue
        if name not in only:
            raise invalid(name, "is not a field")
        value = msgspec.json.decode(raw)
        # `True == 1` in Python, and not in JSON.
        if value is not None and not any(
            value == each and type(value) is type(each) for each in only[name]
        ):
            unsupported = "is not supported"
            raise invalid(name, reasons.get(name, unsupported))


def read_field(given: Fields, name: str, kind: type[_Kind]) -> _Kind | None:
    """A field as ``kind``; None if it is null or not there."""
    raw = given.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    return read_value(raw, kind, name)


def read_value(data: msgspec.Raw | bytes, kind: type[_Kind], path: str) -> _Kind:
    """The value at ``path`` as ``kind``. Raises InvalidParameter with the path of what is wrong."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        issue, _, within = str(error).partition(" - at `$")
        raise invalid(path + within.removesuffix("`"), issue[:1].lower() + issue[1:]) from None


def read_texts(given: Fields, name: str, hint: str = "") -> list[str]:
    """A field that has a text or a list of texts. ``hint`` helps who sends tokens instead."""
    value: Any = read_field(given, name, object)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise invalid(name, "must be a text or a list of texts")
    for at, text in enumerate(texts):
        if isinstance(text, (int, list)) and not isinstance(text, bool):
            raise invalid(
                name,
                "must be text: tokens are numbers of OpenAI's vocabulary, which no model here has"
                + hint,
            )
        if not isinstance(text, str) or not text:
            raise invalid(f"{name}[{at}]", "must be a non-empty text")
    return texts


def read_options(given: Fields) -> dict[str, Any]:
    """The options of the model. OpenAI's fields take precedence over Ollama's ``options``."""
    options: dict[str, Any] = read_field(given, "options", dict[str, msgspec.Raw]) or {}
    for name, (native, kind) in OPTIONS.items():
        if read_field(given, name, kind) is not None:
            options[native] = given[name]
    stop: str | list[str] | None = read_field(given, "stop", _STOP)
    if stop is not None:
        options["stop"] = [stop] if isinstance(stop, str) else stop
    return options


def read_choices(given: Fields) -> int:
    """How many answers are requested: ``n``."""
    choices: int | None = read_field(given, "n", int)
    if choices is None:
        return 1
    if not 1 <= choices <= CHOICES_MAX:
        raise invalid("n", f"must be 1 to {CHOICES_MAX}: the model is called once for each")
    return choices


def choice_options(options: Mapping[str, Any], choice: int) -> dict[str, Any]:
    """The options of an answer after the first, with another seed: the same one would repeat it.

    Raises InvalidParameter if the seed among Ollama's own options is not a whole number.
    """
    seed = options.get("seed")
    if choice == 0 or seed is None or bytes(seed) == b"null":
        return dict(options)
    try:
        first = msgspec.json.decode(seed, type=int)
    except msgspec.ValidationError:
        raise invalid(
            "options.seed", "must be a whole number: each answer uses the next one"
        ) from None
    return dict(options) | {"seed": first + choice}


def read_logprobs(given: Fields) -> dict[str, msgspec.Raw]:
    """``logprobs`` and ``top_logprobs`` for Ollama; empty if they are not requested."""
    requested: bool | None = read_field(given, "logprobs", bool)
    most: int | None = read_field(given, "top_logprobs", int)
    return logprobs_fields(requested=bool(requested), most=most, most_field="top_logprobs")


def logprobs_fields(
    *, requested: bool, most: int | None, most_field: str
) -> dict[str, msgspec.Raw]:
    if most is not None and not 0 <= most <= 20:
        raise invalid(most_field, "must be 0 to 20")
    if not requested:
        if most:
            raise invalid(most_field, "requires `logprobs` to be true")
        return {}
    fields = {"logprobs": msgspec.Raw(b"true")}
    return fields | ({"top_logprobs": raw(most)} if most else {})


def read_thinking(given: Fields, effort: str | None, path: str) -> msgspec.Raw | None:
    if effort is None:
        return given.get("think")
    if effort not in _THINKING:
        raise invalid(path, f"must be one of {', '.join(_THINKING)}")
    return raw(_THINKING[effort])


def read_include_usage(given: Fields, *, stream: bool) -> bool:
    options = read_field(given, "stream_options", _CompletionStreamOptions)
    if options is None:
        return False
    if not stream:
        raise invalid("stream_options", "may only be set when stream is true")
    return bool(options.include_usage)


def raw(value: object) -> msgspec.Raw:
    """A value encoded as a field of a request."""
    return msgspec.Raw(_encode(value))


def invalid(field: str, issue: str) -> InvalidParameter:
    return InvalidParameter(field, issue, "body")
