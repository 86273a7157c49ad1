"""The connection breaks after a commit: the statement is repeated, and its answer is the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from msgspec.structs import replace

from coatcheck.core.queries import remote_calls
from coatcheck.core.remote.result_store import StoredOutput
from coatcheck.db.connection import Connection
from coatcheck.domain.states import State
from tests.db.lossy_proxy import LossyProxy
from tests.remote_calls.render_deployment import RenderDeployment, uuid
from tests.waiting import eventually_async

Answer = TypeVar("Answer")


class FarConnection:
    """A connection that can lose the answer of a statement that was committed."""

    def __init__(self, deployment: RenderDeployment, proxy: LossyProxy) -> None:
        self._deployment = deployment
        self._proxy = proxy
        self.db = Connection(proxy.dsn, name="tests far")

    async def losing_the_answer(
        self, statement: Coroutine[Any, Any, Answer], *, sent: bytes, committed: str
    ) -> Answer:
        """Run a statement whose arguments have ``sent``, and lose its first answer, once the query
        ``committed`` is true."""
        self._proxy.lose_answers(after=sent)
        running = asyncio.create_task(statement)

        async def is_committed() -> bool:
            return bool(await self._deployment.sql.fetchval(committed))

        await eventually_async(is_committed, "the first try is committed")
        assert not running.done()
        self._proxy.cut()
        return await running


@asynccontextmanager
async def far(deployment: RenderDeployment) -> AsyncIterator[FarConnection]:
    async with LossyProxy.before(deployment.dsn) as proxy:
        opened = FarConnection(deployment, proxy)
        yield opened
        await opened.db.close()


@pytest.mark.parametrize("moment", [0.0, 0.001])
@pytest.mark.parametrize("faults", [0, 2])
async def test_a_check_that_was_claimed_without_an_answer_is_claimed(
    deployment: RenderDeployment, moment: float, faults: int
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    await deployment.parked(job_id)
    job = uuid(job_id)
    await deployment.sql.execute(
        "UPDATE remote_calls SET faults = $1, due_at = now() - interval '1 second',"
        " spawned_at = now() - interval '1 second'",
        faults,
    )
    looker = uuid4()
    async with far(deployment) as line:
        call = await line.losing_the_answer(
            remote_calls.claim_one(
                line.db, "default", job, seconds=60.0, moment=moment, looker=looker
            ),
            sent=looker.bytes,
            committed="SELECT looker IS NOT NULL FROM remote_calls",
        )
        assert call is not None
        assert (call.looker, call.polls, call.faults) == (looker, 1, faults)
        other = await remote_calls.claim_one(
            line.db, "default", job, seconds=60.0, moment=0.0, looker=uuid4()
        )
        assert other is None


async def test_a_finalization_that_was_won_without_an_answer_is_won_once(
    deployment: RenderDeployment,
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id = await deployment.submit()
    await deployment.parked(job_id)
    async with far(deployment) as line:

        async def looked(seconds: float) -> remote_calls.ClaimedCall:
            call = await remote_calls.claim_one(
                line.db, "default", uuid(job_id), seconds=seconds, moment=0.0, looker=uuid4()
            )
            assert call is not None
            return call

        rival = await looked(seconds=0.0)  # whose claim is over at once
        call = await looked(seconds=60.0)
        lease = await line.losing_the_answer(
            remote_calls.finalize(line.db, call, 60.0),
            sent=call.looker.bytes,
            committed="SELECT state = 'finalizing' FROM jobs",
        )
        assert lease is not None
        assert lease == await deployment.sql.fetchval("SELECT lease FROM jobs")
        assert await remote_calls.renew(line.db, replace(call, lease=lease), 60.0)
        assert await remote_calls.finalize(line.db, rival, 60.0) is None
        assert await remote_calls.complete(
            line.db, replace(call, lease=lease), StoredOutput(b"1"), 60
        )
    assert (await deployment.ended(job_id)).state is State.COMPLETED
