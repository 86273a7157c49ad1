"""What an organisation has of batches: one with a task that has ended, one that is open, one whose
list could not be taken in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from coatcheck.domain.ids import from_text
from coatcheck.products.batches import ingest_repository as ingest
from tests.deployment import Deployment, bearer
from tests.waiting import eventually_async

JOBS = "/v1/jobs"
TALK = {"service": "things", "endpoint": "/talk", "tasks": [{}]}


@dataclass(frozen=True)
class BatchResources:
    """Ids, all of one organisation."""

    batch: str
    task: str
    export: str
    open_batch: str
    stuck_batch: str
    dead_letter: str

    @classmethod
    async def built(cls, deployment: Deployment, org: str, key: str) -> BatchResources:
        batch = await created(deployment, key, TALK, 201)
        export = await posted(deployment, key, f"{JOBS}/{batch['id']}/exports", None, 202)
        stuck = await stuck_batch(deployment, org, key)
        return cls(
            batch=batch["id"],
            task=await ended_task(deployment, key, batch),
            export=export["id"],
            open_batch=await open_batch(deployment, key),
            stuck_batch=stuck[0],
            dead_letter=stuck[1],
        )

    @classmethod
    def absent(cls, fresh: str) -> BatchResources:
        """What there is none of."""
        task = hashlib.sha256(fresh.encode()).hexdigest()[:32]
        return cls(fresh, task, fresh, fresh, fresh, fresh)


async def open_batch(deployment: Deployment, key: str) -> str:
    """One that takes tasks, and has none."""
    body = {"service": "things", "endpoint": "/thing", "type": "open"}
    batch_id: str = (await created(deployment, key, body, 202))["id"]
    return batch_id


async def stuck_batch(deployment: Deployment, org: str, key: str) -> tuple[str, str]:
    """One whose list could not be taken in, and its dead letter."""
    batch = await created(deployment, key, TALK | {"async": True}, 202)
    run = from_text(batch["runs"][0]["id"])
    rows = await deployment.context.tenants.fetch(
        "SELECT id FROM batch_parts WHERE org_id = $1 AND run_id = $2", org, run
    )
    part = rows[0]["id"]
    assert await ingest.fail_part(deployment.context.tenants, org, part, "list_empty", "It is.")
    letters = await deployment.http.get("/v1/dlq", headers=bearer(key))
    (letter,) = [each for each in letters.json()["items"] if each["job_id"] == batch["id"]]
    return batch["id"], letter["id"]


async def ended_task(deployment: Deployment, key: str, batch: dict[str, Any]) -> str:
    """The one task of a batch, once it has succeeded."""

    async def look() -> str | None:
        page = await deployment.http.get(batch["urls"]["tasks"], headers=bearer(key))
        (task,) = page.json()["items"]
        return task["id"] if task["status"] == "succeeded" else None

    task_id: str = await eventually_async(look, "the task has succeeded")
    return task_id


async def created(deployment: Deployment, key: str, body: Any, status: int) -> dict[str, Any]:
    return await posted(deployment, key, JOBS, body, status)


async def posted(
    deployment: Deployment, key: str, path: str, body: Any, status: int
) -> dict[str, Any]:
    answer = await deployment.http.post(path, json=body, headers=bearer(key))
    assert answer.status_code == status, answer.text
    shown: dict[str, Any] = answer.json()
    return shown
