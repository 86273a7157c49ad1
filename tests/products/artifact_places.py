"""Jobs of each surface that have ended and left a file, put straight into the tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from coatcheck.blobs.keys import artifact_key
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.states import State
from coatcheck.products.llm.model import LLM_ENDPOINTS
from coatcheck.settings.parsers import graph_endpoint
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.long_runs import put_long_run
from tests.db.rows import put_job
from tests.deployment import Deployment, bearer

ORG: Final = "default"
ANN: Final = "user:ann"
NAME: Final = "naïve plan.svg"
CONTENT: Final = b"<svg>0123456789</svg>"
MEDIA_TYPE: Final = "image/svg+xml"

_ENDPOINTS: Final = {
    "gateway": "lab.post__draw",
    "graphs": graph_endpoint("call"),
    "llm": LLM_ENDPOINTS["chat"],
}
_PATHS: Final = {
    "gateway": "/api/v1/orgs/default/services/lab/jobs/{id}",
    "graphs": "/v1/graphs/jobs/{id}",
    "llm": "/jobs/{id}",
}
SURFACES: Final = (*_ENDPOINTS, "batches")


@dataclass(frozen=True)
class Place:
    """A job of ann's, and where it and the like of it that never was are read."""

    job: UUID
    url: str
    absent_url: str
    shown_id: str
    endpoint: str
    caller: Mapping[str, str]
    batch: UUID | None = None


async def ended_with_a_file(
    deployment: Deployment,
    connection: AsyncpgConnection,
    surface: str,
    *,
    name: str = NAME,
    result: bytes = b'{"inline":{}}',
    owner: str = ANN,
) -> Place:
    caller = bearer(await deployment.create_key(user="ann"))
    if surface == "batches":
        place = await _task(connection, caller)
    else:
        endpoint = _ENDPOINTS[surface]
        put = await put_job(
            connection, State.COMPLETED, org_id=ORG, endpoint=endpoint, owner=owner, result=result
        )
        job_id, absent = to_text(put.uuid), to_text(new_id())
        path = _PATHS[surface]
        place = Place(
            put.uuid, path.format(id=job_id), path.format(id=absent), job_id, endpoint, caller
        )
    await attach(deployment, connection, place.job, name)
    return place


async def _task(connection: AsyncpgConnection, caller: Mapping[str, str]) -> Place:
    made = await put_long_run(connection, [State.COMPLETED] * 2, org=ORG)
    async with unguarded(connection):
        await connection.execute("UPDATE jobs SET owner = $1 WHERE run_id = $2", ANN, made.run)
    task = made.task(1)
    batch = f"/v1/jobs/{to_text(made.batch)}/tasks"
    return Place(
        task,
        f"{batch}/{task.hex}",
        f"{batch}/{new_id().hex}",
        task.hex,
        "demo.post__work",
        caller,
        made.batch,
    )


async def attach(
    deployment: Deployment, connection: AsyncpgConnection, job: UUID, name: str
) -> str:
    """Give a job a file, as its worker would have. Its blob's key."""
    key = artifact_key(await deployment.engine.deployment(), job)
    await deployment.engine.blobs.put(key, CONTENT, media_type=MEDIA_TYPE, file_name=name)
    await connection.execute(
        "INSERT INTO artifacts VALUES ($1, $2, $3, $4, $5, $6, $7)",
        ORG,
        job,
        name,
        key,
        MEDIA_TYPE,
        len(CONTENT),
        hashlib.sha256(CONTENT).digest(),
    )
    return key
