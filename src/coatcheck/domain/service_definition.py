"""The JSON document that registers or shows a service over HTTP. Unknown fields are refused.

The types here limit single fields; ``registration`` checks the rest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Annotated, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coatcheck.domain.lanes import Lane
from coatcheck.domain.patterns import whole

Address = tuple[str, str]
"""The recipient of a target's secrets: the kind of service (``http``, ``runpod``), and its URL."""

UPSTREAM: Final = "upstream"
"""The kind of an http upstream."""
_LABEL: Final = "coatcheck/target-secrets/v1"


class TargetSecrets(msgspec.Struct, frozen=True):
    """The values by name, and the address they were given for: they are sent nowhere else.

    For an upstream, the names are those of its headers.
    """

    address: Address
    values: dict[str, str]

    def __repr__(self) -> str:
        return f"<TargetSecrets of {self.address[0]}>"

    def are_for_url(self, url: str) -> bool:
        """Whether an upstream's secrets may be sent to ``url``: its registered URL or below."""
        base = self.address[1].rstrip("/")
        return (
            self.address[0] == UPSTREAM
            and url.startswith(base)
            and url[len(base) :][:1] in ("", "/", "?")
        )


def secrets_id(org: str, endpoint_id: str, address: Address) -> UUID:
    """The id of the secrets that an endpoint sends to an address.

    It stays the same when the service is registered again, so a waiting job uses the values that
    are valid when it runs. Another address has another id: values given for one address are never
    used for another.
    """
    digest = hashlib.sha256(msgspec.json.encode([_LABEL, org, endpoint_id, *address])).digest()
    return UUID(bytes=digest[:16])


def texts_to_mask(values: Mapping[str, str]) -> tuple[str, ...]:
    """The texts to mask where an upstream may have repeated its headers: each value, and the part
    after its scheme."""
    return tuple(
        part
        for value in values.values()
        for part in (value, value.partition(" ")[2].strip())
        if part
    )


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(TargetSecrets).decode


def encode_secrets(secrets: TargetSecrets) -> bytes:
    """Encode for sealing."""
    return _encode(secrets)


def decode_secrets(plain: bytes) -> TargetSecrets:
    return _decode(plain)


SERVICE_NAME_PATTERN: Final = r"[A-Za-z][A-Za-z0-9_-]{0,62}"
PATH_PATTERN: Final = r"/|(?:/(?:[A-Za-z0-9._~-]+|\{[A-Za-z_][A-Za-z0-9_]*\}))+"
KEY_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_]*"
VERSION_MAX: Final = 9_999

_RESERVED_PREFIX: Final = "coatcheck"

_SERVICE_NAME = re.compile(SERVICE_NAME_PATTERN)
_PATH = re.compile(PATH_PATTERN)
_PARAMETER = re.compile(r"\{(\w+)\}")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]+")


def is_service_name(name: str) -> bool:
    """Whether this is a valid service name: a letter, then letters, digits, '-', '_', up to 63."""
    return _SERVICE_NAME.fullmatch(name) is not None


def is_reserved(name: str, of_products: Container[str]) -> bool:
    """Whether no user's service may be called so: ``of_products`` are the names of services that
    belong to products."""
    lowered = name.lower()
    return lowered in of_products or lowered.startswith(_RESERVED_PREFIX)


def is_path(path: str) -> bool:
    """Whether this is a path template: each part is plain characters or a ``{parameter}``."""
    return _PATH.fullmatch(path) is not None


def path_parameters(path: str) -> list[str]:
    """The names of a template's parameters, in order."""
    return _PARAMETER.findall(path)


def path_shape(path: str) -> str:
    """The template without parameter names: two of one shape match the same paths."""
    return _PARAMETER.sub("{}", path)


def endpoint_key(method: str, path: str) -> str:
    """The key of an endpoint: ``post__analyze`` for POST /analyze."""
    return f"{method.lower()}__{_NOT_ALPHANUMERIC.sub('_', path).strip('_')}"


@lru_cache(maxsize=10_000)  # every request uses one of a few
def engine_name(service: str, version: int, key: str) -> str:
    """The ``endpoint`` of its jobs: ``docs.post__analyze``, or ``docs.v2.post__analyze``."""
    return f"{service}.{key}" if version == 1 else f"{service}.v{version}.{key}"


VERSIONS_MAX: Final = 20
ENDPOINTS_MAX: Final = 100
"""Per version."""
SERVICE_ENDPOINTS_MAX: Final = 500
"""All versions of a service together: every server that calls it has them in memory."""
HEADERS_MAX: Final = 50
SECRETS_MAX: Final = 10
KEY_CHARACTERS_MAX: Final = 128
PATH_CHARACTERS_MAX: Final = 512
URL_CHARACTERS_MAX: Final = 2_048
HEADER_NAME_CHARACTERS_MAX: Final = 128
HEADER_VALUE_CHARACTERS_MAX: Final = 8_000
RETRIES_MAX: Final = 1_000
TIMEOUT_SECONDS_MAX: Final = 86_400
SYNC_TIMEOUT_SECONDS_MAX: Final = 60.0
SYNC_TIMEOUT_SECONDS: Final = 30.0
TIMEOUT_SECONDS: Final = 300.0
REMOTE_TIMEOUT_SECONDS: Final = 3_600.0
"""For a remote's work, including its queue and the start of its machine."""
RETENTION_SECONDS_MAX: Final = 10 * 366 * 86_400

HIDDEN: Final = "***"
"""What a header or a secret is shown as. Sent back, it keeps the stored value."""

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Auth = Literal["platform", "service_token", "none"]
ADAPTERS: Final = ("http", "replicate", "runpod", "fal", "operator")
"""The adapters that an organisation may use."""

_Seconds = Annotated[float, Meta(gt=0, le=TIMEOUT_SECONDS_MAX)]
_Timeout = Annotated[
    float,
    Meta(
        gt=0,
        le=TIMEOUT_SECONDS_MAX,
        description=f"Default: {TIMEOUT_SECONDS:.0f}, or {REMOTE_TIMEOUT_SECONDS:.0f} for a remote "
        "target. Responses always include it.",
    ),
]
_SyncSeconds = Annotated[float, Meta(gt=0, le=SYNC_TIMEOUT_SECONDS_MAX)]
_Retention = Annotated[float, Meta(ge=0, le=RETENTION_SECONDS_MAX)]
_Retries = Annotated[int, Meta(ge=0, le=RETRIES_MAX)]
_Key = Annotated[str, Meta(min_length=1, max_length=KEY_CHARACTERS_MAX, pattern=whole(KEY_PATTERN))]
_Path = Annotated[
    str, Meta(min_length=1, max_length=PATH_CHARACTERS_MAX, pattern=whole(PATH_PATTERN))
]
_Url = Annotated[str, Meta(min_length=1, max_length=URL_CHARACTERS_MAX)]
_HeaderName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=HEADER_NAME_CHARACTERS_MAX,
        pattern=whole("[A-Za-z0-9!#$%&'*+.^_`|~-]+"),
    ),
]
_HeaderValue = Annotated[
    str, Meta(max_length=HEADER_VALUE_CHARACTERS_MAX, pattern=whole(r"[\t\x20-\x7e]*"))
]
_SecretName = Annotated[str, Meta(pattern=whole("[A-Za-z][A-Za-z0-9_.-]{0,99}"))]
_SecretValue = Annotated[
    str, Meta(min_length=1, max_length=HEADER_VALUE_CHARACTERS_MAX, pattern=whole("[!-~]+"))
]
_Adapter = Annotated[str, Meta(extra_json_schema={"enum": [*ADAPTERS, "modal"]})]
"""Checked with its target, and not here, so that the error can list the valid ones."""
_RemoteName = Annotated[str, Meta(min_length=1, max_length=300)]


class HttpTargetDefinition(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="http"
):
    """An upstream that Coatcheck calls. ``url`` is the prefix of its paths; ``headers`` are sent
    with every call and override the caller's; ``timeout`` is how long it may take to answer."""

    url: _Url
    headers: Annotated[dict[_HeaderName, _HeaderValue], Meta(max_length=HEADERS_MAX)] = {}
    timeout: _Seconds | UnsetType = UNSET


class MarksDefinition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Names of fields to add to the input: one for the spawn's token, one for the callback URL."""

    token: _RemoteName | UnsetType = UNSET
    callback_url: _RemoteName | UnsetType = UNSET


class OutputDefinition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which part of a service's output is the result, and how it is encoded."""

    path: _RemoteName | UnsetType = UNSET
    encoding: Literal["auto", "base64", "json"] | UnsetType = UNSET
    media_type: _RemoteName | UnsetType = UNSET


class RemoteTargetDefinition(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="remote", kw_only=True
):
    """A remote function: started, then polled until it is done.

    ``adapter`` determines the other fields. ``http``: url, secret, media_type. ``replicate``:
    secret, one of version, model and deployment, url, marks, output. ``runpod``: secret, endpoint,
    url, marks, output. ``fal``: secret, model, url, marks, output. ``operator``: name, of a remote
    that the operator has set up. ``secret`` names the one of ``secrets`` that is the credential.
    Only the operator can set up ``modal`` (app, function, environment).
    """

    adapter: _Adapter
    url: _Url | UnsetType = UNSET
    secret: _SecretName | UnsetType = UNSET
    media_type: _RemoteName | UnsetType = UNSET
    version: _RemoteName | UnsetType = UNSET
    model: _RemoteName | UnsetType = UNSET
    deployment: _RemoteName | UnsetType = UNSET
    endpoint: _RemoteName | UnsetType = UNSET
    name: _RemoteName | UnsetType = UNSET
    app: _RemoteName | UnsetType = UNSET
    function: _RemoteName | UnsetType = UNSET
    environment: _RemoteName | UnsetType = UNSET
    marks: MarksDefinition | UnsetType = UNSET
    output: OutputDefinition | UnsetType = UNSET
    secrets: Annotated[dict[_SecretName, _SecretValue], Meta(max_length=SECRETS_MAX)] = {}


class PythonTargetDefinition(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="python"
):
    """A function in a worker's code. Only in responses: code declares it, not a document."""


TargetDefinition = HttpTargetDefinition | RemoteTargetDefinition | PythonTargetDefinition


class EndpointDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """One method on one path template, the options for its jobs, and its target.

    Times are in seconds. ``key`` defaults to one made of the method and the path.
    """

    method: Method
    path: _Path
    target: TargetDefinition
    key: _Key | UnsetType = UNSET
    async_eligible: bool = True
    auth: Auth = "platform"
    lane: Lane = Lane.STANDARD
    retries: _Retries | None = None
    timeout: _Timeout | UnsetType = UNSET
    sync_timeout: _SyncSeconds = SYNC_TIMEOUT_SECONDS
    keep_completed: _Retention | None = None
    keep_failed: _Retention | None = None
    keep_input: bool = True

    @property
    def timeout_seconds(self) -> float:
        """``timeout``, or its default."""
        if self.timeout is not UNSET:
            return self.timeout
        is_remote = isinstance(self.target, RemoteTargetDefinition)
        return REMOTE_TIMEOUT_SECONDS if is_remote else TIMEOUT_SECONDS


class VersionDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """One complete version of a service."""

    endpoints: Annotated[list[EndpointDefinition], Meta(min_length=1, max_length=ENDPOINTS_MAX)]


class ServiceDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """A service: its versions by number."""

    versions: Annotated[
        dict[Annotated[str, Meta(pattern=whole("[1-9][0-9]{0,3}"))], VersionDefinition],
        Meta(min_length=1, max_length=VERSIONS_MAX),
    ]
