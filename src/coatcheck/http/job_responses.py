"""The responses about a job that all products share: submit, wait, read, follow, explain, cancel.

A product defines the bodies and the paths of its jobs (``JobPresenter``). This module decides when
to respond, and with which status and headers, so that all products keep the same contract.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from coatcheck.core import Engine, Ticket
from coatcheck.domain.changes import CURSOR, ChangeCursor, InvalidCursor
from coatcheck.domain.errors import (
    IdempotencyMismatch,
    InvalidParameter,
    ServerBusy,
    TooManyBytesInFlight,
    Unauthenticated,
)
from coatcheck.domain.explanation import Explanation, Holder, retry_when_due
from coatcheck.domain.job import JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.http.event_stream import (
    RECONNECT,
    ChangeStream,
    EventStream,
    LookForChanges,
    ShowChange,
)
from coatcheck.http.explanations import shown
from coatcheck.http.gate import Gate
from coatcheck.http.large_responses import LargeResponses, LeftOutResult
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.parameters import Preferences, read_preferences
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse, encoded, json_response
from coatcheck.http.retry_after import UNKNOWN_SECONDS, RetryAfterEstimator, kind_of
from coatcheck.http.routing import Parameter, ResponseSpec

_SEQ_DIGITS_MAX: Final = 18
T = TypeVar("T")

CancelRemote = Callable[[str, UUID], Awaitable[None]]
"""Cancels the remote work of an organisation's job, if there is any."""


class JobLinks(NamedTuple):
    """The paths of a job."""

    poll: str
    events: str
    cancel: str

    @property
    def artifacts(self) -> str:
        """The path of its list of artifacts."""
        return f"{self.poll}/artifacts"

    def headers(self) -> RawHeaders:
        """For a response that refers its caller to the job."""
        links = {"events": self.events, "cancel": self.cancel, "artifacts": self.artifacts}
        link = ", ".join(f'<{url}>; rel="{name}"' for name, url in links.items())
        return [(b"location", self.poll.encode("ascii")), (b"link", link.encode("ascii"))]

    def link(self) -> tuple[bytes, bytes]:
        """For a response that is the job's result, and may have a Location that means something
        else."""
        return b"link", f'<{self.poll}>; rel="job"'.encode("ascii")


class JobSnapshot(NamedTuple):
    """A job at the moment of the response. ``is_known``: its ETag matches If-None-Match."""

    view: JobView
    headers: RawHeaders
    is_known: bool
    waited: bool
    forecast_seconds: float | None = None
    """The seconds until it is expected to end, if a forecast was made."""

    @property
    def status(self) -> HTTPStatus:
        """The status of the response: a caller who waited never gets 200 without a result."""
        unfinished = self.waited and not self.view.terminal
        return HTTPStatus.ACCEPTED if unfinished else HTTPStatus.OK


class JobRepresentation(Protocol):
    """Makes the body that shows a product's job.

    ``shows_long_results``: the body contains the result even if ``Engine.look`` leaves it out for
    its size. Without it, the body says where the result is.
    """

    shows_long_results: bool

    def job(self, view: JobView) -> Awaitable[Any]:
        """The body that shows a job."""


class JobPresenter(JobRepresentation, Protocol):
    """Makes the bodies of a product's jobs and of their tickets."""

    def urls(self, job_id: str) -> JobLinks: ...

    def ticket(self, job_id: str, state: State, urls: JobLinks) -> Any:
        """The body of the response to a submission whose job is not known to have ended."""


class JobResponses:
    """Makes responses about jobs."""

    def __init__(
        self,
        engine: Engine,
        retry_after: RetryAfterEstimator,
        draining: ServerDraining,
        gate: Gate,
        large: LargeResponses,
    ) -> None:
        self.large = large
        self._engine = engine
        self._retry_after = retry_after
        self._draining = draining
        self._gate = gate
        self._streams = EventStream(engine, draining)
        self._changes = ChangeStream(engine, draining)

    async def submitted(
        self,
        ticket: Ticket,
        presenter: JobPresenter,
        *,
        kind: str,
        lane: Lane,
        preferences: Preferences,
        view: JobView | None = None,
        delay: float = 0.0,
    ) -> Response | StreamResponse:
        """202 with the ticket; or 200 with the job, if the caller waited and it ended in time.

        ``kind`` groups similar jobs (``retry_after.kind_of``). ``view`` is the job after the wait,
        if there was one. ``delay`` is the seconds until it may start, if it is new.
        """
        headers = [*preferences.headers, *replay_headers(ticket)]
        job_id = ticket.id
        urls = presenter.urls(job_id)
        if view is not None and view.terminal:
            headers += [*urls.headers(), (b"etag", etag(view))]
            try:
                return await self.shown(view, presenter, HTTPStatus.OK, headers)
            except (TooManyBytesInFlight, ServerBusy):
                # The job is submitted, so the response must not be a 429: answer the ticket.
                headers = [*preferences.headers, *replay_headers(ticket)]
        state = ticket.state if view is None else view.state
        if state.terminal:
            seconds = 0
        elif view is None and delay > 0 and ticket.created:
            seconds = retry_when_due(delay)
        else:
            seconds = self._retry_after.retry_after(kind, lane, view)
        headers += [*urls.headers(), (b"retry-after", b"%d" % seconds)]
        body = presenter.ticket(job_id, state, urls)
        return json_response(body, HTTPStatus.ACCEPTED, headers)

    async def status(
        self, request: Request, view: JobView, presenter: JobRepresentation
    ) -> Response | StreamResponse:
        """The job now, or once the caller's conditions are met (``wait``, If-None-Match)."""
        snapshot = await self._snapshot(request, view)
        headers = self.snapshot_headers(snapshot)
        if snapshot.is_known:
            return Response(HTTPStatus.NOT_MODIFIED, b"", headers)
        return await self.shown(snapshot.view, presenter, snapshot.status, headers)

    async def shown(
        self, view: JobView, presenter: JobRepresentation, status: HTTPStatus, headers: RawHeaders
    ) -> Response | StreamResponse:
        """A response that shows a job, with its result of any length if the presenter shows
        results."""
        if not view.result_is_left_out or not presenter.shows_long_results:
            return json_response(await presenter.job(view), status, headers)

        async def body(result: bytes) -> bytes:
            return encoded(await presenter.job(replace(view, result=result)))

        return await self.large.response(
            stored(view), (type(presenter), etag(view)), body, status, headers
        )

    def snapshot_headers(self, snapshot: JobSnapshot) -> RawHeaders:
        """The headers of a response that shows it; with Retry-After, unless it has ended."""
        view = snapshot.view
        if view.terminal:
            return snapshot.headers
        kind = kind_of(view.org, view.endpoint, view.queue_key)
        seconds = self._retry_after.retry_after(kind, view.lane, view, snapshot.forecast_seconds)
        return [*snapshot.headers, (b"retry-after", b"%d" % seconds)]

    async def snapshot(self, request: Request, view: JobView) -> JobSnapshot:
        """The job once the caller's conditions are met, for a product that makes the response
        itself: with its result, unless the caller has it already."""
        snapshot = await self._snapshot(request, view)
        if snapshot.is_known:
            return snapshot
        return snapshot._replace(view=await self._engine.with_result(snapshot.view))

    async def _snapshot(self, request: Request, view: JobView) -> JobSnapshot:
        preferences = read_preferences(request)
        known = request.headers.get(b"if-none-match")
        unchanged = known is None or _matches(known, view)
        if preferences.wait is not None and not view.terminal and unchanged:
            view = await self.wait(request, view.id, view.org, preferences.wait, since=known)
        if view.terminal:
            self._retry_after.learn(view)
        return JobSnapshot(
            view,
            [(b"etag", etag(view)), *preferences.headers],
            is_known=known is not None and _matches(known, view),
            waited=preferences.wait is not None,
            forecast_seconds=None if view.terminal else await self._retry_after.forecast(view),
        )

    async def explained(self, request: Request, view: JobView) -> Response:
        """Why the job waits or what it does; the same document for every product."""
        explanation = await self._engine.explainer.explain(view)
        return self.explanation(request, view.org, explanation, unknown=self.retry_after(view))

    def retry_after(self, view: JobView, unknown: int = UNKNOWN_SECONDS) -> int:
        """The Retry-After of a job, from the durations of similar jobs; ``unknown`` if none of them
        has ended yet."""
        kind = kind_of(view.org, view.endpoint, view.queue_key)
        return self._retry_after.retry_after(kind, view.lane, view, unknown=unknown)

    async def forecast_retry_after(self, view: JobView, unknown: int) -> int:
        """As ``retry_after``, but looks up the queue for a job that has waited unusually long."""
        kind = kind_of(view.org, view.endpoint, view.queue_key)
        forecast_seconds = await self._retry_after.forecast(view)
        return self._retry_after.retry_after(kind, view.lane, view, forecast_seconds, unknown)

    def learn(self, view: JobView) -> None:
        """Record the duration of a job that has ended, for a product that makes the response
        itself."""
        self._retry_after.learn(view)

    def explanation(
        self, request: Request, org: str, explanation: Explanation, *, unknown: int
    ) -> Response:
        """A response with an explanation, as far as the caller may see it. ``unknown`` is the
        Retry-After if the explanation has none."""
        if not explanation.retry_after and not explanation.terminal:
            explanation = replace(explanation, retry_after=unknown)
        caller = request.caller

        def is_seen(holder: Holder) -> bool:
            if caller is None or caller.org != org:
                # A job of anonymous callers is opened by its id alone, so its id must not leak.
                return False
            return caller.may_see(holder.owner, admins_see_all=True)

        for_operator = caller is not None and caller.is_operator
        body = shown(explanation, is_seen, for_operator=for_operator)
        headers = [(b"cache-control", b"no-store")]
        if not explanation.terminal:
            headers.append((b"retry-after", b"%d" % explanation.retry_after))
        return json_response(body, headers=headers)

    async def cancel(
        self,
        view: JobView,
        presenter: JobRepresentation,
        *,
        cancel_remote: CancelRemote | None = None,
    ) -> Response:
        """200 if the job is cancelled, 202 if a cancellation was requested. Raises JobAlreadyEnded.

        ``cancel_remote`` cancels the remote work of the job, if there is any, and so ends the job.
        """
        after = await self._engine.cancel(view.id, org=view.org)
        if cancel_remote is not None and after.execution_id is not None:
            await cancel_remote(after.org, after.uuid)
            after = await self._engine.get(view.id, org=view.org)
        status = HTTPStatus.OK if after.terminal else HTTPStatus.ACCEPTED
        return json_response(await presenter.job(after), status, [(b"etag", etag(after))])

    async def events(
        self, request: Request, view: JobView, presenter: JobRepresentation
    ) -> StreamResponse:
        """A stream of the job's states, progress, log lines and output."""
        pieces = self._streams.follow(view, presenter.job, after=resume_after(request))
        return StreamResponse(HTTPStatus.OK, pieces, _STREAM_HEADERS, RECONNECT)

    def changes(
        self, request: Request, name: str, look: LookForChanges[T], show: ShowChange[T]
    ) -> StreamResponse:
        """A stream of the changes of many jobs, as events ``name``. Raises InvalidParameter."""
        seconds = read_preferences(request).wait
        pieces = self._changes.follow(name, look, show, change_cursor(request), seconds=seconds)
        return StreamResponse(HTTPStatus.OK, pieces, _STREAM_HEADERS, RECONNECT)

    async def wait_with_result(
        self, request: Request, job_id: str, org: str, seconds: float
    ) -> JobView:
        """Wait until the job has ended or the time is up. Returns it with its result.

        Raises Unauthenticated as ``wait`` does.
        """
        return await self._engine.with_result(await self.wait(request, job_id, org, seconds))

    async def wait(
        self, request: Request, job_id: str, org: str, seconds: float, *, since: bytes | None = None
    ) -> JobView:
        """Wait until the job has ended, its ETag is not ``since`` any more, or the time is up.
        Returns it without a long result.

        Raises Unauthenticated once the credential of the request is no longer valid.
        """
        deadline = time.monotonic() + seconds
        with (
            self._engine.watch(job_id) as watch,
            self._gate.watch(request, watch.wake) as credential,
        ):
            while True:
                view = await self._engine.look(job_id, org=org)
                if not await credential.is_valid():
                    raise Unauthenticated
                remaining = deadline - time.monotonic()
                changed = since is not None and not _matches(since, view)
                if view.terminal:
                    self._retry_after.learn(view)
                if view.terminal or changed or remaining <= 0 or self._draining.begun:
                    return view
                async with self._draining.cut_short():
                    await watch.changed(remaining)


def replay_headers(ticket: Ticket) -> RawHeaders:
    """The headers of a response to a known idempotency key."""
    headers = []
    if not ticket.created:
        headers.append((b"idempotent-replayed", b"true"))
    if ticket.mismatch:
        headers.append((b"idempotency-mismatch", b"true"))
    return headers


def check_mismatch(ticket: Ticket, preferences: Preferences) -> None:
    if ticket.mismatch and preferences.strict:
        raise IdempotencyMismatch("The idempotency key was used before, with another payload.")


def stored(view: JobView) -> LeftOutResult:
    """The result that was left out of a job's view."""
    assert view.result_bytes is not None
    return LeftOutResult(view.org, view.uuid, view.result_bytes)


def etag(view: JobView) -> bytes:
    """The ETag of a job: changes with its state and its progress. Weak, because ages in the body
    change without it."""
    microseconds = int(view.updated_at.timestamp() * 1_000_000)
    return f'W/"{microseconds:x}-{view.state.value}"'.encode("ascii")


def _matches(known: bytes, view: JobView) -> bool:
    # A weak comparison, as RFC 9110 requires for If-None-Match: a W/ prefix makes no difference.
    return known.strip() == b"*" or etag(view).removeprefix(b"W/") in known


def _last_event(request: Request) -> tuple[str | None, str, str]:
    """The id of the last event that the caller saw, the name of its field, and where the field is.
    The header takes precedence: a browser that reconnects sends it along with the old query."""
    given = request.header(b"last-event-id")
    if given:
        return given, "Last-Event-ID", "header"
    return request.query.get("after"), "after", "query"


def change_cursor(request: Request) -> ChangeCursor:
    """The position at which a stream of changes continues. Raises InvalidParameter."""
    given, name, place = _last_event(request)
    try:
        return ChangeCursor.read(given or "")
    except InvalidCursor as error:
        raise InvalidParameter(name, "must be the id of an event of this stream", place) from error


def resume_after(request: Request) -> int:
    """The number of the last event that the caller saw; a job's stream continues after it."""
    given, name, place = _last_event(request)
    if not given:
        return 0
    if not given.isascii() or not given.isdigit() or len(given) > _SEQ_DIGITS_MAX:
        raise InvalidParameter(name, "must be the id of an event", place)
    return int(given)


WAIT_PARAMETERS: Final = (
    Parameter(
        "wait",
        "query",
        "Wait until the job has ended, for at most this many seconds (the maximum is 60).",
        {"type": "number", "minimum": 0},
    ),
    Parameter("Prefer", "header", "`wait=N`, `respond-async`, `handling=strict` (RFC 7240)."),
)
IDEMPOTENCY_PARAMETERS: Final = (
    Parameter(
        "Idempotency-Key",
        "header",
        "One key, one job: a known key answers with the job that it made. 1 to 255 characters.",
    ),
    Parameter("X-Idempotency-Key", "header", "Another name of `Idempotency-Key`."),
)
CONDITION_PARAMETERS: Final = (
    Parameter("If-None-Match", "header", "An ETag: respond only once the job has changed."),
)
_EVENT_ID: Final = {"type": "string", "pattern": f"^[0-9]{{0,{_SEQ_DIGITS_MAX}}}$"}
RESUME_PARAMETERS: Final = (
    Parameter("Last-Event-ID", "header", "Continue after this event.", _EVENT_ID),
    Parameter("after", "query", "The same, for clients that cannot set headers.", _EVENT_ID),
)
EVENTS: Final = ResponseSpec(
    HTTPStatus.OK,
    "Events `state`, `progress`, `log`, `chunk`, `alert`, and `end`, after which the stream "
    "closes. Events with an `id` are stored: send the last `id` to continue after it. `reconnect` "
    "means that this server cannot continue but another can, or that the credential is no longer "
    "valid.",
    media_type="text/event-stream",
    schema={
        "description": "One event of the stream.",
        "type": "object",
        "properties": {
            "event": {"enum": ["state", "progress", "log", "chunk", "alert", "end", "reconnect"]},
            "id": _EVENT_ID,
            "data": {"type": "string", "contentMediaType": "application/json"},
            "retry": {"type": "integer"},
        },
    },
)
_CURSOR: Final = {"type": "string", "pattern": CURSOR}
CHANGES_PARAMETERS: Final = (
    Parameter("Last-Event-ID", "header", "Continue after this event.", _CURSOR),
    Parameter("after", "query", "The same, for clients that cannot set headers.", _CURSOR),
    Parameter(
        "wait",
        "query",
        "End the stream after this many seconds (the maximum is 60), for clients that poll. With 0 "
        "the stream has the changes so far.",
        {"type": "number", "minimum": 0},
    ),
)
_STREAM_HEADERS: Final[RawHeaders] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would delay the events
]


def changes_response(name: str, what: str) -> ResponseSpec:
    """The declaration of a stream of changes."""
    return ResponseSpec(
        HTTPStatus.OK,
        f"Events `{name}`, each with the present state of {what} and an `id`: send the last `id` "
        "to continue after it. `reconnect` means that this server cannot continue but another can, "
        "that the credential is no longer valid, or that the time of `wait` is over.",
        media_type="text/event-stream",
        schema={
            "description": "One event of the stream.",
            "type": "object",
            "properties": {
                "event": {"enum": [name, "reconnect"]},
                "id": _CURSOR,
                "data": {"type": "string", "contentMediaType": "application/json"},
                "retry": {"type": "integer"},
            },
        },
    )


RETRY_AFTER_HEADER: Final = {"Retry-After": "Seconds to wait before asking again."}
TICKET_HEADERS: Final = RETRY_AFTER_HEADER | {
    "Location": "The path of the job.",
    "Link": "The paths to follow it (`events`), to cancel it (`cancel`), and of its files "
    "(`artifacts`), unless its tasks have those.",
    "Idempotent-Replayed": "`true`: the idempotency key was known, no job was created.",
    "Idempotency-Mismatch": "`true`: the key was used before with another payload.",
    "Preference-Applied": "The parts of `Prefer` that were applied.",
}
NOT_MODIFIED: Final = ResponseSpec(
    HTTPStatus.NOT_MODIFIED,
    "The job has not changed.",
    empty=True,
    headers={"ETag": "The same ETag."},
)
