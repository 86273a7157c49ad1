"""A day of a busy deployment, for charts: roll-ups as its processes would have written them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import asyncpg

from coatcheck.domain.durations import bucket_of, trimmed

_SPREAD = ((0.35, 0.6), (1.0, 0.3), (2.4, 0.08), (9.0, 0.02))
"""How often which multiple of the median is met."""
_LANES = {"urgent": 0.15, "standard": 0.6, "bulk": 0.25}
_FAILURES = {
    "upstream_status": 0.45,
    "timeout": 0.3,
    "max_retries_exhausted": 0.17,
    "out_of_memory": 0.08,
}


async def fill_roll_ups(dsn: str, org: str, hours: int = 4) -> None:
    """Write the last ``hours`` of ``org`` and of all organisations, by the minute, up to now."""
    connection = await asyncpg.connect(dsn)
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    try:
        for at in (now - timedelta(minutes=ago) for ago in range(hours * 60)):
            for everybody in (org, "*"):
                await _fill_minute(connection, everybody, at, (now - at).total_seconds() / 60)
    finally:
        await connection.close()


async def _fill_minute(
    connection: asyncpg.Connection[asyncpg.Record], org: str, at: datetime, ago: float
) -> None:
    # A slow wave, a quick one, and a rush that lasted a quarter of an hour.
    rush = 1.6 * math.exp(-(((ago - 24) / 6) ** 2))
    passed = 1.0 if ago else datetime.now(UTC).second / 60
    load = 420 * passed * (1 + 0.25 * math.sin(ago / 37) + 0.08 * math.sin(ago * 1.7) + rush)
    failed_share = 0.012 + 0.05 * math.exp(-(((ago - 20) / 4) ** 2))
    rows = []
    for lane, share in _LANES.items():
        jobs = round(load * share)
        failed = round(jobs * failed_share)
        waits = _spread(0.012 * (1 + 6 * rush) * (4 if lane == "bulk" else 1), jobs)
        runs = _spread(0.8 * (1 + 0.2 * math.sin(ago / 11)), jobs)
        rows.append(
            (org, 60, at, lane, jobs, jobs, jobs - failed, failed, 0, failed * 2, 0, waits, runs)
        )
    await connection.executemany(
        "INSERT INTO job_roll_ups VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
        " ON CONFLICT (org_id, step_seconds, at, lane) DO UPDATE SET"
        " submitted = excluded.submitted, started = excluded.started,"
        " completed = excluded.completed, failed = excluded.failed,"
        " waits = excluded.waits, runs = excluded.runs",
        rows,
    )
    failures = sum(row[7] for row in rows)
    await connection.executemany(
        "INSERT INTO failure_roll_ups VALUES ($1, 60, $2, $3, $4) ON CONFLICT DO NOTHING",
        [(org, at, code, max(1, round(failures * part))) for code, part in _FAILURES.items()],
    )


def _spread(median: float, jobs: int) -> list[int]:
    counts = [0] * 60
    for multiple, share in _SPREAD:
        counts[bucket_of(median * multiple)] += round(jobs * share)
    return list(trimmed(counts))
