"""Routes that read and cancel graphs jobs: a job, its events, artifacts and deletion receipt."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck import receipts
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Scope
from coatcheck.http.artifacts import OwnedJobs, artifact_routes
from coatcheck.http.context import ServerContext
from coatcheck.http.explanations import explain_route
from coatcheck.http.job_responses import (
    CONDITION_PARAMETERS,
    EVENTS,
    NOT_MODIFIED,
    RESUME_PARAMETERS,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
)
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Access, Parameter, ResponseSpec, Route
from coatcheck.products.graphs import schemas
from coatcheck.products.graphs.context import GraphsContext
from coatcheck.products.graphs.presenter import API_VERSION
from coatcheck.products.graphs.submit_routes import ENDED, PAYMENT, UNITS
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS


def file_routes(server: ServerContext, context: GraphsContext) -> list[Route]:
    finder = OwnedJobs(
        context.engine,
        context.job,
        lambda job_id: context.presenter.urls(job_id).poll,
        GRAPH_ENDPOINTS,
        shows=lambda view: view.state is State.COMPLETED,
    )
    return artifact_routes(
        server,
        finder,
        path=JOB,
        name="graph_job",
        tag="graphs",
        parameters=(Parameter("id", "path", "The job's id.", ULID),),
        also=(PAYMENT,),
    )


JOB: Final = "/v1/graphs/jobs/{id}"


class GraphReadRoutes:
    """The routes that show jobs."""

    def __init__(self, context: GraphsContext) -> None:
        self._context = context
        self._signer = receipts.Signer.from_pepper(context.settings.require("key_pepper"))

    async def status(self, request: Request) -> Response | StreamResponse:
        context = self._context
        look = await context.responses.snapshot(request, await context.job(request))
        if look.is_known:
            return Response(HTTPStatus.NOT_MODIFIED, b"", [*look.headers, API_VERSION])
        return await context.presenter.response(look.view, [*look.headers, (UNITS, b"0")])

    async def events(self, request: Request) -> StreamResponse:
        context = self._context
        return await context.responses.events(
            request, await context.job(request), context.presenter
        )

    async def explain(self, request: Request) -> Response:
        return await self._context.responses.explained(request, await self._context.job(request))

    async def cancel(self, request: Request) -> Response:
        context = self._context
        return await context.responses.cancel(await context.job(request), context.presenter)

    async def receipt(self, request: Request) -> Response:
        """The deletion receipt, signed anew each time, because it shows what is known now."""
        principal = request.principal
        await self._context.gate.check_plan(principal)
        record = await self._context.engine.input_of(request.params["id"], org=principal.org)
        if record is None or not principal.may_see(record.owner):
            raise JobNotFound("there is no such job")
        route = GRAPH_ENDPOINTS.get(record.endpoint)
        if route is None:
            raise JobNotFound("there is no such job")
        receipt = receipts.describe(record, route)
        return json_response(self._signer.sign(receipt), headers=[API_VERSION])

    async def receipt_key(self, _: Request) -> Response:
        """The public key. With it, receipts can be verified offline."""
        return json_response({"keys": [self._signer.public_jwk]})


def routes(context: GraphsContext) -> list[Route]:
    reading = GraphReadRoutes(context)
    job_id = Parameter("id", "path", "The job's id.", ULID)
    return [
        Route(
            methods=("GET",),
            path=JOB,
            name="graph_job",
            summary="Read a job, with its graph once it has completed.",
            handler=reading.status,
            access=Scope.READ,
            tag="graphs",
            parameters=(job_id, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            responses=(_UNDER_WAY, ENDED, NOT_MODIFIED, PAYMENT),
        ),
        Route(
            methods=("GET",),
            path=f"{JOB}/events",
            name="graph_job_events",
            summary="Stream a job's states and progress as Server-Sent Events.",
            handler=reading.events,
            access=Scope.READ,
            tag="graphs",
            parameters=(job_id, *RESUME_PARAMETERS),
            responses=(EVENTS, PAYMENT),
        ),
        explain_route(
            JOB,
            "explain_graph_job",
            reading.explain,
            tag="graphs",
            parameters=(job_id,),
            responses=(PAYMENT,),
        ),
        Route(
            methods=("POST",),
            path=f"{JOB}/cancel",
            name="cancel_graph_job",
            summary="Cancel a job.",
            handler=reading.cancel,
            access=Scope.SUBMIT,
            tag="graphs",
            parameters=(job_id,),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The job is cancelled.", schemas.GraphJobBody),
                ResponseSpec(
                    HTTPStatus.ACCEPTED, "The job was asked to stop.", schemas.GraphJobBody
                ),
                ResponseSpec(
                    HTTPStatus.CONFLICT, "The job has already ended.", Problem, MEDIA_TYPE
                ),
                PAYMENT,
            ),
        ),
        Route(
            methods=("GET",),
            path=f"{JOB}/receipt",
            name="deletion_receipt",
            summary="A signed receipt: where the archive was stored, and when it was deleted.",
            handler=reading.receipt,
            access=Scope.READ,
            tag="graphs",
            parameters=(job_id,),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The receipt.", receipts.SignedReceipt),
                PAYMENT,
            ),
        ),
        Route(
            methods=("GET",),
            path="/v1/graphs/receipt-keys",
            name="receipt_keys",
            summary="The public key that verifies receipts, as a JWK set.",
            handler=reading.receipt_key,
            access=Access.OPEN,
            tag="graphs",
            responses=(ResponseSpec(HTTPStatus.OK, "The key set.", schema={"type": "object"}),),
        ),
    ]


_UNDER_WAY: Final = ResponseSpec(
    HTTPStatus.ACCEPTED, "The job has not ended.", schemas.GraphJobBody, headers=RETRY_AFTER_HEADER
)
