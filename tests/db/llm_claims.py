"""A worker of the llm surface reduced to its claims, and jobs for it to find."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from coatcheck.domain.lanes import Lane
from coatcheck.products.llm import queries
from coatcheck.products.llm.model import LLM_ENDPOINTS
from coatcheck.products.llm.queries import AssignedJob, SlotOffer
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ORG, put_queue

CHAT = LLM_ENDPOINTS["chat"]
GENERATE = LLM_ENDPOINTS["generate"]
TURN_SECONDS = 30.0


class LlmClaimer:
    """Claims for targets, with room for more than any test has."""

    def __init__(self, worker: Claimer) -> None:
        self.worker = worker
        self.may_have_left_some = False

    async def claim(
        self,
        *offers: SlotOffer,
        room: int = 100,
        urgent: int = 100,
        turn_seconds: float = TURN_SECONDS,
    ) -> list[AssignedJob]:
        order = self.worker.order({Lane.URGENT: urgent, Lane.STANDARD: room})
        held = await queries.claim(self.worker.line, order, offers, turn_seconds=turn_seconds)
        self.may_have_left_some = order.look_again_seconds == 0.0
        return held


@asynccontextmanager
async def llm_claimer(dsn: str) -> AsyncIterator[LlmClaimer]:
    async with claimer(dsn, [CHAT, GENERATE]) as worker:
        yield LlmClaimer(worker)


def offer(
    target: str = "gpu",
    concurrency: int = 1,
    models: Sequence[str] | None = None,
    resident: Sequence[str] = (),
) -> SlotOffer:
    return SlotOffer(
        target, concurrency, None if models is None else frozenset(models), frozenset(resident)
    )


async def put_chats(
    connection: AsyncpgConnection,
    count: int,
    model: str,
    *,
    org: str = ORG,
    lane: Lane = Lane.STANDARD,
    endpoint: str = CHAT,
) -> None:
    """``count`` queued jobs for a model."""
    await put_queue(connection, count, org=org, flow=model, lane=lane, endpoint=endpoint)
