"""Faults that tests can plan."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "error",  # an HTTP error instead of an answer
    "error_line",  # {"error": ...} in the stream
    "cut",  # the connection ends in the middle of the answer
    "early_end",  # the answer ends in order, but without its last object
    "hang",  # silence, until the caller disconnects or the faults are cleared
    "garbage",  # bytes that are not JSON
    "long_line",  # one line of `size_bytes`
    "endless",  # tokens without end
    "go_away",  # the whole server, as if its process were killed
]


@dataclass(slots=True)
class Fault:
    """A fault of the next ``times`` requests (None: all) that match.

    It matches requests of ``path`` and ``model`` (None: any). In a stream it happens after
    ``after_tokens`` tokens; without a stream, at once.
    """

    kind: Kind
    times: int | None = 1
    path: str | None = None
    model: str | None = None
    after_tokens: int = 0
    status: int = 500
    message: str = "llama runner process has terminated: signal: killed"
    headers: dict[str, str] = field(default_factory=dict)
    size_bytes: int = 1 << 20
    seconds: float | None = None
    """For ``go_away``: when it returns (None: on request)."""

    def fits(self, path: str, model: str | None) -> bool:
        return (self.path is None or self.path == path) and (
            self.model is None or self.model == model
        )


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

    def next_for(self, path: str, model: str | None) -> Fault | None:
        for fault in self._planned:
            if fault.fits(path, model):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._planned.remove(fault)
                return fault
        return None
