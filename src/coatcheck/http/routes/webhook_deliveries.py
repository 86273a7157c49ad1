"""The routes of webhook deliveries: the log of sent and pending messages, and replays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final, Literal
from uuid import UUID

from msgspec import Meta, Struct

from coatcheck.core.webhooks import FAILED, Webhooks
from coatcheck.domain import ids
from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.domain.tenants import Scope
from coatcheck.domain.webhooks import (
    DeliveryStatus,
    DeliveryView,
    SubjectKind,
    delivery_of,
    message_id,
)
from coatcheck.http.bodies import read_body
from coatcheck.http.pages import LIMIT, cursor_parameter, read_cursor, read_limit
from coatcheck.http.parameters import read_choice, refuse_unknown
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routes.webhook_parameters import (
    MESSAGE,
    MOMENT,
    PATH,
    TAG,
    endpoint_parameter,
    message_named,
    message_parameter,
    read_endpoint,
    read_moment,
    read_subject,
)
from coatcheck.http.routing import ULID, Parameter, RequestBody, ResponseSpec, Route

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
        refuse_unknown(request.query, _QUERY_NAMES)
        return await self._page(request, read_endpoint(request.query))

    async def list_of_endpoint(self, request: Request) -> Response:
        refuse_unknown(request.query, [name for name in _QUERY_NAMES if name != "endpoint_id"])
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
            since=read_moment(query, "since"),
            until=read_moment(query, "until"),
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


def routes(webhooks: Webhooks) -> list[Route]:
    """``/api/v1/orgs/{org}/webhooks/deliveries`` and replays, for the scope ``admin``."""
    log = _Log(webhooks)
    of_endpoint = f"{PATH}/endpoints/{{id}}"
    page = ResponseSpec(HTTPStatus.OK, "A page of deliveries.", WebhookDeliveryPage)
    order = RequestBody("The deliveries to send again.", ReplayOrder)
    replayed = [
        ResponseSpec(HTTPStatus.ACCEPTED, "The deliveries will be sent.", ReplayBody),
        ResponseSpec(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "The body is invalid; `details` says why.",
            Problem,
            MEDIA_TYPE,
        ),
    ]
    again = (
        "Oldest first, at most 1,000; `next` in the response means that there are more. Each is "
        "sent at once, with the same `webhook-id` as before, and is retried as if it were new."
    )
    return [
        Route(
            methods=["GET"],
            path=f"{PATH}/deliveries",
            name="webhook_deliveries",
            summary="List deliveries, sent and pending.",
            description="Newest first. A delivery is kept for 7 days after it has ended.",
            handler=log.list_page,
            access=Scope.ADMIN,
            operable=True,
            parameters=_QUERY,
            responses=[page],
            tag=TAG,
        ),
        Route(
            methods=["GET"],
            path=f"{PATH}/deliveries/{{id}}",
            name="webhook_delivery",
            summary="Show a delivery.",
            handler=log.show,
            access=Scope.ADMIN,
            operable=True,
            parameters=[message_parameter()],
            responses=[ResponseSpec(HTTPStatus.OK, "The delivery.", WebhookDeliveryBody)],
            tag=TAG,
        ),
        Route(
            methods=["POST"],
            path=f"{PATH}/deliveries/{{id}}/replay",
            name="replay_webhook_delivery",
            summary="Send a delivery again.",
            description="It is sent at once, with the same `webhook-id`, and retried as if it were "
            "new. This enables a receiver that had answered 410.",
            handler=log.replay,
            access=Scope.ADMIN,
            operable=True,
            parameters=[message_parameter()],
            responses=[
                ResponseSpec(
                    HTTPStatus.ACCEPTED, "The delivery will be sent.", WebhookDeliveryBody
                ),
                ResponseSpec(HTTPStatus.CONFLICT, "Its endpoint was deleted.", Problem, MEDIA_TYPE),
            ],
            tag=TAG,
        ),
        Route(
            methods=["POST"],
            path=f"{PATH}/replay",
            name="replay_webhooks",
            summary="Send the deliveries of a time span again.",
            description=again,
            handler=log.replay_of_all,
            access=Scope.ADMIN,
            operable=True,
            body=order,
            responses=replayed,
            tag=TAG,
        ),
        Route(
            methods=["GET"],
            path=f"{of_endpoint}/deliveries",
            name="webhook_endpoint_deliveries",
            summary="List the deliveries of an endpoint, sent and pending.",
            description="Newest first. A delivery is kept for 7 days after it has ended.",
            handler=log.list_of_endpoint,
            access=Scope.ADMIN,
            operable=True,
            parameters=[
                endpoint_parameter(),
                *(each for each in _QUERY if each.name != "endpoint_id"),
            ],
            responses=[page],
            tag=TAG,
        ),
        Route(
            methods=["POST"],
            path=f"{of_endpoint}/replay",
            name="replay_webhook_endpoint",
            summary="Send the deliveries of an endpoint in a time span again.",
            description=again,
            handler=log.replay_of_endpoint,
            access=Scope.ADMIN,
            operable=True,
            parameters=[endpoint_parameter()],
            body=order,
            responses=replayed,
            tag=TAG,
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
    Parameter("since", "query", "Created at this time or later.", MOMENT),
    Parameter("until", "query", "Created before this time.", MOMENT),
    cursor_parameter(MESSAGE),
    LIMIT,
)
_QUERY_NAMES: Final = tuple(each.name for each in _QUERY)
