"""The routes of pulled webhooks: the owner of an endpoint without a URL fetches its messages.

They are for receivers that the server cannot reach, such as one on a laptop: ``coatcheck listen``
takes messages, posts them itself, and reports the results. A taken message is leased. If its result
is not reported in time, it can be taken again, and a late report has no effect.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from coatcheck.core.queries.webhooks import Claimed
from coatcheck.core.webhook_payloads import Render
from coatcheck.core.webhooks import Report, Webhooks
from coatcheck.domain import ids
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    DatabaseUnavailable,
    FieldIssue,
    InvalidInput,
    OutcomeUnknown,
    Unauthenticated,
)
from coatcheck.domain.patterns import whole
from coatcheck.domain.tenants import Scope
from coatcheck.domain.webhooks import RETRY_AFTER_SECONDS_MAX, delivery_of, message_id
from coatcheck.http.bodies import read_body, read_optional_body
from coatcheck.http.gate import Gate
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response, raw_header
from coatcheck.http.routes.webhook_deliveries import shown_subject
from coatcheck.http.routes.webhook_parameters import MESSAGE, PATH, TAG, endpoint_parameter
from coatcheck.http.routing import HoldsOpen, RequestBody, ResponseSpec, Route
from coatcheck.telemetry import traceparents

_log = logging.getLogger(__name__)

_BODY_BYTES_MAX: Final = 256 * 1024
_MESSAGES_MAX: Final = 50
_MESSAGES: Final = 10
_WAIT_SECONDS_MAX: Final = 60
_LOOK_SECONDS: Final = 0.5
"""The interval of looking for messages while a request waits: nothing notifies of new ones."""
_LEASE_SECONDS: Final = 60.0
_RENDER_SECONDS_MAX: Final = 20.0
_ERROR_CHARACTERS_MAX: Final = 200
_NOT_NOW: Final = (BlobStoreUnavailable, DatabaseUnavailable, OutcomeUnknown, TimeoutError)
_OUR_FAULT: Final = "the server could not make the message because of an internal error"


class TakeOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """The maximum number of messages, and the seconds to wait if there is none."""

    limit: Annotated[int, Meta(ge=1, le=_MESSAGES_MAX)] = _MESSAGES
    wait: Annotated[float, Meta(ge=0, le=_WAIT_SECONDS_MAX)] = 0


class WebhookMessageBody(Struct, frozen=True):
    """A message to post: ``headers`` with the signature, and ``body``, which must be posted as is.

    ``lease`` belongs into the report of the result.
    """

    id: str
    event: str
    job_id: str | None
    tries: int
    headers: dict[str, str]
    body: str
    lease: str


class WebhookMessages(Struct, frozen=True):
    """The messages that were taken; none, if there were none in time."""

    messages: list[WebhookMessageBody]
    lease_seconds: float


class MessageReport(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a message: the status that the receiver answered, or why there was none.

    ``retry_after`` is the Retry-After of a receiver that answered 429 or 503, in seconds.
    """

    id: Annotated[str, Meta(pattern=MESSAGE["pattern"])]
    lease: Annotated[str, Meta(pattern=whole("[0-9a-f]{32}"))]
    status_code: Annotated[int, Meta(ge=100, le=599)] | None = None
    error: Annotated[str, Meta(min_length=1, max_length=_ERROR_CHARACTERS_MAX)] | None = None
    retry_after: Annotated[float, Meta(ge=0, le=RETRY_AFTER_SECONDS_MAX)] | None = None


class MessageReports(Struct, frozen=True, forbid_unknown_fields=True):
    """The results of messages."""

    reports: Annotated[list[MessageReport], Meta(min_length=1, max_length=_MESSAGES_MAX)]


class TakenReports(Struct, frozen=True):
    """The messages whose lease was still valid. Reports of others were ignored."""

    noted: list[str]


class _Messages:
    """The handlers. ``render`` makes bodies (``core/webhook_payloads.py``)."""

    def __init__(
        self, webhooks: Webhooks, render: Render, draining: ServerDraining, gate: Gate
    ) -> None:
        self._webhooks = webhooks
        self._render = render
        self._draining = draining
        self._gate = gate

    async def take(self, request: Request) -> Response:
        order = await read_optional_body(request, TakeOrder, _BODY_BYTES_MAX)
        org, endpoint = request.principal.org, request.params["id"]
        if not (await self._webhooks.get_endpoint(org, endpoint)).pulled:
            raise InvalidInput([FieldIssue("id", "belongs to an endpoint that has a URL")])
        taken = await self._take_messages(request, org, endpoint, order)
        made = await asyncio.gather(*(self._message(org, endpoint, each) for each in taken))
        messages = [message for message in made if message is not None]
        shown = WebhookMessages(messages, _LEASE_SECONDS)
        return json_response(shown, headers=[raw_header("Cache-Control", "no-store")])

    async def report(self, request: Request) -> Response:
        given = await read_body(request, MessageReports, _BODY_BYTES_MAX)
        org, endpoint = request.principal.org, request.params["id"]
        await self._webhooks.get_endpoint(org, endpoint)
        reports = [_report(number, each) for number, each in enumerate(given.reports)]
        held = await self._webhooks.report(org, endpoint, reports)
        noted = [each.id for each, is_held in zip(given.reports, held, strict=True) if is_held]
        return json_response(TakenReports(noted))

    async def _take_messages(
        self, request: Request, org: str, endpoint: str, order: TakeOrder
    ) -> list[Claimed]:
        """Take messages, waiting until there are some or the time is up. Raises Unauthenticated
        once the credential of the request is no longer valid."""
        deadline = time.monotonic() + order.wait
        leaving = asyncio.ensure_future(request.disconnected())
        lost = asyncio.Event()
        losing = asyncio.ensure_future(lost.wait())
        try:
            with self._gate.watch(request, lost.set) as credential:
                while await credential.is_valid():
                    taken = await self._webhooks.take(org, endpoint, order.limit, _LEASE_SECONDS)
                    left = deadline - time.monotonic()
                    # A message that is taken for a disconnected caller waits for its lease to end.
                    if taken or left <= 0 or self._draining.begun or leaving.done():
                        return taken
                    async with self._draining.cut_short():
                        await asyncio.wait(
                            [leaving, losing],
                            timeout=min(left, _LOOK_SECONDS),
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                    if leaving.done():
                        return []
                raise Unauthenticated
        finally:
            leaving.cancel()
            losing.cancel()

    async def _message(
        self, org: str, endpoint: str, claimed: Claimed
    ) -> WebhookMessageBody | None:
        """The message; None if it cannot be made. It is then available again after its lease, or by
        its retry schedule."""
        notice = claimed.event
        fields = {"webhook_id": message_id(notice.id), "event": notice.event, "org": org}
        try:
            async with asyncio.timeout(_RENDER_SECONDS_MAX):
                body = await self._render(notice)
        except _NOT_NOW as error:
            _log.warning("cannot render a webhook before its lease ends: %s", error, extra=fields)
            return None
        except Exception as error:  # noqa: BLE001 - a defect must not be retried for ever
            # Without the error's text, which may quote a tenant's data.
            _log.error("cannot render a webhook: %s", type(error).__name__, extra=fields)
            failed = Report(notice.id, claimed.lease, None, _OUR_FAULT)
            await self._webhooks.report(org, endpoint, [failed])
            return None
        headers = self._webhooks.secrets.headers(claimed, body, datetime.now(UTC))
        if claimed.traceparent is not None:
            headers[traceparents.HEADER] = claimed.traceparent
        return WebhookMessageBody(
            id=message_id(notice.id),
            event=notice.event,
            job_id=shown_subject(notice.kind, notice.subject),
            tries=claimed.tries,
            headers=headers,
            body=body.decode(),
            lease=claimed.lease.hex,
        )


def routes(webhooks: Webhooks, render: Render, draining: ServerDraining, gate: Gate) -> list[Route]:
    """``/api/v1/orgs/{org}/webhooks/endpoints/{id}/messages``, for the scope ``admin``."""
    handlers = _Messages(webhooks, render, draining, gate)
    path = f"{PATH}/endpoints/{{id}}/messages"
    unfit = ResponseSpec(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "The body is invalid, or the endpoint has a URL.",
        Problem,
        MEDIA_TYPE,
    )
    return [
        Route(
            methods=["POST"],
            path=f"{path}/take",
            name="take_webhook_messages",
            summary="Take messages of an endpoint without a URL.",
            description="Oldest first. Taken messages are leased for a minute: report their "
            "results by then, or they can be taken again. With `wait` the response comes as soon "
            "as there is a message, or after that many seconds. An endpoint whose messages nobody "
            "takes for 10 minutes is deleted.",
            handler=handlers.take,
            access=Scope.ADMIN,
            parameters=[endpoint_parameter()],
            body=RequestBody(
                "The number of messages, and the time to wait.", TakeOrder, required=False
            ),
            held=HoldsOpen.ALWAYS,
            responses=[ResponseSpec(HTTPStatus.OK, "The messages.", WebhookMessages), unfit],
            tag=TAG,
        ),
        Route(
            methods=["POST"],
            path=f"{path}/report",
            name="report_webhook_messages",
            summary="Report the results of messages that were taken.",
            description="A status of 2xx means that the message is delivered, 410 that the "
            "receiver wants no more messages. With any other status, and without an answer, the "
            "message can be taken again after the next delay of the retry schedule.",
            handler=handlers.report,
            access=Scope.ADMIN,
            parameters=[endpoint_parameter()],
            body=RequestBody("The results.", MessageReports),
            responses=[
                ResponseSpec(HTTPStatus.OK, "The messages whose report counted.", TakenReports),
                unfit,
            ],
            tag=TAG,
        ),
    ]


def _report(number: int, given: MessageReport) -> Report:
    if given.status_code is None and given.error is None:
        issue = FieldIssue(f"reports[{number}]", "must have a status_code or an error")
        raise InvalidInput([issue])
    try:
        delivery = delivery_of(given.id)
    except ids.InvalidId:
        issue = FieldIssue(f"reports[{number}].id", "is not the id of a message")
        raise InvalidInput([issue]) from None
    return Report(
        delivery, UUID(hex=given.lease), given.status_code, given.error, given.retry_after
    )
