"""Work that occupies worker slots or claims, so that others wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import httpx2

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, BYSTANDER, Target

_HANG_SECONDS: Final = 30
_BYSTANDER_JOBS: Final = 20
_SECONDS_MAX: Final = 15.0
_LOOK_SECONDS: Final = 0.1
_QUIET_LOOKS: Final = 15
"""After this many looks without a change, the attacker holds all slots it can get."""
_AT_ONCE: Final = 16
"""Concurrent requests of the attacker."""

_TASKS: Final = 3
_TASK_SECONDS: Final = 0.2
_SLOTS: Final = 32
"""The maximum of the tasks' default lane."""

_HELD: Final = "SELECT count(*) FROM held_jobs WHERE org_id = $1"
_ENDED: Final = "SELECT count(*) FROM jobs WHERE org_id = $1 AND state = 'completed'"
_CLAIMED_BETWEEN: Final = """
    SELECT coalesce(max(
        (
            SELECT count(*) FROM jobs AS other
            WHERE other.org_id = $2 AND other.dispatched_at >= job.created_at
              AND other.dispatched_at < coalesce(job.dispatched_at, 'infinity')
        )
    ), 0)
    FROM jobs AS job
    WHERE job.org_id = $1 AND job.run_id IS NOT NULL
"""


async def _hoard_slots(target: Target) -> Figures:
    """Occupy every slot for long; counts the completed jobs of another tenant meanwhile."""
    jobs = 40 if target.short else 80
    async with _parties(target) as (attacker, bystander, database):
        await _many(jobs, lambda: _submit(attacker, ATTACKER, "hang", {"seconds": _HANG_SECONDS}))
        held = await _settled(database)
        before = await database.fetchval(_ENDED, BYSTANDER)
        for _ in range(_BYSTANDER_JOBS):
            await _submit(bystander, BYSTANDER, "echo", {"word": "still here"})
        completed, began = 0, time.monotonic()
        while completed < _BYSTANDER_JOBS and time.monotonic() - began < _SECONDS_MAX:
            await asyncio.sleep(_LOOK_SECONDS)
            completed = await database.fetchval(_ENDED, BYSTANDER) - before
    # The bystander of a complete run also has jobs.
    return {"slots_held": held, "bystander_completed": min(completed, _BYSTANDER_JOBS)}


async def _many_batches(target: Target) -> Figures:
    """Submit very many batches; counts their tasks that run before another tenant's job."""
    batches = 150 if target.short else 600
    async with _parties(target) as (attacker, bystander, database):
        task = {"seconds": _TASK_SECONDS}
        await _many(batches, lambda: _batch(attacker, "/hang", [task] * _TASKS))
        for _ in range(_BYSTANDER_JOBS // 4):
            await _batch(bystander, "/echo", [{"word": "still here"}])
            await asyncio.sleep(_LOOK_SECONDS)
        completed, began = 0, time.monotonic()
        while completed < _BYSTANDER_JOBS // 4 and time.monotonic() - began < 2 * _SECONDS_MAX:
            await asyncio.sleep(_LOOK_SECONDS)
            completed = await database.fetchval(f"{_ENDED} AND run_id IS NOT NULL", BYSTANDER)
        before_it = await database.fetchval(_CLAIMED_BETWEEN, BYSTANDER, ATTACKER)
    return {"bystander_completed": completed, "tasks_claimed_before_a_bystander": before_it}


@asynccontextmanager
async def _parties(
    target: Target,
) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient, Any]]:
    """The attacker, another tenant, and a database connection."""
    database = await asyncpg.connect(target.dsn)
    try:
        async with target.client() as attacker, target.client(BYSTANDER) as bystander:
            yield attacker, bystander, database
    finally:
        await database.close()


async def _submit(client: httpx2.AsyncClient, org: str, path: str, body: object) -> None:
    answer = await client.post(
        f"/api/v1/orgs/{org}/services/abuse/{path}",
        json=body,
        headers={"Prefer": "respond-async"},
    )
    answer.raise_for_status()


async def _batch(client: httpx2.AsyncClient, endpoint: str, tasks: list[Any]) -> None:
    body = {"service": "abuse", "endpoint": endpoint, "tasks": tasks}
    (await client.post("/v1/jobs", json=body)).raise_for_status()


async def _many(number: int, act: Callable[[], Awaitable[None]]) -> None:
    for start in range(0, number, _AT_ONCE):
        await asyncio.gather(*(act() for _ in range(min(_AT_ONCE, number - start))))


async def _settled(database: Any) -> int:
    """The number of slots that the attacker holds, once it is stable."""
    held, quiet, began = 0, 0, time.monotonic()
    while quiet < _QUIET_LOOKS and time.monotonic() - began < _SECONDS_MAX:
        await asyncio.sleep(_LOOK_SECONDS)
        now: int = await database.fetchval(_HELD, ATTACKER)
        quiet = quiet + 1 if held and now == held else 0
        held = now
    return held


def _served(figures: Figures) -> list[str]:
    return at_least(figures, "bystander_completed", _BYSTANDER_JOBS)


def _claimed_in_turn(figures: Figures) -> list[str]:
    return [
        *at_least(figures, "bystander_completed", _BYSTANDER_JOBS // 4),
        *at_most(figures, "tasks_claimed_before_a_bystander", 2 * _SLOTS),
    ]


ATTACKS: Final = (
    Attack(
        name="hoarded-slots",
        row=3,
        title="80 jobs that hang, by one tenant, in the standard lane",
        run=_hoard_slots,
        complaints=_served,
        victim="worker",
    ),
    Attack(
        name="many-batches",
        row=8,
        title="600 batches of 3 tasks, by one tenant",
        run=_many_batches,
        complaints=_claimed_in_turn,
        victim="worker",
    ),
)
