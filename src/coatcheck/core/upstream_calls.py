"""Calls to http upstreams of the service catalogue, as jobs: their payloads and their results.

A server turns a caller's request into an ``UpstreamCall`` and submits it to ``UPSTREAM_ENDPOINT``.
A worker makes the call and stores an ``UpstreamAnswer`` as the job's result, from which the
upstream's answer can be repeated byte for byte. Any product may submit such jobs.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from coatcheck.core.upstream_headers import RawHeader, forwarded_headers
from coatcheck.domain.catalogue import HttpTarget, RemoteTarget
from coatcheck.domain.errors import InvalidParameter, SealingKeyMissing
from coatcheck.domain.patterns import whole
from coatcheck.domain.service_definition import TIMEOUT_SECONDS_MAX

CALL_URL_CHARACTERS_MAX: Final = 8_192
"""A registered URL with a caller's path and query."""

ANSWER_INLINE_BYTES_MAX: Final = 1024 * 1024
"""A longer answer is kept as an artifact instead of in the result."""

ANSWER_BYTES_MAX: Final = 1024 * 1024 * 1024

ARTIFACT_NAME: Final = "upstream-answer"


class UpstreamCall(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One request to an upstream. ``headers`` are the caller's; the registration's own are sealed
    under ``secrets_id``, if there are any, and are sent along (``domain/target_secrets.py``)."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=CALL_URL_CHARACTERS_MAX)]
    method: Annotated[str, msgspec.Meta(pattern=whole("[A-Z]{1,20}"))]
    headers: list[tuple[str, str]] = []
    body_text: str | None = None
    body_base64: str | None = None
    body_json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """For a batch, which writes the same call around each of its tasks."""
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_SECONDS_MAX)] = 60.0
    """For the whole call, from the connection to the end of the answer."""
    secrets_id: str = ""

    def __repr__(self) -> str:
        return f"<UpstreamCall {self.method}>"

    def body(self) -> bytes:
        """The bytes to send. Raises ValueError if they are no base64."""
        if not isinstance(self.body_json, msgspec.UnsetType):
            return bytes(self.body_json)
        if self.body_base64 is not None:
            return base64.b64decode(self.body_base64, validate=True)
        return b"" if self.body_text is None else self.body_text.encode()


class UpstreamAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an upstream answered. At most one of the bodies is there; none for an empty one."""

    status: int
    headers: list[tuple[str, str]] = []
    body_json: msgspec.Raw = msgspec.Raw()
    """The JSON as the upstream wrote it, without the blanks around it: a Raw would lose them."""
    blanks_before: str = ""
    blanks_after: str = ""
    body_text: str | None = None
    body_base64: str | None = None
    artifact: str | None = None
    """The name of the job's artifact that holds the body, if it is too long for a result."""
    size: int = msgspec.field(default=0, name="bytes")

    def body(self) -> bytes | None:
        """The body, byte for byte; None if it is in the artifact."""
        if self.artifact is not None:
            return None
        if self.body_base64 is not None:
            return base64.b64decode(self.body_base64)
        if self.body_text is not None:
            return self.body_text.encode()
        json = memoryview(self.body_json).tobytes()
        return self.blanks_before.encode() + json + self.blanks_after.encode()

    @property
    def media_type(self) -> str:
        """The content type, as the upstream spelt it."""
        found = (value for name, value in self.headers if name == "content-type")
        return next(found, "application/octet-stream")


class _Payload(msgspec.Struct, frozen=True):
    call: UpstreamCall


class _Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    media_type: str
    size: int = msgspec.field(name="bytes")
    body_base64: str | None = None
    artifact: str | None = None


_encode: Final = msgspec.json.Encoder().encode
_decode_payload: Final = msgspec.json.Decoder(_Payload).decode
_decode_answer: Final = msgspec.json.Decoder(UpstreamAnswer).decode


def upstream_call(
    *,
    url: str,
    method: str,
    headers: Iterable[RawHeader],
    body: bytes,
    target: HttpTarget,
) -> UpstreamCall:
    """The call that repeats a caller's request to an upstream.

    ``headers`` are the caller's, as they came: those of the connection, of the host, and the
    caller's credentials are left out, and so are those that the ``target`` has itself. ``url`` is
    complete, query included; raises InvalidParameter if it is too long. Whether it may be called,
    the worker's guard says.
    """
    check_sealed(target)
    if len(url) > CALL_URL_CHARACTERS_MAX:
        raise InvalidParameter("path", "is too long, together with its query", "path")
    forwarded = forwarded_headers(headers)
    own = {name.lower() for name in target.headers}
    text, encoded = _body_fields(body)
    return UpstreamCall(
        url=url,
        method=method.upper(),
        headers=[(name, value) for name, value in forwarded if name not in own],
        body_text=text,
        body_base64=encoded,
        timeout_seconds=target.timeout_seconds,
        secrets_id=target.secrets_id,
    )


def check_sealed(target: HttpTarget | RemoteTarget) -> None:
    """Raises SealingKeyMissing for a target whose secrets are still stored as they are: no payload
    may hold them."""
    hidden = target.headers if isinstance(target, HttpTarget) else target.secrets
    if hidden and not target.secrets_id:
        raise SealingKeyMissing(
            "The secrets of this service are not sealed yet. That is done within seconds of the "
            "operator's setting COATCHECK_SECRET_KEYS."
        )


def encode_call(call: UpstreamCall) -> bytes:
    """The payload of a job of ``UPSTREAM_ENDPOINT``."""
    return _encode(_Payload(call))


def call_frame(call: UpstreamCall) -> tuple[bytes, bytes]:
    """What stands before and after a body of JSON in the payload of such a call."""
    whole = encode_call(call)
    return whole.removesuffix(b"}}") + b',"body_json":', b"}}"


def decode_call(payload: bytes) -> UpstreamCall:
    """The call that a payload holds."""
    return _decode_payload(payload).call


def encode_answer(answer: UpstreamAnswer) -> bytes:
    """The result of a job of ``UPSTREAM_ENDPOINT``."""
    return _encode(answer)


def decode_answer(result: bytes) -> UpstreamAnswer:
    """The answer that a completed job's result holds."""
    return _decode_answer(result)


def shown_result(result: bytes) -> bytes:
    """What a caller who reads the job is shown of its result, as JSON.

    The upstream's own JSON; its text as a string; null for an empty body. Any other body is an
    object with ``media_type``, ``bytes`` and either ``body_base64`` or ``artifact``.
    """
    answer = decode_answer(result)
    if answer.artifact is not None or answer.body_base64 is not None:
        shown = _Shown(answer.media_type, answer.size, answer.body_base64, answer.artifact)
        return _encode(shown)
    if answer.body_text is not None:
        return _encode(answer.body_text)
    return memoryview(answer.body_json).tobytes() or b"null"


def _body_fields(body: bytes) -> tuple[str | None, str | None]:
    """The body as text if it is UTF-8, else as base64."""
    if not body:
        return None, None
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(body).decode("ascii")
