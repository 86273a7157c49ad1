"""Creates and reads exports: all results of a run, or of a job as a whole, in one zip.

A worker writes the zip; the caller downloads it from a signed URL.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.domain.tenants import Scope
from coatcheck.http.bodies import check_content_type, read_as_written
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import ULID, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.watching import RETRY_AFTER_HEADER
from coatcheck.products.batches import presenter, schemas
from coatcheck.products.batches.exporter import file_name
from coatcheck.products.batches.jobs import JOB, JOB_ID, BatchJobs, chosen_run
from coatcheck.products.batches.model import ExportView
from coatcheck.products.batches.schemas import ExportRequest

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


def routes(jobs: BatchJobs) -> list[Route]:
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
