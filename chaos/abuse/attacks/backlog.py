"""Batches with far more tasks than an organisation may have waiting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import httpx2

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, MIB, Target

LIMIT: Final = 10
_JOBS: Final = "/v1/jobs"
_CALLED: Final = {"service": "abuse", "endpoint": "/hang"}
_TASK: Final = {"seconds": 60}
_NDJSON: Final = {"Content-Type": "application/x-ndjson"}
_LOOKS: Final = 20
_LOOK_SECONDS: Final = 0.5


async def _over_the_limit(target: Target) -> Figures:
    """Submit tasks in every possible way, and count the waiting ones."""
    await target.coatcheck("orgs", "limit", ATTACKER, "--backlog", str(LIMIT))
    many = 5_000 if target.short else 50_000
    async with target.client() as client:
        open_job = await client.post(_JOBS, json=_CALLED | {"type": "open"})
        tasks_of_open = open_job.json()["urls"]["tasks"]
        ways: list[Callable[[], Any]] = [
            lambda: client.post(_JOBS, json=_CALLED | {"tasks": [_TASK] * 500}),
            lambda: client.post(_JOBS, params=_CALLED, content=_lines(many), headers=_NDJSON),
            lambda: client.post(tasks_of_open, json={"tasks": [_TASK] * 500}),
            # Too long to count before it is stored.
            lambda: client.post(
                _JOBS, params=_CALLED, content=_lines(2 * MIB // 16), headers=_NDJSON
            ),
        ]
        refused = 0
        for way in ways:
            answer = await way()
            refused += answer.status_code == 429
        most, looks = 0, 4 if target.short else _LOOKS
        for _ in range(looks):
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(httpx2.TimeoutException):
                most = max(most, await _waiting(client))
    return {"limit": LIMIT, "refused": refused, "most_waiting": most}


def _lines(tasks: int) -> bytes:
    return (json.dumps(_TASK).encode() + b"\n") * tasks


async def _waiting(client: httpx2.AsyncClient) -> int:
    batches = (await client.get(_JOBS)).json()["items"]
    return sum(batch["counts"]["pending"] for batch in batches)


def _complaints(figures: Figures) -> list[str]:
    # A replica's count is up to a second old: the same number may arrive another way meanwhile.
    return [*at_most(figures, "most_waiting", 2 * LIMIT), *at_least(figures, "refused", 3)]


ATTACKS: Final = (
    Attack(
        name="batch-over-backlog",
        row=14,
        title=f"lists of 500 to 131,072 tasks, with a backlog limit of {LIMIT}",
        run=_over_the_limit,
        complaints=_complaints,
    ),
)
