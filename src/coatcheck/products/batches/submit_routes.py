"""Submits jobs. The tasks are in a JSON body, are the body itself, or were staged before."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.core.catalogue import Catalogue
from coatcheck.core.remote.result_store import work_frame
from coatcheck.core.uploads import UploadRepository
from coatcheck.core.upstream_calls import call_frame, upstream_call
from coatcheck.domain.catalogue import EndpointSpec, ServiceSpec
from coatcheck.domain.errors import (
    EndpointNotFound,
    FieldIssue,
    InvalidInput,
    NotAsyncEligible,
    Unauthenticated,
)
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.domain.service_definition import path_parameters
from coatcheck.domain.tenants import Principal
from coatcheck.http.bodies import check_content_type, read_as_written
from coatcheck.http.job_resource import (
    IDEMPOTENCY_PARAMETERS,
    PLAN_INACTIVE,
    check_mismatch,
    replay_headers,
)
from coatcheck.http.parameters import (
    Preferences,
    check_webhook_url,
    read_idempotency_key,
    read_preferences,
)
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import RequestBody, ResponseSpec, Route
from coatcheck.http.watching import WAIT_PARAMETERS
from coatcheck.products.batches import query_options, schemas, task_lists
from coatcheck.products.batches.jobs import SUBMIT_HEADERS, BatchJobs, batch_route, refusal
from coatcheck.products.batches.model import Created, NewBatch
from coatcheck.products.batches.presenter import JOBS
from coatcheck.products.batches.schemas import NewBatchBody, check_one_source, check_options
from coatcheck.products.batches.task_lists import (
    ListTarget,
    compared,
    fingerprint,
    is_task_list,
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
    catalogue: Catalogue, principal: Principal, body: NewBatchBody, *, timeout_seconds_max: float
) -> TaskTarget:
    """Find the endpoint that runs the tasks. ``timeout_seconds_max`` limits the calls of registered
    endpoints.

    Raises EndpointNotFound, which lists what exists; NotAsyncEligible; Unauthenticated if the
    endpoint requires a service token; InvalidInput if a batch cannot use the endpoint.
    """
    service = await catalogue.find(principal.org, body.service)
    spec = _endpoint(service, body.version, body.endpoint)
    if spec.auth == "service_token" and principal.kind != "service":
        raise Unauthenticated
    if not spec.async_eligible:
        raise NotAsyncEligible("This endpoint accepts only synchronous calls.")
    spec = spec.within(timeout_seconds_max)
    if spec.remote is not None:
        return TaskTarget(spec, *work_frame(spec, body.retries))
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
    """POST /v1/jobs and /v1/uploads."""

    def __init__(self, jobs: BatchJobs) -> None:
        self._jobs = jobs

    async def submit(self, request: Request) -> Response | StreamResponse:
        """Create a job. A known idempotency key is answered before any list is read."""
        jobs, principal = self._jobs, request.principal
        preferences = read_preferences(request)
        key = jobs.stored_key(principal, "job", read_idempotency_key(request))
        if not is_task_list(request):
            check_content_type(request, otherwise=task_lists.CONTENT_TYPE_HINT)
            query_options.refuse_options(request.query)
        known = None if key is None else await jobs.batches.find_key(principal.org, key)
        if known is not None:
            created, are_there = await compared(request, known, preferences), False
        else:
            created, are_there = await self._create(request, key, preferences)
        check_mismatch(created, preferences)
        view = await jobs.batches.get(to_text(created.uuid), org=principal.org)
        status = HTTPStatus.CREATED if are_there else HTTPStatus.ACCEPTED
        if not created.created and view.terminal:
            status = HTTPStatus.OK
        headers = replay_headers(created)
        return await jobs.submitted(request, view, preferences, status=status, headers=headers)

    async def _create(
        self, request: Request, key: str | None, preferences: Preferences
    ) -> tuple[Created, bool]:
        """Create the job; or find the one of another request with this key, which was faster. Also
        returns whether its tasks exist by now."""
        jobs, principal = self._jobs, request.principal
        await jobs.gate.check_new_work(principal, jobs=0)
        body = await self._read_body(request)
        check_options(body)
        await self._check_webhook(body, principal.org)
        target = await find_target(
            jobs.server.catalogue,
            principal,
            body,
            timeout_seconds_max=jobs.gate.timeout_seconds_max(principal),
        )
        to = ListTarget(
            batch=new_id(),
            owner=principal.owner,
            prefix=target.prefix,
            suffix=target.suffix,
            rate_key=None if body.rate is None else body.rate.key,
            may_be_small=body.type == "closed"
            and not body.is_async
            and not preferences.respond_async,
        )
        received = await jobs.lists.receive(request, body, to)
        digest = await fingerprint(request, received)
        new = self._new(request, body, target.spec, to, key, digest)
        if received is None:
            return await jobs.batches.create(new, None), False
        creating = jobs.batches.create(new, received.part, received.tasks)
        created = await jobs.lists.kept(received, creating)
        return created, created.created and received.tasks is not None

    async def _read_body(self, request: Request) -> NewBatchBody:
        if is_task_list(request):
            return query_options.read_options(request.query)
        body = read_as_written(await request.body(PAYLOAD_BYTES_MAX), NewBatchBody)
        check_one_source(body.tasks, body.source, is_needed=body.type == "closed")
        return body

    async def _check_webhook(self, body: NewBatchBody, org: str) -> None:
        if body.webhook_url is None:
            return
        await check_webhook_url("webhook_url", body.webhook_url, self._jobs.server.receivers, org)

    def _new(
        self,
        request: Request,
        body: NewBatchBody,
        spec: EndpointSpec,
        to: ListTarget,
        key: str | None,
        fingerprint: bytes,
    ) -> NewBatch:
        jobs, principal = self._jobs, request.principal
        per_second, rate_key, key_per_second = _rates(body)
        return NewBatch(
            org=principal.org,
            uuid=to.batch,
            run=new_id(),
            owner=principal.owner,
            service=body.service,
            service_endpoint=body.endpoint,
            endpoint=spec.engine_endpoint,
            usage_queue_key=spec.queue_key,
            lane=body.lane.value,
            failures_max=self._retries(body, spec.retries),
            is_open=body.type == "open",
            payload_prefix=to.prefix,
            payload_suffix=to.suffix,
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

    async def create_upload(self, request: Request) -> Response:
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


_ENDED: Final = ResponseSpec(
    HTTPStatus.OK,
    "The job ended within the time that the caller waits; or the idempotency key was known, and "
    "its job has ended.",
    schemas.BatchJob,
    headers=SUBMIT_HEADERS,
)
_CREATED: Final = ResponseSpec(
    HTTPStatus.CREATED, "The job and its tasks exist.", schemas.BatchJob, headers=SUBMIT_HEADERS
)
_ACCEPTED: Final = ResponseSpec(
    HTTPStatus.ACCEPTED,
    "The job is stored; a worker ingests its tasks.",
    schemas.BatchJob,
    headers=SUBMIT_HEADERS,
)
_UPLOAD: Final = refusal(
    HTTPStatus.CONFLICT,
    "The upload has no content (`upload_missing`), or another job used it already "
    "(`upload_already_used`).",
)
_REFUSED: Final = refusal(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "A field is invalid; the webhook's URL is forbidden (`url_forbidden`); or, with "
    "`handling=strict`, the idempotency key was used with another payload.",
)


def routes(jobs: BatchJobs) -> list[Route]:
    handlers = BatchSubmitRoutes(jobs)
    return [
        batch_route(
            "POST",
            JOBS,
            "submit_batch",
            "Submit a job of one task or a million.",
            handlers.submit,
            _ENDED,
            _CREATED,
            _ACCEPTED,
            PLAN_INACTIVE,
            _UPLOAD,
            _REFUSED,
            description="The tasks of a short closed list exist when the response arrives (201). A "
            "worker ingests any other list (202). A body of `application/x-ndjson` is the list "
            "itself, one task per line; the options are then in the query.",
            parameters=(*IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS, *query_options.PARAMETERS),
            body=RequestBody(
                "The job, up to 1 MiB; or a list of tasks, up to 10 GB.",
                NewBatchBody,
                also={task_lists.MEDIA_TYPE: task_lists.SCHEMA},
            ),
        ),
        batch_route(
            "POST",
            "/v1/uploads",
            "create_upload",
            "Create a signed URL to upload a list of tasks to, of up to 10 GB.",
            handlers.create_upload,
            ResponseSpec(HTTPStatus.CREATED, "Where to upload the list.", schemas.Upload),
            PLAN_INACTIVE,
            description="Then submit a job whose `source` names the upload. An upload can be used "
            "once, within a day. A `url` that starts with a slash is on this server.",
            parameters=(),
        ),
    ]
