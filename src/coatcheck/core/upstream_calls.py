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
"""Headers that belong to one connection, not to the message."""

_NOT_FORWARDED: Final = {
    # About the request as it reached us.
    "accept-encoding",
    "content-encoding",  # the body has been decompressed by then
    "content-length",
    "expect",
    "forwarded",
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    # The caller's credentials are meant for us, and would be stored with the job.
    "authorization",
    "cookie",
    "x-api-key",
    # Instructions to us about the job.
    "prefer",
    "x-webhook-url",
    "x-state-webhook-url",
    # We send the job's own. Stored with the call, it would make every retry a different payload.
    "x-request-id",
}
_NOT_FORWARDED_PREFIXES: Final = ("x-hsl-", "x-coatcheck-")

_KEPT: Final = frozenset(
    {
        # What the body is: it cannot be read without these.
        "content-type",
        "content-encoding",
        "content-language",
        "content-range",
        # Whether it is whole.
        "content-digest",
        "repr-digest",
        # A download's file name. A browser then saves it, and runs nothing.
        "content-disposition",
        # The version of a resource, for a caller's `If-Match`. They make nothing fresh.
        "etag",
        "last-modified",
        # Where the result is, and when to ask for it. After a 2xx nobody follows these unasked.
        "location",
        "retry-after",
    }
)
"""The upstream headers that the caller gets; all others are dropped. An upstream belongs to a
tenant and answers under our host name. It must not control a proxy in front of us (X-Accel-Redirect
and X-Sendfile have it serve a file of its own; Cache-Control and Vary have it keep the response for
others), nor a browser's treatment of our whole origin (Set-Cookie, Clear-Site-Data,
Access-Control-Allow-Origin, Link, Refresh). Such names depend on the proxy, so this is a list of
harmless names and not of dangerous ones. For the same reason no tenant can add to it."""


_LISTS: Final = frozenset({"content-encoding", "content-language", "content-digest", "repr-digest"})
"""Those that may be repeated: together they are one list."""


def forwarded_headers(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """The caller's headers that an upstream is sent, names in lower case."""
    return [
        (name, value)
        for name, value in _of_the_message(headers)
        if name not in _NOT_FORWARDED and not name.startswith(_NOT_FORWARDED_PREFIXES)
    ]


def kept_headers(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """The upstream's headers that are kept with its answer, names in lower case, each once."""
    kept: dict[str, str] = {}
    for name, value in _of_the_message(headers):
        if name in kept and name in _LISTS:
            kept[name] = f"{kept[name]}, {value}"
        elif name in _KEPT:
            kept.setdefault(name, value)
    return list(kept.items())


def _of_the_message(headers: Iterable[RawHeader]) -> list[tuple[str, str]]:
    """The headers without those of the connection, including those that ``Connection`` names."""
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
"""The bound on a registered URL with the caller's path and query."""

ANSWER_INLINE_BYTES_MAX: Final = 1024 * 1024
"""A longer body is kept as an artifact instead of in the result."""

ANSWER_BYTES_MAX: Final = 1024 * 1024 * 1024

ARTIFACT_NAME: Final = "upstream-answer"


class UpstreamCall(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One request to an upstream. ``headers`` are the caller's. The registration's own headers are
    sealed under ``secrets_id`` and added at the call (``service_definition.py``)."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=CALL_URL_CHARACTERS_MAX)]
    method: Annotated[str, msgspec.Meta(pattern=whole("[A-Z]{1,20}"))]
    headers: list[tuple[str, str]] = []
    body_text: str | None = None
    body_base64: str | None = None
    body_json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """For a batch, which wraps the same call around each of its tasks."""
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_SECONDS_MAX)] = 60.0
    """For the whole call, from the connection to the end of the response."""
    secrets_id: str = ""

    def __repr__(self) -> str:
        return f"<UpstreamCall {self.method}>"

    def body(self) -> bytes:
        """The bytes to send. Raises ValueError if the base64 is invalid."""
        if not isinstance(self.body_json, msgspec.UnsetType):
            return bytes(self.body_json)
        if self.body_base64 is not None:
            return base64.b64decode(self.body_base64, validate=True)
        return b"" if self.body_text is None else self.body_text.encode()


class UpstreamAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """An upstream's answer. At most one of the bodies is set; none for an empty one."""

    status: int
    headers: list[tuple[str, str]] = []
    body_json: msgspec.Raw = msgspec.Raw()
    """The JSON as the upstream wrote it, without the surrounding blanks, which a Raw would lose."""
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

    ``headers`` are the caller's, as received. Headers of the connection and of the host, the
    caller's credentials, and those that the ``target`` sets itself are left out. ``url`` is
    complete, query included; raises InvalidParameter if it is too long. The worker's egress guard
    decides whether it may be called.
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
    """Raise SealingKeyMissing for a target whose secrets are not sealed yet: no payload may hold
    them."""
    hidden = target.headers if isinstance(target, HttpTarget) else target.secrets
    if hidden and not target.secrets_id:
        raise SealingKeyMissing(
            "The secrets of this service are not sealed yet. That happens within seconds once the "
            "operator has set COATCHECK_SECRET_KEYS."
        )


def encode_call(call: UpstreamCall) -> bytes:
    """The payload of a job of ``UPSTREAM_ENDPOINT``."""
    return _encode(_CallPayload(call))


def call_frame(call: UpstreamCall) -> tuple[bytes, bytes]:
    """The parts of such a call's payload before and after a JSON body."""
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
    """The result that a reader of the job is shown, as JSON.

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
