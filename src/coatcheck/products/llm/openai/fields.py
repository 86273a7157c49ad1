"""What the requests of OpenAI's routes have in common, and the order that each becomes.

Whatever would be silently lost on the way is refused, so that nobody takes an answer for what it is
not. What has no effect on an answer (a user's name, hints for caches) is passed over.
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
"""A JSON object's members, each as it was written."""

_Kind = TypeVar("_Kind")

_encode: Final = msgspec.json.Encoder().encode

AS_THEY_ARE: Final = ("model", "keep_alive", "webhook_url", "state_webhook_url")
"""Fields of Ollama's and of ours that go on untouched."""
WITHOUT_EFFECT: Final = frozenset(
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
"""What becomes an option of the model, and how Ollama calls it; of two the later counts."""
_THINKING: Final[Mapping[str, object]] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
}
_STOP: Final[Any] = str | list[str]


class Answering(Protocol):
    """How the answer to one request is written."""

    def whole(self, job: UUID, model: str, data: bytes, /) -> msgspec.Struct:
        """A target's whole answer. Raises Untranslatable."""

    def framing(self, job: UUID, model: str, /) -> Framing:
        """The same as a stream."""


@dataclass(frozen=True, slots=True)
class CompletionOrder:
    """What was asked for: a job, with ``fields`` in Ollama's words, and how it is answered.

    ``turns`` ask the model once more each, with other fields (``LlmRequest``). ``image_urls`` are
    the images that have to be fetched, by the fields that they came in.
    """

    kind: LlmKind
    fields: dict[str, msgspec.Raw]
    answering: Answering
    stream: bool = False
    turns: Sequence[Fields] = ()
    image_urls: Mapping[str, str] = field(default_factory=dict)


class _CompletionStreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


def refuse_what_would_be_lost(
    given: Fields,
    read: Collection[str],
    only: Mapping[str, tuple[object, ...]],
    reasons: Mapping[str, str],
) -> None:
    """``only``: fields that targets know nothing of, with the values under which that makes no
    difference. ``reasons`` say what to do instead of those that are refused."""
    for name, raw in given.items():
        if name in read or name in WITHOUT_EFFECT:
            continue
        if name not in only:
            raise wrong(name, "is not a field")
        value = msgspec.json.decode(raw)
        # `True == 1` in Python, and not in JSON.
        if value is not None and not any(
            value == each and type(value) is type(each) for each in only[name]
        ):
            unsupported = "is not supported by the models that are served here"
            raise wrong(name, reasons.get(name, unsupported))


def read_field(given: Fields, name: str, kind: type[_Kind]) -> _Kind | None:
    """A field as ``kind``; None if it is null or not there."""
    raw = given.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        issue, _, place = str(error).partition(" - at `$")
        raise wrong(name + place.removesuffix("`"), issue[:1].lower() + issue[1:]) from None


def read_options(given: Fields) -> dict[str, Any]:
    """The options of the model. Those under OpenAI's names go before Ollama's own."""
    options: dict[str, Any] = read_field(given, "options", dict[str, msgspec.Raw]) or {}
    for name, (native, kind) in OPTIONS.items():
        if read_field(given, name, kind) is not None:
            options[native] = given[name]
    stop: str | list[str] | None = read_field(given, "stop", _STOP)
    if stop is not None:
        options["stop"] = [stop] if isinstance(stop, str) else stop
    return options


def read_choices(given: Fields) -> int:
    """How many answers are wanted: ``n``."""
    choices: int | None = read_field(given, "n", int)
    if choices is None:
        return 1
    if not 1 <= choices <= CHOICES_MAX:
        raise wrong("n", f"must be 1 to {CHOICES_MAX}: the model is asked once for each")
    return choices


def choice_options(options: Mapping[str, Any], choice: int) -> dict[str, Any]:
    """The options of an answer after the first: under the same seed it would be the first again.

    Raises InvalidParameter for a seed among Ollama's own options that has no next one.
    """
    seed = options.get("seed")
    if choice == 0 or seed is None or bytes(seed) == b"null":
        return dict(options)
    try:
        first = msgspec.json.decode(seed, type=int)
    except msgspec.ValidationError:
        raise wrong(
            "options.seed", "must be a whole number: each answer has the next one"
        ) from None
    return dict(options) | {"seed": first + choice}


def read_logprobs(given: Fields) -> dict[str, msgspec.Raw]:
    """``logprobs`` and ``top_logprobs`` as Ollama has them; nothing if they are not wanted."""
    wanted: bool | None = read_field(given, "logprobs", bool)
    most: int | None = read_field(given, "top_logprobs", int)
    return logprobs_fields(wanted=bool(wanted), most=most, most_field="top_logprobs")


def logprobs_fields(*, wanted: bool, most: int | None, most_field: str) -> dict[str, msgspec.Raw]:
    if most is not None and not 0 <= most <= 20:
        raise wrong(most_field, "must be 0 to 20")
    if not wanted:
        if most:
            raise wrong(most_field, "needs `logprobs` to be true")
        return {}
    fields = {"logprobs": msgspec.Raw(b"true")}
    return fields | ({"top_logprobs": raw(most)} if most else {})


def read_thinking(given: Fields, effort: str | None, place: str) -> msgspec.Raw | None:
    if effort is None:
        return given.get("think")
    if effort not in _THINKING:
        raise wrong(place, f"must be one of {', '.join(_THINKING)}")
    return raw(_THINKING[effort])


def read_include_usage(given: Fields, *, stream: bool) -> bool:
    options = read_field(given, "stream_options", _CompletionStreamOptions)
    if options is None:
        return False
    if not stream:
        raise wrong("stream_options", "may only be set when stream is true")
    return bool(options.include_usage)


def raw(value: object) -> msgspec.Raw:
    """A value as a field of a request."""
    return msgspec.Raw(_encode(value))


def wrong(field: str, issue: str) -> InvalidParameter:
    return InvalidParameter(field, issue, "body")
