"""The errors of batches: what the state of a batch does not allow."""

from __future__ import annotations

from coatcheck.domain.errors import Conflict


class BatchConflict(Conflict):
    """The batch is not in a state in which that can be done."""

    code = "batch_conflict"


class BatchNotOpen(BatchConflict):
    """Tasks are added to an open batch only, and before it is closed."""

    code = "batch_not_open"


class BatchAlreadyEnded(BatchConflict):
    """A batch that has ended cannot be cancelled."""

    code = "batch_already_ended"


class BatchStillRuns(BatchConflict):
    """A batch is run again once its run has ended."""

    code = "batch_still_runs"


class TooManyRuns(BatchConflict):
    """A batch is run again only so often."""

    code = "too_many_runs"


class NothingToRerun(BatchConflict):
    """No task of the run is of the kind that was asked for."""

    code = "nothing_to_rerun"
