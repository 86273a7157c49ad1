"""Sends callbacks when jobs have finished."""

from __future__ import annotations

import asyncio

import httpx2

from examples.tts_remote.job_folders import End, JobFolders, Order
from examples.tts_remote.records import Seen

_WAITS_SECONDS = (0.0, 1.0, 5.0)
"""The delay before each try. After the last one, callers learn the end from the status."""
_TIMEOUT_SECONDS = 10.0


class Caller:
    """Calls back at least once for each job that has ended, even after a restart."""

    def __init__(self, folders: JobFolders, seen: Seen) -> None:
        self._folders = folders
        self._seen = seen

    async def call_back(self, job_id: str, order: Order, end: End) -> None:
        if order.callback_url is None or not self._folders.callback_due(job_id):
            return
        status = status_of(job_id, end)
        async with httpx2.AsyncClient(trust_env=False, timeout=_TIMEOUT_SECONDS) as http:
            for wait in _WAITS_SECONDS:
                await asyncio.sleep(wait)
                if await self._delivered(http, order.callback_url, status):
                    break
        self._folders.called_back(job_id)

    async def _delivered(
        self, http: httpx2.AsyncClient, url: str, status: dict[str, object]
    ) -> bool:
        try:
            delivered = (await http.post(url, json=status)).is_success
        except (httpx2.HTTPError, httpx2.InvalidURL):
            delivered = False
        self._seen.callbacks["delivered" if delivered else "failed"] += 1
        return delivered


def status_of(job_id: str, end: End | None) -> dict[str, object]:
    """A job's status, for responses and callbacks."""
    if end is None:
        return {"job_id": job_id, "status": "running"}
    status: dict[str, object] = {"job_id": job_id, "status": end.status}
    if end.error is not None:
        status["error"] = end.error
    if end.duration_seconds is not None:
        status["duration_seconds"] = end.duration_seconds
    return status
