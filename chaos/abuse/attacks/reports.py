"""Handlers that report more, and faster, than the database can store."""

from __future__ import annotations

import asyncio
from typing import Final

import httpx2

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, Target

_CHUNK_BYTES: Final = 200_000
_SECONDS_MAX: Final = 180.0
_WAIT_SECONDS: Final = 30
_SERVICE: Final = f"/api/v1/orgs/{ATTACKER}/services/abuse"


async def _large_chunks(target: Target) -> Figures:
    jobs, chunks = (8, 60) if target.short else (24, 120)
    body = {"chunks": chunks, "size": _CHUNK_BYTES}
    async with target.client() as client, asyncio.timeout(_SECONDS_MAX):
        submitted = await asyncio.gather(
            *(client.post(f"{_SERVICE}/async/chunks", json=body) for _ in range(jobs))
        )
        ended = await asyncio.gather(*(_end_of(client, answer) for answer in submitted))
    return {
        "emitted_bytes": jobs * chunks * _CHUNK_BYTES,
        "jobs_completed": ended.count("completed"),
        "jobs_not_completed": jobs - ended.count("completed"),
    }


async def _end_of(client: httpx2.AsyncClient, submitted: httpx2.Response) -> str:
    submitted.raise_for_status()
    url = f"{_SERVICE}/jobs/{submitted.json()['job_id']}?wait={_WAIT_SECONDS}"
    while True:
        job = (await client.get(url, timeout=2 * _WAIT_SECONDS)).raise_for_status().json()
        if job["terminal"]:
            return str(job["status"])


def _complaints(figures: Figures) -> list[str]:
    return [
        *at_most(figures, "rss_growth_mib", 64),
        *at_least(figures, "jobs_completed", 1),
        *at_most(figures, "jobs_not_completed", 0),
    ]


ATTACKS: Final = (
    Attack(
        name="large-chunks",
        row=15,
        title="24 handlers that emit 120 chunks of 200 KB each, as fast as they may",
        run=_large_chunks,
        complaints=_complaints,
        victim="worker",
    ),
)
