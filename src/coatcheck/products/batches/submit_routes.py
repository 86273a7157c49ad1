"""Submits jobs. The tasks are in a JSON body, are the body itself, or were staged before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.core.catalogue import Catalogue
from coatcheck.core.remote.result_store import work_frame
from coatcheck.core.uploads import UploadRepository
from coatcheck.core.upstream_calls import call_frame, upstream_call
from coatcheck.domain.catalogue import EndpointSpec, ServiceSpec
from coatcheck.domain.errors import (
    CoatcheckError,
    EndpointNotFound,
    FieldIssue,
    InvalidInput,
    NotAsyncEligible,
    OutcomeUnknown,
    Unauthenticated,
)
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.domain.service_definition import path_parameters
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.http.bodies import check_content_type, read_as_written
from coatcheck.http.job_resource import IDEMPOTENCY_PARAMETERS, PLAN_INACTIVE, TICKET_HEADERS
from coatcheck.http.parameters import (
    Preferences,
    check_webhook_url,
    read_idempotency_key,
    read_preferences,
)
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import RequestBody, ResponseSpec, Route
from coatcheck.http.watching import WAIT_PARAMETERS
from coatcheck.products.batches import query_options, schemas, task_lists
from coatcheck.products.batches.jobs import BatchJobs
from coatcheck.products.batches.model import Created, KnownKey, NewBatch
from coatcheck.products.batches.presenter import JOBS
from coatcheck.products.batches.schemas import NewBatchBody, check_one_source, check_options
from coatcheck.products.batches.task_lists import (
    Frame,
    ReceivedTaskList,
    TaskListReader,
    fingerprint,
    is_same,
    is_task_list,
    replayed,
)

_SHOWN_ENDPOINTS: Final = 10
_JSON: Final = ((b"content-type", b"application/json"),)


@dataclass(frozen=True, slots=True)
class TaskTarget:
    """An endpoint, and the bytes before and after a task's input that complete its payload."""

    spec: EndpointSpec
    prefix: bytes = b""
    suffix: bytes = b""


async def find_target(
    catalogue: Catalogue,
    principal: Principal,
    service: str,
    version: int | None,
    endpoint: str,
    *,
    retries: int | None = None,
    timeout_seconds_max: float,
) -> TaskTarget:
    """Find the endpoint. ``retries`` are the caller's, if given; ``timeout_seconds_max`` limits the
    calls of registered endpoints.

    Raises EndpointNotFound, which lists what exists; NotAsyncEligible; Unauthenticated if the
    endpoint requires a service token; InvalidInput if a batch cannot use the endpoint.
    """
    spec = _endpoint(await catalogue.find(principal.org, service), version, endpoint)
    if spec.auth == "service_token" and principal.kind != "service":
        raise Unauthenticated
    if not spec.async_eligible:
        raise NotAsyncEligible("This endpoint accepts only synchronous calls.")
    spec = spec.within(timeout_seconds_max)
    if spec.remote is not None:
        return TaskTarget(spec, *work_frame(spec, retries))
    if spec.target is None:
        return TaskTarget(spec)
    return _upstream(spec)


def _endpoint(service: ServiceSpec | None, version: int | None, requested: str) -> EndpointSpec:
    if service is None:
        raise EndpointNotFound(
            "There is no such service. A Python service appears when a worker that serves it "
            "starts; one with an http upstream or a remote must be registered."
        )
    found = service.versions.get(service.latest if version is None else version)
    if found is None:
        known = ", ".join(str(number) for number in sorted(service.versions))
        raise EndpointNotFound(f"The service has no such version; it has {known}.")
    by_key = [spec for spec in found.endpoints if spec.key == requested]
    path = requested if requested.startswith("/") else f"/{requested}"
    by_path = [spec for spec in found.endpoints if spec.path == path]
    # A path may have several methods; POST is the one that submits work.
    candidates = by_key or [spec for spec in by_path if spec.method == "POST"] or by_path
    if not candidates:
        raise EndpointNotFound(
            f"The service has no such endpoint; it has {_listed(found.endpoints)}."
        )
    if len(candidates) > 1:
        keys = ", ".join(spec.key for spec in candidates)
        raise InvalidInput([FieldIssue("endpoint", f"has several methods: use one of {keys}")])
    return candidates[0]


def _listed(endpoints: tuple[EndpointSpec, ...]) -> str:
    shown = [f"{spec.path} ({spec.key})" for spec in endpoints[:_SHOWN_ENDPOINTS]]
    more = len(endpoints) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _upstream(spec: EndpointSpec) -> TaskTarget:
    """A call to an http upstream. Tasks are the bodies; the rest of the request is the same."""
    assert spec.target is not None
    if path_parameters(spec.path):
        issue = "has path parameters, which tasks cannot set at an http upstream"
        raise InvalidInput([FieldIssue("endpoint", issue)])
    call = upstream_call(
        url=spec.target.url.rstrip("/") + spec.path,
        method=spec.method,
        headers=_JSON,
        body=b"",
        target=spec.target,
    )
    return TaskTarget(spec, *call_frame(call))


_EVENTS: Final = ("completed",)


class BatchSubmitRoutes:
    """POST /v1/jobs."""

    def __init__(self, jobs: BatchJobs, lists: TaskListReader) -> None:
        self._jobs = jobs
        self._lists = lists

    async def submit(self, request: Request) -> Response | StreamResponse:
        """Create a job. A known idempotency key is answered before any list is read."""
        jobs, principal = self._jobs, request.principal
        preferences = read_preferences(request)
        key = self._jobs.stored_key(principal, "job", read_idempotency_key(request))
        is_list = is_task_list(request)
        if not is_list:
            check_content_type(request, otherwise=task_lists.CONTENT_TYPE_HINT)
            query_options.refuse_options(request.query)
        if key is not None:
            known = await jobs.batches.find_key(principal.org, key)
            if known is not None:
                return await self._known(request, known, preferences, is_list=is_list)
        await jobs.gate.check_new_work(principal, jobs=0)
        body = await self._read_body(request, is_list=is_list)
        check_options(body)
        await self._check_webhook(body, request.principal.org)
        target = await find_target(
            jobs.server.catalogue,
            principal,
            body.service,
            body.version,
            body.endpoint,
            retries=body.retries,
            timeout_seconds_max=jobs.gate.timeout_seconds_max(principal),
        )
        batch = new_id()
        received = await self._receive(request, body, target, batch, preferences, is_list=is_list)
        new = self._new(request, body, target, batch, key, await fingerprint(request, received))
        created = await self._create(new, received)
        view = await jobs.batches.get(to_text(created.uuid), org=principal.org)
        if not created.created:
            # Another request with this key was faster.
            headers = replayed(same=not created.mismatch, preferences=preferences)
            status = HTTPStatus.OK if view.status.terminal else HTTPStatus.ACCEPTED
        else:
            headers = []
            small = received is not None and received.tasks is not None
            status = HTTPStatus.CREATED if small else HTTPStatus.ACCEPTED
        return await self._jobs.submitted(
            request, view, preferences, status=status, headers=headers
        )

    async def _known(
        self, request: Request, known: KnownKey, preferences: Preferences, *, is_list: bool
    ) -> Response | StreamResponse:
        """Answer the existing job. A list is read and compared only with ``handling=strict``."""
        jobs = self._jobs
        same = await is_same(request, known, preferences, is_list=is_list)
        headers = replayed(same=same, preferences=preferences)
        view = await jobs.batches.get(to_text(known.uuid), org=request.principal.org)
        status = HTTPStatus.OK if view.status.terminal else HTTPStatus.ACCEPTED
        return await self._jobs.submitted(
            request, view, preferences, status=status, headers=headers
        )

    async def _read_body(self, request: Request, *, is_list: bool) -> NewBatchBody:
        if is_list:
            return query_options.read_options(request.query)
        body = read_as_written(await request.body(PAYLOAD_BYTES_MAX), NewBatchBody)
        check_one_source(body.tasks, body.source, is_needed=body.type == "closed")
        return body

    async def _check_webhook(self, body: NewBatchBody, org: str) -> None:
        if body.webhook_url is None:
            return
        await check_webhook_url("webhook_url", body.webhook_url, self._jobs.server.receivers, org)

    async def _receive(
        self,
        request: Request,
        body: NewBatchBody,
        target: TaskTarget,
        batch: UUID,
        preferences: Preferences,
        *,
        is_list: bool,
    ) -> ReceivedTaskList | None:
        """The tasks, or where they are stored; None for an open job without tasks."""
        org = request.principal.org
        frame = Frame(target.prefix, target.suffix, None if body.rate is None else body.rate.key)
        may_be_small = body.type == "closed" and not body.is_async and not preferences.respond_async
        check_room = partial(self._jobs.gate.check_room, request.principal)
        if is_list:
            return await self._lists.body(
                request, org, batch, frame, check_room, may_be_small=may_be_small
            )
        if body.source is not None:
            return await self._lists.staged(body.source.upload_id, org, request.principal.owner)
        if body.tasks is not None:
            return await self._lists.inline(
                body.tasks, batch, frame, check_room, may_be_small=may_be_small
            )
        return None

    def _new(
        self,
        request: Request,
        body: NewBatchBody,
        target: TaskTarget,
        batch: UUID,
        key: str | None,
        fingerprint: bytes,
    ) -> NewBatch:
        jobs, principal, spec = self._jobs, request.principal, target.spec
        per_second, rate_key, key_per_second = _rates(body)
        return NewBatch(
            org=principal.org,
            uuid=batch,
            run=new_id(),
            owner=principal.owner,
            service=body.service,
            service_endpoint=body.endpoint,
            endpoint=spec.engine_endpoint,
            usage_queue_key=spec.queue_key,
            lane=body.lane.value,
            failures_max=self._retries(body, spec.retries),
            is_open=body.type == "open",
            payload_prefix=target.prefix,
            payload_suffix=target.suffix,
            concurrency=body.concurrency,
            rate_per_second=per_second,
            rate_key=rate_key,
            rate_key_per_second=key_per_second,
            webhook_url=body.webhook_url,
            webhook_events=_events(body),
            metadata=body.metadata_json,
            keep_seconds=(
                jobs.settings.batch_keep_seconds if body.keep_seconds is None else body.keep_seconds
            ),
            idempotency_key=key,
            fingerprint=None if key is None else fingerprint,
            request_id=request.request_id,
            secrets=UUID(spec.secrets_id) if spec.secrets_id else None,
        )

    def _retries(self, body: NewBatchBody, endpoint_retries: int | None) -> int:
        if body.retries is not None:
            return body.retries
        if endpoint_retries is not None:
            return endpoint_retries
        return self._jobs.settings.lanes[Lane(body.lane)].retries

    async def _create(self, new: NewBatch, received: ReceivedTaskList | None) -> Created:
        """Create the job. If that fails, delete the stored list, so that none is left behind."""
        batches = self._jobs.batches
        if received is None:
            return await batches.create(new, None)
        try:
            if received.tasks is not None:
                return await batches.create_small(new, received.part, received.tasks)
            created = await batches.create(new, received.part)
        except OutcomeUnknown:
            # The job may exist. If it does not, the sweeper deletes its list.
            raise
        except CoatcheckError:
            await self._lists.drop(received)
            raise
        if not created.created:
            await self._lists.drop(received)
        return created


def _rates(body: NewBatchBody) -> tuple[float | None, str | None, float | None]:
    """The rate of the run, the field that is the key, and the rate of each key."""
    rate = body.rate
    if rate is None:
        return None, None, None
    if rate.key is not None and rate.key_per_second is None:
        return None, rate.key, rate.per_second
    return rate.per_second, rate.key, rate.key_per_second


def _events(body: NewBatchBody) -> list[str]:
    if body.webhook_url is None:
        return []
    return [*dict.fromkeys(_EVENTS if body.webhook_events is None else body.webhook_events)]


def routes(jobs: BatchJobs, lists: TaskListReader) -> list[Route]:
    batches = BatchSubmitRoutes(jobs, lists)
    return [
        Route(
            methods=("POST",),
            path=JOBS,
            name="submit_batch",
            summary="Submit a job of one task or a million.",
            description="The tasks of a short closed list exist when the response arrives (201). A "
            "worker ingests any other list (202). A body of `application/x-ndjson` is the list "
            "itself, one task per line; the options are then in the query.",
            handler=batches.submit,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(*IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS, *query_options.PARAMETERS),
            body=RequestBody(
                "The job, up to 1 MiB; or a list of tasks, up to 10 GB.",
                NewBatchBody,
                also={task_lists.MEDIA_TYPE: task_lists.SCHEMA},
            ),
            responses=(_ENDED, _CREATED, _ACCEPTED, PLAN_INACTIVE, _UPLOAD, _REFUSED),
        )
    ]


_HEADERS: Final = TICKET_HEADERS | {"ETag": "Changes with every state and count."}
_ENDED: Final = ResponseSpec(
    HTTPStatus.OK,
    "The job ended within the time that the caller waits; or the idempotency key was known, and "
    "its job has ended.",
    schemas.BatchJob,
    headers=_HEADERS,
)
_CREATED: Final = ResponseSpec(
    HTTPStatus.CREATED, "The job and its tasks exist.", schemas.BatchJob, headers=_HEADERS
)
_ACCEPTED: Final = ResponseSpec(
    HTTPStatus.ACCEPTED,
    "The job is stored; a worker ingests its tasks.",
    schemas.BatchJob,
    headers=_HEADERS,
)
_UPLOAD: Final = ResponseSpec(
    HTTPStatus.CONFLICT,
    "The upload has no content (`upload_missing`), or another job used it already "
    "(`upload_already_used`).",
    Problem,
    MEDIA_TYPE,
)
_REFUSED: Final = ResponseSpec(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "A field is invalid; the webhook's URL is forbidden (`url_forbidden`); or, with "
    "`handling=strict`, the idempotency key was used with another payload.",
    Problem,
    MEDIA_TYPE,
)


class UploadRoutes:
    """POST /v1/uploads."""

    def __init__(self, jobs: BatchJobs) -> None:
        self._jobs = jobs

    async def create(self, request: Request) -> Response:
        """Create a signed URL to upload a list to. It needs no other credential."""
        jobs, principal = self._jobs, request.principal
        await jobs.gate.check_new_work(principal, jobs=0)
        upload, signed = await jobs.engine.extension(UploadRepository).create(
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


def upload_routes(jobs: BatchJobs) -> list[Route]:
    uploads = UploadRoutes(jobs)
    return [
        Route(
            methods=("POST",),
            path="/v1/uploads",
            name="create_upload",
            summary="Create a signed URL to upload a list of tasks to, of up to 10 GB.",
            description="Then submit a job whose `source` names the upload. An upload can be used "
            "once, within a day. A `url` that starts with a slash is on this server.",
            handler=uploads.create,
            access=Scope.SUBMIT,
            tag="batches",
            responses=(
                ResponseSpec(HTTPStatus.CREATED, "Where to upload the list.", schemas.Upload),
                PLAN_INACTIVE,
            ),
        )
    ]
