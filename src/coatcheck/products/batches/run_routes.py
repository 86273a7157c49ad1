"""Changes jobs: rerun, close, delete; and exports the results of their runs."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.domain.tenants import Scope
from coatcheck.http.bodies import check_content_type, read_as_written
from coatcheck.http.job_resource import IDEMPOTENCY_PARAMETERS, PLAN_INACTIVE, TICKET_HEADERS
from coatcheck.http.parameters import read_idempotency_key, read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.watching import RETRY_AFTER_HEADER, WAIT_PARAMETERS
from coatcheck.products.batches import presenter, schemas
from coatcheck.products.batches.exporter import file_name
from coatcheck.products.batches.jobs import JOB, JOB_ID, BatchJobs, chosen_run
from coatcheck.products.batches.model import (
    DEFAULT_SOURCE,
    BatchView,
    ExportView,
    RerunSource,
    Selection,
)
from coatcheck.products.batches.schemas import ExportRequest, Rerun
from coatcheck.products.batches.task_lists import replayed


class RunRoutes:
    """The routes that change a job that exists."""

    def __init__(self, jobs: BatchJobs) -> None:
        self._jobs = jobs

    async def rerun(self, request: Request) -> Response | StreamResponse:
        """Start a new run of a job whose run has ended. A known key returns the job unchanged."""
        jobs = self._jobs
        preferences = read_preferences(request)
        view = await jobs.found(request)
        key = self._jobs.stored_key(request.principal, "rerun", read_idempotency_key(request))
        if key is None or await jobs.batches.find_part_key(view.org, view.uuid, key) is None:
            await jobs.gate.check_new_work(request.principal, jobs=0)
        selection, source = await _requested_tasks(request, view)
        after, created = await jobs.batches.rerun(
            view.id,
            selection,
            org=view.org,
            source=source,
            idempotency_key=key,
            request_id=request.request_id,
        )
        headers = (
            [] if created.created else replayed(same=not created.mismatch, preferences=preferences)
        )
        return await self._jobs.submitted(
            request, after, preferences, status=HTTPStatus.ACCEPTED, headers=headers
        )

    async def close(self, request: Request) -> Response | StreamResponse:
        """Close an open job, so that it accepts no more tasks. A repeat changes nothing."""
        view = await self._jobs.found(request)
        after = await self._jobs.batches.close(view.id, org=view.org)
        return await self._jobs.shown(after, HTTPStatus.OK)

    async def delete(self, request: Request) -> Response:
        """Delete a job. Nobody can read it after the response; maintenance removes its data."""
        view = await self._jobs.found(request)
        await self._jobs.batches.delete(view.id, org=view.org)
        return Response(HTTPStatus.NO_CONTENT)


async def _requested_tasks(request: Request, view: BatchView) -> tuple[Selection, RerunSource]:
    """Which tasks to rerun, and from which runs. Without a body: all tasks of the whole job."""
    body = await request.body(PAYLOAD_BYTES_MAX)
    if not body:
        return Selection(), DEFAULT_SOURCE
    check_content_type(request)
    rerun = read_as_written(body, Rerun)
    source = DEFAULT_SOURCE
    if rerun.run is not None:
        run = chosen_run(view, rerun.run, "body")
        source = RerunSource(all_runs=True) if run is None else RerunSource(run.uuid)
    chosen = rerun.filter
    if chosen is None:
        return Selection(), source
    return Selection(chosen.statuses, chosen.error_codes), source


def routes(jobs: BatchJobs) -> list[Route]:
    runs = RunRoutes(jobs)
    return [
        Route(
            methods=("POST",),
            path=f"{JOB}/rerun",
            name="rerun_batch",
            summary="Rerun tasks of a job, as a new run.",
            handler=runs.rerun,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID, *IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS),
            body=RequestBody(
                "Which tasks, and of which run; without a body all tasks of the whole job.",
                Rerun,
                required=False,
            ),
            responses=(
                ResponseSpec(
                    HTTPStatus.OK, "The new run has ended.", schemas.BatchJob, headers=_HEADERS
                ),
                ResponseSpec(
                    HTTPStatus.ACCEPTED, "The new run starts.", schemas.BatchJob, headers=_HEADERS
                ),
                PLAN_INACTIVE,
                ResponseSpec(
                    HTTPStatus.CONFLICT,
                    "The job's run has not ended (`batch_still_runs`), or no task matches the "
                    "filter (`nothing_to_rerun`).",
                    Problem,
                    MEDIA_TYPE,
                ),
                ResponseSpec(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "A field is invalid.", Problem, MEDIA_TYPE
                ),
            ),
        ),
        Route(
            methods=("POST",),
            path=f"{JOB}/close",
            name="close_batch",
            summary="Close an open job: it completes when the tasks that it has have ended.",
            handler=runs.close,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID,),
            responses=(ResponseSpec(HTTPStatus.OK, "The job.", schemas.BatchJob),),
        ),
        Route(
            methods=("DELETE",),
            path=JOB,
            name="delete_batch",
            summary="Delete a job with its tasks, results and files.",
            handler=runs.delete,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID,),
            responses=(ResponseSpec(HTTPStatus.NO_CONTENT, "The job is deleted.", empty=True),),
        ),
    ]


_HEADERS: Final = TICKET_HEADERS | {"ETag": "Changes with every state and count."}


_PATH: Final = f"{JOB}/exports"
_EXPORT_PATH: Final = f"{_PATH}/{{export_id}}"
_ZIP: Final = "application/zip"
_RETRY_AFTER: Final = (b"retry-after", b"2")


class ExportRoutes:
    """The routes of a job's exports."""

    def __init__(self, jobs: BatchJobs) -> None:
        self._jobs = jobs

    async def create(self, request: Request) -> Response:
        """Request an export of the ended tasks of a run, or of the job as a whole."""
        view = await self._jobs.found(request)
        run = chosen_run(view, await _requested_run(request), "body")
        made = await self._jobs.batches.exports.create(view, run, request_id=request.request_id)
        shown = presenter.export(made, await self._url(made))
        headers = [(b"location", shown.urls.poll.encode("ascii")), _RETRY_AFTER]
        return json_response(shown, HTTPStatus.ACCEPTED, headers)

    async def show(self, request: Request) -> Response:
        view = await self._jobs.found(request)
        found = await self._jobs.batches.exports.get(view, request.params["export_id"])
        headers = [_RETRY_AFTER] if found.state == "pending" else []
        return json_response(presenter.export(found, await self._url(found)), headers=headers)

    async def page(self, request: Request) -> Response:
        view = await self._jobs.found(request)
        found = await self._jobs.batches.exports.list(view)
        items = [presenter.export(each, await self._url(each)) for each in found]
        return json_response(schemas.ExportPage(items))

    async def _url(self, export: ExportView) -> str | None:
        """A signed URL of the zip, valid until the export expires; None if there is no zip."""
        if export.blob_key is None or export.expires_at is None:
            return None
        seconds = int((export.expires_at - datetime.now(UTC)).total_seconds())
        if seconds < 1:
            return None
        name = file_name(export.batch, None if export.all_runs else export.run)
        signed = await self._jobs.engine.signer.signed_get(
            export.blob_key, seconds, file_name=name, media_type=_ZIP
        )
        return signed.url


async def _requested_run(request: Request) -> str | None:
    body = await request.body(PAYLOAD_BYTES_MAX)
    if not body:
        return None
    check_content_type(request)
    return read_as_written(body, ExportRequest).run


def export_routes(jobs: BatchJobs) -> list[Route]:
    exports = ExportRoutes(jobs)
    export_id = Parameter("export_id", "path", "The export's id.", ULID)
    return [
        Route(
            methods=("POST",),
            path=_PATH,
            name="create_export",
            summary="Export the results of a run, or of the job as a whole, to a zip.",
            description="If the run has not ended, the export has the tasks that have.",
            handler=exports.create,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID,),
            body=RequestBody(
                "Which run, or `all`; by default the current one.", ExportRequest, required=False
            ),
            responses=(
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "A worker writes it.",
                    schemas.ExportBody,
                    headers=RETRY_AFTER_HEADER | {"Location": "The URL of the export."},
                ),
                ResponseSpec(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "A field is invalid.", Problem, MEDIA_TYPE
                ),
            ),
        ),
        Route(
            methods=("GET",),
            path=_PATH,
            name="exports",
            summary="The exports of a job, newest first.",
            handler=exports.page,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID,),
            responses=(ResponseSpec(HTTPStatus.OK, "The exports.", schemas.ExportPage),),
        ),
        Route(
            methods=("GET",),
            path=_EXPORT_PATH,
            name="export",
            summary="An export, with the URL of its zip once it is complete.",
            handler=exports.show,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, export_id),
            responses=(
                ResponseSpec(
                    HTTPStatus.OK, "The export.", schemas.ExportBody, headers=RETRY_AFTER_HEADER
                ),
            ),
        ),
    ]
