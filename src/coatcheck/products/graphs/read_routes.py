"""Collecting: a job, its events, its deletion receipt; and asking for a job's end."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck import receipts
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.identity import Scope
from coatcheck.http.explanations import explain_operation
from coatcheck.http.job_responses import (
    CONDITION_PARAMETERS,
    EVENTS,
    NOT_MODIFIED,
    RESUME_PARAMETERS,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
)
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, StreamReply, json_reply
from coatcheck.http.routing import ULID, Access, Answer, Operation, Parameter
from coatcheck.products.graphs import schemas as words
from coatcheck.products.graphs.context import Scene
from coatcheck.products.graphs.presenter import API_VERSION
from coatcheck.products.graphs.submit_routes import ENDED, PAYMENT, UNITS
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS

JOB: Final = "/v1/graphs/jobs/{id}"


class Reading:
    """The routes that show jobs."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._signer = receipts.Signer.from_pepper(scene.settings.require("key_pepper"))

    async def status(self, call: Call) -> Reply | StreamReply:
        scene = self._scene
        look = await scene.answers.look(call, await scene.job(call))
        if look.is_known:
            return Reply(HTTPStatus.NOT_MODIFIED, b"", [*look.headers, API_VERSION])
        return await scene.voice.reply(look.view, [*look.headers, (UNITS, b"0")])

    async def events(self, call: Call) -> StreamReply:
        scene = self._scene
        return await scene.answers.events(call, await scene.job(call), scene.voice)

    async def explain(self, call: Call) -> Reply:
        return await self._scene.answers.explained(call, await self._scene.job(call))

    async def cancel(self, call: Call) -> Reply:
        scene = self._scene
        return await scene.answers.cancel(await scene.job(call), scene.voice)

    async def receipt(self, call: Call) -> Reply:
        """Signed anew each time: what it says of a layer is what is known now."""
        principal = call.principal
        await self._scene.gate.check_plan(principal)
        record = await self._scene.engine.input_of(call.params["id"], org=principal.org)
        if record is None or not principal.may_see(record.owner):
            raise JobNotFound("there is no such job")
        operation = GRAPH_ENDPOINTS.get(record.endpoint)
        if operation is None:
            raise JobNotFound("there is no such job")
        receipt = receipts.describe(record, operation)
        return json_reply(self._signer.sign(receipt), headers=[API_VERSION])

    async def receipt_key(self, _: Call) -> Reply:
        """The public key. Whoever keeps it can verify receipts without us."""
        return json_reply({"keys": [self._signer.public_jwk]})


def operations(scene: Scene) -> list[Operation]:
    reading = Reading(scene)
    job_id = Parameter("id", "path", "The job's id.", ULID)
    return [
        Operation(
            methods=("GET",),
            path=JOB,
            name="graph_job",
            summary="A job, with its graph once it has completed.",
            handler=reading.status,
            access=Scope.READ,
            tag="graphs",
            parameters=(job_id, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            answers=(_UNDER_WAY, ENDED, NOT_MODIFIED, PAYMENT),
        ),
        Operation(
            methods=("GET",),
            path=f"{JOB}/events",
            name="graph_job_events",
            summary="A job's states and progress, as they come.",
            handler=reading.events,
            access=Scope.READ,
            tag="graphs",
            parameters=(job_id, *RESUME_PARAMETERS),
            answers=(EVENTS, PAYMENT),
        ),
        explain_operation(
            JOB,
            "explain_graph_job",
            reading.explain,
            tag="graphs",
            parameters=(job_id,),
            answers=(PAYMENT,),
        ),
        Operation(
            methods=("POST",),
            path=f"{JOB}/cancel",
            name="cancel_graph_job",
            summary="Ask for a job's end.",
            handler=reading.cancel,
            access=Scope.SUBMIT,
            tag="graphs",
            parameters=(job_id,),
            answers=(
                Answer(HTTPStatus.OK, "The job is cancelled.", words.Envelope),
                Answer(HTTPStatus.ACCEPTED, "The job was told to stop.", words.Envelope),
                Answer(HTTPStatus.CONFLICT, "The job has ended.", Problem, MEDIA_TYPE),
                PAYMENT,
            ),
        ),
        Operation(
            methods=("GET",),
            path=f"{JOB}/receipt",
            name="deletion_receipt",
            summary="Where the archive has been, and when it was deleted there; signed.",
            handler=reading.receipt,
            access=Scope.READ,
            tag="graphs",
            parameters=(job_id,),
            answers=(Answer(HTTPStatus.OK, "The receipt.", receipts.SignedReceipt), PAYMENT),
        ),
        Operation(
            methods=("GET",),
            path="/v1/graphs/receipt-keys",
            name="receipt_keys",
            summary="The public key that receipts are verified with, as a JWK set.",
            handler=reading.receipt_key,
            access=Access.OPEN,
            tag="graphs",
            answers=(Answer(HTTPStatus.OK, "The key set.", schema={"type": "object"}),),
        ),
    ]


_UNDER_WAY: Final = Answer(
    HTTPStatus.ACCEPTED, "The job has not ended.", words.Envelope, headers=RETRY_AFTER_HEADER
)
