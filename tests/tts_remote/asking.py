"""What the tests ask of a remote."""

from __future__ import annotations

import io
import wave
from types import TracebackType
from typing import Any, Self

import httpx2
import psutil

from tests.waiting import eventually_async

SENTENCE = "The quick brown fox jumps over the lazy dog."
LONG = " ".join(f"{number}. {SENTENCE}" for number in range(200))
"""Takes espeak-ng long enough to be interrupted."""


class Asking:
    """A client of the protocol."""

    def __init__(self, url: str, **headers: str) -> None:
        self.http = httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False)

    async def submit(self, text: str = SENTENCE, language: str = "en", **more: Any) -> str:
        order = {"text": text, "language": language} | more
        answer = await self.http.post("/submit-job", json=order)
        assert answer.status_code == 200, answer.text
        job_id: str = answer.json()["job_id"]
        return job_id

    async def status(self, job_id: str) -> dict[str, Any]:
        answer = await self.http.get("/job-status", params={"job_id": job_id})
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def ended(self, job_id: str) -> dict[str, Any]:
        """Its status, once it runs no more."""

        async def told() -> dict[str, Any] | None:
            now = await self.status(job_id)
            return None if now["status"] == "running" else now

        ended: dict[str, Any] = await eventually_async(told, f"job {job_id} has ended")
        return ended

    async def result(self, job_id: str) -> httpx2.Response:
        return await self.http.get("/job-result", params={"job_id": job_id})

    async def speech(self, text: str = SENTENCE, language: str = "en") -> bytes:
        """The WAV of a text."""
        job_id = await self.submit(text, language)
        assert (await self.ended(job_id))["status"] == "completed"
        return (await self.result(job_id)).content

    async def cancel(self, job_id: str) -> dict[str, Any]:
        answer = await self.http.post("/job-cancel", json={"job_id": job_id})
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.http.aclose()


def opened(wav: bytes) -> wave.Wave_read:
    return wave.open(io.BytesIO(wav), "rb")


def seconds_of(wav: bytes) -> float:
    with opened(wav) as speech:
        return speech.getnframes() / speech.getframerate()


def voices() -> list[psutil.Process]:
    """The processes that speak for this one."""
    return [
        child
        for child in psutil.Process().children()
        if any(word.endswith("espeak.py") for word in child.cmdline())
    ]
