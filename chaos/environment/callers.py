"""Callers that submit jobs over HTTP during a disturbance, and keep the answers.

Each submits one job after another with a new key, as a client does: after an error, or without an
answer, it repeats the request with the same key.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx2

from chaos.environment.waiting import WAIT_SECONDS_MAX, until

PATH = "/api/v1/orgs/default/services/yard/async"
_PAUSE_SECONDS = 0.02
"""Between two calls of one caller: a load, not a flood."""


@dataclass(frozen=True)
class Refusal:
    """An answer that was not a success."""

    status: int
    code: str
    retry_after: str | None

    @property
    def is_to_be_expected(self) -> bool:
        """Whether it is a 503 with a Retry-After."""
        return self.status == HTTPStatus.SERVICE_UNAVAILABLE and self.retry_after is not None


class Callers:
    """``number`` callers at once, from ``start`` until ``stop``."""

    def __init__(self, http: httpx2.AsyncClient, payload: Mapping[str, Any]) -> None:
        self._http = http
        self._payload = payload
        self._stopping = asyncio.Event()
        self._calling: list[asyncio.Task[None]] = []
        self.acknowledged: dict[str, str] = {}
        self.refusals: list[Refusal] = []
        self.unanswered = 0

    def start(self, number: int = 4, path: str = "/note", **more: Any) -> None:
        """Start calling; ``more`` is added to the payload."""
        begun = len(self._calling)
        self._calling += [
            asyncio.create_task(self._call(f"caller-{begun + each}", path, more))
            for each in range(number)
        ]

    async def stop(self) -> None:
        """Submit no more jobs; returns when every call has a definite answer."""
        self._stopping.set()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await asyncio.gather(*self._calling)
        self._calling.clear()
        self._stopping.clear()

    async def leave(self) -> None:
        """Stop calling, with or without an answer."""
        for call in self._calling:
            call.cancel()
        await asyncio.gather(*self._calling, return_exceptions=True)
        self._calling.clear()

    async def _call(self, name: str, path: str, more: Mapping[str, Any]) -> None:
        number = 0
        while not self._stopping.is_set():
            key = f"{name}-{number}"
            self.acknowledged[key] = await self._until_acknowledged(key, path, more)
            number += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _until_acknowledged(self, key: str, path: str, more: Mapping[str, Any]) -> str:
        while True:
            try:
                answer = await self._http.post(
                    f"{PATH}{path}",
                    json={**self._payload, **more},
                    headers={"Idempotency-Key": key},
                )
            except httpx2.TransportError:
                self.unanswered += 1
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if answer.is_success:
                return str(answer.json()["job_id"])
            body = answer.json()
            self.refusals.append(
                Refusal(answer.status_code, body["code"], answer.headers.get("retry-after"))
            )
            await asyncio.sleep(_PAUSE_SECONDS)

    async def told(self, code: str, times: int = 1) -> None:
        """Wait for this many more refusals with this code."""
        seen = self._told(code)

        async def look() -> bool:
            return self._told(code) >= seen + times

        await until(look, f"callers get {code}; so far {self.summary()}")

    async def acknowledged_more(self, jobs: int = 10) -> None:
        """Wait for this many more acknowledged jobs."""
        seen = len(self.acknowledged)

        async def look() -> bool:
            return len(self.acknowledged) >= seen + jobs

        await until(look, f"callers are answered; so far {self.summary()}")

    def unexpected(self) -> list[Refusal]:
        """Refusals that are not 503 with a Retry-After."""
        return [refusal for refusal in self.refusals if not refusal.is_to_be_expected]

    def summary(self) -> str:
        codes = dict(Counter(f"{each.status} {each.code}" for each in self.refusals))
        return f"{len(self.acknowledged)} acknowledged, {codes}, {self.unanswered} unanswered"

    def _told(self, code: str) -> int:
        return sum(refusal.code == code for refusal in self.refusals)
