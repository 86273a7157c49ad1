"""Steering: running tasks again, closing an open job, cancelling, deleting."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.identity import Scope
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.http.idempotency import read_idempotency_key
from coatcheck.http.job_responses import IDEMPOTENCY_PARAMETERS, TICKET_HEADERS, WAIT_PARAMETERS
from coatcheck.http.json_bodies import check_content_type
from coatcheck.http.prefer_header import read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Call
from coatcheck.http.response import Reply
from coatcheck.http.routing import Answer, Operation, RequestBody
from coatcheck.http.struct_bodies import read_as_written
from coatcheck.products.batches import schemas as words
from coatcheck.products.batches.context import Scene, chosen_run, stored_key
from coatcheck.products.batches.fingerprints import replayed
from coatcheck.products.batches.model import UNNAMED_SOURCE, BatchView, RerunSource, Selection
from coatcheck.products.batches.read_routes import JOB, JOB_ID
from coatcheck.products.batches.request import Rerun
from coatcheck.products.batches.responses import Answers
from coatcheck.products.batches.task_routes import PAYMENT


class Runs:
    """The routes that change what becomes of a job."""

    def __init__(self, scene: Scene, answers: Answers) -> None:
        self._scene = scene
        self._answers = answers

    async def rerun(self, call: Call) -> Reply:
        """A new run of a job whose run has ended. A known key answers the job as it is."""
        scene = self._scene
        preferences = read_preferences(call)
        said = read_idempotency_key(call)
        view = await scene.job(call)
        key = None if said is None else stored_key(call.principal, "rerun", said)
        if key is None or await scene.batches.find_part_key(view.org, view.uuid, key) is None:
            await scene.gate.check_new_work(call.principal, jobs=0)
        selection, source = await _wanted(call, view)
        after, created = await scene.batches.rerun(
            view.id,
            selection,
            org=view.org,
            source=source,
            idempotency_key=key,
            request_id=call.request_id,
        )
        headers = (
            [] if created.created else replayed(same=not created.mismatch, preferences=preferences)
        )
        return await self._answers.handed_in(
            call, after, preferences, status=HTTPStatus.ACCEPTED, headers=headers
        )

    async def close(self, call: Call) -> Reply:
        """Take no more tasks in. One that is closed is answered as it is."""
        view = await self._scene.job(call)
        after = await self._scene.batches.close(view.id, org=view.org)
        return self._answers.shown(after, HTTPStatus.OK)

    async def cancel(self, call: Call) -> Reply:
        """200 if the job is cancelled, 202 if its tasks are being told to stop."""
        view = await self._scene.job(call)
        after = await self._scene.batches.cancel(view.id, org=view.org)
        ended = after.completed_at is not None
        return self._answers.shown(after, HTTPStatus.OK if ended else HTTPStatus.ACCEPTED)

    async def delete(self, call: Call) -> Reply:
        """The job is gone when this is answered; what is left of it is removed by and by."""
        view = await self._scene.job(call)
        await self._scene.batches.delete(view.id, org=view.org)
        return Reply(HTTPStatus.NO_CONTENT)


async def _wanted(call: Call, view: BatchView) -> tuple[Selection, RerunSource]:
    """Which tasks to run again, and of what: of the whole job all of them, if nothing was sent."""
    body = await call.body(PAYLOAD_BYTES_MAX)
    if not body:
        return Selection(), UNNAMED_SOURCE
    check_content_type(call)
    order = read_as_written(body, Rerun)
    source = UNNAMED_SOURCE
    if order.run is not None:
        run = chosen_run(view, order.run, "body")
        source = RerunSource(all_runs=True) if run is None else RerunSource(run.uuid)
    wanted = order.filter
    if wanted is None:
        return Selection(), source
    return Selection(wanted.statuses, wanted.error_codes), source


def operations(scene: Scene, answers: Answers) -> list[Operation]:
    runs = Runs(scene, answers)
    return [
        Operation(
            methods=("POST",),
            path=f"{JOB}/rerun",
            name="rerun_batch",
            summary="Run tasks of a job again, as a new run.",
            handler=runs.rerun,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID, *IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS),
            body=RequestBody(
                "Which tasks, and of which run; without a body all of the whole job.",
                Rerun,
                required=False,
            ),
            answers=(
                Answer(HTTPStatus.OK, "The new run has ended.", words.BatchJob, headers=_HEADERS),
                Answer(
                    HTTPStatus.ACCEPTED, "The new run begins.", words.BatchJob, headers=_HEADERS
                ),
                PAYMENT,
                Answer(
                    HTTPStatus.CONFLICT,
                    "The job's run goes on (`batch_still_runs`), or no task is of that kind "
                    "(`nothing_to_rerun`).",
                    Problem,
                    MEDIA_TYPE,
                ),
                Answer(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "A field does not fit.", Problem, MEDIA_TYPE
                ),
            ),
        ),
        Operation(
            methods=("POST",),
            path=f"{JOB}/close",
            name="close_batch",
            summary="Take no more tasks in: the job completes once those it has have ended.",
            handler=runs.close,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID,),
            answers=(Answer(HTTPStatus.OK, "The job.", words.BatchJob),),
        ),
        Operation(
            methods=("POST",),
            path=f"{JOB}/cancel",
            name="cancel_batch",
            summary="Ask for the end of a job's run.",
            handler=runs.cancel,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID,),
            answers=(
                Answer(HTTPStatus.OK, "The job is cancelled.", words.BatchJob),
                Answer(HTTPStatus.ACCEPTED, "Its tasks are being cancelled.", words.BatchJob),
                Answer(
                    HTTPStatus.CONFLICT,
                    "The job has ended (`batch_already_ended`).",
                    Problem,
                    MEDIA_TYPE,
                ),
            ),
        ),
        Operation(
            methods=("DELETE",),
            path=JOB,
            name="delete_batch",
            summary="Delete a job with its tasks, results and files.",
            handler=runs.delete,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID,),
            answers=(Answer(HTTPStatus.NO_CONTENT, "The job is gone.", empty=True),),
        ),
    ]


_HEADERS: Final = TICKET_HEADERS | {"ETag": "Changes with every state and count."}
