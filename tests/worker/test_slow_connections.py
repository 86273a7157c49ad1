"""Heartbeats to a server that is so short of time that connecting to it takes long."""

from __future__ import annotations

import logging

import pytest

from coatcheck.db.connection import Connection
from coatcheck.domain.lanes import Lane, LanePolicy
from coatcheck.worker import lease
from coatcheck.worker.lease import LeaseRenewer
from tests.chaos.proxies import before
from tests.worker.conftest import LeaseClock

PIECE_SECONDS = 0.1
LANES = {lane: LanePolicy(retries=0, ack_seconds=1.2, concurrency=1) for lane in Lane}
"""A heartbeat is given up after 0.4 s, and to connect takes 0.2 s for each of several questions."""


async def test_a_worker_that_has_lost_everything_waits_for_its_new_connection(
    dsn: str, clock: LeaseClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It would else give up connection after connection, and never be heard of again."""
    caplog.set_level(logging.INFO, lease.__name__)
    held_again: list[bool] = []
    async with before(dsn) as (proxy, url):
        proxy.delay_seconds = PIECE_SECONDS
        heartbeats, registry = Connection(url, name="heartbeats"), Connection(dsn, name="registry")
        keeper = LeaseRenewer(
            heartbeats,
            registry,
            LANES,
            name="slow",
            version="1",
            endpoints=[],
            on_cancel=lambda _: None,
            on_lost=lambda _: None,
            on_held_again=lambda: held_again.append(True),
            recording_failed_for=lambda: 0.0,
        )
        await keeper.register()
        await keeper.renew()
        assert "heartbeat not answered" in caplog.text, "while it has something to lose, it hurries"
        assert not held_again
        clock.now += 60
        await keeper.renew()
        assert held_again == [True]
        await heartbeats.close()
        await registry.close()
