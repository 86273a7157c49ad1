"""What the tests of the isolated executor share."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from coatcheck.domain.states import Completed, Outcome
from coatcheck.job import Chunk, Job
from coatcheck.worker.executors.isolated import IsolatedExecutor
from coatcheck.worker.temp_dirs import TempRoot
from tests.waiting import eventually
from tests.worker.attempts import Recorder, new_job
from tests.worker.isolated_handlers import service

GRACE_SECONDS = 60.0
"""Only a handler that refuses to end would use it up."""


class Isolation:
    """An executor on a temp root of its own."""

    def __init__(self, root: Path, grace_seconds: float = GRACE_SECONDS) -> None:
        self.root = root
        self.temp_root = TempRoot(root)
        self.executor = IsolatedExecutor(self.temp_root, grace_seconds=grace_seconds)

    def job(self, key: str, recorder: Recorder) -> Job:
        return new_job(service.endpoints[f"post__{key}"], recorder)

    async def run(
        self, key: str, recorder: Recorder | None = None, job: Job | None = None, **arguments: Any
    ) -> Outcome:
        """Run a handler to its end; its folder is gone afterwards, whatever the end was."""
        endpoint = service.endpoints[f"post__{key}"]
        recorder = recorder or Recorder()
        job = job or new_job(endpoint, recorder)
        try:
            return await self.executor.run(endpoint, job, json.dumps(arguments).encode())
        finally:
            assert self.folders() == []

    async def start(self, key: str, **arguments: Any) -> Running:
        """Run a handler until it has emitted what it has to say."""
        recorder = Recorder()
        job = self.job(key, recorder)
        task = asyncio.create_task(self.run(key, recorder, job, **arguments))
        emitted = asyncio.create_task(recorder.first(Chunk))
        await asyncio.wait([task, emitted], return_when=asyncio.FIRST_COMPLETED)
        if not emitted.done():
            raise AssertionError(f"the handler ended early: {task.result()}")
        return Running(task, job, recorder, json.loads(emitted.result().data))

    def folders(self) -> list[Path]:
        """The folders of jobs that there are."""
        return list(self.temp_root.directory.iterdir())


class Running:
    """A handler under way, and what it said of itself."""

    def __init__(
        self, task: asyncio.Task[Outcome], job: Job, recorder: Recorder, said: dict[str, Any]
    ) -> None:
        self.task = task
        self.job = job
        self.recorder = recorder
        self.said = said


def result(outcome: Outcome) -> Any:
    assert isinstance(outcome, Completed), outcome
    return json.loads(outcome.result)


def state(process: int) -> str | None:
    """The state of a process in the kernel's letters, S for asleep; None if there is no such."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return status.rpartition(")")[2].split()[0]


def is_alive(process: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    return state(process) not in {None, "Z", "X"}


def wait_until_dead(process: int) -> None:
    eventually(lambda: not is_alive(process), f"process {process} is dead")


def is_reaped(process: int) -> bool:
    """Whether a child of this process has been waited for, so that no zombie is left."""
    try:
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False
