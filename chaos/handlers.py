"""The service that the workers of a run serve. Every execution writes a line outside the system.

``word`` is the canary of the job: it is in the payload, the result and every report of the handler,
so that data kept beyond its retention can be found. ``log`` is the file for executions; an isolated
handler has nothing of the worker's environment, only its input.

Results name their execution, so that of two executions only one can have produced the stored
result.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from typing import Any, Final

from chaos.history import note_execution
from coatcheck import Job, Service

chaos = Service("chaos")

EXECUTIONS_VARIABLE: Final = "CHAOS_EXECUTIONS"
"""The file for executions if the payload has none."""
RETRIES: Final = 20
"""Enough that only a handler that fails on purpose uses them up: a file that cannot be stored while
the database is unavailable uses one."""
_STEP_SECONDS: Final = 0.25


@chaos.post("/quick", retries=RETRIES)
async def quick(job: Job, word: str, log: str = "") -> dict[str, Any]:
    """Ends at once."""
    return _noted(job, word, log)


@chaos.post("/slow", retries=RETRIES)
async def slow(job: Job, word: str, seconds: float, log: str = "") -> dict[str, Any]:
    """Takes some time, and obeys a cancellation."""
    result = _noted(job, word, log)
    await _pass(job, seconds)
    return result


@chaos.post("/threaded", retries=RETRIES)
def threaded(job: Job, word: str, seconds: float, log: str = "") -> dict[str, Any]:
    """The same in a thread of the worker, which cannot be stopped."""
    result = _noted(job, word, log)
    _pass_in_thread(job, seconds)
    return result


@chaos.post("/isolated", retries=RETRIES, isolated=True)
def isolated(job: Job, word: str, seconds: float, log: str = "") -> dict[str, Any]:
    """The same in its own process, with a file in its folder that must not stay."""
    result = _noted(job, word, log)
    assert job.temp_dir is not None
    (job.temp_dir / "left-behind.txt").write_text(word)
    _pass_in_thread(job, seconds)
    return result


@chaos.post("/flaky", retries=RETRIES)
async def flaky(job: Job, word: str, failures: int, log: str = "") -> dict[str, Any]:
    """Its first attempts fail, each in another way."""
    result = _noted(job, word, log)
    if job.attempt <= failures:
        if job.attempt % 2:
            job.retry(f"not yet, says {word}", after=0.5)
        raise RuntimeError(f"{word} has gone wrong")
    return result


@chaos.post("/doomed")
async def doomed(job: Job, word: str, log: str = "") -> None:
    """Fails permanently."""
    _noted(job, word, log)
    job.fail(f"{word} was never going to work", code="doomed")


@chaos.post("/exhausting", retries=2)
async def exhausting(job: Job, word: str, log: str = "") -> None:
    """Fails at every attempt."""
    _noted(job, word, log)
    job.retry(f"{word} fails again", after=0.2)


@chaos.post("/reporting", retries=RETRIES)
async def reporting(job: Job, word: str, lines: int, log: str = "") -> dict[str, Any]:
    """Uses every kind of report."""
    result = _noted(job, word, log)
    for number in range(lines):
        await job.progress(number / lines, f"line {number} of {word}")
        await job.log(f"line {number} of {word}", number=number)
        await job.emit({"number": number, "execution": result["execution"], "word": word})
        await asyncio.sleep(0.05)
    await job.attach("made.txt", artifact_of(word), media_type="text/plain")
    return result


@chaos.post("/limited", retries=RETRIES, concurrency=2)
async def limited(job: Job, word: str, seconds: float, log: str = "") -> dict[str, Any]:
    """At most two run at once, across all workers."""
    result = _noted(job, word, log)
    await _pass(job, seconds)
    return result


@chaos.post("/task", retries=RETRIES)
async def task(
    job: Job, word: str, end: str = "succeed", seconds: float = 0.0, log: str = ""
) -> dict[str, Any]:
    """A task of a batch. ``end`` is succeed, fail, or stumble (and succeed at the second try)."""
    result = _noted(job, word, log)
    await _pass(job, seconds)
    if end == "fail":
        job.fail(f"{word} was never going to work", code="doomed")
    if end == "stumble" and job.attempt == 1:
        job.retry(f"{word} stumbles", after=0.2)
    return result


def artifact_of(word: str) -> bytes:
    """The file of ``reporting``: large enough for a blob in pieces, with its canary."""
    return f"{word}\n".encode() * 4_000


def _noted(job: Job, word: str, log: str) -> dict[str, Any]:
    execution = uuid.uuid4().hex
    path = log or os.environ.get(EXECUTIONS_VARIABLE, "")
    if path:
        note_execution(
            path,
            job=job.id,
            uuid=job.uuid.hex,
            attempt=job.attempt,
            pid=os.getpid(),
            endpoint=job.endpoint,
            execution=execution,
        )
    return {"job": job.id, "attempt": job.attempt, "execution": execution, "word": word}


async def _pass(job: Job, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _STEP_SECONDS))
        job.check_cancelled()


def _pass_in_thread(job: Job, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, _STEP_SECONDS))
        job.check_cancelled()
