"""Finds the endpoint that runs a batch's tasks, by its path or its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coatcheck.core.catalogue import Catalogue
from coatcheck.core.remote.result_store import work_frame
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
    """An endpoint, and the bytes before and after a task's input that complete its payload."""

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
    """Find the endpoint. ``retries`` are the caller's, if given; ``timeout_seconds_max`` limits the
    calls of registered endpoints.

    Raises EndpointNotFound, which lists what exists; NotAsyncEligible; Unauthenticated if the
    endpoint requires a service token; InvalidInput if a batch cannot use the endpoint.
    """
    spec = _endpoint(await catalogue.find(principal.org, service), version, endpoint)
    if spec.auth == "service_token" and principal.kind != "service":
        raise Unauthenticated
    if not spec.async_eligible:
        raise NotAsyncEligible("This endpoint accepts only synchronous calls.")
    spec = spec.within(timeout_seconds_max)
    if spec.remote is not None:
        return TaskTarget(spec, *work_frame(spec, retries))
    if spec.target is None:
        return TaskTarget(spec)
    return _upstream(spec)


def _endpoint(service: ServiceSpec | None, version: int | None, requested: str) -> EndpointSpec:
    if service is None:
        raise EndpointNotFound(
            "There is no such service. A Python service appears when a worker that serves it "
            "starts; one with an http upstream or a remote must be registered."
        )
    found = service.versions.get(service.latest if version is None else version)
    if found is None:
        known = ", ".join(str(number) for number in sorted(service.versions))
        raise EndpointNotFound(f"The service has no such version; it has {known}.")
    by_key = [spec for spec in found.endpoints if spec.key == requested]
    path = requested if requested.startswith("/") else f"/{requested}"
    by_path = [spec for spec in found.endpoints if spec.path == path]
    # A path may have several methods; POST is the one that submits work.
    candidates = by_key or [spec for spec in by_path if spec.method == "POST"] or by_path
    if not candidates:
        raise EndpointNotFound(
            f"The service has no such endpoint; it has {_listed(found.endpoints)}."
        )
    if len(candidates) > 1:
        keys = ", ".join(spec.key for spec in candidates)
        raise InvalidInput([FieldIssue("endpoint", f"has several methods: use one of {keys}")])
    return candidates[0]


def _listed(endpoints: tuple[EndpointSpec, ...]) -> str:
    shown = [f"{spec.path} ({spec.key})" for spec in endpoints[:_SHOWN_ENDPOINTS]]
    more = len(endpoints) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _upstream(spec: EndpointSpec) -> TaskTarget:
    """A call to an http upstream. Tasks are the bodies; the rest of the request is the same."""
    assert spec.target is not None
    if path_parameters(spec.path):
        issue = "has path parameters, which tasks cannot set at an http upstream"
        raise InvalidInput([FieldIssue("endpoint", issue)])
    call = upstream_call(
        url=spec.target.url.rstrip("/") + spec.path,
        method=spec.method,
        headers=_JSON,
        body=b"",
        target=spec.target,
    )
    return TaskTarget(spec, *call_frame(call))
