"""Runs async handlers on the worker's own event loop: no thread, no copy, no queue."""

from __future__ import annotations

import asyncio

from coatcheck.domain.outcome import Outcome
from coatcheck.job import Job
from coatcheck.service import Endpoint
from coatcheck.worker.executors.outcomes import log_error, outcome_of_error, outcome_of_value


async def run(endpoint: Endpoint, job: Job, payload: bytes) -> Outcome:
    """Run the handler once. Cancelling the awaiting task stops the handler and raises."""
    try:
        arguments = endpoint.decode(payload)
        if endpoint.job_parameter is not None:
            arguments[endpoint.job_parameter] = job
        value = await endpoint.function(**arguments)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # the task was cancelled from outside, for a known reason
        # Nobody cancelled the task: the handler awaited something that was cancelled.
        log_error(job, error)
        return outcome_of_error(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises is its outcome
        # SystemExit from a handler must not end the worker, with every other job in it.
        log_error(job, error)
        return outcome_of_error(error)
    return outcome_of_value(value, endpoint.encode)
