"""A job's files."""

from __future__ import annotations

from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.identity import Scope
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.http.artifacts import Holder, artifact_operations
from coatcheck.http.context import Parts
from coatcheck.http.job_responses import may_see
from coatcheck.http.request import Call
from coatcheck.http.routing import Operation
from coatcheck.products.gateway.context import Scene, is_name
from coatcheck.products.gateway.naming import name_of
from coatcheck.products.gateway.submit_routes import BASE


class GatewayFinder:
    """The job that a path names, by organisation, service and id."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def job(self, call: Call, scope: Scope) -> Holder:
        view = await self._scene.job(call, scope)
        voice = await self._scene.voice(view.org, call.params["service"])
        return Holder.of(view, voice.urls(view.id).poll)

    async def record(self, call: Call, name: str) -> ArtifactRecord | None:
        """Open to whom the job was. As with jobs, a caller without a credential learns of nothing
        but what is open to anyone."""
        principal = await self._scene.let_in(call, Scope.READ)
        record = await self._find(call, name)
        if record is not None and may_see(principal, record, call.params["org"]):
            return record
        if principal is None:
            raise Unauthenticated
        return None

    async def _find(self, call: Call, name: str) -> ArtifactRecord | None:
        org = call.params["org"]
        try:
            job = from_text(call.params["id"])
        except InvalidId:
            return None
        if not is_name(org):
            return None
        record = await self._scene.engine.artifact_desk.record(org, job, name)
        named = None if record is None else name_of(record)
        return record if named is not None and named.service == call.params["service"] else None


def operations(parts: Parts, scene: Scene) -> list[Operation]:
    return artifact_operations(
        parts,
        GatewayFinder(scene),
        path=BASE + "/jobs/{id}",
        name="job",
        tag="gateway",
        handler_lets_in=True,
    )
