"""For every crash point: who dies there, doing what, and what must have become of the job."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coatcheck import State, Ticket
from tests.child_process import ChildProcess
from tests.db.rows import expire, holding, miss_start
from tests.deployment import Deployment, lane_seconds
from tests.e2e.faults.roles import payload, start_role
from tests.e2e.faults.services import lab

OFTEN_HEARD = "urgent=6,standard=6,bulk=6"
"""Leases so short that a heartbeat is sent every second."""

Submission = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One process dies at one point while it works on one job, submitted under a key.

    ``executions`` counts how often the job is begun in all; the counters are the job's at its end.
    It dies when it passes the point for the ``passing``-th time.
    """

    role: str
    passing: int = 1
    endpoint: str = "note"
    options: tuple[tuple[str, object], ...] = ()
    setting: tuple[tuple[str, str], ...] = ()
    terminate: bool = False
    before: Callable[[Deployment, Ticket], Awaitable[None]] | None = None
    crashes: int = 0
    failures: int = 0
    interruptions: int = 0
    executions: int = 1
    end: State = State.COMPLETED
    pruned: bool = False

    @property
    def submits(self) -> bool:
        return self.role == "submit"

    def submission(self, deployment: Deployment, key: str) -> Submission:
        gate = "never" if self.endpoint == "wait_first" else ""
        return {
            "endpoint": f"lab.post__{self.endpoint}",
            "payload": payload(deployment, gate=gate),
            "idempotency_key": key,
            **dict(self.options),
        }

    def start(
        self, deployment: Deployment, point: str, submission: Submission, ticket: Ticket | None
    ) -> ChildProcess:
        arguments = [self.role]
        if self.submits:
            arguments.append(json.dumps([submission]))
        elif self.role == "cancel":
            assert ticket is not None
            arguments.append(ticket.id)
        return start_role(
            deployment, *arguments, crash_at=f"{point}:{self.passing}", **dict(self.setting)
        )


async def _is_running_here(deployment: Deployment, ticket: Ticket) -> None:
    await deployment.start_worker(lab, lane_ack_seconds=lane_seconds(6.0))
    await deployment.wait_for_state(ticket, State.PROCESSING)


async def _is_held_by_nobody(deployment: Deployment, ticket: Ticket) -> None:
    async with holding(deployment.sql):
        await deployment.sql.execute(
            "UPDATE jobs SET state = 'dispatching', lease = (999::bigint << 40) | 1 WHERE id = $1",
            ticket.uuid,
        )


async def _is_due(deployment: Deployment, ticket: Ticket) -> None:
    await deployment.make_due(ticket)


async def _should_have_started(deployment: Deployment, ticket: Ticket) -> None:
    await miss_start(deployment.sql, ticket.uuid)


async def _was_kept_long_enough(deployment: Deployment, ticket: Ticket) -> None:
    worker = await deployment.start_worker(lab)
    await deployment.wait_for_end(ticket)
    await deployment.stop_worker(worker)
    await expire(deployment.sql, ticket.uuid)


HEARD_OFTEN = (("lane_ack_seconds", OFTEN_HEARD),)
LATER = (("delay", 3600.0),)

SCENARIOS: dict[str, Scenario] = {
    "submit.before_insert": Scenario(role="submit"),
    "submit.inserted_not_committed": Scenario(role="submit"),
    "submit.committed_not_answered": Scenario(role="submit"),
    "cancel.committed_not_notified": Scenario(
        role="cancel", endpoint="heed", before=_is_running_here, end=State.CANCELLED
    ),
    "claim.before_statement": Scenario(role="worker"),
    "claim.updated_not_committed": Scenario(role="worker"),
    "claim.limited_not_committed": Scenario(role="worker", endpoint="limited"),
    "claim.committed_not_dispatched": Scenario(role="worker", crashes=1),
    "run.before_handler": Scenario(role="worker", crashes=1),
    "run.handler_returned": Scenario(role="worker", crashes=1, executions=2),
    "finish.before_statement": Scenario(role="worker", crashes=1, executions=2),
    "finish.updated_not_committed": Scenario(role="worker", crashes=1, executions=2),
    "finish.committed_not_notified": Scenario(role="worker"),
    "settle.committed_not_notified": Scenario(
        role="worker", endpoint="fail_first", failures=1, executions=2
    ),
    "mark_started.committed": Scenario(
        role="worker", endpoint="wait_first", crashes=1, executions=2
    ),
    "reports.committed": Scenario(role="worker", endpoint="report", crashes=1, executions=2),
    "artifact.blob_stored": Scenario(role="worker", endpoint="report", crashes=1, executions=2),
    "heartbeat.sent": Scenario(  # the first one may be sent before the job has begun
        role="worker",
        passing=3,
        endpoint="wait_first",
        setting=HEARD_OFTEN,
        crashes=1,
        executions=2,
    ),
    "drain.before_release": Scenario(
        role="worker", endpoint="wait_first", terminate=True, crashes=1, executions=2
    ),
    "drain.released_not_deregistered": Scenario(
        role="worker", endpoint="wait_first", terminate=True, interruptions=1, executions=2
    ),
    "stage.updated_not_committed": Scenario(role="upkeep", options=LATER, before=_is_due),
    "rescue.updated_not_committed": Scenario(role="upkeep", before=_is_held_by_nobody, crashes=1),
    "expire.updated_not_committed": Scenario(
        role="upkeep", before=_should_have_started, executions=0, end=State.FAILED
    ),
    "prune.updated_not_committed": Scenario(
        role="upkeep", endpoint="report", before=_was_kept_long_enough, pruned=True
    ),
    "prune.rows_deleted_blobs_not": Scenario(
        role="upkeep", endpoint="report", before=_was_kept_long_enough, pruned=True
    ),
}
