"""Renders jobs as bodies of the gateway's HTTP API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from coatcheck.core.upstream_calls import shown_result
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT, ServiceSpec
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.http.job_responses import JobLinks
from coatcheck.http.parameters import shown_key
from coatcheck.products.gateway import schemas
from coatcheck.products.gateway.naming import EndpointRef, endpoint_ref

DEFAULT_WORKSPACE: Final = "default"
_NO_RESULT: Final = msgspec.Raw(b"null")

StallReason = Callable[[JobView], Awaitable[str | None]]


class GatewayPresenter:
    """Renders the jobs of one service of one organisation."""

    __slots__ = ("_base", "_spec", "_stall_reason")

    shows_long_results = True

    def __init__(
        self, org: str, service: str, spec: ServiceSpec | None, stall_reason: StallReason
    ) -> None:
        """``spec`` is None for a service that was deleted; its jobs continue."""
        self._spec = spec
        self._stall_reason = stall_reason
        self._base = _base(org, service)

    def urls(self, job_id: str) -> JobLinks:
        poll = self._base + job_id
        return JobLinks(poll, poll + "/events", poll + "/cancel")

    def ticket(self, job_id: str, state: State, urls: JobLinks) -> schemas.GatewayTicket:
        status = schemas.STATUSES[state]
        return schemas.GatewayTicket(
            job_id, status, *urls, artifacts_url=urls.artifacts, terminal=state.terminal
        )

    async def job(self, view: JobView) -> Any:
        ref = endpoint_ref(view)
        assert ref is not None, "a job of another product"
        stalled_reason = None if view.terminal else await self._stall_reason(view)
        return schemas.GatewayJob(
            id=view.id,
            org_id=view.org,
            workspace_id=DEFAULT_WORKSPACE if self._spec is None else self._spec.workspace,
            service_id=ref.service,
            version_id=ref.version_id,
            endpoint_id=ref.endpoint_id,
            endpoint_key=ref.key,
            execution_mode=self._execution_mode(view, ref),
            lane=view.lane.value,
            status=schemas.STATUSES[view.state],
            idempotency_key=shown_key(view.idempotency_key),
            execution_id=view.execution_id,
            attempt_count=view.attempts,
            result_summary=_result(view),
            result_omitted=view.result_is_left_out,
            result_url=self.urls(view.id).poll if view.result_is_left_out else None,
            last_error=_last_error(view),
            pre_dispatch_age_seconds=_pre_dispatch_age(view),
            stalled=stalled_reason is not None,
            stalled_reason=stalled_reason,
            started_at=view.started_at,
            completed_at=view.finished_at,
            expires_at=view.expires_at,
            created_at=view.created_at,
            updated_at=view.updated_at,
            terminal=view.terminal,
            progress=_progress(view),
        )

    def _execution_mode(self, view: JobView, ref: EndpointRef) -> schemas.ExecutionMode:
        """``persistent`` for remote jobs. Until one is started, only its service tells."""
        is_remote = view.execution_id is not None or (
            view.endpoint == UPSTREAM_ENDPOINT
            and self._spec is not None
            and self._spec.runs_remotely(ref.endpoint_id)
        )
        return "persistent" if is_remote else "invocation"


@lru_cache(maxsize=1_000)
def _base(org: str, service: str) -> str:
    return f"/api/v1/orgs/{quote(org, safe='')}/services/{quote(service, safe='')}/jobs/"


def _result(view: JobView) -> msgspec.Raw:
    if view.result is None:
        return _NO_RESULT
    if view.endpoint == UPSTREAM_ENDPOINT:
        return msgspec.Raw(shown_result(view.result))
    return msgspec.Raw(view.result)


def _last_error(view: JobView) -> schemas.LastError | None:
    if view.error_code is None:
        return None
    return schemas.LastError(view.error_code, view.error_message or "")


def _pre_dispatch_age(view: JobView) -> float:
    until = view.dispatched_at or view.finished_at or view.read_at
    return max(0.0, round((until - view.created_at).total_seconds(), 6))


def _progress(view: JobView) -> schemas.GatewayProgress | None:
    if view.progress is None:
        return None
    return schemas.GatewayProgress(round(view.progress, 6), view.progress_note)
