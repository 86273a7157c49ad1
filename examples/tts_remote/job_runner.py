"""Runs jobs as asyncio tasks, with a limit on the processes that speak at once."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from examples.tts_remote.callbacks import Caller
from examples.tts_remote.characters import Character, cloned, described, read_clone
from examples.tts_remote.failures import SpeechFailed
from examples.tts_remote.faults import Faults
from examples.tts_remote.fetching import fetched
from examples.tts_remote.job_folders import End, JobFolders, Order
from examples.tts_remote.records import Seen
from examples.tts_remote.speaking import Speaker
from examples.tts_remote.tuning import Tuning

CANCELLED = "cancelled"
_RECORDING_BYTES_MAX = 64 << 20
_CLONE_BYTES_MAX = 1 << 20
_log = logging.getLogger(__name__)


class JobRunner:
    def __init__(
        self,
        folders: JobFolders,
        speaker: Speaker,
        caller: Caller,
        *,
        tuning: Tuning,
        faults: Faults,
        seen: Seen,
    ) -> None:
        self._folders = folders
        self._speaker = speaker
        self._caller = caller
        self._tuning = tuning
        self._faults = faults
        self._seen = seen
        self._places = asyncio.Semaphore(tuning.voices)
        self._cancelling = asyncio.Lock()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopped = True

    def resume(self) -> None:
        """Start the unfinished jobs of the folders."""
        self._stopped = False
        for job_id in self._folders.undone():
            self.start(job_id)

    def start(self, job_id: str) -> None:
        """Run a job, or the rest of it."""
        if self._stopped or job_id in self._running:
            return
        task = asyncio.create_task(self._run(job_id))
        self._running[job_id] = task
        task.add_done_callback(lambda ended: self._note_end(job_id, ended))

    async def cancel(self, job_id: str) -> End:
        """Cancel a running job; one that has ended stays as it is. Returns its end."""
        async with self._cancelling:
            ended = self._folders.end(job_id)
            if ended is not None:
                return ended
            await self._halt([job_id])
            ended = await asyncio.to_thread(self._folders.fail, job_id, CANCELLED)
            if ended.error == CANCELLED:
                self._seen.jobs_ended[CANCELLED] += 1
            self.start(job_id)  # a callback may be due
            return ended

    async def stop(self) -> None:
        """Stop without ending jobs, and kill the processes that speak."""
        self._stopped = True
        await self._halt(list(self._running))

    async def _halt(self, job_ids: list[str]) -> None:
        tasks = [self._running[job_id] for job_id in job_ids if job_id in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, job_id: str) -> None:
        order = self._folders.order(job_id)
        if order is None:
            return  # it was removed meanwhile
        ended = self._folders.end(job_id)
        if ended is None:
            ended = await self._work(job_id, order)
            self._seen.jobs_ended[ended.status] += 1
        await self._caller.call_back(job_id, order, ended)

    def _note_end(self, job_id: str, task: asyncio.Task[None]) -> None:
        del self._running[job_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            # Such as a full disk: the job starts again when the remote restarts.
            _log.error("job %s could not be finished", job_id, exc_info=error)

    async def _work(self, job_id: str, order: Order) -> End:
        folders = self._folders
        self._seen.jobs_begun += 1
        try:
            await self._last()
            async with self._places:
                with self._seen.one_speaks():
                    seconds = await self._done(order, folders.draft(job_id))
        except SpeechFailed as failed:
            return await asyncio.to_thread(folders.fail, job_id, str(failed))
        return await asyncio.to_thread(folders.complete, job_id, seconds)

    async def _done(self, order: Order, draft: Path) -> float | None:
        """Do the work; returns the seconds of speech. Raises
        ``SpeechFailed``."""
        match order.type:
            case "clone":
                recording = await fetched(order.reference_url, _RECORDING_BYTES_MAX)
                clone = await asyncio.to_thread(cloned, recording)
                await asyncio.to_thread(_write, draft, clone)
                return None
            case "design_preview":
                character = described(order.description or "")
            case "generate" if order.prompt_url is not None:
                character = read_clone(await fetched(order.prompt_url, _CLONE_BYTES_MAX))
            case "generate":
                character = Character()
        return await self._speaker.speak(order.text, order.language, draft, character)

    async def _last(self) -> None:
        """Wait for the configured duration of a job, and inject its faults."""
        await asyncio.sleep(self._tuning.job_seconds)
        cleared, fault = self._faults.cleared, self._faults.next_for_job()
        if fault is None:
            return
        self._seen.faults[fault.kind] += 1
        match fault.kind:
            case "long_job":
                await asyncio.sleep(fault.seconds or 0.0)
            case "stuck_job":
                await cleared.wait()
            case "failed_job":
                raise SpeechFailed(fault.message)


def _write(draft: Path, data: bytes) -> None:
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
