"""Exports: all results of a run, or of a job as a whole, in one zip. A worker writes it, and it is
fetched by a signed URL."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from coatcheck.domain.identity import Scope
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.http.job_responses import RETRY_AFTER_HEADER
from coatcheck.http.json_bodies import check_content_type
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, json_reply
from coatcheck.http.routing import ULID, Answer, Operation, Parameter, RequestBody
from coatcheck.http.struct_bodies import read_as_written
from coatcheck.products.batches import presenter as showing
from coatcheck.products.batches import schemas as words
from coatcheck.products.batches.context import Scene, chosen_run
from coatcheck.products.batches.export_lines import file_name
from coatcheck.products.batches.model import ExportView
from coatcheck.products.batches.read_routes import JOB, JOB_ID
from coatcheck.products.batches.request import ExportOrder

_PATH: Final = f"{JOB}/exports"
_ONE: Final = f"{_PATH}/{{export_id}}"
_ZIP: Final = "application/zip"
_RETRY_AFTER: Final = (b"retry-after", b"2")


class Exports:
    """The routes of a job's exports."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def create(self, call: Call) -> Reply:
        """Ask for an export of what has ended of a run, or of the job as a whole."""
        view = await self._scene.job(call)
        run = chosen_run(view, await _wanted_run(call), "body")
        made = await self._scene.batches.exports.create(view, run, request_id=call.request_id)
        shown = showing.export(made, await self._url(made))
        headers = [(b"location", shown.urls.poll.encode("ascii")), _RETRY_AFTER]
        return json_reply(shown, HTTPStatus.ACCEPTED, headers)

    async def show(self, call: Call) -> Reply:
        view = await self._scene.job(call)
        found = await self._scene.batches.exports.get(view, call.params["export_id"])
        headers = [_RETRY_AFTER] if found.state == "pending" else []
        return json_reply(showing.export(found, await self._url(found)), headers=headers)

    async def page(self, call: Call) -> Reply:
        view = await self._scene.job(call)
        found = await self._scene.batches.exports.list(view)
        items = [showing.export(each, await self._url(each)) for each in found]
        return json_reply(words.ExportPage(items))

    async def _url(self, export: ExportView) -> str | None:
        """Where the zip is fetched, for as long as it is kept."""
        if export.blob_key is None or export.expires_at is None:
            return None
        seconds = int((export.expires_at - datetime.now(UTC)).total_seconds())
        if seconds < 1:
            return None
        name = file_name(export.batch, None if export.all_runs else export.run)
        signed = await self._scene.engine.signer.signed_get(
            export.blob_key, seconds, file_name=name, media_type=_ZIP
        )
        return signed.url


async def _wanted_run(call: Call) -> str | None:
    body = await call.body(PAYLOAD_BYTES_MAX)
    if not body:
        return None
    check_content_type(call)
    return read_as_written(body, ExportOrder).run


def operations(scene: Scene) -> list[Operation]:
    exports = Exports(scene)
    export_id = Parameter("export_id", "path", "The export's id.", ULID)
    return [
        Operation(
            methods=("POST",),
            path=_PATH,
            name="create_export",
            summary="Have the results of a run, or of the job as a whole, written to a zip.",
            description="Of a run that goes on, it holds what has ended by then.",
            handler=exports.create,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID,),
            body=RequestBody(
                "Which run, or all; the current one, if none.", ExportOrder, required=False
            ),
            answers=(
                Answer(
                    HTTPStatus.ACCEPTED,
                    "A worker writes it.",
                    words.Export,
                    headers=RETRY_AFTER_HEADER | {"Location": "Where to ask for the export."},
                ),
                Answer(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "A field does not fit.", Problem, MEDIA_TYPE
                ),
            ),
        ),
        Operation(
            methods=("GET",),
            path=_PATH,
            name="exports",
            summary="The exports of a job, newest first.",
            handler=exports.page,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID,),
            answers=(Answer(HTTPStatus.OK, "The exports.", words.ExportPage),),
        ),
        Operation(
            methods=("GET",),
            path=_ONE,
            name="export",
            summary="An export, with where its zip is once it was written.",
            handler=exports.show,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, export_id),
            answers=(
                Answer(HTTPStatus.OK, "The export.", words.Export, headers=RETRY_AFTER_HEADER),
            ),
        ),
    ]
