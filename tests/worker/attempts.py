"""What the tests of the executors share: a job to run, and a reporter that keeps its reports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from coatcheck.domain.ids import new_id
from coatcheck.domain.lanes import Lane
from coatcheck.job import DONE, Attachment, Job, Report, Reporter
from coatcheck.service import Endpoint

Kind = TypeVar("Kind")


class Recorder:
    """Keeps every report in order; reads attached files at once, since they may vanish."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.attached: dict[str, bytes] = {}
        self._news = asyncio.Event()

    def report(self, report: Report) -> Awaitable[None]:
        if isinstance(report, Attachment):
            data = report.data
            if isinstance(data, Path):
                self.attached[report.name] = data.read_bytes()
            else:
                self.attached[report.name] = data if isinstance(data, bytes) else data.read()
        self.reports.append(report)
        self._news.set()
        return DONE

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [report for report in self.reports if isinstance(report, kind)]

    async def first(self, kind: type[Kind]) -> Kind:
        """The first report of a kind, once there is one: how a test knows how far a handler is."""
        while not (found := self.of(kind)):
            self._news.clear()
            await self._news.wait()
        return found[0]

    async def until(self, count: int) -> None:
        """Wait for as many reports."""
        while len(self.reports) < count:
            self._news.clear()
            await self._news.wait()


class BlockedRecorder(Recorder):
    """Takes reports at once, but has no room for more until ``room`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.room = asyncio.Event()

    def report(self, report: Report) -> Awaitable[None]:
        super().report(report)
        return asyncio.ensure_future(self._wait_for_room())

    async def _wait_for_room(self) -> None:
        await self.room.wait()


class FailingRecorder(Recorder):
    """Cannot store anything."""

    def report(self, report: Report) -> Awaitable[None]:
        super().report(report)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(OSError("the disk is full"))
        failed.exception()  # seen, whether or not the handler looks
        return failed


def new_job(endpoint: Endpoint, reporter: Reporter) -> Job:
    return Job(new_id(), "acme", endpoint.name, Lane.STANDARD, 1, 0, "request-1", reporter)
