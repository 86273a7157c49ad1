"""The processes of these tests on a deployment (see process.py), and what they did with its jobs.

Every execution of a job leaves a line in a file of the deployment's folder: see services.py.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from coatcheck import Ticket
from tests.child_process import ChildProcess
from tests.crash_points import VICTIM
from tests.deployment import Deployment
from tests.e2e.faults.services import NAME_VARIABLE
from tests.ports import free_port
from tests.waiting import eventually_async

UPKEEP_VARIABLE = "LAB_UPKEEP_IN"
"""``server`` or ``worker``: maintenance is done by that command, as in a deployment, not alone."""
ONE_SHOT = frozenset(
    {"submit", "hand_in", "cancel", "look", "create_batch", "cancel_batch", "rerun_batch"}
)
"""Roles that do one thing and end."""


def start_role(
    deployment: Deployment, role: str, *arguments: str, name: str = "", **options: Any
) -> ChildProcess:
    """Start a process in a role; a worker may have a name.

    The options are those of ``Deployment.start_process``.
    """
    return deployment.start_process(
        *_program(role, arguments),
        role=role,
        is_one_shot=role in ONE_SHOT,
        **({NAME_VARIABLE: name} if name else {}),
        **options,
    )


def _program(role: str, arguments: tuple[str, ...]) -> list[str]:
    """The program of a role: that of these tests, or the real command that does maintenance."""
    match role, os.environ.get(UPKEEP_VARIABLE, ""):
        case "upkeep", "server":
            return ["coatcheck.cli", "serve", "--port", str(free_port())]
        case "upkeep", "worker":
            return ["coatcheck.cli", "worker"]
        case _:
            return ["tests.e2e.faults.process", role, *arguments]


async def start_worker_process(deployment: Deployment, **options: Any) -> ChildProcess:
    """A worker process that claims."""
    process = start_role(deployment, "worker", **options)
    await process.says("ready")
    return process


async def end_leases_of_the_struck(deployment: Deployment) -> None:
    """The dead will never be heard of again: let their leases end now, by the database's clock. One
    who stands still is taken for dead. One whose database died lives, and goes on."""
    if VICTIM.is_exact:
        await deployment.sql.execute("UPDATE workers SET last_seen_at = now() - interval '1 hour'")


def payload(deployment: Deployment, *, gate: str = "") -> dict[str, str]:
    """What the handlers in services.py want: where to leave a line, and what to wait for."""
    log = {"log": str(_log(deployment))}
    return log | {"gate": str(deployment.folder / gate)} if gate else log


def open_gate(deployment: Deployment, gate: str) -> None:
    (deployment.folder / gate).touch()


def executions(deployment: Deployment) -> list[tuple[str, int, int]]:
    """(job id, attempt, process id) of every execution that was begun."""
    if not _log(deployment).exists():
        return []
    lines = [line.split() for line in _log(deployment).read_text().splitlines()]
    return [(job_id, int(attempt), int(pid)) for job_id, attempt, pid in lines]


def executions_of(deployment: Deployment, ticket: Ticket) -> int:
    return Counter(job_id for job_id, _, _ in executions(deployment))[ticket.id]


async def wait_until_executed(deployment: Deployment, ticket: Ticket, times: int = 1) -> int:
    """Wait until a job was begun so often. The process of that execution."""

    async def look() -> list[int]:
        pids = [pid for job_id, _, pid in executions(deployment) if job_id == ticket.id]
        return pids[times - 1 : times]

    (pid,) = await eventually_async(look, f"execution {times} of the job has begun")
    return int(pid)


def _log(deployment: Deployment) -> Path:
    return deployment.folder / "executions"
