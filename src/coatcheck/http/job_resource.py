"""The job resource: what the HTTP APIs of all products have in common.

A product derives one class from ``JobResource`` and says three things about its jobs: how to find
one (``endpoints``, or ``find``), how to show one (``show``, ``ticket``), and its words for the
states. It then has, without writing them: submit with idempotency and ``Prefer: wait``, status with
ETag and long poll, the event stream with resume, explain, cancel, a list with cursors and filters,
the artifacts, webhook payloads, a place in the console, and the entries of the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol

import msgspec

from coatcheck.core import Ticket
from coatcheck.core.webhook_payloads import expired_job
from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.errors import (
    IdempotencyMismatch,
    JobNotFound,
    ServerBusy,
    TooManyBytesInFlight,
)
from coatcheck.domain.explanation import Explanation, retry_when_due
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.job import JobEvent, JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import EVENT_RESULT_BYTES_MAX
from coatcheck.domain.listing import JobFilter, PageQuery
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.domain.webhooks import DeliveryEvent
from coatcheck.http import event_stream
from coatcheck.http.artifacts import ArtifactOwner, artifact_routes
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter, JobPaths
from coatcheck.http.large_responses import LeftOutResult
from coatcheck.http.pages import JOB_PAGE_PARAMETERS, read_job_page
from coatcheck.http.parameters import (
    Preferences,
    read_choice,
    read_idempotency_key,
    read_preferences,
    read_webhook_urls,
    stored_key,
)
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse, encoded, json_response
from coatcheck.http.retry_after import UNKNOWN_SECONDS, kind_of
from coatcheck.http.routing import Handler, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.http.watching import RETRY_AFTER_HEADER, WAIT_PARAMETERS, JobLinks, WatchedResource


class JobResource(JobAdapter, WatchedResource[JobView]):
    """The jobs of one product: how they are found and shown, and all routes about them."""

    endpoints: ClassVar[Collection[str]] = ()
    """The engine's endpoints that its jobs run on."""
    ticket_body: ClassVar[type[msgspec.Struct]]
    """The body of the response to a submission."""
    page_body: ClassVar[type[msgspec.Struct]]
    """The body of a page, made of its items and ``next``; needed by a product that lists."""
    states: ClassVar[Mapping[Any, Sequence[State]]] = MappingProxyType({})
    """Its words for the states, each with the engine's states that it stands for. A list has a
    filter ``status`` of these words."""
    shows_long_results: ClassVar[bool] = False
    """Whether the body contains the result even if ``Engine.look`` leaves it out for its size.
    Without it, the body says where the result is."""
    unknown_seconds: ClassVar[int] = UNKNOWN_SECONDS
    """``Retry-After`` while no similar job has ended."""
    admins_see_all: ClassVar[bool] = False
    """Whether an admin may read and cancel the jobs of all owners."""
    keys_per_api_key: ClassVar[bool] = False
    """Whether every API key has idempotency keys of its own; else every owner has."""

    def __init__(self, server: ServerContext) -> None:
        JobAdapter.__init__(self, server)
        WatchedResource.__init__(self, server)
        self._estimates = server.retry_after

    # How to find one

    async def find(self, request: Request, _: Scope) -> JobView:
        principal = request.principal
        view = await self.engine.look(request.params["id"], org=principal.org)
        if view.endpoint not in self.endpoints or not self.is_seen(principal, view.owner):
            raise JobNotFound("there is no such job")
        return view

    def is_seen(self, principal: Principal, owner: str) -> bool:
        """Whether a caller of the organisation may see a job of this owner."""
        return principal.may_see(owner, admins_see_all=self.admins_see_all)

    async def read(self, one: str, org: str) -> JobView:
        return await self.engine.look(one, org=org)

    # How to show one

    def ticket(self, job_id: str, state: State, links: JobLinks, endpoint: str) -> Any:
        """The body of the response to a submission whose job is not known to have ended.
        ``endpoint`` is the one that the job was submitted to."""
        raise NotImplementedError

    async def response(
        self, view: JobView, status: HTTPStatus, headers: RawHeaders, retry_after: int | None = None
    ) -> Response | StreamResponse:
        del retry_after
        if not view.result_is_left_out or not self.shows_long_results:
            return json_response(await self.show(view), status, headers)

        async def body(result: bytes) -> bytes:
            return encoded(await self.show(replace(view, result=result)))

        return await self.server.large_results.response(
            left_out(view), (type(self), self.etag(view)), body, status, headers
        )

    def shows_files(self, view: JobView) -> bool:
        """Whether its files are shown in its present state: a job that has not ended may still
        lose them."""
        del view
        return True

    def etag(self, view: JobView) -> bytes:
        """Changes with its state and its progress. Weak, because ages in the body change without
        it."""
        microseconds = int(view.updated_at.timestamp() * 1_000_000)
        return f'W/"{microseconds:x}-{view.state.value}"'.encode("ascii")

    def phase(self, view: JobView) -> object:
        return view.state, view.attempts

    def progress(self, view: JobView) -> Any:
        if view.progress is None:
            return None
        # Without the digits beyond the column's single precision.
        return {"fraction": round(view.progress, 6), "note": view.progress_note}

    async def at_end(self, view: JobView) -> JobView:
        """With its result, unless that is too long for an event. Readers then fetch it by URL,
        where they share one copy in memory."""
        if (view.result_bytes or 0) > EVENT_RESULT_BYTES_MAX:
            return view
        return await self.engine.with_result(view)

    def events_after(self, view: JobView, after: int) -> AsyncIterator[Sequence[JobEvent]]:
        return event_stream.pages(self.engine, view, after)

    async def explanation(self, view: JobView) -> tuple[Explanation, int]:
        return await self.engine.explainer.explain(view), self.estimate(view)

    # When to ask again

    def estimate(self, view: JobView) -> int:
        """The ``Retry-After`` of a job, from the durations of similar jobs."""
        kind = kind_of(view.org, view.endpoint, view.queue_key)
        return self._estimates.retry_after(kind, view.lane, view, unknown=self.unknown_seconds)

    async def retry_after(self, view: JobView) -> int:
        """As ``estimate``, but looks up the queue for a job that has waited unusually long."""
        kind = kind_of(view.org, view.endpoint, view.queue_key)
        forecast = await self._estimates.forecast(view)
        return self._estimates.retry_after(kind, view.lane, view, forecast, self.unknown_seconds)

    def has_ended(self, view: JobView) -> None:
        self._estimates.learn(view)

    # Submitting

    def key(self, request: Request) -> str | None:
        """The request's idempotency key in its stored form; None without one."""
        given = read_idempotency_key(request)
        return None if given is None else self.stored_key(request.principal, given)

    def stored_key(self, principal: Principal, key: str) -> str:
        """The stored form of a caller's key."""
        return stored_key(self.product, principal, key, per_api_key=self.keys_per_api_key)

    async def check_new_work(self, request: Request, key: str | None) -> None:
        """Refuse new work if the caller's plan is not active, or the queue is full. A known key
        asks for no new work."""
        principal = request.principal
        knows = partial(self.engine.knows_key, org=principal.org)
        await self.gate.check_unless_known(principal, key, knows)

    async def submit(
        self,
        request: Request,
        endpoint: str,
        payload: bytes,
        *,
        lane: Lane = Lane.STANDARD,
        queue_key: str = "",
        **options: Any,
    ) -> Response | StreamResponse:
        """Submit a job for the caller and respond: the whole of a submission, for a product with
        nothing to add. ``options`` are those of ``Engine.submit``."""
        preferences, key = read_preferences(request), self.key(request)
        await self.check_new_work(request, key)
        principal = request.principal
        webhooks = await read_webhook_urls(request, self.server.receivers, principal.org)
        ticket = await self.engine.submit(
            endpoint,
            payload,
            org=principal.org,
            owner=principal.owner,
            lane=lane,
            queue_key=queue_key,
            idempotency_key=key,
            request_id=request.request_id,
            **webhooks._asdict(),
            **options,
        )
        return await self.accepted(
            request, ticket, preferences, endpoint=endpoint, queue_key=queue_key, lane=lane
        )

    async def accepted(
        self,
        request: Request,
        ticket: Ticket,
        preferences: Preferences,
        *,
        endpoint: str,
        queue_key: str = "",
        lane: Lane = Lane.STANDARD,
    ) -> Response | StreamResponse:
        """The response to a submission, after the wait that the caller asked for. Raises
        IdempotencyMismatch if the caller is strict."""
        check_mismatch(ticket, preferences)
        view = None
        if preferences.wait is not None:
            view = await self.wait(request, ticket.id, request.principal.org, preferences.wait)
        return await self.ticket_response(
            ticket,
            preferences,
            self.links(ticket.id),
            kind=kind_of(request.principal.org, endpoint, queue_key),
            endpoint=endpoint,
            lane=lane,
            view=view,
        )

    async def ticket_response(
        self,
        ticket: Ticket,
        preferences: Preferences,
        links: JobLinks,
        *,
        kind: str,
        endpoint: str,
        lane: Lane,
        view: JobView | None = None,
        delay: float = 0.0,
    ) -> Response | StreamResponse:
        """202 with the ticket; or 200 with the job, if the caller waited and it ended in time.

        ``kind`` groups similar jobs (``retry_after.kind_of``). ``view`` is the job after the wait,
        if there was one. ``delay`` is the seconds until it may start, if it is new.
        """
        headers = [*preferences.headers, *replay_headers(ticket), *links.headers()]
        if view is not None and view.terminal:
            try:
                return await self.response(
                    view, HTTPStatus.OK, [*headers, (b"etag", self.etag(view))]
                )
            except (TooManyBytesInFlight, ServerBusy):
                pass  # the job is submitted, so the response must not be a 429: answer the ticket
        state = ticket.state if view is None else view.state
        if state.terminal:
            seconds = 0
        elif view is None and delay > 0 and ticket.created:
            seconds = retry_when_due(delay)
        else:
            seconds = self._estimates.retry_after(kind, lane, view)
        headers.append((b"retry-after", b"%d" % seconds))
        body = self.ticket(ticket.id, state, links, endpoint)
        return json_response(body, HTTPStatus.ACCEPTED, headers)

    async def wait_with_result(
        self, request: Request, job_id: str, org: str, seconds: float
    ) -> JobView:
        """As ``wait``, with the result of any length."""
        return await self.engine.with_result(await self.wait(request, job_id, org, seconds))

    # Listing

    async def page(self, request: Request, asked: PageQuery) -> tuple[Sequence[Any], str | None]:
        """The items of a page, and ``next``. The default lists the jobs of ``endpoints``: all of
        the organisation's for an admin, the caller's own for others."""
        principal = request.principal
        status = read_choice(request.query, "status", [*self.states])
        wanted = JobFilter(
            org=principal.org,
            endpoints=[*self.endpoints],
            states=None if status is None else self.states[status],
            owner=principal.lists_jobs_of,
        )
        page = await self.engine.listed(wanted, asked)
        items = [await self.show(view) for view in page.items]
        return items, asked.following(page.items, lambda view: view.id)

    async def listed(self, request: Request) -> Response:
        items, following = await self.page(request, read_job_page(request))
        return json_response(self.page_body(items, following))

    # Its files

    async def job(self, request: Request, scope: Scope) -> ArtifactOwner:
        """The job whose files a path names."""
        view = await self.found(request, scope)
        return ArtifactOwner.of(view, self.links(view.id).poll, shows=self.shows_files(view))

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        """The record of a file, which may outlive its job; None unless the caller may see it."""
        try:
            job = from_text(request.params["id"])
        except InvalidId:
            return None
        principal = request.principal
        record = await self.engine.artifact_repository.record(principal.org, job, name)
        if record is None or record.endpoint not in self.endpoints:
            return None
        return record if self.is_seen(principal, record.owner) else None

    # Its routes

    def routes(self) -> list[Route]:
        """The routes of one job: read, follow, explain, cancel, and its files."""
        return [
            *super().routes(),
            *artifact_routes(
                self.server,
                self,
                path=self.path,
                name=self.name,
                tag=self.product,
                parameters=self.path_parameters,
                also=self.also,
                handler_authorizes=self.handler_authorizes,
            ),
        ]

    def list_route(
        self,
        path: str,
        name: str,
        *,
        filters: Sequence[Parameter] | None = None,
        description: str = "An admin sees all jobs of the organisation; others see their own.",
    ) -> Route:
        """The route that lists jobs. ``filters`` are those that ``page`` reads, besides those of
        every list."""
        if filters is None:
            filters = (self.state_filter("status"),) if self.states else ()
        noun = self.noun
        return Route(
            methods=("GET",),
            path=path,
            name=name,
            summary=f"List {noun}s, newest first.",
            description=description,
            handler=self.listed,
            access=Scope.READ,
            tag=self.product,
            parameters=(*JOB_PAGE_PARAMETERS, *filters),
            responses=(ResponseSpec(HTTPStatus.OK, f"A page of {noun}s.", self.page_body),),
        )

    def state_filter(self, name: str) -> Parameter:
        """The query field that filters a list by its words for the states."""
        return Parameter(
            name,
            "query",
            f"Only {self.noun}s with this {name}.",
            {"type": "string", "enum": [*self.states]},
        )

    def submit_route(
        self,
        path: str,
        name: str,
        handler: Handler,
        *,
        summary: str,
        body: RequestBody,
        description: str = "",
        parameters: Sequence[Parameter] = (),
        responses: Sequence[ResponseSpec] = (),
    ) -> Route:
        """A route that submits jobs. ``responses`` are its own, besides the ticket, the job that
        ended within the wait, and the refusals that every submission may get."""
        own = {each.status for each in responses}
        common = (
            ResponseSpec(
                HTTPStatus.ACCEPTED,
                f"The {self.noun} is stored.",
                self.ticket_body,
                headers=TICKET_HEADERS,
            ),
            ResponseSpec(
                HTTPStatus.OK,
                f"The {self.noun} ended within the requested wait.",
                self.body,
                headers=TICKET_HEADERS,
            ),
            PLAN_INACTIVE,
            ResponseSpec.problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "A field is not valid; or the idempotency key was used with another request, and "
                "the caller asked for strict handling; or a webhook's URL may not be called.",
            ),
        )
        return Route(
            methods=("POST",),
            path=path,
            name=name,
            summary=summary,
            description=description,
            handler=handler,
            access=Scope.SUBMIT,
            tag=self.product,
            parameters=(*parameters, *IDEMPOTENCY_PARAMETERS, *WAIT_PARAMETERS),
            body=body,
            responses=(*(each for each in common if each.status not in own), *responses),
        )

    # For the console and for webhooks

    def paths(self, job: OrgJob) -> JobPaths:
        return JobPaths(self.links(job.id).poll)

    def shows_artifacts(self, job: OrgJob, /) -> bool:
        return self.shows_files(job.view)

    def stored_keys(self, principal: Principal, key: str, /) -> Sequence[str]:
        return [self.stored_key(principal, key)]

    async def payload(self, event: DeliveryEvent, view: JobView | None) -> Any:
        """The ``data`` of a webhook: the job as its API shows it. ``view`` is None if the job was
        deleted before the delivery."""
        return expired_job(event) if view is None else await self.show(view)


def left_out(view: JobView) -> LeftOutResult:
    """The result that was left out of a job's view."""
    assert view.result_bytes is not None
    return LeftOutResult(view.org, view.uuid, view.result_bytes)


class SubmitOutcome(Protocol):
    """What became of a submission: a ``Ticket``, or what a product has in its place."""

    @property
    def created(self) -> bool:
        """Whether it is new, because its idempotency key was not known."""

    @property
    def mismatch(self) -> bool:
        """Whether its key was known and came with another request then."""


def replay_headers(ticket: SubmitOutcome) -> RawHeaders:
    """The headers of a response to a known idempotency key."""
    headers = []
    if not ticket.created:
        headers.append((b"idempotent-replayed", b"true"))
    if ticket.mismatch:
        headers.append((b"idempotency-mismatch", b"true"))
    return headers


def check_mismatch(ticket: SubmitOutcome, preferences: Preferences) -> None:
    if ticket.mismatch and preferences.strict:
        raise IdempotencyMismatch("The idempotency key was used before, with another payload.")


IDEMPOTENCY_PARAMETERS: Final = (
    Parameter(
        "Idempotency-Key",
        "header",
        "One key, one job: a known key answers with the job that it made. 1 to 255 characters.",
    ),
    Parameter("X-Idempotency-Key", "header", "Another name of `Idempotency-Key`."),
)
TICKET_HEADERS: Final = RETRY_AFTER_HEADER | {
    "Location": "The path of the job.",
    "Link": "The paths to follow it (`events`), to cancel it (`cancel`), and of its files "
    "(`artifacts`), unless its tasks have those.",
    "Idempotent-Replayed": "`true`: the idempotency key was known, no job was created.",
    "Idempotency-Mismatch": "`true`: the key was used before with another payload.",
    "Preference-Applied": "The parts of `Prefer` that were applied.",
}
PLAN_INACTIVE: Final = ResponseSpec.problem(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active."
)
