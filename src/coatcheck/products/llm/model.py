"""The data of llm jobs: payload, stored answer, endpoints, and the names of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.failures import FailureCode
from coatcheck.domain.job import JobView
from coatcheck.domain.service_definition import endpoint_key, engine_name
from coatcheck.domain.states import State

LLM_SERVICE: Final = "llm"
"""The service that runs language models."""

LlmKind = Literal["chat", "generate", "embed"]
"""The call to an Ollama-shaped target that a job makes."""

LLM_ENDPOINTS: Final = MappingProxyType[LlmKind, str](
    {
        "chat": engine_name(LLM_SERVICE, 1, endpoint_key("post", "/chat")),
        "generate": engine_name(LLM_SERVICE, 1, endpoint_key("post", "/generate")),
        "embed": engine_name(LLM_SERVICE, 1, endpoint_key("post", "/embed")),
    }
)
"""The ``endpoint`` of each kind's jobs."""

LLM_KINDS: Final = MappingProxyType[str, LlmKind](
    {endpoint: kind for kind, endpoint in LLM_ENDPOINTS.items()}
)
"""The kinds by the ``endpoint`` of their jobs."""

LLM_PAYLOAD_BYTES_MAX: Final = 32 * 1024 * 1024
"""For chats, whose messages include images."""

LLM_DROPS_MAX: Final = 5
"""How often a target may drop a chat in mid-answer, and be reachable right afterwards, before the
chat counts as the cause and fails."""

JOB_TIMEOUT_SECONDS: Final = 3_600.0
"""How long one attempt may take, including loading the model."""

ANSWER_ARTIFACT: Final = "result.json"
"""The artifact that holds an answer too large for a row."""
ANSWER_INLINE_BYTES_MAX: Final = 256 * 1024

CHOICES_MAX: Final = 8
"""How many answers one job may ask for. The model is called once for each."""
OTHER_CHOICES: Final = "other_choices"
"""The field of an answer that holds the answers after the first, if a job asked for several."""

MODEL_NAME_CHARACTERS_MAX: Final = 200
_DEFAULT_TAG: Final = ":latest"


class LlmFailure(FailureCode):
    """Chats"""

    MODEL_NOT_FOUND = "model_not_found"
    """No target has the model."""
    INVALID_REQUEST = "invalid_request"
    """The target refused the request."""
    TARGET_REDIRECTS = "target_redirects"
    """The target answered with a redirect, which is not followed."""
    TARGET_WRONG_URL = "target_wrong_url"
    """The target does not know the path: its URL has to be the part before `/api/chat`."""
    ANSWER_TOO_LARGE = "answer_too_large"
    """The answer is larger than a result may be."""
    CONNECTION_LOST = "target_connection_lost"
    """The target broke the connection in the middle of the answer too often, and was reachable each
    time: the request itself may be the cause. Before that, the chat is retried and spends no
    attempt."""
    IMAGE_UNAVAILABLE = "image_unavailable"
    """An image that the chat names by URL could not be fetched."""
    TARGET_ERROR = "target_error"
    """The target answered 5xx, or ended its answer with an error. Retried."""
    TARGET_BUSY = "target_busy"
    """The target answered 429 or 503. Retried."""
    TARGET_SILENT = "target_silent"
    """The target sent nothing for too long, although it answers others. Retried."""
    TARGET_REFUSED_US = "target_refused_us"
    """The target answered 401 or 403. Retried."""
    TARGET_ANSWER_INVALID = "target_answer_invalid"
    """The answer is not one of the Ollama API. Retried."""


class LlmRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a job: the call to make, and the caller's request body.

    ``model`` is the canonical name (``model_name``), by which targets are chosen. ``body`` is a
    JSON object without Coatcheck's fields, and with ``"stream": true`` if it can be streamed.

    Each of ``turns`` is one more call, whose fields replace those of ``body``. ``fetch_images``: an
    image of a message may be an http(s) URL, which is fetched before the target is called.
    """

    kind: LlmKind
    model: str
    body: msgspec.Raw
    turns: Sequence[Mapping[str, msgspec.Raw]] = ()
    fetch_images: bool = False


class StoredAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result in the row of a completed job: the answer, or the name of its artifact.

    One of the two; the other is empty.
    """

    inline: msgspec.Raw = msgspec.Raw(b"")
    artifact: str = ""


def model_name(text: str) -> str:
    """The canonical name of a model: ``llama3`` is ``llama3:latest``.

    Raises InvalidParameter unless it has 1 to 200 printable characters.
    """
    if not 1 <= len(text) <= MODEL_NAME_CHARACTERS_MAX or not text.isprintable():
        raise InvalidParameter(
            "model", f"must have 1 to {MODEL_NAME_CHARACTERS_MAX} printable characters", "body"
        )
    # A colon before the last slash belongs to a registry's port.
    return text if ":" in text.rpartition("/")[2] else text + _DEFAULT_TAG


CANCELLED: Final = "The job was cancelled."
_decode_answer: Final = msgspec.json.Decoder(StoredAnswer).decode


def stored_answer(view: JobView) -> StoredAnswer | None:
    """Where the answer of a completed job is; None if it has none."""
    if view.state is not State.COMPLETED or view.result is None:
        return None
    return _decode_answer(view.result)
