"""What the tests of the analysis share: archives, and a run of it as a worker runs it."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psutil

from coatcheck.domain.states import Completed, Outcome
from coatcheck.job import Job, ProgressReport
from coatcheck.products.graphs.analysis import REST, AnalysisOrder, analyse
from coatcheck.service import Endpoint, Service
from coatcheck.worker.executors.isolated import IsolatedExecutor
from coatcheck.worker.temp_dirs import TempRoot
from tests.waiting import eventually_async
from tests.worker.attempts import Recorder, new_job

MOMENT = datetime(2026, 11, 16, 12, tzinfo=UTC)


def _endpoint(memory_mb: int | None) -> Endpoint:
    service = Service("coatcheck-analysis", product="graphs")
    service.post("/analyse", isolated=True, timeout=600, memory_mb=memory_mb)(analyse)
    (endpoint,) = service.endpoints.values()
    return endpoint


def packed(files: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in files.items():
            target.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


@dataclass
class Analysed:
    """How an analysis ended. ``document`` is None if it wrote none that is whole."""

    outcome: Outcome
    document: dict[str, Any] | None
    raw: bytes
    recorder: Recorder

    @property
    def summary(self) -> dict[str, Any]:
        assert isinstance(self.outcome, Completed), self.outcome
        summary: dict[str, Any] = json.loads(self.outcome.result)
        return summary

    @property
    def stats(self) -> dict[str, Any]:
        assert self.document is not None
        stats: dict[str, Any] = self.document["stats"]
        return stats

    @property
    def paths(self) -> set[str]:
        """The paths of the files in the graph."""
        assert self.document is not None
        return {
            node["properties"]["path"]
            for node in self.document["graph"]["nodes"]
            if node["labels"] == ["File"]
        }


class Analyst:
    """Runs analyses in processes of their own, as a worker does."""

    def __init__(self, root: Path, memory_mb: int | None = None) -> None:
        self.endpoint = _endpoint(memory_mb)
        self.temp_root = TempRoot(root)
        self.executor = IsolatedExecutor(self.temp_root)

    async def run(self, archive: bytes, **order: Any) -> Analysed:
        recorder = Recorder()
        return await self._run(archive, new_job(self.endpoint, recorder), recorder, order)

    async def _run(
        self, archive: bytes, job: Job, recorder: Recorder, order: dict[str, Any]
    ) -> Analysed:
        async with self.executor.folder(job.id) as folder:
            (folder / "archive.zip").write_bytes(archive)
            payload = msgspec.json.encode({"order": _order(order)})
            outcome = await self.executor.run_in(folder, self.endpoint, job, payload)
            ended = isinstance(outcome, Completed)
            raw = (folder / REST).read_bytes() if ended else b""
            return Analysed(outcome, json.loads(raw) if ended else None, raw, recorder)

    async def start(self, archive: bytes, **order: Any) -> Running:
        """Begin an analysis; returns when its parsers have begun."""
        recorder = Recorder()
        job = new_job(self.endpoint, recorder)
        task = asyncio.create_task(self._run(archive, job, recorder, order))
        first = asyncio.create_task(recorder.first(ProgressReport))
        await asyncio.wait([task, first], return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            raise AssertionError(f"it ended early: {task.result().outcome}")
        return Running(task, job, await self._process())

    async def _process(self) -> psutil.Process:
        """The process of the one analysis that runs."""

        async def look() -> psutil.Process | None:
            for process in psutil.Process().children():
                if any("executors.child" in word for word in process.cmdline()):
                    return process
            return None

        process: psutil.Process = await eventually_async(look, "the analysis has a process")
        return process


@dataclass
class Running:
    """An analysis under way, and its process."""

    task: asyncio.Task[Analysed]
    job: Job
    process: psutil.Process

    async def parsers(self, number: int) -> list[psutil.Process]:
        """Its parsers, once there are so many."""

        async def look() -> list[psutil.Process] | None:
            found = self.process.children()
            return found if len(found) == number else None

        parsers: list[psutil.Process] = await eventually_async(look, f"{number} parsers")
        return parsers


def _order(order: dict[str, Any]) -> AnalysisOrder:
    return AnalysisOrder(**({"operation": "call", "started_at": MOMENT, "parsers": 2} | order))


def python_files(number: int, functions: int = 5) -> dict[str, str | bytes]:
    """So many modules, each of which calls the next one."""
    return {
        f"package/module_{at}.py": f"from package.module_{(at + 1) % number} import f0 as other\n\n"
        + "".join(
            f"def f{index}(value: int) -> int:\n    return other(value)\n\n"
            for index in range(functions)
        )
        for at in range(number)
    }


def one_large_file(lines: int = 25_000) -> bytes:
    """A source file that takes a while, and a few dozen times its size in memory."""
    return b"".join(
        b"def f%d(a, b): return g%d(a.b.c(b), [a, b, 1])\n" % (at, at) for at in range(lines)
    )
