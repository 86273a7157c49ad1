"""Webhooks that are fetched: what an endpoint without a URL is to be told is taken by its owner.

For receivers that cannot be posted to, such as one on a laptop: ``coatcheck listen`` takes what
there is, posts it itself, and reports what came of it. Each message is leased to whoever took it;
one that is not reported in time is there to be taken again, and a late report changes nothing.
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
from coatcheck.domain.webhooks import PEACE_SECONDS_MAX, delivery_of, message_id
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
"""Between two looks for one who waits: nobody is told that there is a message for an endpoint."""
_LEASE_SECONDS: Final = 60.0
_RENDER_SECONDS_MAX: Final = 20.0
_ERROR_CHARACTERS_MAX: Final = 200
_NOT_NOW: Final = (BlobStoreUnavailable, DatabaseUnavailable, OutcomeUnknown, TimeoutError)
_OUR_FAULT: Final = "it could not be made, for a reason on our side"


class TakeOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """How many messages at most, and for how many seconds to wait if there is none."""

    limit: Annotated[int, Meta(ge=1, le=_MESSAGES_MAX)] = _MESSAGES
    wait: Annotated[float, Meta(ge=0, le=_WAIT_SECONDS_MAX)] = 0


class WebhookMessageBody(Struct, frozen=True):
    """What is to be posted: ``headers`` with their signature, and ``body``, to the byte.

    ``lease`` goes with the report of what came of it.
    """

    id: str
    event: str
    job_id: str | None
    tries: int
    headers: dict[str, str]
    body: str
    lease: str


class WebhookMessages(Struct, frozen=True):
    """What was taken; nothing, if nothing came in time."""

    messages: list[WebhookMessageBody]
    lease_seconds: float


class MessageReport(Struct, frozen=True, forbid_unknown_fields=True):
    """What came of a message: the status that the receiver answered, or why there was no answer.

    ``retry_after`` is for how many seconds a receiver that answered 429 or 503 wants peace.
    """

    id: Annotated[str, Meta(pattern=MESSAGE["pattern"])]
    lease: Annotated[str, Meta(pattern=whole("[0-9a-f]{32}"))]
    status_code: Annotated[int, Meta(ge=100, le=599)] | None = None
    error: Annotated[str, Meta(min_length=1, max_length=_ERROR_CHARACTERS_MAX)] | None = None
    retry_after: Annotated[float, Meta(ge=0, le=PEACE_SECONDS_MAX)] | None = None


class MessageReports(Struct, frozen=True, forbid_unknown_fields=True):
    """What came of messages."""

    reports: Annotated[list[MessageReport], Meta(min_length=1, max_length=_MESSAGES_MAX)]


class TakenReports(Struct, frozen=True):
    """The messages whose lease still held. Of the others nothing was noted."""

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
            raise InvalidInput([FieldIssue("id", "is of an endpoint that is posted to")])
        taken = await self._taken(request, org, endpoint, order)
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

    async def _taken(
        self, request: Request, org: str, endpoint: str, order: TakeOrder
    ) -> list[Claimed]:
        """What there is, once there is something or the time is up. Raises Unauthenticated once
        what the call was let in with does not count any more."""
        deadline = time.monotonic() + order.wait
        leaving = asyncio.ensure_future(request.disconnected())
        lost = asyncio.Event()
        losing = asyncio.ensure_future(lost.wait())
        try:
            with self._gate.watch(request, lost.set) as credential:
                while await credential.counts():
                    taken = await self._webhooks.take(org, endpoint, order.limit, _LEASE_SECONDS)
                    left = deadline - time.monotonic()
                    # What is taken for a caller who has left would wait for its lease to end.
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
        """None if it cannot be made: it is taken again later, by its lease or by its schedule."""
        notice = claimed.event
        fields = {"webhook_id": message_id(notice.id), "event": notice.event, "org": org}
        try:
            async with asyncio.timeout(_RENDER_SECONDS_MAX):
                body = await self._render(notice)
        except _NOT_NOW as error:
            _log.warning("a webhook is left to its lease: %s", error, extra=fields)
            return None
        except Exception as error:  # noqa: BLE001 - a defect must not be tried every minute for ever
            # Without its text, which may quote what is not ours to log.
            _log.error("a webhook could not be made: %s", type(error).__name__, extra=fields)
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
        "The body does not fit, or the endpoint has a URL and is posted to.",
        Problem,
        MEDIA_TYPE,
    )
    return [
        Route(
            methods=["POST"],
            path=f"{path}/take",
            name="take_webhook_messages",
            summary="Take what an endpoint without a URL is to be told.",
            description="Oldest first. What is taken is leased for a minute: report what came of "
            "it by then, or it can be taken again. With `wait` the answer comes when there is "
            "something, or after so many seconds. An endpoint that nobody has asked for 10 "
            "minutes is taken away.",
            handler=handlers.take,
            access=Scope.ADMIN,
            parameters=[endpoint_parameter()],
            body=RequestBody("How many, and how long to wait.", TakeOrder, required=False),
            held=HoldsOpen.ALWAYS,
            responses=[ResponseSpec(HTTPStatus.OK, "What was taken.", WebhookMessages), unfit],
            tag=TAG,
        ),
        Route(
            methods=["POST"],
            path=f"{path}/report",
            name="report_webhook_messages",
            summary="Say what came of messages that were taken.",
            description="A status of 2xx means that it is delivered, 410 that the receiver wants "
            "nothing any more; for anything else, and where there was no answer, it is there to "
            "be taken again after the next wait of the schedule.",
            handler=handlers.report,
            access=Scope.ADMIN,
            parameters=[endpoint_parameter()],
            body=RequestBody("What came of them.", MessageReports),
            responses=[ResponseSpec(HTTPStatus.OK, "Those that were noted.", TakenReports), unfit],
            tag=TAG,
        ),
    ]


def _report(number: int, given: MessageReport) -> Report:
    if given.status_code is None and given.error is None:
        issue = FieldIssue(f"reports[{number}]", "needs a status_code or an error")
        raise InvalidInput([issue])
    try:
        delivery = delivery_of(given.id)
    except ids.InvalidId:
        raise InvalidInput([FieldIssue(f"reports[{number}].id", "is no message's id")]) from None
    return Report(
        delivery, UUID(hex=given.lease), given.status_code, given.error, given.retry_after
    )
