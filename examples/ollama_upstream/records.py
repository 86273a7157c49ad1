"""The record of the upstream's requests."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Request:
    """One received request, and its outcome."""

    path: str
    headers: dict[str, str]
    body: bytes
    model: str | None = None
    tokens_sent: int = 0
    aborted: bool = False
    """The caller disconnected before the end."""


class Seen:
    """Counts since the start or the last reset, and the latest ``remember`` requests."""

    def __init__(self, remember: int) -> None:
        self.running = 0
        """Answers being generated now."""
        self.requests: deque[Request] = deque(maxlen=remember)
        self.reset()

    def reset(self) -> None:
        """Reset the counts. Running answers still count as running."""
        self.requests.clear()
        self.paths: Counter[str] = Counter()
        self.loads: Counter[str] = Counter()
        """How often each model was loaded."""
        self.faults: Counter[str] = Counter()
        self.swaps = 0
        """Models evicted for another one."""
        self.peak_running = self.running
        self.refused_busy = 0
        self.aborted = 0

    def request(self, path: str, headers: dict[str, str], body: bytes) -> Request:
        seen = Request(path, headers, body)
        self.paths[path] += 1
        self.requests.append(seen)
        return seen

    def bodies(self, path: str) -> list[bytes]:
        """The bodies of the latest requests of ``path``, oldest first."""
        return [request.body for request in self.requests if request.path == path]

    @contextmanager
    def generating(self) -> Iterator[None]:
        self.running += 1
        self.peak_running = max(self.peak_running, self.running)
        try:
            yield
        finally:
            self.running -= 1

    def abort(self, request: Request) -> None:
        request.aborted = True
        self.aborted += 1

    def as_json(self) -> dict[str, Any]:
        """The counts; bodies and headers only as sizes."""
        return {
            "paths": dict(self.paths),
            "loads": dict(self.loads),
            "faults": dict(self.faults),
            "swaps": self.swaps,
            "running": self.running,
            "peak_running": self.peak_running,
            "refused_busy": self.refused_busy,
            "aborted": self.aborted,
            "requests": [
                {
                    "path": request.path,
                    "model": request.model,
                    "body_bytes": len(request.body),
                    "tokens_sent": request.tokens_sent,
                    "aborted": request.aborted,
                }
                for request in self.requests
            ],
        }
