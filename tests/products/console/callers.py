"""Whoever calls the console in the tests, with a key of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2

from tests.deployment import Deployment, bearer


@dataclass(frozen=True)
class Caller:
    """Somebody with a key, and the organisation that they look after."""

    deployment: Deployment
    org: str
    key: str

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Call a path below the organisation's, or a whole one."""
        if not path.startswith("/"):
            path = f"/api/v1/orgs/{self.org}/{path}"
        headers = bearer(self.key) | options.pop("headers", {})
        return await self.deployment.http.request(method, path, headers=headers, **options)

    async def get(self, path: str, **query: Any) -> Any:
        """What is answered 200."""
        answer = await self.ask("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, json: Any = None, **options: Any) -> httpx2.Response:
        return await self.ask("POST", path, json=json, **options)

    async def hand_in(self, path: str, *, key: str | None = None, **given: Any) -> str:
        """Hand a job of the service ``chores`` in. Its id."""
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = await self.post(f"services/chores/async/{path}", given, headers=headers)
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["job_id"]
        return job_id

    async def ended(self, path: str, **given: Any) -> Any:
        """Hand a job in, and show it as the console does once it has ended."""
        return await self.wait_for(await self.hand_in(path, **given))

    async def wait_for(self, job_id: str) -> Any:
        """The job once it has ended."""
        return await self.get(f"jobs/{job_id}", wait=60)

    async def listed(self, **query: Any) -> list[str]:
        """The ids of the jobs of a list."""
        return [job["id"] for job in (await self.get("jobs", **query))["items"]]
