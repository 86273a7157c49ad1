"""A process that was frozen in the middle of a transaction does not stop all the others."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.db import connection as line_module
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.errors import OutcomeUnknown
from coatcheck.products.llm.queries import sql
from tests.db.llm_claims import llm_claimer, offer, put_chats


async def test_the_lock_of_claims_is_free_again_though_who_holds_it_is_frozen(
    dsn: str, connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_chats(connection, 1, "a:1")
    with monkeypatch.context() as patch:  # for this one alone: the claim below takes its time
        patch.setattr(line_module, "IDLE_IN_TRANSACTION_SECONDS_MAX", 0.1)
        frozen = Connection(dsn, name="frozen")
    holds, thawed = asyncio.Event(), asyncio.Event()

    async def claim(its: RawConnection) -> None:
        await its.execute(sql("begin_claim"))
        holds.set()
        await thawed.wait()
        await its.execute("COMMIT")

    claiming = asyncio.create_task(frozen.run(claim))
    await holds.wait()
    async with llm_claimer(dsn) as worker:
        assert len(await worker.claim(offer())) == 1
    thawed.set()
    with pytest.raises(OutcomeUnknown):
        await claiming
    assert await frozen.fetch("SELECT 1")
    await frozen.close()
