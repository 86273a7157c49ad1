"""The console's adapter for graphs jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal
from coatcheck.http.job_adapters import JobAdapter, JobLabel, JobPaths
from coatcheck.products.graphs.analysis_request import decode_request
from coatcheck.products.graphs.context import stored_key
from coatcheck.products.graphs.presenter import BASE, stored_result
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS, GRAPHS_SERVICE

_encode: Final = msgspec.json.Encoder().encode


class GraphsJobAdapter(JobAdapter):
    """Adapts analyses of archives. Archives are not kept, so these jobs cannot be retried."""

    product = "graphs"

    async def label(self, job: OrgJob, /) -> JobLabel:
        operation = GRAPH_ENDPOINTS.get(job.view.endpoint)
        return JobLabel(
            GRAPHS_SERVICE, job.view.endpoint if operation is None else f"{operation} graph"
        )

    def paths(self, job: OrgJob) -> JobPaths:
        poll = BASE + job.id
        return JobPaths(poll, receipt=f"{poll}/receipt")

    def result(self, job: OrgJob) -> bytes | None:
        stored = stored_result(job.view)
        return None if stored is None or stored.artifact else bytes(stored.inline)

    async def input(self, job: OrgJob) -> bytes:
        """The archive's size and hash, without where it is stored."""
        archive = decode_request(await super().input(job))
        return _encode({"size": archive.size, "sha256": archive.sha256})

    def refusal(self, _: OrgJob, /) -> str | None:
        return (
            "The archive was deleted when its job ended, so it cannot be analysed again. "
            "Upload it again with a new idempotency key."
        )

    def stored_keys(self, principal: Principal, key: str, /) -> Sequence[str]:
        return [stored_key(principal, key)]
