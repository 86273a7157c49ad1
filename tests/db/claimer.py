"""A worker reduced to its statements: it registers, claims, hands in, and runs nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from coatcheck.core.queries import claims, leases
from coatcheck.core.queries.leases import ClaimOrder, FinishedJob, Settlement
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.notifications import CHANGED
from coatcheck.domain.claim_choice import ClaimRotation
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.processes import ProcessIdentity
from tests.db.rows import ENDPOINT

KEEP_COMPLETED_SECONDS = 86_400
KEEP_FAILED_SECONDS = 7 * 86_400


class Claimer:
    def __init__(self, line: Connection, boot: int, endpoints: Sequence[str]) -> None:
        self.line = line
        self.boot = boot
        self.endpoints = list(endpoints)
        self._claims = 0
        self._turns: dict[str, ClaimRotation] = {}

    def forget_turns(self) -> None:
        """As a worker that has just started."""
        self._turns.clear()

    def order(
        self, room: int | Mapping[Lane, int], *, holders: Collection[str] | None = None
    ) -> ClaimOrder:
        """An order under a fresh lease, for ``room`` jobs of the standard lane or of each named."""
        rooms = {Lane.STANDARD: room} if isinstance(room, int) else room
        self._claims += 1
        return ClaimOrder(
            lanes=[lane.value for lane in rooms],
            room=list(rooms.values()),
            endpoints=self.endpoints,
            timeouts=[60.0] * len(self.endpoints),
            lease=self.boot << 40 | self._claims,
            turns=self._turns,
            holders=[holders] * len(rooms),
        )

    async def claim(self, room: int | Mapping[Lane, int]) -> list[ClaimedJob]:
        """Work of flows under no limit."""
        claimed, _ = await leases.exchange(self.line, self.order(room), [], KEEP_COMPLETED_SECONDS)
        return claimed

    async def claim_for_newcomers(self, room: int, holders: Collection[str]) -> list[ClaimedJob]:
        """Work of flows under no limit, of organisations that hold nothing."""
        order = self.order(room, holders=holders)
        claimed, _ = await leases.exchange(self.line, order, [], KEEP_COMPLETED_SECONDS)
        return claimed

    async def claim_limited(
        self, room: int | Mapping[Lane, int], *, holders: Collection[str] | None = None
    ) -> list[ClaimedJob]:
        """Work of flows under a limit; with ``holders``, of organisations that hold nothing."""
        return await claims.claim_limited(self.line, self.order(room, holders=holders))

    async def complete(self, *jobs: ClaimedJob, result: bytes = b"null") -> int:
        """Hand jobs in as completed. How many were accepted."""
        _, accepted = await leases.exchange(
            self.line,
            self.order(0),
            [FinishedJob(job, result, 0.5) for job in jobs],
            KEEP_COMPLETED_SECONDS,
        )
        return len(accepted)

    async def complete_and_notify(self, *jobs: ClaimedJob, result: bytes = b"null") -> int:
        """Hand jobs in as completed, with a notification. How many were accepted."""
        accepted = await leases.complete_and_notify(
            self.line,
            [FinishedJob(job, result, 0.5) for job in jobs],
            KEEP_COMPLETED_SECONDS,
            [],
            (CHANGED, ",".join(job.uuid.hex for job in jobs)),
        )
        return len(accepted)

    async def settle(
        self, job: ClaimedJob, event: TransitionEvent, *, code: str = "broke", delay: float = 60.0
    ) -> State | None:
        """End an attempt otherwise. The state it led to, or None if nothing was changed."""
        settlement = Settlement(job, event, code, "it broke", delay, 0.5)
        states = await leases.settle(self.line, [settlement], KEEP_FAILED_SECONDS)
        settled = states.get(job.uuid)
        return None if settled is None else settled.state


@asynccontextmanager
async def claimer(
    dsn: str, endpoints: Sequence[str] = (ENDPOINT,), *, process: ProcessIdentity | None = None
) -> AsyncIterator[Claimer]:
    """A registered worker on a connection of its own, with the plans a worker has."""
    line = Connection(dsn, name="test claimer", server_settings=PINNED_PLANS)
    try:
        boot = await leases.register(
            line, "test", "0", dict(DEFAULT_POLICIES), endpoints, process=process
        )
        yield Claimer(line, boot, endpoints)
    finally:
        await line.close()
