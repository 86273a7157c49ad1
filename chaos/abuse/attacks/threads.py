"""Plain functions that hang: a thread cannot be stopped, so every attempt would keep one."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import httpx2
import psutil

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, Target

_SLOTS: Final = 8
_ABANDONED_OF_ENDPOINT_MAX: Final = 16
_OTHER_THREADS_MAX: Final = 16
"""Threads of the event loop's own pool, which the worker may start meanwhile."""
_HANGS_SECONDS: Final = 300.0
_SECONDS_MAX: Final = 60.0
_LOOK_SECONDS: Final = 0.2
_WAIT_SECONDS: Final = 10
_FULL: Final = "hold a thread each"
"""The log message of a worker that starts no more of them."""


async def _hung_threads(target: Target) -> Figures:
    attempts, others = (48, 8) if target.short else (400, 100)
    worker = psutil.Process(target.pid("worker"))
    before = worker.num_threads()
    async with target.client() as client:
        hung = [
            await _submit(client, "hang-plain", seconds=_HANGS_SECONDS) for _ in range(attempts)
        ]
        await _until_none_is_left_or_refused(target, client, hung)
        ended = [
            await _completed(client, endpoint)
            for endpoint in ("echo", "echo-plain")
            for _ in range(others)
        ]
        explained = await _explained(client, hung[-1])
    return {
        "hung_attempts": attempts,
        "threads_more": worker.num_threads() - before,
        "others_completed": sum(ended),
        "others": len(ended),
        "explained": explained,
    }


async def _until_none_is_left_or_refused(
    target: Target, client: httpx2.AsyncClient, jobs: list[str]
) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while time.monotonic() < deadline and _FULL not in target.log("worker"):
        if (await client.get(_job(jobs[-1]))).json()["terminal"]:
            return
        await asyncio.sleep(_LOOK_SECONDS)
    await asyncio.sleep(_LOOK_SECONDS)  # the running ones are given up, too


async def _explained(client: httpx2.AsyncClient, job: str) -> str:
    """Why it waits. Workers report their threads to the database periodically."""
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        told = (await client.get(f"{_job(job)}/explain")).json()
        kinds = [str(blocker["kind"]) for blocker in told.get("blockers") or []]
        if "threads_held" in kinds or time.monotonic() > deadline:
            return "threads_held" if "threads_held" in kinds else " ".join(kinds)
        await asyncio.sleep(_LOOK_SECONDS)


async def _submit(client: httpx2.AsyncClient, endpoint: str, **body: object) -> str:
    return str((await _posted(client, endpoint, 0, body))["job_id"])


async def _completed(client: httpx2.AsyncClient, endpoint: str) -> bool:
    job = await _posted(client, endpoint, _WAIT_SECONDS, {"word": "hello"})
    return bool(job["status"] == "completed")


async def _posted(
    client: httpx2.AsyncClient, endpoint: str, wait: int, body: dict[str, object]
) -> dict[str, object]:
    """The job when it has ended, or after the timeout."""
    url = f"/api/v1/orgs/{ATTACKER}/services/abuse/async/{endpoint}"
    answer = await client.post(url, params={"wait": wait}, json=body)
    answer.raise_for_status()
    job: dict[str, object] = answer.json()
    return job


def _job(job: str) -> str:
    return f"/api/v1/orgs/{ATTACKER}/jobs/{job}"


def _complaints(figures: Figures) -> list[str]:
    others = figures["others"]
    assert isinstance(others, int)
    return [
        *at_most(figures, "threads_more", _ABANDONED_OF_ENDPOINT_MAX + _SLOTS + _OTHER_THREADS_MAX),
        *at_least(figures, "others_completed", others),
        *([] if figures["explained"] == "threads_held" else ["explain does not say threads_held"]),
    ]


ATTACKS: Final = (
    Attack(
        name="hung-threads",
        row=17,
        title="400 attempts of a plain function that hangs, each with a timeout of 0.2 s",
        run=_hung_threads,
        complaints=_complaints,
        victim="worker",
        settings={"LANE_CONCURRENCY": f"urgent={_SLOTS},standard={_SLOTS},bulk={_SLOTS}"},
    ),
)
