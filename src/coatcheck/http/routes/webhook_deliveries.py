"""The routes of webhook deliveries: the log of sent and pending messages, and replays.

The owner of an endpoint without a URL pulls its messages. These routes are for
receivers that the server cannot reach, such as one on a laptop: ``coatcheck listen``
takes messages, posts them itself, and reports the results. A taken message is leased. If its result
is not reported in time, it can be taken again, and a late report has no effect.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, Literal
from uuid import UUID

from msgspec import Meta, Struct

from coatcheck.core.queries.webhooks import Claimed
from coatcheck.core.webhook_payloads import Render
from coatcheck.core.webhooks import FAILED, Report, Webhooks
from coatcheck.domain import ids
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    DatabaseUnavailable,
    FieldIssue,
    InvalidInput,
    InvalidParameter,
    NotFound,
    OutcomeUnknown,
    Unauthenticated,
)
from coatcheck.domain.patterns import whole
from coatcheck.domain.tenants import Scope
from coatcheck.domain.webhooks import (
    RETRY_AFTER_SECONDS_MAX,
    DeliveryStatus,
    DeliveryView,
    SubjectKind,
    delivery_of,
    message_id,
)
from coatcheck.http.bodies import read_body, read_optional_body
from coatcheck.http.gate import Gate
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.pages import LIMIT, cursor_parameter, read_cursor, read_limit
from coatcheck.http.parameters import DATE_TIME, read_choice, read_time
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response, raw_header
from coatcheck.http.routing import ULID, HoldsOpen, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.telemetry import traceparents

PATH: Final = "/api/v1/orgs/{org}/webhooks"
TAG: Final = "webhooks"
MESSAGE: Final = {"type": "string", "pattern": whole("msg_[0-7][0-9A-HJKMNP-TV-Z]{25}")}

_HEX_CHARACTERS: Final = 32


def endpoint_parameter() -> Parameter:
    return Parameter("id", "path", "The endpoint's id.", ULID)


def message_parameter() -> Parameter:
    return Parameter("id", "path", "The delivery's id: its `webhook-id`.", MESSAGE)


def message_named(text: str) -> UUID:
    """The delivery that a path names. Raises NotFound for an invalid id."""
    try:
        return delivery_of(text)
    except ids.InvalidId:
        raise NotFound from None


def read_subject(query: Mapping[str, str]) -> UUID | None:
    """A job or a group of jobs by its ULID, a job of a group by its 32 hexadecimal digits."""
    given = query.get("job_id")
    if given is None:
        return None
    try:
        return UUID(hex=given) if len(given) == _HEX_CHARACTERS else ids.from_text(given)
    except ValueError:
        raise InvalidParameter("job_id", "must be a job's id") from None


def read_endpoint(query: Mapping[str, str]) -> str | None:
    given = query.get("endpoint_id")
    try:
        return None if given is None else ids.to_text(ids.from_text(given))
    except ids.InvalidId:
        raise InvalidParameter("endpoint_id", "must be an endpoint's id") from None


_BODY_BYTES_MAX: Final = 16 * 1024
_STATUSES: Final = [status.value for status in DeliveryStatus]

_Replayable = Literal["pending", "delivered", "exhausted", "disabled"]
_Zoned = Annotated[datetime, Meta(tz=True)]


class WebhookDeliveryBody(Struct, frozen=True):
    """One message to one receiver. ``id`` is its ``webhook-id``, the same at every try.

    ``job_id`` is the job or the group of jobs that the event is about; null for a test.
    ``endpoint_id`` is the registered endpoint that receives it; null if the submission named the
    URL.
    """

    id: str
    subject: SubjectKind
    job_id: str | None
    event: str
    endpoint_id: str | None
    url: str | None
    status: DeliveryStatus
    paused: bool
    tries: int
    last_status_code: int | None
    last_error: str | None
    last_try_at: datetime | None
    next_try_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


class WebhookDeliveryPage(Struct, frozen=True):
    """Deliveries, newest first. ``next`` is the cursor of the next page, if there is one."""

    items: list[WebhookDeliveryBody]
    next: str | None


class ReplayOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """The deliveries to send again: those that were created from ``since`` to before ``until``.

    Without ``statuses``: those that failed, which are exhausted, disabled, or pending with a failed
    last try. ``cursor`` is ``next`` of the previous response, if there were more than one request
    replays.
    """

    since: _Zoned
    until: _Zoned | None = None
    statuses: (
        Annotated[list[_Replayable], Meta(min_length=1, max_length=len(DeliveryStatus))] | None
    ) = None
    cursor: Annotated[str, Meta(pattern=MESSAGE["pattern"])] | None = None


class ReplayBody(Struct, frozen=True):
    """The number of deliveries that are sent again. With ``next`` there are more: send the request
    again, with it as ``cursor``."""

    replayed: int
    next: str | None


class _Log:
    """The handlers."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    async def list_page(self, request: Request) -> Response:
        return await self._page(request, read_endpoint(request.query))

    async def list_of_endpoint(self, request: Request) -> Response:
        return await self._page(request, request.params["id"])

    async def show(self, request: Request) -> Response:
        found = await self._webhooks.delivery(
            request.principal.org, message_named(request.params["id"])
        )
        return json_response(shown_delivery(found))

    async def replay(self, request: Request) -> Response:
        found = await self._webhooks.replay(
            request.principal.org, message_named(request.params["id"])
        )
        return json_response(shown_delivery(found), HTTPStatus.ACCEPTED)

    async def replay_of_endpoint(self, request: Request) -> Response:
        return await self._replay_range(request, request.params["id"])

    async def replay_of_all(self, request: Request) -> Response:
        return await self._replay_range(request, None)

    async def _page(self, request: Request, endpoint: str | None) -> Response:
        query = request.query
        limit = read_limit(query)
        status = read_choice(query, "status", _STATUSES)
        found = await self._webhooks.deliveries(
            request.principal.org,
            endpoint=endpoint,
            job=read_subject(query),
            status=None if status is None else DeliveryStatus(status),
            since=read_time(query, "since"),
            until=read_time(query, "until"),
            after=read_cursor(query, delivery_of),
            limit=limit + 1,
        )
        page = [shown_delivery(each) for each in found[:limit]]
        return json_response(WebhookDeliveryPage(page, page[-1].id if len(found) > limit else None))

    async def _replay_range(self, request: Request, endpoint: str | None) -> Response:
        order = await read_body(request, ReplayOrder, _BODY_BYTES_MAX)
        if order.until is not None and order.until <= order.since:
            raise InvalidInput([FieldIssue("until", "must be after since")])
        again = await self._webhooks.replay_range(
            request.principal.org,
            endpoint,
            order.since,
            order.until,
            [DeliveryStatus(each) for each in order.statuses] if order.statuses else FAILED,
            after=None if order.cursor is None else _cursor(order.cursor),
        )
        following = None if again.next is None else message_id(again.next)
        return json_response(ReplayBody(again.count, following), HTTPStatus.ACCEPTED)


def delivery_routes(webhooks: Webhooks) -> list[Route]:
    """``/api/v1/orgs/{org}/webhooks/deliveries`` and replays, for the scope ``admin``."""
    log = _Log(webhooks)
    of_endpoint = f"{PATH}/endpoints/{{id}}"
    page = ResponseSpec(HTTPStatus.OK, "A page of deliveries.", WebhookDeliveryPage)
    order = RequestBody("The deliveries to send again.", ReplayOrder)
    replayed = [
        ResponseSpec(HTTPStatus.ACCEPTED, "The deliveries will be sent.", ReplayBody),
        ResponseSpec.problem(
            HTTPStatus.UNPROCESSABLE_ENTITY, "The body is invalid; `details` says why."
        ),
    ]
    again = (
        "Oldest first, at most 1,000; `next` in the response means that there are more. Each is "
        "sent at once, with the same `webhook-id` as before, and is retried as if it were new."
    )
    route = partial(Route, access=Scope.ADMIN, operable=True, tag=TAG)
    return [
        route(
            methods=["GET"],
            path=f"{PATH}/deliveries",
            name="webhook_deliveries",
            summary="List deliveries, sent and pending.",
            description="Newest first. A delivery is kept for 7 days after it has ended.",
            handler=log.list_page,
            parameters=_QUERY,
            responses=[page],
        ),
        route(
            methods=["GET"],
            path=f"{PATH}/deliveries/{{id}}",
            name="webhook_delivery",
            summary="Show a delivery.",
            handler=log.show,
            parameters=[message_parameter()],
            responses=[ResponseSpec(HTTPStatus.OK, "The delivery.", WebhookDeliveryBody)],
        ),
        route(
            methods=["POST"],
            path=f"{PATH}/deliveries/{{id}}/replay",
            name="replay_webhook_delivery",
            summary="Send a delivery again.",
            description="It is sent at once, with the same `webhook-id`, and retried as if it were "
            "new. This enables a receiver that had answered 410.",
            handler=log.replay,
            parameters=[message_parameter()],
            responses=[
                ResponseSpec(
                    HTTPStatus.ACCEPTED, "The delivery will be sent.", WebhookDeliveryBody
                ),
                ResponseSpec.problem(HTTPStatus.CONFLICT, "Its endpoint was deleted."),
            ],
        ),
        route(
            methods=["POST"],
            path=f"{PATH}/replay",
            name="replay_webhooks",
            summary="Send the deliveries of a time span again.",
            description=again,
            handler=log.replay_of_all,
            body=order,
            responses=replayed,
        ),
        route(
            methods=["GET"],
            path=f"{of_endpoint}/deliveries",
            name="webhook_endpoint_deliveries",
            summary="List the deliveries of an endpoint, sent and pending.",
            description="Newest first. A delivery is kept for 7 days after it has ended.",
            handler=log.list_of_endpoint,
            parameters=[
                endpoint_parameter(),
                *(each for each in _QUERY if each.name != "endpoint_id"),
            ],
            responses=[page],
        ),
        route(
            methods=["POST"],
            path=f"{of_endpoint}/replay",
            name="replay_webhook_endpoint",
            summary="Send the deliveries of an endpoint in a time span again.",
            description=again,
            handler=log.replay_of_endpoint,
            parameters=[endpoint_parameter()],
            body=order,
            responses=replayed,
        ),
    ]


def shown_delivery(view: DeliveryView) -> WebhookDeliveryBody:
    """The body that shows a delivery."""
    return WebhookDeliveryBody(
        id=message_id(view.id),
        subject=view.kind,
        job_id=shown_subject(view.kind, view.subject),
        event=view.event,
        endpoint_id=None if view.endpoint is None else ids.to_text(view.endpoint),
        url=view.url,
        status=view.status,
        paused=view.paused,
        tries=view.tries,
        last_status_code=view.last_status_code,
        last_error=view.last_error,
        last_try_at=view.last_try_at,
        next_try_at=view.next_try_at,
        created_at=view.created_at,
        ended_at=view.ended_at,
    )


def shown_subject(kind: SubjectKind, subject: UUID) -> str | None:
    """The id of a delivery's subject, in the format of the API that shows the subject."""
    match kind:
        case SubjectKind.TEST:
            return None
        case SubjectKind.TASK:
            return subject.hex
        case _:
            return ids.to_text(subject)


def _cursor(given: str) -> UUID:
    try:
        return delivery_of(given)
    except ids.InvalidId:
        issue = FieldIssue("cursor", "must be `next` of the previous response")
        raise InvalidInput([issue]) from None


_QUERY: Final[Sequence[Parameter]] = (
    Parameter("job_id", "query", "Only of this job, or of this group of jobs."),
    Parameter("endpoint_id", "query", "Only to this registered endpoint.", ULID),
    Parameter("status", "query", "Only with this status.", {"enum": _STATUSES}),
    Parameter("since", "query", "Created at this time or later.", DATE_TIME),
    Parameter("until", "query", "Created before this time.", DATE_TIME),
    cursor_parameter(MESSAGE),
    LIMIT,
)
_log = logging.getLogger(__name__)

_MESSAGE_BYTES_MAX: Final = 256 * 1024
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
        order = await read_optional_body(request, TakeOrder, _MESSAGE_BYTES_MAX)
        org, endpoint = request.principal.org, request.params["id"]
        if not (await self._webhooks.get_endpoint(org, endpoint)).pulled:
            raise InvalidInput([FieldIssue("id", "belongs to an endpoint that has a URL")])
        taken = await self._take_messages(request, org, endpoint, order)
        made = await asyncio.gather(*(self._message(org, endpoint, each) for each in taken))
        messages = [message for message in made if message is not None]
        shown = WebhookMessages(messages, _LEASE_SECONDS)
        return json_response(shown, headers=[raw_header("Cache-Control", "no-store")])

    async def report(self, request: Request) -> Response:
        given = await read_body(request, MessageReports, _MESSAGE_BYTES_MAX)
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


def message_routes(
    webhooks: Webhooks, render: Render, draining: ServerDraining, gate: Gate
) -> list[Route]:
    """``/api/v1/orgs/{org}/webhooks/endpoints/{id}/messages``, for the scope ``admin``."""
    handlers = _Messages(webhooks, render, draining, gate)
    path = f"{PATH}/endpoints/{{id}}/messages"
    unfit = ResponseSpec.problem(
        HTTPStatus.UNPROCESSABLE_ENTITY, "The body is invalid, or the endpoint has a URL."
    )
    route = partial(Route, access=Scope.ADMIN, tag=TAG)
    return [
        route(
            methods=["POST"],
            path=f"{path}/take",
            name="take_webhook_messages",
            summary="Take messages of an endpoint without a URL.",
            description="Oldest first. Taken messages are leased for a minute: report their "
            "results by then, or they can be taken again. With `wait` the response comes as soon "
            "as there is a message, or after that many seconds. An endpoint whose messages nobody "
            "takes for 10 minutes is deleted.",
            handler=handlers.take,
            parameters=[endpoint_parameter()],
            body=RequestBody(
                "The number of messages, and the time to wait.", TakeOrder, required=False
            ),
            held=HoldsOpen.ALWAYS,
            responses=[ResponseSpec(HTTPStatus.OK, "The messages.", WebhookMessages), unfit],
        ),
        route(
            methods=["POST"],
            path=f"{path}/report",
            name="report_webhook_messages",
            summary="Report the results of messages that were taken.",
            description="A status of 2xx means that the message is delivered, 410 that the "
            "receiver wants no more messages. With any other status, and without an answer, the "
            "message can be taken again after the next delay of the retry schedule.",
            handler=handlers.report,
            parameters=[endpoint_parameter()],
            body=RequestBody("The results.", MessageReports),
            responses=[
                ResponseSpec(HTTPStatus.OK, "The messages whose report counted.", TakenReports),
                unfit,
            ],
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
