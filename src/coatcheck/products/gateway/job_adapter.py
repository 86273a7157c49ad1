"""The console's adapter for the gateway's jobs, and for jobs that belong to no other product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from coatcheck.core.upstream_calls import UpstreamCall, decode_call, shown_result
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT, ServiceSpec
from coatcheck.domain.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.remote_work import decode_work
from coatcheck.domain.tenants import Principal
from coatcheck.http.job_adapters import JobAdapter, JobLabel, JobPaths
from coatcheck.http.parameters import anonymous_key
from coatcheck.products.gateway.context import GatewayContext
from coatcheck.products.gateway.naming import EndpointRef, endpoint_ref
from coatcheck.products.gateway.presenter import GatewayPresenter

_WORK: Final = b'{"work":'
"""The payload of a remote's job begins with this."""
_encode: Final = msgspec.json.Encoder().encode


class GatewayJobAdapter(JobAdapter):
    """Adapts jobs of Python endpoints, of http upstreams and of remotes."""

    product = "gateway"

    def __init__(self, context: GatewayContext) -> None:
        super().__init__(context.engine, context.remote_calls)
        self._context = context

    async def label(self, job: OrgJob, /) -> JobLabel:
        ref = endpoint_ref(job.view)
        if ref is None:
            return JobLabel(job.service, job.view.endpoint)
        service = await self._context.service(job.view.org, ref.service)
        return JobLabel(ref.service, _endpoint(service, ref))

    def paths(self, job: OrgJob) -> JobPaths:
        ref = endpoint_ref(job.view)
        if ref is None:
            return JobPaths(None)
        presenter = GatewayPresenter(job.view.org, ref.service, None, self._engine.stall_reason)
        return JobPaths(presenter.urls(job.id).poll)

    def result(self, job: OrgJob) -> bytes | None:
        result = job.view.result
        if result is None or job.view.endpoint != UPSTREAM_ENDPOINT:
            return result
        return shown_result(result)

    async def input(self, job: OrgJob) -> bytes:
        payload = await super().input(job)
        if job.view.endpoint != UPSTREAM_ENDPOINT:
            return payload
        # The rest of the payload describes the target, which is not the caller's input.
        if payload.startswith(_WORK):
            return bytes(decode_work(payload).body)
        return _encode(_shown_call(decode_call(payload)))

    def stored_keys(self, _: Principal, key: str, /) -> Sequence[str]:
        fits = len(key) < IDEMPOTENCY_KEY_CHARACTERS_MAX
        return [key, anonymous_key(key)] if fits else [key]


def _endpoint(service: ServiceSpec | None, ref: EndpointRef) -> str:
    """``POST /greet``; or the endpoint's key, if the service no longer has the endpoint."""
    version = None if service is None else service.versions.get(ref.version)
    for spec in () if version is None else version.endpoints:
        if spec.key == ref.key:
            path = f"{spec.method} {spec.path}"
            return path if ref.version == 1 else f"{path} (v{ref.version})"
    return ref.key


def _shown_call(call: UpstreamCall) -> dict[str, Any]:
    """The call as the console shows it, without its headers."""
    shown: dict[str, Any] = {"method": call.method, "url": call.url}
    if not isinstance(call.body_json, msgspec.UnsetType):
        shown["body"] = call.body_json
    elif call.body_base64 is not None:
        shown["body_base64"] = call.body_base64
    elif call.body_text is not None:
        shown["body"] = _json_or_text(call.body_text)
    return shown


def _json_or_text(text: str) -> Any:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return msgspec.Raw(text.encode())
