"""Speaks for the gateway's jobs, and for those that no other surface knows."""

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
from coatcheck.http.parameters import of_strangers
from coatcheck.products.gateway.context import GatewayContext
from coatcheck.products.gateway.naming import Named, name_of
from coatcheck.products.gateway.presenter import GatewayPresenter

_WORK: Final = b'{"work":'
"""How the payload of a job begins that a remote does."""
_encode: Final = msgspec.json.Encoder().encode


class GatewayJobAdapter(JobAdapter):
    """Endpoints of Python code, of http upstreams and of remotes."""

    surface = "gateway"

    def __init__(self, context: GatewayContext) -> None:
        super().__init__(context.engine, context.remote_calls)
        self._context = context

    async def label(self, job: OrgJob, /) -> JobLabel:
        named = name_of(job.view)
        if named is None:
            return JobLabel(job.service, job.view.endpoint)
        service = await self._context.service(job.view.org, named.service)
        return JobLabel(named.service, _endpoint(service, named))

    def places(self, job: OrgJob) -> JobPaths:
        named = name_of(job.view)
        if named is None:
            return JobPaths(None)
        presenter = GatewayPresenter(job.view.org, named.service, None, self._engine.stall_reason)
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
        # The rest of it is the target's.
        if payload.startswith(_WORK):
            return bytes(decode_work(payload).body)
        return _encode(_shown_call(decode_call(payload)))

    def stored_keys(self, _: Principal, key: str, /) -> Sequence[str]:
        fits = len(key) < IDEMPOTENCY_KEY_CHARACTERS_MAX
        return [key, of_strangers(key)] if fits else [key]


def _endpoint(service: ServiceSpec | None, named: Named) -> str:
    """``POST /greet``; of what was taken away only the key is known."""
    version = None if service is None else service.versions.get(named.version)
    for spec in () if version is None else version.endpoints:
        if spec.key == named.key:
            path = f"{spec.method} {spec.path}"
            return path if named.version == 1 else f"{path} (v{named.version})"
    return named.key


def _shown_call(call: UpstreamCall) -> dict[str, Any]:
    """What the upstream was to be sent, but for its headers."""
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
