"""Handing a job in: its tasks in a JSON body, as a list that is the body, or staged before."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.core.uploads import UploadRepository
from coatcheck.domain.errors import CoatcheckError, OutcomeUnknown
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.domain.tenants import Scope
from coatcheck.http.bodies import check_content_type, read_as_written
from coatcheck.http.job_responses import IDEMPOTENCY_PARAMETERS, TICKET_HEADERS, WAIT_PARAMETERS
from coatcheck.http.parameters import (
    Preferences,
    check_webhook_url,
    read_idempotency_key,
    read_preferences,
)
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import RequestBody, ResponseSpec, Route
from coatcheck.products.batches import query_options, schemas, task_lists
from coatcheck.products.batches.context import BatchesContext, stored_key
from coatcheck.products.batches.model import Created, Known, NewBatch
from coatcheck.products.batches.presenter import JOBS
from coatcheck.products.batches.responses import BatchResponses
from coatcheck.products.batches.schemas import NewBatchBody, check_one_source, check_options
from coatcheck.products.batches.targets import TaskTarget, find_target
from coatcheck.products.batches.task_lists import (
    Frame,
    TaskListReader,
    TaskListTaken,
    comes_as_list,
    fingerprint,
    is_same,
    replayed,
)
from coatcheck.products.batches.task_routes import PAYMENT

_EVENTS: Final = ("completed",)


class BatchSubmitRoutes:
    """POST /v1/jobs."""

    def __init__(
        self, context: BatchesContext, responses: BatchResponses, taking: TaskListReader
    ) -> None:
        self._context = context
        self._responses = responses
        self._lists = taking

    async def submit(self, request: Request) -> Response:
        """A known key is answered before a list is read."""
        context, principal = self._context, request.principal
        preferences = read_preferences(request)
        said = read_idempotency_key(request)
        key = None if said is None else stored_key(principal, "job", said)
        is_list = comes_as_list(request)
        if not is_list:
            check_content_type(request, otherwise=task_lists.OTHERWISE)
            query_options.refuse_options(request.query)
        if key is not None:
            known = await context.batches.find_key(principal.org, key)
            if known is not None:
                return await self._known(request, known, preferences, is_list=is_list)
        await context.gate.check_new_work(principal, jobs=0)
        order = await self._order(request, is_list=is_list)
        check_options(order)
        await self._check_webhook(order, request.principal.org)
        target = await find_target(
            context.catalogue,
            principal,
            order.service,
            order.version,
            order.endpoint,
            retries=order.retries,
            timeout_seconds_max=context.gate.timeout_seconds_max(principal),
        )
        batch = new_id()
        taken = await self._take(request, order, target, batch, preferences, is_list=is_list)
        new = self._new(request, order, target, batch, key, await fingerprint(request, taken))
        created = await self._hand_in(new, taken)
        view = await context.batches.get(to_text(created.uuid), org=principal.org)
        if not created.created:
            # Another request with this key was faster.
            headers = replayed(same=not created.mismatch, preferences=preferences)
            status = HTTPStatus.OK if view.status.terminal else HTTPStatus.ACCEPTED
        else:
            headers = []
            small = taken is not None and taken.tasks is not None
            status = HTTPStatus.CREATED if small else HTTPStatus.ACCEPTED
        return await self._responses.handed_in(
            request, view, preferences, status=status, headers=headers
        )

    async def _known(
        self, request: Request, known: Known, preferences: Preferences, *, is_list: bool
    ) -> Response:
        """The job as it is. Of a list only who is strict pays for a look at it, to compare it."""
        context = self._context
        same = await is_same(request, known, preferences, is_list=is_list)
        headers = replayed(same=same, preferences=preferences)
        view = await context.batches.get(to_text(known.uuid), org=request.principal.org)
        status = HTTPStatus.OK if view.status.terminal else HTTPStatus.ACCEPTED
        return await self._responses.handed_in(
            request, view, preferences, status=status, headers=headers
        )

    async def _order(self, request: Request, *, is_list: bool) -> NewBatchBody:
        if is_list:
            return query_options.read_options(request.query)
        order = read_as_written(await request.body(PAYLOAD_BYTES_MAX), NewBatchBody)
        check_one_source(order.tasks, order.source, is_needed=order.type == "closed")
        return order

    async def _check_webhook(self, order: NewBatchBody, org: str) -> None:
        if order.webhook_url is None:
            return
        await check_webhook_url("webhook_url", order.webhook_url, self._context.guard, org)

    async def _take(
        self,
        request: Request,
        order: NewBatchBody,
        target: TaskTarget,
        batch: UUID,
        preferences: Preferences,
        *,
        is_list: bool,
    ) -> TaskListTaken | None:
        """The tasks, or where they are; None for an open job that has none yet."""
        org = request.principal.org
        frame = Frame(target.prefix, target.suffix, None if order.rate is None else order.rate.key)
        may_be_small = (
            order.type == "closed" and not order.is_async and not preferences.respond_async
        )
        make_room = partial(self._context.gate.check_room, request.principal)
        if is_list:
            return await self._lists.body(
                request, org, batch, frame, make_room, may_be_small=may_be_small
            )
        if order.source is not None:
            return await self._lists.staged(order.source.upload_id, org, request.principal.owner)
        if order.tasks is not None:
            return await self._lists.inline(
                order.tasks, batch, frame, make_room, may_be_small=may_be_small
            )
        return None

    def _new(
        self,
        request: Request,
        order: NewBatchBody,
        target: TaskTarget,
        batch: UUID,
        key: str | None,
        fingerprint: bytes,
    ) -> NewBatch:
        context, principal, spec = self._context, request.principal, target.spec
        per_second, rate_key, key_per_second = _rates(order)
        return NewBatch(
            org=principal.org,
            uuid=batch,
            run=new_id(),
            owner=principal.owner,
            service=order.service,
            service_endpoint=order.endpoint,
            endpoint=spec.engine_endpoint,
            usage_queue_key=spec.queue_key,
            lane=order.lane.value,
            failures_max=self._retries(order, spec.retries),
            is_open=order.type == "open",
            payload_prefix=target.prefix,
            payload_suffix=target.suffix,
            concurrency=order.concurrency,
            rate_per_second=per_second,
            rate_key=rate_key,
            rate_key_per_second=key_per_second,
            webhook_url=order.webhook_url,
            webhook_events=_events(order),
            metadata=order.metadata_json,
            keep_seconds=(
                context.settings.batch_keep_seconds
                if order.keep_seconds is None
                else order.keep_seconds
            ),
            idempotency_key=key,
            fingerprint=None if key is None else fingerprint,
            request_id=request.request_id,
            secrets=UUID(spec.secrets_id) if spec.secrets_id else None,
        )

    def _retries(self, order: NewBatchBody, endpoints_own: int | None) -> int:
        if order.retries is not None:
            return order.retries
        if endpoints_own is not None:
            return endpoints_own
        return self._context.settings.lanes[Lane(order.lane)].retries

    async def _hand_in(self, new: NewBatch, taken: TaskListTaken | None) -> Created:
        """Create the job. Whatever goes wrong, no list stays without one."""
        batches = self._context.batches
        if taken is None:
            return await batches.create(new, None)
        try:
            if taken.tasks is not None:
                return await batches.create_small(new, taken.part, taken.tasks)
            created = await batches.create(new, taken.part)
        except OutcomeUnknown:
            # The job may be there. If it is not, the sweeper finds a list without one.
            raise
        except CoatcheckError:
            await self._lists.drop(taken)
            raise
        if not created.created:
            await self._lists.drop(taken)
        return created


def _rates(order: NewBatchBody) -> tuple[float | None, str | None, float | None]:
    """Of the run, by which key, and of each key."""
    rate = order.rate
    if rate is None:
        return None, None, None
    if rate.key is not None and rate.key_per_second is None:
        return None, rate.key, rate.per_second
    return rate.per_second, rate.key, rate.key_per_second


def _events(order: NewBatchBody) -> list[str]:
    if order.webhook_url is None:
        return []
    return [*dict.fromkeys(_EVENTS if order.webhook_events is None else order.webhook_events)]


def routes(
    context: BatchesContext, responses: BatchResponses, taking: TaskListReader
) -> list[Route]:
    submitting = BatchSubmitRoutes(context, responses, taking)
    return [
        Route(
            methods=("POST",),
            path=JOBS,
            name="submit_batch",
            summary="Hand in a job of one task or a million.",
            description="A short closed list is there in the answer's wake (201); anything else is "
            "taken in by a worker (202). A body of `application/x-ndjson` is the list itself, a "
            "task on each line; its options are in the query then.",
            handler=submitting.submit,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(*IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS, *query_options.PARAMETERS),
            body=RequestBody(
                "The job, to 1 MiB; or a list of tasks, to 10 GB.",
                NewBatchBody,
                also={task_lists.MEDIA_TYPE: task_lists.SCHEMA},
            ),
            responses=(_ENDED, _CREATED, _ACCEPTED, PAYMENT, _UPLOAD, _REFUSED),
        )
    ]


_HEADERS: Final = TICKET_HEADERS | {"ETag": "Changes with every state and count."}
_ENDED: Final = ResponseSpec(
    HTTPStatus.OK,
    "The job has ended within the time that the caller was willing to wait; or its key was known, "
    "and it has ended.",
    schemas.BatchJob,
    headers=_HEADERS,
)
_CREATED: Final = ResponseSpec(
    HTTPStatus.CREATED, "The job and its tasks are there.", schemas.BatchJob, headers=_HEADERS
)
_ACCEPTED: Final = ResponseSpec(
    HTTPStatus.ACCEPTED,
    "The job is safe; its tasks are being taken in.",
    schemas.BatchJob,
    headers=_HEADERS,
)
_UPLOAD: Final = ResponseSpec(
    HTTPStatus.CONFLICT,
    "Nothing was put to the upload (`upload_missing`), or it was used already "
    "(`upload_already_used`).",
    Problem,
    MEDIA_TYPE,
)
_REFUSED: Final = ResponseSpec(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "A field does not fit; the webhook's URL may not be called (`url_forbidden`); or the "
    "idempotency key is known with another payload, and the caller was strict.",
    Problem,
    MEDIA_TYPE,
)


class Staging:
    """POST /v1/uploads."""

    def __init__(self, context: BatchesContext) -> None:
        self._context = context

    async def create(self, request: Request) -> Response:
        """A URL to put a list to. Whoever has it may."""
        context, principal = self._context, request.principal
        await context.gate.check_new_work(principal, jobs=0)
        upload, signed = await context.engine.extension(UploadRepository).create(
            org=principal.org, owner=principal.owner
        )
        shown = schemas.Upload(
            upload_id=to_text(upload),
            url=signed.url,
            method=signed.method,
            headers=dict(signed.headers),
            expires_at=signed.expires_at,
        )
        return json_response(shown, HTTPStatus.CREATED)


def upload_routes(context: BatchesContext) -> list[Route]:
    staging = Staging(context)
    return [
        Route(
            methods=("POST",),
            path="/v1/uploads",
            name="create_upload",
            summary="A signed URL to put a list of tasks to, of up to 10 GB.",
            description="Then hand a job in whose `source` names the upload. It is used once, "
            "within a day. A `url` that begins with a slash is on this server.",
            handler=staging.create,
            access=Scope.SUBMIT,
            tag="batches",
            responses=(
                ResponseSpec(HTTPStatus.CREATED, "Where to put the list.", schemas.Upload),
                PAYMENT,
            ),
        )
    ]
