"""The record of the server's requests and jobs in this process. Its folder has the rest."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Request:
    """One received request."""

    path: str
    headers: dict[str, str]
    body: bytes
    job_id: str | None = None
    """Its job, once known."""


class Seen:
    """Counts since the start or the last reset, and the latest ``remember`` requests."""

    def __init__(self, remember: int) -> None:
        self.speaking = 0
        """Processes that speak now."""
        self.requests: deque[Request] = deque(maxlen=remember)
        self.reset()

    def reset(self) -> None:
        """Reset the counts. Running processes still count as running."""
        self.requests.clear()
        self.paths: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.jobs_made = 0
        self.jobs_found = 0
        """Submissions with a known token."""
        self.jobs_begun = 0
        """A job that a restart interrupted counts again."""
        self.jobs_ended: Counter[str] = Counter()
        """By their end: completed, failed, cancelled."""
        self.peak_speaking = self.speaking
        self.callbacks: Counter[str] = Counter()
        """Callbacks by outcome: delivered, failed."""

    def request(self, path: str, headers: dict[str, str], body: bytes) -> Request:
        seen = Request(path, headers, body)
        self.paths[path] += 1
        self.requests.append(seen)
        return seen

    def bodies(self, path: str) -> list[bytes]:
        """The bodies of the latest requests of ``path``, oldest first."""
        return [request.body for request in self.requests if request.path == path]

    @contextmanager
    def one_speaks(self) -> Iterator[None]:
        self.speaking += 1
        self.peak_speaking = max(self.peak_speaking, self.speaking)
        try:
            yield
        finally:
            self.speaking -= 1

    def as_json(self) -> dict[str, Any]:
        """The counts; bodies and headers only as sizes."""
        return {
            "paths": dict(self.paths),
            "faults": dict(self.faults),
            "jobs_made": self.jobs_made,
            "jobs_found": self.jobs_found,
            "jobs_begun": self.jobs_begun,
            "jobs_ended": dict(self.jobs_ended),
            "speaking": self.speaking,
            "peak_speaking": self.peak_speaking,
            "callbacks": dict(self.callbacks),
            "requests": [
                {
                    "path": request.path,
                    "job_id": request.job_id,
                    "body_bytes": len(request.body),
                }
                for request in self.requests
            ],
        }
