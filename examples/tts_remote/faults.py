"""Faults that tests can plan."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal, get_args

RequestKind = Literal[
    "error",  # an HTTP error instead of an answer: 404, 500, 429 with its headers, ...
    "slow",  # the answer comes `seconds` late
    "hang",  # silence, until the caller disconnects or the faults are cleared
    "garbage",  # 200, with the wrong bytes
    "cut",  # the connection ends; in a result, after `after_bytes` of it
    "lost_answer",  # the work is done, and the connection ends before the answer
    "huge",  # a result of `size_bytes`, whatever the job said
    "go_away",  # the whole remote, as if its process were killed, before anything is done
]
JobKind = Literal[
    "long_job",  # the job takes `seconds` more
    "stuck_job",  # it never ends, unless it is cancelled or the faults are cleared
    "failed_job",  # it fails, with `message`
]

_OF_JOBS = frozenset(get_args(JobKind))


@dataclass(slots=True)
class Fault:
    """A fault of the next ``times`` (None: all) requests or jobs that match.

    The kinds for requests match requests of ``path`` (None: any); ``huge`` matches only results.
    The kinds for jobs match jobs when they begin, and when they begin again after a restart.
    """

    kind: RequestKind | JobKind
    times: int | None = 1
    path: str | None = None
    status: int = 500
    message: str = "CUDA error: out of memory"
    headers: dict[str, str] = field(default_factory=dict)
    after_bytes: int = 0
    size_bytes: int = 2 << 30
    with_length: bool = True
    """For ``huge``: whether the response has a Content-Length."""
    seconds: float | None = None
    """The delay or the extra time; for ``go_away``, when it returns (None: on request)."""

    def fits_request(self, path: str) -> bool:
        if self.kind in _OF_JOBS or (self.kind == "huge" and path != "/job-result"):
            return False
        return self.path is None or self.path == path

    def fits_jobs(self) -> bool:
        return self.kind in _OF_JOBS


class Faults:
    """The planned faults, in order."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []
        self.cleared = asyncio.Event()
        """Set when the current faults are cleared; then replaced by a new event."""

    def plan(self, fault: Fault) -> None:
        self._planned.append(fault)

    def clear(self) -> None:
        """Clear the planned faults, and release hanging requests."""
        self._planned.clear()
        self.cleared.set()
        self.cleared = asyncio.Event()

    def next_for_request(self, path: str) -> Fault | None:
        return self._take([fault for fault in self._planned if fault.fits_request(path)])

    def next_for_job(self) -> Fault | None:
        return self._take([fault for fault in self._planned if fault.fits_jobs()])

    def _take(self, fitting: list[Fault]) -> Fault | None:
        if not fitting:
            return None
        fault = fitting[0]
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._planned.remove(fault)
        return fault
