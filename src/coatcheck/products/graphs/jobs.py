"""The jobs of graphs: how they are found and shown, their results and deletion receipts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from coatcheck import receipts
from coatcheck.domain.errors import BlobStoreUnavailable, JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Scope
from coatcheck.domain.webhooks import RESULT_BYTES_MAX, DeliveryEvent
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobLabel, JobPaths
from coatcheck.http.job_resource import PLAN_INACTIVE, TICKET_HEADERS, JobResource
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, RawHeaders, Response, StreamResponse, json_response
from coatcheck.http.routing import Access, ResponseSpec, Route
from coatcheck.http.watching import NOT_MODIFIED, RETRY_AFTER_HEADER
from coatcheck.products.graphs import schemas
from coatcheck.products.graphs.analysis_request import StoredGraphResult, decode_request
from coatcheck.settings.parsers import GRAPH_ENDPOINTS, GRAPHS_SERVICE

if TYPE_CHECKING:
    from coatcheck.receipts.signature import Signer

BASE: Final = "/v1/graphs/jobs/"
API_VERSION: Final = (b"x-api-version", b"1")
UNITS: Final = b"x-usage-units"
NO_UNITS: Final = (UNITS, b"0")

_encode: Final = msgspec.json.Encoder().encode


class ExpiredGraphJob(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job whose retention ended before its webhook was delivered."""

    status: str
    job_id: str
    terminal: bool
    operation: str
    expired: bool
    error_code: str | None = None


HEADERS: Final = TICKET_HEADERS | {
    "X-API-Version": "The version of this API.",
    "Warning": "Names the query fields that are unknown and were ignored.",
    "X-Usage-Units": "The units metered for this request: 1 for new work, 0 for a poll.",
}
ENDED: Final = ResponseSpec(
    HTTPStatus.OK, "The job has completed, or failed.", schemas.GraphCompleted, headers=HEADERS
)
_UNDER_WAY: Final = ResponseSpec(
    HTTPStatus.ACCEPTED, "The job has not ended.", schemas.GraphJobBody, headers=RETRY_AFTER_HEADER
)
_decode_stored: Final = msgspec.json.Decoder(StoredGraphResult).decode


class GraphsJobs(JobResource):
    """Analyses of archives. Archives are not kept, so these jobs cannot be retried."""

    product = GRAPHS_SERVICE
    name = "graph_job"
    path = f"{BASE}{{id}}"
    body = schemas.GraphJobBody
    endpoints = GRAPH_ENDPOINTS
    also = (PLAN_INACTIVE,)
    keys_per_api_key = True
    unfinished = HTTPStatus.ACCEPTED
    unknown_seconds = 10
    status_headers = (API_VERSION, NO_UNITS)
    status_description = "The body has the graph once the job has completed."

    def __init__(self, server: ServerContext) -> None:
        super().__init__(server)
        self.settings = server.settings
        self._fixed_seconds = server.settings.graphs_retry_after_seconds
        """The operations with a fixed ``Retry-After``."""
        self._pepper = server.settings.require("key_pepper")

    @cached_property
    def _signer(self) -> Signer:
        from coatcheck.receipts.signature import Signer  # slow to import

        return Signer.from_pepper(self._pepper)

    async def find(self, request: Request, scope: Scope) -> JobView:
        await self.gate.check_plan(request.principal)
        return await super().find(request, scope)

    def status_responses(self) -> Sequence[ResponseSpec]:
        return _UNDER_WAY, ENDED, NOT_MODIFIED

    def shows_files(self, view: JobView) -> bool:
        return view.state is State.COMPLETED

    def estimate(self, view: JobView) -> int:
        fixed = self._fixed_seconds.get(GRAPH_ENDPOINTS[view.endpoint])
        return super().estimate(view) if fixed is None else fixed

    async def retry_after(self, view: JobView) -> int:
        fixed = self._fixed_seconds.get(GRAPH_ENDPOINTS[view.endpoint])
        return await super().retry_after(view) if fixed is None else fixed

    async def show(self, view: JobView) -> schemas.GraphJobBody:
        """The job's body. It contains a result only if that was read with the row; larger results
        are fetched by URL."""
        stored = stored_result(view)
        if stored is None and not view.result_is_left_out:
            return self._envelope(view)
        if stored is None or stored.artifact:
            return msgspec.structs.replace(
                self._envelope(view), result_url=self.links(view.id).poll
            )
        return msgspec.structs.replace(self._envelope(view), result=stored.inline)

    async def response(
        self, view: JobView, status: HTTPStatus, headers: RawHeaders, retry_after: int | None = None
    ) -> Response | StreamResponse:
        """The whole job, with a result of any length."""
        headers = [*headers, *self.links(view.id).headers()]
        if not view.terminal:
            return json_response(self._envelope(view, retry_after), status, headers)
        view = await self.engine.with_result(view)
        stored = stored_result(view)
        if stored is None or not stored.artifact:
            return json_response(await self.show(view), status, headers)
        pieces = await self._with_artifact(view, stored.artifact)
        if pieces is None:
            return json_response(self._envelope(view), status, headers)
        return StreamResponse(status, pieces, [JSON, *headers])

    # The deletion receipt

    async def receipt(self, request: Request) -> Response:
        """The deletion receipt, signed anew each time, because it shows what is known now."""
        principal = request.principal
        await self.gate.check_plan(principal)
        record = await self.engine.input_of(request.params["id"], org=principal.org)
        if record is None or not principal.may_see(record.owner):
            raise JobNotFound("there is no such job")
        operation = GRAPH_ENDPOINTS.get(record.endpoint)
        if operation is None:
            raise JobNotFound("there is no such job")
        receipt = receipts.describe(record, operation)
        return json_response(self._signer.sign(receipt), headers=[API_VERSION])

    async def receipt_key(self, _: Request) -> Response:
        """The public key. With it, receipts can be verified offline."""
        return json_response({"keys": [self._signer.public_key.jwk]})

    def receipt_routes(self) -> list[Route]:
        return [
            Route(
                methods=("GET",),
                path=f"{self.path}/receipt",
                name="deletion_receipt",
                summary="A signed receipt: where the archive was stored, and when it was deleted.",
                handler=self.receipt,
                access=Scope.READ,
                tag=self.product,
                parameters=self.path_parameters,
                responses=(
                    ResponseSpec(HTTPStatus.OK, "The receipt.", receipts.SignedReceipt),
                    PLAN_INACTIVE,
                ),
            ),
            Route(
                methods=("GET",),
                path="/v1/graphs/receipt-keys",
                name="receipt_keys",
                summary="The public key that verifies receipts, as a JWK set.",
                handler=self.receipt_key,
                access=Access.OPEN,
                tag=self.product,
                responses=(ResponseSpec(HTTPStatus.OK, "The key set.", schema={"type": "object"}),),
            ),
        ]

    # For the console and for webhooks

    async def label(self, job: OrgJob, /) -> JobLabel:
        operation = GRAPH_ENDPOINTS.get(job.view.endpoint)
        return JobLabel(
            GRAPHS_SERVICE, job.view.endpoint if operation is None else f"{operation} graph"
        )

    def paths(self, job: OrgJob) -> JobPaths:
        poll = self.links(job.id).poll
        return JobPaths(poll, receipt=f"{poll}/receipt")

    def result(self, job: OrgJob) -> bytes | None:
        stored = stored_result(job.view)
        return None if stored is None or stored.artifact else bytes(stored.inline)

    async def input(self, job: OrgJob) -> bytes:
        """The archive's size and hash, without where it is stored."""
        archive = decode_request(await super().input(job))
        return _encode({"size": archive.size, "sha256": archive.sha256})

    def refusal(self, _: OrgJob, /) -> str | None:
        return (
            "The archive was deleted when its job ended, so it cannot be analysed again. "
            "Upload it again with a new idempotency key."
        )

    async def payload(self, event: DeliveryEvent, view: JobView | None) -> Any:
        if view is None:
            return _expired(event)
        body = await self.show(view)
        result = body.result
        if result is msgspec.UNSET or memoryview(result).nbytes <= RESULT_BYTES_MAX:
            return body
        url = self.links(view.id).poll
        return msgspec.structs.replace(body, result=msgspec.UNSET, result_url=url)

    async def _with_artifact(self, view: JobView, name: str) -> AsyncIterator[bytes] | None:
        """The job's body around a result that is streamed from the blob store. None if the result's
        artifact was deleted."""
        for artifact in await self.engine.artifacts(view.id, org=view.org):
            if artifact.name == name:
                break
        else:
            await self.engine.get(view.id, org=view.org)  # pruned just now: then this raises
            return None
        opening = _encode(self._envelope(view)).removesuffix(b"}") + b',"result":'
        stream = self.engine.read_artifact(artifact)
        try:
            # Read before the response starts: after its head, an error can no longer be sent.
            first = await anext(stream)
        except FileNotFoundError as error:
            await self.engine.get(view.id, org=view.org)  # pruned just now: then this raises
            raise BlobStoreUnavailable("the blob of a result is missing") from error

        async def pieces() -> AsyncIterator[bytes]:
            yield opening + first
            async for piece in stream:
                yield piece
            yield b"}"

        return pieces()

    def _envelope(self, view: JobView, seconds: int | None = None) -> schemas.GraphJobBody:
        operation = GRAPH_ENDPOINTS[view.endpoint]
        urls = self.links(view.id)
        if seconds is None and not view.terminal:
            seconds = self.estimate(view)
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


def _expired(event: DeliveryEvent) -> ExpiredGraphJob:
    facts = event.facts
    state = State(facts["state"])
    return ExpiredGraphJob(
        status=schemas.STATUSES[state],
        job_id=to_text(event.subject),
        terminal=state.terminal,
        operation=GRAPH_ENDPOINTS[facts["endpoint"]],
        expired=True,
        error_code=facts.get("error_code"),
    )


def _error(view: JobView) -> str | None:
    if view.state not in (State.FAILED, State.CANCELLED):
        return None
    return view.error_message or view.error_code or "the job failed"


def _progress(view: JobView) -> schemas.GraphProgress | None:
    if view.progress is None:
        return None
    return schemas.GraphProgress(round(view.progress, 6), view.progress_note)
