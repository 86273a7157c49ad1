"""Archives that are slow to analyse, more of them than a worker analyses at a time."""

from __future__ import annotations

import asyncio
import io
import zipfile
from contextlib import suppress
from typing import Final

import httpx2

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import BYSTANDER, Target

_CONCURRENCY: Final = 4
_FILES: Final = 120
_SECONDS_MAX: Final = 120.0
_LOOK_SECONDS: Final = 0.2
_SMALL: Final = {"shop/till.py": "def total(items):\n    return sum(items)\n"}


async def _archives(target: Target) -> Figures:
    number = _CONCURRENCY + 2
    large = await asyncio.to_thread(_large, _FILES)
    async with target.client() as client, target.client(BYSTANDER) as other:
        theirs = [await _post(client, large, f"large-{at}") for at in range(number)]
        await _begun(client, theirs, _CONCURRENCY - 1)  # the last slot may be reserved for others
        small = await _post(other, _zipped(_SMALL), "small")
        completed = await _completed(other, small)
        ended = [await _state(client, job) in ("completed", "failed") for job in theirs]
        for job in theirs:
            await client.post(f"/v1/graphs/jobs/{job}/cancel")
    return {
        "archives": number,
        "archive_bytes": len(large),
        "small_archive_completed": int(completed),
        "archives_ended_before_it": sum(ended),
    }


def _large(files: int) -> bytes:
    """Modules of about 40 KB, each of which calls the next one."""
    return _zipped(
        {
            f"package/module_{at}.py": "".join(
                f"def f{at}_{line}(a, b): return f{at + 1}_{line}(a.b.c(b), [a, b, {line}])\n"
                for line in range(600)
            )
            for at in range(files)
        }
    )


def _zipped(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


async def _post(client: httpx2.AsyncClient, archive: bytes, key: str) -> str:
    answer = await client.post(
        "/v1/graphs/call",
        files={"file": ("code.zip", archive, "application/zip")},
        headers={"Idempotency-Key": key},
    )
    return str(answer.raise_for_status().json()["jobId"])


async def _begun(client: httpx2.AsyncClient, jobs: list[str], number: int) -> None:
    """Wait until this many are running, or until the timeout."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS_MAX):
            while True:
                states = [await _state(client, job) for job in jobs]
                if sum(state != "pending" for state in states) >= number:
                    return
                await asyncio.sleep(_LOOK_SECONDS)


async def _completed(client: httpx2.AsyncClient, job: str) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS_MAX):
            while (state := await _state(client, job)) not in ("completed", "failed"):
                await asyncio.sleep(_LOOK_SECONDS)
            return state == "completed"
    return False


async def _state(client: httpx2.AsyncClient, job: str) -> str:
    answer = await client.get(f"/v1/graphs/jobs/{job}")
    return str(answer.raise_for_status().json()["status"])


def _complaints(figures: Figures) -> list[str]:
    return [
        *at_least(figures, "small_archive_completed", 1),
        *at_most(figures, "archives_ended_before_it", 0),
    ]


ATTACKS: Final = (
    Attack(
        name="archives",
        row=3,
        title="6 large archives, with 4 analysed at a time, before a small one of another tenant",
        run=_archives,
        complaints=_complaints,
        victim="worker",
        settings={"GRAPHS_CONCURRENCY": str(_CONCURRENCY)},
    ),
)
