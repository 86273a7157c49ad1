"""What most tests of the store begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.batch_repository import batches
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import SentStatements
from tests.db.rows import connected

__all__ = ["batches", "connection", "worker"]


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    """A plain connection to the test's database."""
    async with connected(dsn) as open_connection:
        yield open_connection


@pytest.fixture
async def worker(dsn: str) -> AsyncIterator[Claimer]:
    """A registered worker: the first of its database, so the holder that rows.put_job names."""
    async with claimer(dsn) as registered:
        yield registered


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> SentStatements:
    """What the test has sent to the database from here on, with its plans."""
    return SentStatements(monkeypatch)
