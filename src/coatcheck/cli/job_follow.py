"""Follows a job to its end by its events, and asks now and then why it waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

import typer

from coatcheck.cli.console import err
from coatcheck.cli.entry import EXIT_INTERRUPTED
from coatcheck.cli.errors import EXIT_FAILED
from coatcheck.cli.job_display import Display, display
from coatcheck.cli.remote import Server
from coatcheck.client import AsyncClient, ClientError, JobDetails

WHY_SECONDS: Final = 3.0
"""How often the server is asked why a job has not begun."""
_UNDER_WAY: Final = frozenset({"processing", "finalizing"})


def ended(at: Server, job: JobDetails, *, shown: bool, as_json: bool = False) -> JobDetails:
    """The job as it ended. Whoever does not wait for that is told how to come back to it.

    ``shown`` on the way, or with ``as_json`` told in lines of JSON: what it said is also shown of
    one that has ended already, which may be so before anybody could look.
    """
    if job.terminal and not (shown or as_json):
        return job
    try:
        with display(wanted=shown, as_json=as_json) as on:
            return asyncio.run(_follow(at, job, on))
    except KeyboardInterrupt:
        again = at.command(f"watch {job.id}")
        err.print(f"The job goes on. To look again: {again}", markup=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def require_completed(at: Server, job: JobDetails) -> None:
    """End with an error if the job did not complete, and say what can be done about it."""
    if job.state == "completed":
        return
    wanted = [f"logs {job.id}"] if job.state == "failed" else []
    wanted += [f"retry {job.id} --watch"] if job.input_kept else []
    for arguments in wanted:
        err.print(f"  {at.command(arguments)}", style="dim", markup=False)
    raise typer.Exit(EXIT_FAILED)


async def _follow(at: Server, job: JobDetails, on: Display) -> JobDetails:
    async with at.async_client() as client:
        follower = _Follower(client, job.id, on)
        asking = asyncio.create_task(follower.ask_why())
        try:
            await follower.follow()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        return await client.jobs.get(job.id)


class _Follower:
    def __init__(self, client: AsyncClient, job_id: str, on: Display) -> None:
        self._client = client
        self._id = job_id
        self._on = on
        self._state = ""

    async def follow(self) -> None:
        async with contextlib.aclosing(self._client.jobs.stream(self._id)) as events:
            async for event in events:
                match event.name:
                    case "state" | "end":
                        self._moved(event.data)
                    case "progress":
                        self._on.progress(event.data.get("fraction"), event.data.get("note"))
                    case "log" | "alert":
                        self._on.log(event.data)
                    case _:
                        pass  # its output, or what a newer server tells

    async def ask_why(self) -> None:
        """Until it is cancelled, which the end of the job does."""
        while True:
            await asyncio.sleep(WHY_SECONDS)
            if self._state in _UNDER_WAY:
                continue
            try:
                self._on.why(await self._client.jobs.explain(self._id))
            except ClientError:
                return  # the events themselves tell of a server that is away

    def _moved(self, job: Mapping[str, Any]) -> None:
        self._state = str(job.get("state", ""))
        self._on.state(self._state, int(job.get("attempts") or 0))
