"""Follows a job's event stream until the job ends, and asks regularly why it waits."""

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
from coatcheck.cli.server_address import Server
from coatcheck.client import AsyncClient, ClientError, JobDetails

WHY_SECONDS: Final = 3.0
"""How often we ask the server why a job has not started."""
_UNDER_WAY: Final = frozenset({"processing", "finalizing"})


def ended(at: Server, job: JobDetails, *, shown: bool, as_json: bool = False) -> JobDetails:
    """Wait until the job ends and return it. Ctrl-C prints the command that resumes watching.

    ``shown`` displays its events meanwhile, ``as_json`` prints them as lines of JSON. Both also
    replay the events of a job that has already ended: a short job may end before we can look.
    """
    if job.terminal and not (shown or as_json):
        return job
    try:
        with display(wanted=shown, as_json=as_json) as on:
            return asyncio.run(_follow(at, job, on))
    except KeyboardInterrupt:
        again = at.command(f"watch {job.id}")
        err.print(f"The job keeps running. To watch it again: {again}", markup=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def require_completed(at: Server, job: JobDetails) -> None:
    """Exit with an error if the job did not complete, and print the commands to try next."""
    if job.state == "completed":
        return
    commands = [f"logs {job.id}"] if job.state == "failed" else []
    commands += [f"retry {job.id} --watch"] if job.input_kept else []
    for arguments in commands:
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
                        pass  # the job's output, or an event of a newer server

    async def ask_why(self) -> None:
        """Runs until cancelled, when the job ends."""
        while True:
            await asyncio.sleep(WHY_SECONDS)
            if self._state in _UNDER_WAY:
                continue
            try:
                self._on.why(await self._client.jobs.explain(self._id))
            except ClientError:
                return  # the event stream reports a server that is unreachable

    def _moved(self, job: Mapping[str, Any]) -> None:
        self._state = str(job.get("state", ""))
        self._on.state(self._state, int(job.get("attempts") or 0))
