"""Whom a sweep strikes at a crash point: the process that passes it, PostgreSQL, or its lease.

LAB_VICTIM chooses, and the scenarios are the same. ``process``, which ``make test`` runs, kills the
process there. The others stop it there and let it go on, for chaos/sweep:

``postgresql``  PostgreSQL is killed (-9) and started again while the process stands at the point.
``pause``       The process stands there until all it held is somebody else's and has ended; then it
                goes on with what it was about to do, and nothing that has ended may change.

What is exact after a death is a range when PostgreSQL was the victim: the process lives on beside
those who take over. A claim that was not on disk yet is gone with the server (docs/adr/0009), so a
job may have been executed once more than it was claimed; or the process finishes it by itself, and
then nothing crashed and it was executed once less. Never different: how a job ends, that it ends
once, how often it failed (only a hand-in counts a failure, and that waits for the disk), what is
left over of it.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Final

from coatcheck.db.embedded import EmbeddedPostgres

VARIABLE: Final = "LAB_VICTIM"
THOROUGH_VARIABLE: Final = "LAB_THOROUGH"
"""Set: also strike where another strike proves about the same. ``make test`` leaves those out."""


class Victim(Enum):
    PROCESS = "process"
    POSTGRESQL = "postgresql"
    PAUSE = "pause"

    @property
    def stops(self) -> bool:
        """Whether the process stands still at its point, rather than dying there."""
        return self is not Victim.PROCESS

    @property
    def is_exact(self) -> bool:
        """Whether all is as the process left it, and stays so until others go on."""
        return self is not Victim.POSTGRESQL

    def crash_at(self, point: str) -> str:
        """COATCHECK_CRASH_AT, for ``name`` or ``name:nth``."""
        name, _, nth = point.partition(":")
        return f"{name}:{nth or 1}:stop" if self.stops else point

    def allows(self, counted: int, after_death: int) -> bool:
        """Whether a number of crashes or executions may be so, given what it is after a death."""
        return counted == after_death if self.is_exact else abs(counted - after_death) <= 1


IS_THOROUGH: Final = bool(os.environ.get(THOROUGH_VARIABLE))
VICTIM: Final = Victim(os.environ.get(VARIABLE, Victim.PROCESS.value))

servers: Final[list[EmbeddedPostgres]] = []
"""The server of the test that runs, if PostgreSQL is the victim."""
