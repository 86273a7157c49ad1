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
    "hang",  # silence, until the caller goes or the faults are cleared
    "garbage",  # bytes that are no JSON
    "long_line",  # one line of `size_bytes`
    "endless",  # tokens without end
    "go_away",  # the whole server, as if its process were killed
]


@dataclass(slots=True)
class Fault:
    """Something that goes wrong with the next ``times`` requests (None: all) that it fits.

    It fits requests of ``path`` and ``model`` (None: any). In an answer that is streamed it
    happens after ``after_tokens`` tokens; where nothing is streamed, at once.
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
    """Of ``go_away``: back after so long (None: not before it is told)."""

    def fits(self, path: str, model: str | None) -> bool:
        return (self.path is None or self.path == path) and (
            self.model is None or self.model == model
        )


class Faults:
    """The faults that are planned, in their order."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []
        self.cleared = asyncio.Event()
        """Set when what is planned now is no longer to happen; then there is a new one."""

    def plan(self, fault: Fault) -> None:
        self._planned.append(fault)

    def clear(self) -> None:
        """Forget what was planned, and let go of what hangs."""
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
