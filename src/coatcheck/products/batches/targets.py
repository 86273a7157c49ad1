"""What a batch's tasks are handed to: an endpoint of a service, found by its path or its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coatcheck.core.catalogue import Catalogue
from coatcheck.core.remote.payloads import work_frame
from coatcheck.core.upstream_calls import call_frame, upstream_call
from coatcheck.domain.catalogue import EndpointSpec, ServiceSpec
from coatcheck.domain.errors import (
    EndpointNotFound,
    FieldIssue,
    InvalidInput,
    NotAsyncEligible,
    Unauthenticated,
)
from coatcheck.domain.service_definition import path_parameters
from coatcheck.domain.tenants import Principal

_SHOWN_ENDPOINTS: Final = 10
_JSON: Final = ((b"content-type", b"application/json"),)


@dataclass(frozen=True, slots=True)
class TaskTarget:
    """An endpoint, and what is put around a task's input to make the payload of its job."""

    spec: EndpointSpec
    prefix: bytes = b""
    suffix: bytes = b""


async def find_target(
    catalogue: Catalogue,
    principal: Principal,
    service: str,
    version: int | None,
    endpoint: str,
    *,
    retries: int | None = None,
    timeout_seconds_max: float,
) -> TaskTarget:
    """The endpoint that a caller may run tasks on, with as many ``retries`` if they say so. What
    was registered is called for no longer than ``timeout_seconds_max``.

    Raises EndpointNotFound, which says what there is; NotAsyncEligible; Unauthenticated where only
    service tokens may call; InvalidInput where a batch cannot.
    """
    spec = _endpoint(await catalogue.find(principal.org, service), version, endpoint)
    if spec.auth == "service_token" and principal.kind != "service":
        raise Unauthenticated
    if not spec.async_eligible:
        raise NotAsyncEligible("This endpoint takes synchronous calls only.")
    spec = spec.within(timeout_seconds_max)
    if spec.remote is not None:
        return TaskTarget(spec, *work_frame(spec, retries))
    if spec.target is None:
        return TaskTarget(spec)
    return _upstream(spec)


def _endpoint(service: ServiceSpec | None, version: int | None, wanted: str) -> EndpointSpec:
    if service is None:
        raise EndpointNotFound(
            "There is no such service. One in Python is known once a worker that serves it has "
            "started; one with an http upstream or a remote, once it was registered."
        )
    found = service.versions.get(service.latest if version is None else version)
    if found is None:
        known = ", ".join(str(number) for number in sorted(service.versions))
        raise EndpointNotFound(f"The service has no such version; it has {known}.")
    by_key = [spec for spec in found.endpoints if spec.key == wanted]
    path = wanted if wanted.startswith("/") else f"/{wanted}"
    by_path = [spec for spec in found.endpoints if spec.path == path]
    # A path may take several methods; work is handed in by POST.
    candidates = by_key or [spec for spec in by_path if spec.method == "POST"] or by_path
    if not candidates:
        raise EndpointNotFound(
            f"The service has no such endpoint; it has {_listed(found.endpoints)}."
        )
    if len(candidates) > 1:
        keys = ", ".join(spec.key for spec in candidates)
        raise InvalidInput([FieldIssue("endpoint", f"takes several methods: name one of {keys}")])
    return candidates[0]


def _listed(endpoints: tuple[EndpointSpec, ...]) -> str:
    shown = [f"{spec.path} ({spec.key})" for spec in endpoints[:_SHOWN_ENDPOINTS]]
    more = len(endpoints) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _upstream(spec: EndpointSpec) -> TaskTarget:
    """Each task is the body of a request; all else of the request is the same for all of them."""
    assert spec.target is not None
    if path_parameters(spec.path):
        issue = "has parameters in its path, which a task cannot fill at an http upstream"
        raise InvalidInput([FieldIssue("endpoint", issue)])
    call = upstream_call(
        url=spec.target.url.rstrip("/") + spec.path,
        method=spec.method,
        headers=_JSON,
        body=b"",
        target=spec.target,
    )
    return TaskTarget(spec, *call_frame(call))
