"""Errors of batches: operations that the state of a batch does not allow."""

from __future__ import annotations

from coatcheck.domain.errors import Conflict


class BatchConflict(Conflict):
    """The state of the batch does not allow the operation."""

    code = "batch_conflict"


class BatchNotOpen(BatchConflict):
    """Tasks can only be added to an open batch, before it is closed."""

    code = "batch_not_open"


class BatchAlreadyEnded(BatchConflict):
    """A batch that has ended cannot be cancelled."""

    code = "batch_already_ended"


class BatchStillRuns(BatchConflict):
    """A batch cannot be rerun before its run has ended."""

    code = "batch_still_runs"


class TooManyRuns(BatchConflict):
    """A batch has the largest number of runs."""

    code = "too_many_runs"


class NothingToRerun(BatchConflict):
    """No task matches the filter of the rerun."""

    code = "nothing_to_rerun"
