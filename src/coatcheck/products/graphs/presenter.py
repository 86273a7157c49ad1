"""Renders jobs as responses of the graphs HTTP API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.core import Engine
from coatcheck.domain.errors import BlobStoreUnavailable
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.http.job_responses import JobLinks, JobResponses
from coatcheck.http.response import JSON, RawHeaders, Response, StreamResponse, json_response
from coatcheck.products.graphs import schemas
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS

BASE: Final = "/v1/graphs/jobs/"
API_VERSION: Final = (b"x-api-version", b"1")
RESULT_ARTIFACT: Final = "result.json"
"""The artifact that holds a result which is too large for the job's row."""
RESULT_INLINE_BYTES_MAX: Final = 1024 * 1024
RETRY_AFTER_UNKNOWN_SECONDS: Final = 10
"""``Retry-After`` while no job of the operation has been seen to end."""

_encode: Final = msgspec.json.Encoder().encode


class StoredGraphResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result in the row of a completed job: the result itself, or the name of its artifact."""

    inline: msgspec.Raw = msgspec.Raw(b"")
    artifact: str = ""


_decode_stored: Final = msgspec.json.Decoder(StoredGraphResult).decode


class GraphsPresenter:
    """Renders graphs jobs, and the responses that show them."""

    shows_long_results = False

    def __init__(
        self, engine: Engine, responses: JobResponses, retry_after: Mapping[str, int]
    ) -> None:
        """``retry_after`` has the operations with a fixed ``Retry-After``, in seconds."""
        self._engine = engine
        self._responses = responses
        self._retry_after = retry_after

    def urls(self, job_id: str) -> JobLinks:
        poll = BASE + job_id
        return JobLinks(poll, poll + "/events", poll + "/cancel")

    async def job(self, view: JobView) -> schemas.GraphJobBody:
        """The job's body. It contains a result only if that was read with the row; larger results
        are fetched by URL."""
        stored = stored_result(view)
        if stored is None and not view.result_is_left_out:
            return self._envelope(view)
        if stored is None or stored.artifact:
            return msgspec.structs.replace(self._envelope(view), result_url=self.urls(view.id).poll)
        return msgspec.structs.replace(self._envelope(view), result=stored.inline)

    async def response(self, view: JobView, headers: RawHeaders) -> Response | StreamResponse:
        """200 with the whole job once it has ended; until then 202 with ``Retry-After``."""
        headers = [*headers, *self.urls(view.id).headers(), API_VERSION]
        if not view.terminal:
            seconds = self._retry_after.get(GRAPH_ENDPOINTS[view.endpoint])
            if seconds is None:
                seconds = await self._responses.forecast_retry_after(
                    view, RETRY_AFTER_UNKNOWN_SECONDS
                )
            headers.append((b"retry-after", b"%d" % seconds))
            return json_response(self._envelope(view, seconds), HTTPStatus.ACCEPTED, headers)
        self._responses.learn(view)
        stored = stored_result(view)
        if stored is None or not stored.artifact:
            return json_response(await self.job(view), HTTPStatus.OK, headers)
        pieces = await self._with_artifact(view, stored.artifact)
        if pieces is None:
            return json_response(self._envelope(view), HTTPStatus.OK, headers)
        return StreamResponse(HTTPStatus.OK, pieces, [JSON, *headers])

    async def _with_artifact(self, view: JobView, name: str) -> AsyncIterator[bytes] | None:
        """The job's body around a result that is streamed from the blob store. None if the result's
        artifact was deleted."""
        for artifact in await self._engine.artifacts(view.id, org=view.org):
            if artifact.name == name:
                break
        else:
            await self._engine.get(view.id, org=view.org)  # pruned just now: then this raises
            return None
        opening = _encode(self._envelope(view)).removesuffix(b"}") + b',"result":'
        stream = self._engine.read_artifact(artifact)
        try:
            # Read before the response starts: after its head, an error can no longer be sent.
            first = await anext(stream)
        except FileNotFoundError as error:
            await self._engine.get(view.id, org=view.org)  # pruned just now: then this raises
            raise BlobStoreUnavailable("the blob of a result is missing") from error

        async def pieces() -> AsyncIterator[bytes]:
            yield opening + first
            async for piece in stream:
                yield piece
            yield b"}"

        return pieces()

    def _envelope(self, view: JobView, seconds: int | None = None) -> schemas.GraphJobBody:
        operation = GRAPH_ENDPOINTS[view.endpoint]
        urls = self.urls(view.id)
        if seconds is None and not view.terminal:
            paced = self._responses.retry_after(view, RETRY_AFTER_UNKNOWN_SECONDS)
            seconds = self._retry_after.get(operation, paced)
        return schemas.GraphJobBody(
            status=schemas.STATUSES[view.state],
            job_id=view.id,
            terminal=view.terminal,
            operation=operation,
            urls=schemas.GraphUrls(*urls, urls.poll + "/receipt"),
            retry_after=seconds,
            cancel_requested=view.state is State.CANCEL_REQUESTED,
            progress=_progress(view),
            error=_error(view),
            error_code=view.error_code if view.terminal else None,
        )


def stored_result(view: JobView) -> StoredGraphResult | None:
    """The result in the row of a job; None if the job has not completed."""
    if view.state is not State.COMPLETED or view.result is None:
        return None
    return _decode_stored(view.result)


def _error(view: JobView) -> str | None:
    if view.state not in (State.FAILED, State.CANCELLED):
        return None
    return view.error_message or view.error_code or "the job failed"


def _progress(view: JobView) -> schemas.GraphProgress | None:
    if view.progress is None:
        return None
    return schemas.GraphProgress(round(view.progress, 6), view.progress_note)
