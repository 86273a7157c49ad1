"""How a worker process reports its jobs to the benchmark, without the queue.

Two channels, both plain files named by the environment:

- BENCH_PROGRESS: one 8-byte counter per worker process, mapped into memory. A handler adds one to
  its own process's slot, so that the bench can watch a drain without a query.
- BENCH_STARTS: set only while start latency is measured. The handler appends a line with the job's
  number and CLOCK_MONOTONIC, which all processes of one machine share.
"""

import mmap
import os
import time
from pathlib import Path

PROGRESS_VARIABLE = "BENCH_PROGRESS"
STARTS_VARIABLE = "BENCH_STARTS"
SLOT_VARIABLE = "BENCH_SLOT"
SLOT_BYTES = 8


class Recorder:
    """Used inside a worker process: call `job_started` on the first line of the handler."""

    def __init__(self, progress: Path, slot: int, starts: Path | None) -> None:
        with progress.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 0)
        self._counts = memoryview(self._mapped).cast("Q")
        self._slot = slot
        self._starts = (
            None if starts is None else os.open(starts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        )

    @classmethod
    def from_environment(cls) -> "Recorder":
        starts = os.environ.get(STARTS_VARIABLE)
        return cls(
            Path(os.environ[PROGRESS_VARIABLE]),
            int(os.environ[SLOT_VARIABLE]),
            Path(starts) if starts else None,
        )

    def job_started(self, number: int) -> None:
        if self._starts is not None:
            now = time.monotonic_ns()
            os.write(self._starts, b"%d %d\n" % (number, now))
        self._counts[self._slot] += 1


class Progress:
    """Used by the bench: makes the files of one measurement and reads them while it runs."""

    def __init__(self, folder: Path, workers: int, *, record_starts: bool) -> None:
        self.counters = folder / "progress"
        self.counters.write_bytes(bytes(SLOT_BYTES * workers))
        self.starts = folder / "starts" if record_starts else None
        if self.starts is not None:
            self.starts.write_bytes(b"")
        with self.counters.open("rb") as file:
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._counts = memoryview(self._mapped).cast("Q")

    def environment(self, slot: int) -> dict[str, str]:
        """The environment of the worker process of `slot`."""
        named = {PROGRESS_VARIABLE: str(self.counters), SLOT_VARIABLE: str(slot)}
        if self.starts is not None:
            named[STARTS_VARIABLE] = str(self.starts)
        return named

    def counts(self) -> list[int]:
        """Handler calls so far, one figure per worker process."""
        return list(self._counts)

    def started_at(self) -> dict[int, int]:
        """When each numbered job's handler first ran, in nanoseconds of CLOCK_MONOTONIC."""
        if self.starts is None:
            return {}
        first: dict[int, int] = {}
        for line in self.starts.read_bytes().splitlines():
            number, at = line.split()
            first.setdefault(int(number), int(at))
        return first

    def close(self) -> None:
        self._counts.release()
        self._mapped.close()
