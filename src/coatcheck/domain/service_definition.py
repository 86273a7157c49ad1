"""The JSON document that registers or shows a service over HTTP. Unknown fields are refused.

The types here limit single fields; ``registration`` checks the rest.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from coatcheck.domain.endpoint_names import KEY_PATTERN, PATH_PATTERN
from coatcheck.domain.lanes import Lane
from coatcheck.domain.patterns import whole

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
