"""The clocks of a worker and of a server are ten minutes wrong, by libfaketime.

The whole process has that time, including its libraries; only its monotonic clock, which no
administrator can set, is right.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chaos.environment.installation import Installation, Program
from chaos.environment.waiting import until
from tests.e2e.conftest import free_port

TEN_MINUTES = 600
PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/lib")


def off_by(seconds: int) -> dict[str, str]:
    """The variables that set a process's clock."""
    found = [Path(place, "faketime", "libfaketimeMT.so.1") for place in PLACES]
    library = next((path for path in found if path.exists()), None)
    if library is None:
        pytest.skip("libfaketime is not installed")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.parametrize("offset", [TEN_MINUTES, -TEN_MINUTES], ids=["ahead", "behind"])
@pytest.mark.parametrize("whose", ["worker", "server"])
async def test_a_clock_that_is_ten_minutes_off_changes_nothing(
    dsn: str, tmp_path: Path, whose: str, offset: int
) -> None:
    clock = off_by(offset)
    async with Installation(dsn, tmp_path) as installed:
        began = await _database_time(installed)
        server = await installed.serve(clock if whose == "server" else None)
        worker = await installed.work(clock if whose == "worker" else None)
        _assert_off(server if whose == "server" else worker, offset)
        installed.callers.start(2)
        installed.callers.start(1, "/wait", gate=str(tmp_path / "gate"))
        installed.callers.start(1, "/fail-first")
        await installed.ran_more(20)
        await _held_for_longer_than_a_lease(installed)
        (tmp_path / "gate").touch()
        await installed.callers.stop()
        await installed.nothing_was_lost()
        ended = await _database_time(installed)

        assert installed.callers.refusals == []
        rescued = await installed.sql.fetchval("SELECT count(*) FROM jobs WHERE crashes > 0")
        assert rescued == 0, "a healthy worker's job was taken from it"
        outside = await installed.sql.fetchval(
            """
            SELECT count(*) FROM jobs
            WHERE NOT ($1 <= created_at AND created_at <= dispatched_at
                       AND dispatched_at <= finished_at AND finished_at <= $2)
            """,
            began,
            ended,
        )
        assert outside == 0, "a time in a row is not the database's"
        assert await installed.sql.fetchval("SELECT count(*) FROM jobs WHERE failures = 1") > 0


async def test_two_servers_whose_clocks_differ_know_each_others_jobs_and_keys(
    dsn: str, tmp_path: Path
) -> None:
    """A key has one job on both servers, and both show the same."""
    clock = off_by(TEN_MINUTES)
    async with Installation(dsn, tmp_path) as installed:
        port = free_port()
        await installed.serve(clock)
        await installed.serve(port=port)
        await installed.work()
        other = f"http://127.0.0.1:{port}"
        tickets = [
            await installed.http.post(
                f"{base}/api/v1/orgs/default/services/yard/async/note",
                headers={"Idempotency-Key": "the same"},
                json=installed.payload(),
            )
            for base in ("", other, "")
        ]
        (job,) = {ticket.json()["job_id"] for ticket in tickets}
        await installed.all_ended()
        shown = [
            (
                await installed.http.get(f"{base}/api/v1/orgs/default/services/yard/jobs/{job}")
            ).json()
            for base in ("", other)
        ]
        assert shown[0] == shown[1]
        assert shown[0]["status"] == "completed", shown
        assert installed.executions().total() == 1


async def _held_for_longer_than_a_lease(installed: Installation) -> None:
    """Wait for a heartbeat more than a whole lease after the worker's start."""

    async def look() -> bool:
        return bool(
            await installed.sql.fetchval(
                "SELECT bool_or(last_seen_at > started_at + interval '5 seconds') FROM workers"
            )
        )

    await until(look, "the lease was renewed past its first end")


async def _database_time(installed: Installation) -> datetime:
    now: datetime = await installed.sql.fetchval("SELECT clock_timestamp()")
    return now


def _assert_off(program: Program, offset: int) -> None:
    """Check by the times in its log that its clock was moved."""
    first = json.loads(next(line for line in program.log.splitlines() if line.startswith("{")))
    said = datetime.fromisoformat(first["time"])
    ahead = said - datetime.now(UTC)
    assert abs(ahead - timedelta(seconds=offset)) < timedelta(minutes=2), "its clock was not moved"
