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

from coatcheck.domain.catalogue import HttpTarget, RemoteTarget
from coatcheck.domain.errors import InvalidParameter, SealingKeyMissing
from coatcheck.domain.patterns import whole
from coatcheck.domain.service_definition import TIMEOUT_SECONDS_MAX

RawHeader = tuple[bytes, bytes]

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection, not of the message."""

_NOT_FORWARDED: Final = {
    # Of the request as it reached us.
    "accept-encoding",
    "content-encoding",  # it is inflated by then
    "content-length",
    "expect",
    "forwarded",
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    # The caller's credentials are for us, and would be stored with the job.
    "authorization",
    "cookie",
    "x-api-key",
    # What the caller says to us about the job.
    "prefer",
    "x-webhook-url",
    "x-state-webhook-url",
    # The job's own is sent. Stored with the call, it would make every retry another payload.
    "x-request-id",
}
_NOT_FORWARDED_PREFIXES: Final = ("x-hsl-", "x-coatcheck-")

_KEPT: Final = frozenset(
    {
        # What the body is. It cannot be read without these.
        "content-type",
        "content-encoding",
        "content-language",
        "content-range",
        # Whether it is whole.
        "content-digest",
        "repr-digest",
        # What a download is called. A browser saves it then, and runs nothing.
        "content-disposition",
        # Which state of a thing this is, for a caller's own `If-Match`. They make nothing fresh.
        "etag",
        "last-modified",
        # Where what was made is, and when to ask for it. With a 2xx nobody follows these unasked.
        "location",
        "retry-after",
    }
)
"""The headers of an upstream that its caller gets; no other is. An upstream is a tenant's, and
speaks under our host name: whatever a proxy before us acts on (X-Accel-Redirect and X-Sendfile have
it serve a file of its own; Cache-Control and Vary, keep the answer for others), or a browser does
for our whole origin (Set-Cookie, Clear-Site-Data, Access-Control-Allow-Origin, Link, Refresh), is
not the upstream's to say. What such names there are depends on who stands before us, so they are
not listed: what is harmless is. For the same reason no tenant can add to the list."""


_LISTS: Final = frozenset({"content-encoding", "content-language", "content-digest", "repr-digest"})
"""Those of them that may come several times: together they are one list."""


def forwarded_headers(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """What of a caller's headers an upstream is sent, names in lower case."""
    return [
        (name, value)
        for name, value in _of_the_message(headers)
        if name not in _NOT_FORWARDED and not name.startswith(_NOT_FORWARDED_PREFIXES)
    ]


def kept_headers(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """What of an upstream's headers is kept with its answer, names in lower case, each once."""
    kept: dict[str, str] = {}
    for name, value in _of_the_message(headers):
        if name in kept and name in _LISTS:
            kept[name] = f"{kept[name]}, {value}"
        elif name in _KEPT:
            kept.setdefault(name, value)
    return list(kept.items())


def _of_the_message(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """The headers without those of the connection, which ``Connection`` may add to."""
    pairs = [
        (name.decode("latin-1").lower(), value.decode("latin-1").strip()) for name, value in headers
    ]
    named = {
        word.strip().lower()
        for name, value in pairs
        if name == "connection"
        for word in value.split(",")
    }
    return [(name, value) for name, value in pairs if name not in _HOP_BY_HOP and name not in named]


CALL_URL_CHARACTERS_MAX: Final = 8_192
"""A registered URL with a caller's path and query."""

ANSWER_INLINE_BYTES_MAX: Final = 1024 * 1024
"""A longer answer is kept as an artifact instead of in the result."""

ANSWER_BYTES_MAX: Final = 1024 * 1024 * 1024

ARTIFACT_NAME: Final = "upstream-answer"


class UpstreamCall(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One request to an upstream. ``headers`` are the caller's; the registration's own are sealed
    under ``secrets_id``, if there are any, and are sent along (``service_definition.py``)."""

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


class _CallPayload(msgspec.Struct, frozen=True):
    call: UpstreamCall


class _ShownCall(msgspec.Struct, frozen=True, omit_defaults=True):
    media_type: str
    size: int = msgspec.field(name="bytes")
    body_base64: str | None = None
    artifact: str | None = None


_encode: Final = msgspec.json.Encoder().encode
_decode_payload: Final = msgspec.json.Decoder(_CallPayload).decode
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
    return _encode(_CallPayload(call))


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
        shown = _ShownCall(answer.media_type, answer.size, answer.body_base64, answer.artifact)
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
