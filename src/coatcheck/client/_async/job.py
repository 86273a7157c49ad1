"""A job: the latest state from the server, and methods to act on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from coatcheck.client.addresses import Addresses
from coatcheck.client.events import AsyncEvents
from coatcheck.client.models import JobArtifact, JobBody

if TYPE_CHECKING:
    from coatcheck.client._async.client import AsyncClient


class AsyncJob(JobBody):
    """A job. Its methods call the server and update the job's own fields."""

    __slots__ = ("_client",)

    def __init__(
        self,
        client: AsyncClient,
        raw: Mapping[str, Any],
        headers: Mapping[str, str],
        addresses: Addresses,
        *,
        is_listed: bool = False,
    ) -> None:
        super().__init__(raw, headers, addresses, is_listed=is_listed)
        self._client = client

    async def refresh(self) -> Self:
        """Read the current state of the job."""
        await self._client.get(self)
        return self

    async def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> Self:
        """Wait until the job has ended. Raises JobFailed, WaitTimeout; see the client's wait."""
        await self._client.wait(self, timeout, raise_on_failure=raise_on_failure)
        return self

    async def cancel(self) -> Self:
        """Cancel the job. Raises ConflictError if it has already ended in another way."""
        await self._client.cancel(self)
        return self

    async def artifacts(self) -> tuple[JobArtifact, ...]:
        """The files that the job produced; the client's ``download`` fetches one."""
        return await self._client.artifacts(self)

    def stream(self, after: str | None = None) -> AsyncEvents:
        """The job's events as they come, until its end; see the client's stream."""
        return self._client.stream(self, after)
