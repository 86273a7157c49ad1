"""Soak samples: processes as the operating system sees them, the database by its statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import asyncpg
import psutil

from chaos.deployment import Deployment
from chaos.files import files_below
from chaos.history import History

MB: Final = 1e6
AWAY: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""Errors of a sample while the database is unavailable."""

WITNESSES: Final = ("end_history", "job_history", "run_history", "worker_history")
"""Tables of the chaos triggers, which keep everything."""

RECORDS: Final = (
    "artifact_records",
    "batch_exports",
    "failure_roll_ups",
    "generations",
    "input_copies",
    "job_inputs",
    "job_roll_ups",
    "stripe_meter_events",
    "usage",
    "usage_hours",
    "usage_reports",
    "voices",
    "webhook_deliveries",
)
"""Tables kept for days or for ever, whatever the retention of jobs: deletion receipts, deliveries,
usage and roll-ups, data of users. They grow with the work done."""

KEPT_BLOBS: Final = frozenset({"exports", "generations", "references"})
"""Folders of the blob container whose files are kept as long as such records."""

_ACTIVITY: Final = """
SELECT count(*) FILTER (WHERE application_name LIKE 'coatcheck %') AS connections,
       coalesce(max(extract(epoch FROM now() - xact_start)), 0) AS oldest_transaction
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_SIZES: Final = """
SELECT s.relname AS name, pg_table_size(s.relid) AS table_bytes,
       pg_indexes_size(s.relid) AS index_bytes, s.n_dead_tup AS dead, s.n_live_tup AS live
FROM pg_stat_user_tables AS s WHERE s.relname <> ALL ($1)
"""
_CLAIMS: Final = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY waited) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY waited) AS p95
FROM (
    SELECT extract(epoch FROM dispatched_at - greatest(run_at, created_at)) AS waited
    FROM jobs
    WHERE dispatched_at > now() - $1 * interval '1 second' AND run_id IS NULL
      AND failures + crashes + interruptions + unreachables = 0
) AS recent
"""
"""The wait of single jobs until their first claim: a task may wait for its batch's limits."""

_ENDS: Final = """
SELECT count(*) AS ended FROM jobs WHERE finished_at > now() - $1 * interval '1 second'
"""


class Sampler:
    """Measures a deployment. ``every`` is how far back a sample looks for claims."""

    def __init__(self, deployment: Deployment, history: History, every: float) -> None:
        self._deployment = deployment
        self._history = history
        self._every = every

    async def sample(self) -> dict[str, float]:
        """Take one sample."""
        row = {"seconds": self._history.now()}
        for member in self._deployment.members:
            row |= _of_process(member.name, member.pid)
        row |= _of_postgres(self._deployment.postgres.pid)
        row |= _of_folders(self._deployment.folder)
        connection = await asyncpg.connect(self._deployment.dsn, timeout=30)
        try:
            row |= await self._of_database(connection)
        finally:
            await connection.close()
        return row

    async def _of_database(
        self, connection: asyncpg.Connection[asyncpg.Record]
    ) -> dict[str, float]:
        (activity,) = await connection.fetch(_ACTIVITY)
        (claims,) = await connection.fetch(_CLAIMS, self._every)
        tables = await connection.fetch(_SIZES, list(WITNESSES))
        (ends,) = await connection.fetch(_ENDS, self._every)
        kept = [table for table in tables if table["name"] in RECORDS]
        turned_over = [table for table in tables if table["name"] not in RECORDS]
        return {
            "ended a second": ends["ended"] / self._every,
            "connections": float(activity["connections"]),
            "oldest transaction s": float(activity["oldest_transaction"]),
            "tables MB": sum(table["table_bytes"] for table in turned_over) / MB,
            "indexes MB": sum(table["index_bytes"] for table in turned_over) / MB,
            "dead rows": float(sum(table["dead"] for table in turned_over)),
            "rows": float(sum(table["live"] for table in turned_over)),
            "records MB": sum(t["table_bytes"] + t["index_bytes"] for t in kept) / MB,
            "records": float(sum(table["live"] for table in kept)),
            **_of_claims(claims),
            **_of_each(turned_over),
        }


def _of_process(name: str, pid: int) -> dict[str, float]:
    """The private memory of a process and its open files; empty if it does not run."""
    try:
        process = psutil.Process(pid)
        return {
            f"{name} MB": process.memory_full_info().uss / MB,
            f"{name} files": float(process.num_fds()),
        }
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return {}


def _of_postgres(pid: int) -> dict[str, float]:
    memory = files = processes = 0.0
    try:
        postmaster = psutil.Process(pid)
        for process in [postmaster, *postmaster.children(recursive=True)]:
            try:
                memory += process.memory_full_info().uss / MB
                files += process.num_fds()
                processes += 1
            except psutil.NoSuchProcess:
                continue
    except psutil.NoSuchProcess:
        return {}
    return {"postgres MB": memory, "postgres files": files, "postgres processes": processes}


def _of_folders(folder: Path) -> dict[str, float]:
    """The numbers of blobs under retention and of temporary files."""
    blobs = folder / "blobs"
    of_jobs = [each for each in blobs.iterdir() if each.name not in KEPT_BLOBS]
    return {
        "blobs": float(sum(_files_below(each) for each in of_jobs)),
        "temporary files": float(_files_below(folder / "temp")),
    }


def _files_below(folder: Path) -> int:
    return sum(1 for _ in files_below(folder))


def _of_claims(claims: asyncpg.Record) -> dict[str, float]:
    """Empty if nothing was claimed."""
    if claims["p50"] is None:
        return {}
    return {f"claim {name} ms": 1e3 * float(claims[name]) for name in ("p50", "p95")}


def _of_each(tables: list[asyncpg.Record]) -> dict[str, float]:
    """The size of each table, with its indexes."""
    found = {
        f"table {table['name']} MB": (table["table_bytes"] + table["index_bytes"]) / MB
        for table in tables
    }
    return dict(sorted(found.items()))
