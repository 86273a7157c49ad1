"""The loops that end jobs sound alerts for the last attempts, and the bookkeeper sums up."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from coatcheck.core.queries import usage
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import to_text
from coatcheck.domain.limits import CRASHES_TOGETHER_MAX
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.settings import Settings
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.logs import configure_logging
from tests.all_products import maintenance
from tests.db.claimer import claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import fall_silent
from tests.db.rows import ORG, put_job, state_of

ALERT = "a job failed with no attempt left"
LONG_AGO = datetime.now(UTC) - timedelta(hours=1)


@pytest.fixture
async def loops(dsn: str, tmp_path: Path) -> AsyncIterator[dict[str, Loop]]:
    """Every loop that a process runs, by name; the test ticks them itself."""
    upkeep = maintenance(Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri()))
    yield {loop.name: loop for loop in upkeep.loops}
    await upkeep.stop()


def alerts(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.message == ALERT for record in caplog.records)


async def test_a_rescue_sounds_an_alert_for_the_last_crash_only(
    dsn: str,
    connection: AsyncpgConnection,
    loops: dict[str, Loop],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with claimer(dsn) as worker:
        first = await put_job(connection, State.PROCESSING)
        last = await put_job(connection, State.PROCESSING, crashes=CRASHES_TOGETHER_MAX)
        await fall_silent(worker)
        with caplog.at_level(logging.WARNING):
            await loops["rescuer"].tick()
    assert await state_of(connection, first) is State.QUEUED
    assert await state_of(connection, last) is State.FAILED
    assert alerts(caplog) == 1


async def test_an_overrun_sounds_an_alert_for_the_last_attempt_only(
    dsn: str,
    connection: AsyncpgConnection,
    loops: dict[str, Loop],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with claimer(dsn):
        first = await put_job(connection, State.PROCESSING, run_deadline=LONG_AGO)
        last = await put_job(connection, State.PROCESSING, run_deadline=LONG_AGO, failures=3)
        with caplog.at_level(logging.WARNING):
            await loops["expirer"].tick()
    assert await state_of(connection, first) is State.RETRYING
    assert await state_of(connection, last) is State.FAILED
    assert alerts(caplog) == 1


async def test_lines_about_a_job_carry_the_request_that_made_it(
    dsn: str, connection: AsyncpgConnection, loops: dict[str, Loop]
) -> None:
    written = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        EVENTS.open(configure_logging("info", "json", written))
        async with claimer(dsn) as worker:
            overrun = await put_job(
                connection,
                State.PROCESSING,
                run_deadline=LONG_AGO,
                failures=3,
                request_id="overran",
            )
            await loops["expirer"].tick()
            crashed = await put_job(
                connection, State.PROCESSING, crashes=CRASHES_TOGETHER_MAX, request_id="crashed"
            )
            await fall_silent(worker)
            await loops["rescuer"].tick()
        EVENTS.flush()
    finally:
        EVENTS.close()
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    about = [line for line in lines if line["job_id"]]
    made_by = {to_text(overrun.uuid): "overran", to_text(crashed.uuid): "crashed"}
    assert [line["request_id"] for line in about] == [made_by[line["job_id"]] for line in about]
    ends = [line for line in about if line["logger"] == "coatcheck.jobs"]
    assert [(line["request_id"], line["state"], line["error_code"]) for line in ends] == [
        ("overran", "failed", "max_retries_exhausted"),
        ("crashed", "failed", "worker_lost"),
    ]
    assert len(about) == 6, "what happened, the alert, and the end, of each"


async def test_the_bookkeeper_goes_on_at_once_while_there_is_more_than_a_chunk(
    dsn: str, connection: AsyncpgConnection, loops: dict[str, Loop]
) -> None:
    await connection.execute(
        """
        INSERT INTO usage_deltas (org_id, day, completed, failed, cancelled, attempts,
                                  payload_bytes, result_bytes, run_seconds, endpoint, flow)
        SELECT $1, '2026-01-01', 1, 0, 0, 1, 2, 3, 0.5, 'e', ''
        FROM generate_series(1, 1500)
        """,
        ORG,
    )
    bookkeeper, line = loops["usage roll-up"], Connection(dsn, name="tests")
    assert await bookkeeper.tick() == 0.0
    assert await bookkeeper.tick() > 0.0
    assert await connection.fetchval("SELECT count(*) FROM usage_deltas") == 0
    (row,) = await usage.read(line, ORG, date(2026, 1, 1), date(2026, 1, 1), None)
    await line.close()
    assert (row.completed, row.attempts, row.payload_bytes, row.result_bytes) == (
        1500,
        1500,
        3000,
        4500,
    )
    assert row.run_seconds == 750
