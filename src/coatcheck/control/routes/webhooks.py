"""An organisation's webhooks: the secret that signs them, and the log of what was sent."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.control.call import Call
from coatcheck.control.operations import Answer, Operation, Parameter
from coatcheck.control.queries import read_choice, read_whole_number, refuse_unknown
from coatcheck.control.reply import Reply, json_reply, raw_header
from coatcheck.domain import ids
from coatcheck.domain.errors import InvalidParameter, NotFound
from coatcheck.domain.identity import Scope
from coatcheck.domain.webhooks import DeliveryView, Status, Tells, delivery_of, message_id
from coatcheck.engine.webhook_secrets import WebhookSecrets
from coatcheck.settings import Settings
from coatcheck.store import webhooks
from coatcheck.store.faults import retried
from coatcheck.store.line import Line
from coatcheck.store.webhooks import Secret

PATH: Final = "/api/v1/orgs/{org}/webhooks"

_PAGE_ROWS: Final = 50
_PAGE_ROWS_MAX: Final = 200
_TAG: Final = "webhooks"
_STATUSES: Final = [status.value for status in Status]
_HEX_CHARACTERS: Final = 32
_MESSAGE: Final = {"type": "string", "pattern": "^msg_[0-7][0-9A-HJKMNP-TV-Z]{25}$"}
_LIMIT: Final = {
    "type": "integer",
    "minimum": 1,
    "maximum": _PAGE_ROWS_MAX,
    "default": _PAGE_ROWS,
}


class SecretView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The signing secret. After a rotation ``previous`` signs along until it expires."""

    secret: str
    previous: str | None = None
    previous_expires_at: datetime | None = None


class WebhookDelivery(msgspec.Struct, frozen=True):
    """One message to one receiver. ``id`` is its ``webhook-id``, the same at every try.

    ``job_id`` is what it tells of: a job, a task, or a batch.
    """

    id: str
    subject: Tells
    job_id: str
    event: str
    url: str | None
    status: Status
    tries: int
    last_status_code: int | None
    last_error: str | None
    last_try_at: datetime | None
    next_try_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


class WebhookDeliveryPage(msgspec.Struct, frozen=True):
    """Deliveries, newest first. ``next`` is the cursor of the page after this one, if any."""

    items: list[WebhookDelivery]
    next: str | None


class _Webhooks:
    """The handlers, on the database."""

    def __init__(self, settings: Settings, line: Line) -> None:
        self._secrets = WebhookSecrets(settings.require("key_pepper"))
        self._line = line

    async def secret(self, call: Call) -> Reply:
        org = call.principal.org
        return self._shown(org, await retried(partial(webhooks.secret, self._line, org)))

    async def rotate(self, call: Call) -> Reply:
        org = call.principal.org
        before = await retried(partial(webhooks.secret, self._line, org))
        rotate = partial(webhooks.rotate, self._line, org, before.generation)
        return self._shown(org, await retried(rotate))

    async def list_page(self, call: Call) -> Reply:
        query = call.query
        refuse_unknown(query, ("job_id", "status", "cursor", "limit"))
        limit = read_whole_number(query, "limit", 1, _PAGE_ROWS_MAX, default=_PAGE_ROWS)
        status = read_choice(query, "status", _STATUSES)
        after, subject = _cursor(query.get("cursor")), _subject(query.get("job_id"))
        read = partial(
            webhooks.list_page,
            self._line,
            call.principal.org,
            after=after,
            subject=subject,
            status=None if status is None else Status(status),
            limit=limit + 1,
        )
        found = await retried(read)
        page = [_delivery(each) for each in found[:limit]]
        return json_reply(WebhookDeliveryPage(page, page[-1].id if len(found) > limit else None))

    async def show(self, call: Call) -> Reply:
        found = await retried(
            partial(webhooks.get, self._line, call.principal.org, _named(call.params["id"]))
        )
        if found is None:
            raise NotFound
        return json_reply(_delivery(found))

    async def replay(self, call: Call) -> Reply:
        found = await retried(
            partial(webhooks.replay, self._line, call.principal.org, _named(call.params["id"]))
        )
        if found is None:
            raise NotFound
        return json_reply(_delivery(found), HTTPStatus.ACCEPTED)

    def _shown(self, org: str, secret: Secret) -> Reply:
        previous = None
        if secret.previous_until is not None:
            previous = self._secrets.text(org, secret.generation - 1)
        view = SecretView(
            self._secrets.text(org, secret.generation), previous, secret.previous_until
        )
        return json_reply(view, headers=[raw_header("Cache-Control", "no-store")])


def operations(settings: Settings, line: Line) -> list[Operation]:
    """``/api/v1/orgs/{org}/webhooks``, for callers with the scope ``admin``."""
    handlers = _Webhooks(settings, line)
    message = Parameter("id", "path", "The delivery's id: its `webhook-id`.", _MESSAGE)
    return [
        Operation(
            methods=["GET"],
            path=f"{PATH}/secret",
            name="webhook_secret",
            summary="The secret that the organisation's webhooks are signed with.",
            handler=handlers.secret,
            access=Scope.ADMIN,
            answers=[Answer(HTTPStatus.OK, "The secret.", SecretView)],
            tag=_TAG,
        ),
        Operation(
            methods=["POST"],
            path=f"{PATH}/secret/rotate",
            name="rotate_webhook_secret",
            summary="Replace that secret.",
            description="For 24 hours the one before signs along: every message then has two "
            "signatures, and a receiver may know either secret. Rotated again within that time, "
            "the first of the three no longer signs.",
            handler=handlers.rotate,
            access=Scope.ADMIN,
            answers=[Answer(HTTPStatus.OK, "The new secret, and the one before.", SecretView)],
            tag=_TAG,
        ),
        Operation(
            methods=["GET"],
            path=f"{PATH}/deliveries",
            name="webhook_deliveries",
            summary="What was sent, and what is to be.",
            description="Newest first. What has ended is kept for 7 days.",
            handler=handlers.list_page,
            access=Scope.ADMIN,
            parameters=[
                Parameter("job_id", "query", "Of this job, task or batch."),
                Parameter("status", "query", "In this state.", {"enum": _STATUSES}),
                Parameter("cursor", "query", "`next` of the page before.", _MESSAGE),
                Parameter("limit", "query", "How many at most.", _LIMIT),
            ],
            answers=[Answer(HTTPStatus.OK, "A page of deliveries.", WebhookDeliveryPage)],
            tag=_TAG,
        ),
        Operation(
            methods=["GET"],
            path=f"{PATH}/deliveries/{{id}}",
            name="webhook_delivery",
            summary="One delivery.",
            handler=handlers.show,
            access=Scope.ADMIN,
            parameters=[message],
            answers=[Answer(HTTPStatus.OK, "The delivery.", WebhookDelivery)],
            tag=_TAG,
        ),
        Operation(
            methods=["POST"],
            path=f"{PATH}/deliveries/{{id}}/replay",
            name="replay_webhook_delivery",
            summary="Send one again.",
            description="At once, under the same `webhook-id`, and retried as if it were new. A "
            "receiver that had answered 410 is wanted again by this.",
            handler=handlers.replay,
            access=Scope.ADMIN,
            parameters=[message],
            answers=[Answer(HTTPStatus.ACCEPTED, "It is to be sent.", WebhookDelivery)],
            tag=_TAG,
        ),
    ]


def _named(message: str) -> UUID:
    """The delivery that the path names; whatever else is there names none."""
    try:
        return delivery_of(message)
    except ids.InvalidId:
        raise NotFound from None


def _cursor(given: str | None) -> UUID | None:
    if given is None:
        return None
    try:
        return delivery_of(given)
    except ids.InvalidId:
        raise InvalidParameter("cursor", "must be `next` of the page before") from None


def _subject(given: str | None) -> UUID | None:
    """A job or a batch by its ULID, a task by its 32 hexadecimal digits."""
    if given is None:
        return None
    try:
        return UUID(hex=given) if len(given) == _HEX_CHARACTERS else ids.from_text(given)
    except ValueError:
        raise InvalidParameter("job_id", "must be a job's id") from None


def _delivery(view: DeliveryView) -> WebhookDelivery:
    is_task = view.kind is Tells.TASK
    return WebhookDelivery(
        id=message_id(view.id),
        subject=view.kind,
        job_id=view.subject.hex if is_task else ids.to_text(view.subject),
        event=view.event,
        url=view.url,
        status=view.status,
        tries=view.tries,
        last_status_code=view.last_status_code,
        last_error=view.last_error,
        last_try_at=view.last_try_at,
        next_try_at=view.next_try_at,
        created_at=view.created_at,
        ended_at=view.ended_at,
    )
