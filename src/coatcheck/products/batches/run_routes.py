"""Changes jobs: rerun, close, delete; and exports the results of their runs."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final

from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.http.bodies import check_content_type, read_as_written
from coatcheck.http.job_resource import (
    IDEMPOTENCY_PARAMETERS,
    PLAN_INACTIVE,
    check_mismatch,
    replay_headers,
)
from coatcheck.http.parameters import read_idempotency_key, read_preferences
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.watching import RETRY_AFTER_HEADER, WAIT_PARAMETERS
from coatcheck.products.batches import presenter, schemas
from coatcheck.products.batches.exporter import MEDIA_TYPE, file_name
from coatcheck.products.batches.jobs import (
    ALL_RUNS,
    INVALID_FIELD,
    JOB,
    JOB_ID,
    SUBMIT_HEADERS,
    BatchJobs,
    batch_route,
    chosen_run,
    refusal,
)
from coatcheck.products.batches.model import ExportView, RunFilter
from coatcheck.products.batches.schemas import ExportRequest, Rerun


class RunRoutes:
    """The routes that change a job that exists, and those of its exports."""

    def __init__(self, jobs: BatchJobs) -> None:
        self._jobs = jobs

    async def rerun(self, request: Request) -> Response | StreamResponse:
        """Start a new run of a job whose run has ended. A known key returns the job unchanged.
        Without a body, it has all tasks of the whole job."""
        jobs = self._jobs
        preferences = read_preferences(request)
        view = await jobs.found(request)
        key = jobs.stored_key(request.principal, "rerun", read_idempotency_key(request))
        if key is None or await jobs.batches.find_part_key(view.org, view.uuid, key) is None:
            await jobs.gate.check_new_work(request.principal, jobs=0)
        body = await request.body(PAYLOAD_BYTES_MAX)
        if body:
            check_content_type(request)
        rerun = read_as_written(body, Rerun) if body else Rerun()
        source = None if rerun.run is None else chosen_run(view, rerun.run, "body")
        after, created = await jobs.batches.rerun(
            view.id,
            RunFilter() if rerun.filter is None else rerun.filter.chosen(),
            org=view.org,
            source_run=None if source is None else source.uuid,
            all_runs=rerun.run == ALL_RUNS,
            idempotency_key=key,
            request_id=request.request_id,
        )
        check_mismatch(created, preferences)
        headers, status = replay_headers(created), HTTPStatus.ACCEPTED
        return await jobs.submitted(request, after, preferences, status=status, headers=headers)

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

    async def export(self, request: Request) -> Response:
        """Request an export of the ended tasks of a run, or of the job as a whole."""
        view = await self._jobs.found(request)
        run = chosen_run(view, await _requested_run(request), "body")
        made = await self._jobs.batches.exports.create(view, run, request_id=request.request_id)
        shown = presenter.export(made, await self._url(made))
        headers = [(b"location", shown.urls.poll.encode("ascii")), _RETRY_AFTER]
        return json_response(shown, HTTPStatus.ACCEPTED, headers)

    async def show_export(self, request: Request) -> Response:
        view = await self._jobs.found(request)
        found = await self._jobs.batches.exports.get(view, request.params["export_id"])
        headers = [_RETRY_AFTER] if found.state == "pending" else []
        return json_response(presenter.export(found, await self._url(found)), headers=headers)

    async def exports(self, request: Request) -> Response:
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
            export.blob_key, seconds, file_name=name, media_type=MEDIA_TYPE
        )
        return signed.url


async def _requested_run(request: Request) -> str | None:
    body = await request.body(PAYLOAD_BYTES_MAX)
    if not body:
        return None
    check_content_type(request)
    return read_as_written(body, ExportRequest).run


_RETRY_AFTER: Final = (b"retry-after", b"2")
_EXPORTS: Final = f"{JOB}/exports"
_STILL_RUNS: Final = refusal(
    HTTPStatus.CONFLICT,
    "The job's run has not ended (`batch_still_runs`), or no task matches the "
    "filter (`nothing_to_rerun`).",
)


def routes(jobs: BatchJobs) -> list[Route]:
    runs = RunRoutes(jobs)
    job = partial(ResponseSpec, body=schemas.BatchJob)
    export = partial(ResponseSpec, body=schemas.ExportBody)
    return [
        batch_route(
            "POST",
            f"{JOB}/rerun",
            "rerun_batch",
            "Rerun tasks of a job, as a new run.",
            runs.rerun,
            job(HTTPStatus.OK, "The new run has ended.", headers=SUBMIT_HEADERS),
            job(HTTPStatus.ACCEPTED, "The new run starts.", headers=SUBMIT_HEADERS),
            PLAN_INACTIVE,
            _STILL_RUNS,
            INVALID_FIELD,
            parameters=(JOB_ID, *IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS),
            body=RequestBody(
                "Which tasks, and of which run; without a body all tasks of the whole job.",
                Rerun,
                required=False,
            ),
        ),
        batch_route(
            "POST",
            f"{JOB}/close",
            "close_batch",
            "Close an open job: it completes when the tasks that it has have ended.",
            runs.close,
            job(HTTPStatus.OK, "The job."),
        ),
        batch_route(
            "DELETE",
            JOB,
            "delete_batch",
            "Delete a job with its tasks, results and files.",
            runs.delete,
            ResponseSpec(HTTPStatus.NO_CONTENT, "The job is deleted.", empty=True),
        ),
        batch_route(
            "POST",
            _EXPORTS,
            "create_export",
            "Export the results of a run, or of the job as a whole, to a zip.",
            runs.export,
            export(
                HTTPStatus.ACCEPTED,
                "A worker writes it.",
                headers=RETRY_AFTER_HEADER | {"Location": "The URL of the export."},
            ),
            INVALID_FIELD,
            description="If the run has not ended, the export has the tasks that have.",
            body=RequestBody(
                "Which run, or `all`; by default the current one.", ExportRequest, required=False
            ),
        ),
        batch_route(
            "GET",
            _EXPORTS,
            "exports",
            "The exports of a job, newest first.",
            runs.exports,
            ResponseSpec(HTTPStatus.OK, "The exports.", schemas.ExportPage),
        ),
        batch_route(
            "GET",
            f"{_EXPORTS}/{{export_id}}",
            "export",
            "An export, with the URL of its zip once it is complete.",
            runs.show_export,
            export(HTTPStatus.OK, "The export.", headers=RETRY_AFTER_HEADER),
            parameters=(JOB_ID, Parameter("export_id", "path", "The export's id.", ULID)),
        ),
    ]
