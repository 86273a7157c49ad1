"""Who calls, with an organisation, a user and a key. The OpenAPI document judges every answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2

from tests.contract.job_resource.served import Served
from tests.deployment import bearer


@dataclass(frozen=True)
class Caller:
    """Somebody with a key. What they submit is cancelled when ``clear`` is called."""

    served: Served
    org: str
    user: str
    key: str | None
    submitted: list[str] = field(default_factory=list)
    """The paths to cancel what was submitted."""
    possessions: dict[str, str] = field(default_factory=dict)
    allowed: Caller | None = None
    """The same user with a key that may do everything."""

    @property
    def whole(self) -> Caller:
        return self.allowed or self

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, **options: Any) -> httpx2.Response:
        return await self.ask("POST", path, **options)

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Send a request, read the whole answer and compare it with the document."""
        headers = self.headers | dict(options.pop("headers", None) or {})
        answer = await self.served.http.request(method, path, headers=headers, **options)
        self.served.document.check(method, answer)
        return answer

    @asynccontextmanager
    async def follow(self, path: str, **options: Any) -> AsyncIterator[httpx2.Response]:
        """A stream, read by the test."""
        headers = self.headers | dict(options.pop("headers", None) or {})
        async with self.served.http.stream("GET", path, headers=headers, **options) as answer:
            yield answer

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else bearer(self.key)

    def with_key(self, key: str | None) -> Caller:
        """The same user, with another key or none."""
        return replace(self, key=key, allowed=self.whole)

    async def clear(self) -> None:
        """Cancel what was submitted, so that no later worker has to do it."""
        for path in dict.fromkeys(self.submitted):
            answer = await self.whole.post(path)
            assert answer.status_code in (200, 202, 404, 409), answer.text
