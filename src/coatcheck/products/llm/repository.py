"""Reads and writes the targets and the assignments of llm jobs, and abandoned chats."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import Connection
from coatcheck.domain.limits import ERROR_MESSAGE_CHARACTERS_MAX
from coatcheck.domain.states import State
from coatcheck.products.llm.model import LLM_ENDPOINTS
from coatcheck.products.llm.queries import sql

_READ_ROWS_MAX: Final = 500
_STATES_SECONDS: Final = 1.0
"""How long the states of the targets are cached."""
RETRIED_AT_ONCE: Final = 1_000
RETRY_SECONDS_MAX: Final = 120.0
"""How long after its caller left a retry may join a chat. Clients retry within seconds, or after
the answer's Retry-After, which OpenAI's clients follow for up to a minute."""

JobKey = tuple[str, UUID]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The target a job was assigned to last. ``current``: the job is still held there."""

    target: str
    loading: bool
    current: bool


@dataclass(frozen=True, slots=True)
class TargetState:
    """Whether a target can be reached. If not: since when, and when it is probed next."""

    name: str
    unreachable_since: datetime | None
    next_try_at: datetime | None
    last_error: str | None


class LlmRepository(EngineExtension):
    """Reads assignments and targets. Concurrent reads share one query."""

    def __init__(self, context: EngineContext) -> None:
        self._read_db = context.read_db
        self._write_db = context.write_db
        self._reader: Batcher[JobKey, Assignment | None] = Batcher(
            self._read, rows_max=_READ_ROWS_MAX
        )
        self._states: Sequence[TargetState] = ()
        self._read_at: float | None = None

    async def assignment(self, org: str, job: UUID) -> Assignment | None:
        """The target that a job was assigned to last; None if it never had one."""
        return await self._reader.ask((org, job))

    async def target_states(self) -> Sequence[TargetState]:
        """Which targets can be reached. Up to a second old."""
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= _STATES_SECONDS:
            self._states = await target_states(self._read_db)
            self._read_at = now
        return self._states

    async def mark_abandoned(self, org: str, job: UUID) -> bool:
        """Record that the chat's synchronous caller left. Returns whether a retry may join it."""
        return bool(await sql.fetch(self._write_db, "mark_abandoned", org=org, job=job))

    async def join_abandoned(
        self, org: str, owner: str, payload: bytes
    ) -> tuple[UUID, State] | None:
        """Join an abandoned chat with that payload: its id and state, or None if there is none.
        Only one retry gets it."""
        row = await sql.first(
            self._write_db,
            "join_abandoned",
            org=org,
            owner=owner,
            digest=hashlib.sha256(payload).digest(),
            seconds=RETRY_SECONDS_MAX,
            retry=uuid4(),
        )
        return None if row is None else (row["id"], State(row["state"]))

    async def is_for_its_caller(self, org: str, job: UUID) -> bool:
        """Whether only the synchronous caller can get the chat: it has no key and no webhook."""
        return bool(await sql.value(self._write_db, "is_for_its_caller", org=org, job=job))

    async def drain(self) -> None:
        """Answer what was asked."""
        await self._reader.drain()

    async def _read(self, keys: Sequence[JobKey]) -> Sequence[Assignment | None]:
        found = await assignments(self._read_db, [*set(keys)])
        return [found.get(key) for key in keys]


async def assignments(db: Connection, keys: Sequence[JobKey]) -> dict[JobKey, Assignment]:
    """The assignments by (org, id). Jobs that never had a target are missing."""
    orgs, jobs = [org for org, _ in keys], [job for _, job in keys]
    rows = await sql.fetch(db, "assignments", orgs=orgs, jobs=jobs)
    return {
        (row["org_id"], row["job_id"]): Assignment(row["target"], row["loading"], row["current"])
        for row in rows
    }


# For workers and maintenance


async def target_states(db: Connection) -> list[TargetState]:
    """Every target that had a claim or could not be reached, by name."""
    return [TargetState(*row) for row in await sql.fetch(db, "target_states")]


async def mark_unreachable(db: Connection, target: str, error: str, retry_seconds: float) -> None:
    """Record that a target does not answer. Claims skip it for ``retry_seconds``."""
    error = error[:ERROR_MESSAGE_CHARACTERS_MAX]
    await sql.fetch(db, "mark_unreachable", target=target, error=error, retry_seconds=retry_seconds)


async def mark_reachable(db: Connection, target: str) -> int:
    """Record that a target answers, and make the jobs that wait for a target due now.

    Returns how many jobs that were.
    """
    await sql.fetch(db, "mark_reachable", target=target)
    endpoints = list(LLM_ENDPOINTS.values())
    retried = 0
    while True:
        rows = await sql.fetch(db, "retry_now", endpoints=endpoints, rows_max=RETRIED_AT_ONCE)
        retried += len(rows)
        if len(rows) < RETRIED_AT_ONCE:
            return retried


async def count_drop(db: Connection, org: str, job: UUID, lease: int) -> int | None:
    """Count that a target dropped a chat in mid-answer, though it answers others.

    Returns the drops so far, or None if the job is no longer held under that lease.
    """
    drops: int | None = await sql.value(db, "count_drop", org=org, job=job, lease=lease)
    return drops


async def delete_abandoned(db: Connection, rows_max: int) -> int:
    """Delete the abandoned chats that no retry may join any more. Returns how many rows."""
    rows = await sql.fetch(db, "delete_abandoned", seconds=RETRY_SECONDS_MAX, rows_max=rows_max)
    return len(rows)
