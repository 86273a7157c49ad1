"""Adapts llm jobs for the routes that handle jobs of all products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.tenants import Principal
from coatcheck.http.job_adapters import JobAdapter, JobLabel, JobPaths
from coatcheck.products.llm.context import stored_key
from coatcheck.products.llm.model import LLM_KINDS, LLM_SERVICE, LlmRequest
from coatcheck.products.llm.presenter import JOBS, shows_artifacts, stored_answer

_DEFAULT_TAG: Final = ":latest"
_decode: Final = msgspec.json.Decoder(LlmRequest).decode


class LlmJobAdapter(JobAdapter):
    """Labels, paths, results and inputs of llm jobs."""

    product = "llm"

    async def label(self, job: OrgJob, /) -> JobLabel:
        kind = LLM_KINDS.get(job.view.endpoint, job.view.endpoint)
        return JobLabel(LLM_SERVICE, f"{kind} {job.view.queue_key.removesuffix(_DEFAULT_TAG)}")

    def paths(self, job: OrgJob) -> JobPaths:
        return JobPaths(f"{JOBS}/{job.id}")

    def shows_artifacts(self, job: OrgJob, /) -> bool:
        return shows_artifacts(job.view)

    def result(self, job: OrgJob) -> bytes | None:
        stored = stored_answer(job.view)
        return None if stored is None or stored.artifact else bytes(stored.inline)

    async def input(self, job: OrgJob) -> bytes:
        return bytes(_decode(await super().input(job)).body)

    def stored_keys(self, principal: Principal, key: str, /) -> Sequence[str]:
        return [stored_key(principal, key)]
