"""The document that registers a service over HTTP, and shows one. Fields that it lacks are refused.

What is bounded here is what one field can say of itself; ``registration`` checks the rest.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from coatcheck.domain.endpoint_names import KEY_PATTERN, PATH_PATTERN
from coatcheck.domain.lanes import Lane

VERSIONS_MAX: Final = 20
ENDPOINTS_MAX: Final = 100
HEADERS_MAX: Final = 50
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
RETENTION_SECONDS_MAX: Final = 10 * 366 * 86_400

HIDDEN: Final = "***"
"""What a header's value is shown as. Sent back, it means the value that is already stored."""

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Auth = Literal["platform", "service_token", "none"]

_Seconds = Annotated[float, Meta(gt=0, le=TIMEOUT_SECONDS_MAX)]
_SyncSeconds = Annotated[float, Meta(gt=0, le=SYNC_TIMEOUT_SECONDS_MAX)]
_Retention = Annotated[float, Meta(ge=0, le=RETENTION_SECONDS_MAX)]
_Retries = Annotated[int, Meta(ge=0, le=RETRIES_MAX)]
_Key = Annotated[str, Meta(min_length=1, max_length=KEY_CHARACTERS_MAX, pattern=f"^{KEY_PATTERN}$")]
_Path = Annotated[
    str, Meta(min_length=1, max_length=PATH_CHARACTERS_MAX, pattern=f"^(?:{PATH_PATTERN})$")
]
_Url = Annotated[str, Meta(min_length=1, max_length=URL_CHARACTERS_MAX)]
_HeaderName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=HEADER_NAME_CHARACTERS_MAX,
        pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
    ),
]
_HeaderValue = Annotated[
    str, Meta(max_length=HEADER_VALUE_CHARACTERS_MAX, pattern=r"^[\t\x20-\x7e]*$")
]


class HttpTargetDefinition(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="http"
):
    """An upstream that Coatcheck calls. ``url`` is where its paths begin; ``headers`` go with every
    call, before those of the caller; ``timeout`` is how long it may take to answer."""

    url: _Url
    headers: Annotated[dict[_HeaderName, _HeaderValue], Meta(max_length=HEADERS_MAX)] = {}
    timeout: _Seconds | UnsetType = UNSET


class PythonTargetDefinition(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="python"
):
    """A function of a worker's code. Shown only: code declares these, no document does."""


TargetDefinition = HttpTargetDefinition | PythonTargetDefinition


class EndpointDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """One method on one path template, how its jobs are treated, and who does the work.

    Times are in seconds. ``key`` is made of the method and the path if it is left out.
    """

    method: Method
    path: _Path
    target: TargetDefinition
    key: _Key | UnsetType = UNSET
    async_eligible: bool = True
    auth: Auth = "platform"
    lane: Lane = Lane.STANDARD
    retries: _Retries | None = None
    timeout: _Seconds = TIMEOUT_SECONDS
    sync_timeout: _SyncSeconds = SYNC_TIMEOUT_SECONDS
    keep_completed: _Retention | None = None
    keep_failed: _Retention | None = None


class VersionDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """One version of a service, whole."""

    endpoints: Annotated[list[EndpointDefinition], Meta(min_length=1, max_length=ENDPOINTS_MAX)]


class ServiceDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """A service: its versions by number."""

    versions: Annotated[
        dict[Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,3}$")], VersionDefinition],
        Meta(min_length=1, max_length=VERSIONS_MAX),
    ]
