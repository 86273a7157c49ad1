"""How jobs are answered on every surface: handed in, waited for, read, followed, cancelled.

A surface says what its jobs look like and where they are found (``JobPresenter``). This module
decides when to answer, and with which status and headers, so that all keep the same contract.
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
from coatcheck.domain.tenants import ANYONE, Principal, Scope
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

CancelElsewhere = Callable[[str, UUID], Awaitable[None]]
"""Cancels what is done elsewhere for the job of an organisation; nothing if nothing is."""


class JobLinks(NamedTuple):
    """Where a job is found, as paths of this server."""

    poll: str
    events: str
    cancel: str

    @property
    def artifacts(self) -> str:
        """Where its artifacts are listed."""
        return f"{self.poll}/artifacts"

    def headers(self) -> RawHeaders:
        """For an answer that sends its caller to the job."""
        links = {"events": self.events, "cancel": self.cancel, "artifacts": self.artifacts}
        link = ", ".join(f'<{url}>; rel="{name}"' for name, url in links.items())
        return [(b"location", self.poll.encode("ascii")), (b"link", link.encode("ascii"))]

    def link(self) -> tuple[bytes, bytes]:
        """For an answer that is the job's own result, and may have a Location of its own."""
        return b"link", f'<{self.poll}>; rel="job"'.encode("ascii")


class Look(NamedTuple):
    """A job as its reader shall see it. ``is_known``: they have seen it so, and want no repeat."""

    view: JobView
    headers: RawHeaders
    is_known: bool
    waited: bool
    foreseen: float | None = None
    """In how many seconds it may end, if it was worth while to find out."""

    @property
    def status(self) -> HTTPStatus:
        """Of the answer that shows it: never 200 without a result to who waited for one."""
        unfinished = self.waited and not self.view.terminal
        return HTTPStatus.ACCEPTED if unfinished else HTTPStatus.OK


class JobRepresentation(Protocol):
    """What a surface's jobs look like to those who read them.

    ``shows_long_results``: a job is shown with its result, also with one that ``Engine.look``
    leaves out. Without it such a surface says where the result is.
    """

    shows_long_results: bool

    def job(self, view: JobView) -> Awaitable[Any]:
        """The body that shows a job."""


class JobPresenter(JobRepresentation, Protocol):
    """What a surface's jobs look like, and the tickets for them."""

    def urls(self, job_id: str) -> JobLinks: ...

    def ticket(self, job_id: str, state: State, urls: JobLinks) -> Any:
        """The body of an answer to a submission whose job has not ended, as far as is known."""


class JobResponses:
    """Answers about jobs."""

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
        """202 with the ticket; or 200 with the job, if it was waited for and has ended in time.

        ``kind`` is what jobs like it are known by (``retry_after.kind_of``); ``view`` the job after
        the wait, if there was one; ``delay`` the seconds after which it may start, if it is new.
        """
        headers = [*preferences.headers, *replay_headers(ticket)]
        job_id = ticket.id
        urls = presenter.urls(job_id)
        if view is not None and view.terminal:
            headers += [*urls.headers(), (b"etag", etag(view))]
            try:
                return await self.shown(view, presenter, HTTPStatus.OK, headers)
            except (TooManyBytesInFlight, ServerBusy):
                headers = [*preferences.headers, *replay_headers(ticket)]  # it is done: not a 429
        state = ticket.state if view is None else view.state
        # One that has ended need not be waited for.
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
        """The job as it is, or as it is once the caller's conditions are met."""
        look = await self._look(request, view)
        headers = self.paced_headers(look)
        if look.is_known:
            return Response(HTTPStatus.NOT_MODIFIED, b"", headers)
        return await self.shown(look.view, presenter, look.status, headers)

    async def shown(
        self, view: JobView, presenter: JobRepresentation, status: HTTPStatus, headers: RawHeaders
    ) -> Response | StreamResponse:
        """A job as a surface shows it, with its result however long that is, if the surface shows
        results at all."""
        if not view.result_is_left_out or not presenter.shows_long_results:
            return json_response(await presenter.job(view), status, headers)

        async def body(result: bytes) -> bytes:
            return encoded(await presenter.job(replace(view, result=result)))

        return await self.large.response(
            stored(view), (type(presenter), etag(view)), body, status, headers
        )

    def paced_headers(self, look: Look) -> RawHeaders:
        """The headers of an answer that shows it; with when to ask again, unless it has ended."""
        view = look.view
        if view.terminal:
            return look.headers
        kind = kind_of(view.org, view.endpoint, view.queue_key)
        seconds = self._retry_after.retry_after(kind, view.lane, view, look.foreseen)
        return [*look.headers, (b"retry-after", b"%d" % seconds)]

    async def look(self, request: Request, view: JobView) -> Look:
        """The job once the caller's conditions are met, for a surface that answers in its way: with
        its result, unless the caller knows it."""
        look = await self._look(request, view)
        if look.is_known:
            return look
        return look._replace(view=await self._engine.with_result(look.view))

    async def _look(self, request: Request, view: JobView) -> Look:
        preferences = read_preferences(request)
        known = request.headers.get(b"if-none-match")
        unchanged = known is None or _matches(known, view)
        if preferences.wait is not None and not view.terminal and unchanged:
            view = await self.held_look(request, view.id, view.org, preferences.wait, since=known)
        if view.terminal:
            self._retry_after.learn(view)
        return Look(
            view,
            [(b"etag", etag(view)), *preferences.headers],
            is_known=known is not None and _matches(known, view),
            waited=preferences.wait is not None,
            foreseen=None if view.terminal else await self._retry_after.foresee(view),
        )

    async def explained(self, request: Request, view: JobView) -> Response:
        """Why the job waits or what it does; the same document on every surface."""
        explanation = await self._engine.explainer.explain(view)
        return self.explanation(request, view.org, explanation, unknown=self.paced(view))

    def paced(self, view: JobView, unknown: int = UNKNOWN_SECONDS) -> int:
        """When to ask again about a job, by what others like it took; ``unknown`` if none has
        ended yet."""
        kind = kind_of(view.org, view.endpoint, view.queue_key)
        return self._retry_after.retry_after(kind, view.lane, view, unknown=unknown)

    async def foreseen(self, view: JobView, unknown: int) -> int:
        """As ``paced``, with a look at the queue for a job that has waited longer than others."""
        kind = kind_of(view.org, view.endpoint, view.queue_key)
        foreseen = await self._retry_after.foresee(view)
        return self._retry_after.retry_after(kind, view.lane, view, foreseen, unknown)

    def learn(self, view: JobView) -> None:
        """Take note of what a job took that has ended, for a surface that answers in its way."""
        self._retry_after.learn(view)

    def explanation(
        self, request: Request, org: str, explanation: Explanation, *, unknown: int
    ) -> Response:
        """An explanation as the caller may see it; ``unknown`` is when to ask again if it does not
        say."""
        if not explanation.retry_after and not explanation.terminal:
            explanation = replace(explanation, retry_after=unknown)
        caller = request.caller

        def is_seen(holder: Holder) -> bool:
            if caller is None or caller.org != org:
                # What is anyone's is opened by its id, which strangers learn from nobody but us.
                return False
            return Scope.ADMIN in caller.scopes or caller.may_see(holder.owner)

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
        elsewhere: CancelElsewhere | None = None,
    ) -> Response:
        """200 if the job is cancelled, 202 if it was told to stop. Raises JobAlreadyEnded.

        ``elsewhere`` cancels what a remote does for the job, if any does, and so ends it.
        """
        after = await self._engine.cancel(view.id, org=view.org)
        if elsewhere is not None and after.execution_id is not None:
            await elsewhere(after.org, after.uuid)
            after = await self._engine.get(view.id, org=view.org)
        status = HTTPStatus.OK if after.terminal else HTTPStatus.ACCEPTED
        return json_response(await presenter.job(after), status, [(b"etag", etag(after))])

    async def events(
        self, request: Request, view: JobView, presenter: JobRepresentation
    ) -> StreamResponse:
        """The job's states, progress, log lines and output, as they come."""
        pieces = self._streams.follow(view, presenter.job, after=resume_after(request))
        return StreamResponse(HTTPStatus.OK, pieces, _STREAM_HEADERS, RECONNECT)

    def changes(
        self, request: Request, name: str, look: LookForChanges[T], show: ShowChange[T]
    ) -> StreamResponse:
        """All that changes among many jobs, as events called ``name``. Raises InvalidParameter."""
        seconds = read_preferences(request).wait
        pieces = self._changes.follow(name, look, show, change_cursor(request), seconds=seconds)
        return StreamResponse(HTTPStatus.OK, pieces, _STREAM_HEADERS, RECONNECT)

    async def held(self, request: Request, job_id: str, org: str, seconds: float) -> JobView:
        """The job once it has ended, or the time is up; with its result.

        Raises Unauthenticated as ``held_look`` does.
        """
        return await self._engine.with_result(await self.held_look(request, job_id, org, seconds))

    async def held_look(
        self, request: Request, job_id: str, org: str, seconds: float, *, since: bytes | None = None
    ) -> JobView:
        """The job once it has ended, or changed since that ETag, or the time is up. A long result
        is left out.

        Raises Unauthenticated once what the call was let in with does not count any more.
        """
        deadline = time.monotonic() + seconds
        with (
            self._engine.watch(job_id) as watch,
            self._gate.watch(request, watch.wake) as credential,
        ):
            while True:
                view = await self._engine.look(job_id, org=org)
                if not await credential.counts():
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
    """What tells a caller that the idempotency key was known."""
    headers = []
    if not ticket.created:
        headers.append((b"idempotent-replayed", b"true"))
    if ticket.mismatch:
        headers.append((b"idempotency-mismatch", b"true"))
    return headers


def check_mismatch(ticket: Ticket, preferences: Preferences) -> None:
    if ticket.mismatch and preferences.strict:
        raise IdempotencyMismatch(
            "The idempotency key is known, and came with another payload then."
        )


class Owned(Protocol):
    """A job, or what is left of one."""

    @property
    def owner(self) -> str: ...


def may_see(principal: Principal | None, job: Owned, org: str) -> bool:
    """Whether a job is the caller's to read and cancel."""
    if principal is None or principal.org != org:
        return job.owner == ANYONE
    return principal.may_see(job.owner)


def stored(view: JobView) -> LeftOutResult:
    """The result that was left out of a job."""
    assert view.result_bytes is not None
    return LeftOutResult(view.org, view.uuid, view.result_bytes)


def etag(view: JobView) -> bytes:
    """Changes with every state, and with progress. Weak: ages in the body go on meanwhile."""
    microseconds = int(view.updated_at.timestamp() * 1_000_000)
    return f'W/"{microseconds:x}-{view.state.value}"'.encode("ascii")


def _matches(known: bytes, view: JobView) -> bool:
    # Weakly, as RFC 9110 has it here: a W/ in front makes no difference.
    return known.strip() == b"*" or etag(view).removeprefix(b"W/") in known


def _last_event(request: Request) -> tuple[str | None, str, str]:
    """The event to go on behind, and the field that names it, and where that is. The header goes
    first: a browser that reconnects sends it along with the query as it was."""
    given = request.header(b"last-event-id")
    if given:
        return given, "Last-Event-ID", "header"
    return request.query.get("after"), "after", "query"


def change_cursor(request: Request) -> ChangeCursor:
    """Where a stream of changes is to go on. Raises InvalidParameter."""
    given, name, place = _last_event(request)
    try:
        return ChangeCursor.read(given or "")
    except InvalidCursor as error:
        raise InvalidParameter(name, "must be the id of an event of this stream", place) from error


def resume_after(request: Request) -> int:
    """The number of the event that a job's stream goes on behind."""
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
        "Hold the answer until the job has ended, at most so many seconds (60 are the most).",
        {"type": "number", "minimum": 0},
    ),
    Parameter("Prefer", "header", "`wait=N`, `respond-async`, `handling=strict` (RFC 7240)."),
)
IDEMPOTENCY_PARAMETERS: Final = (
    Parameter(
        "Idempotency-Key",
        "header",
        "One key, one job: a known key answers the job that it made. 1 to 255 characters.",
    ),
    Parameter("X-Idempotency-Key", "header", "The same, under the name that others use."),
)
CONDITION_PARAMETERS: Final = (
    Parameter("If-None-Match", "header", "An ETag: answer only once the job has changed."),
)
_EVENT_ID: Final = {"type": "string", "pattern": f"^[0-9]{{0,{_SEQ_DIGITS_MAX}}}$"}
RESUME_PARAMETERS: Final = (
    Parameter("Last-Event-ID", "header", "Go on after this event.", _EVENT_ID),
    Parameter("after", "query", "The same, for those who cannot set headers.", _EVENT_ID),
)
EVENTS: Final = ResponseSpec(
    HTTPStatus.OK,
    "Events `state`, `progress`, `log`, `chunk`, `alert`, and `end`, after which the stream "
    "closes. Those with an `id` are kept: name the last one to go on. `reconnect` says that this "
    "server cannot go on, and another can; or that the credential does not count any more.",
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
    Parameter("Last-Event-ID", "header", "Go on behind this event.", _CURSOR),
    Parameter("after", "query", "The same, for those who cannot set headers.", _CURSOR),
    Parameter(
        "wait",
        "query",
        "End the stream after so many seconds (60 are the most): for those who poll. With 0 it has "
        "what there is.",
        {"type": "number", "minimum": 0},
    ),
)
_STREAM_HEADERS: Final[RawHeaders] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects events would hold them back
]


def changes_answer(name: str, what: str) -> ResponseSpec:
    """How a stream of changes is declared."""
    return ResponseSpec(
        HTTPStatus.OK,
        f"Events `{name}`, each with {what} as it stands, and an `id`: name the last one to go on "
        "behind it. `reconnect` says that this server cannot go on, and another can; or that the "
        "credential does not count any more; or that the time to wait is over.",
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


RETRY_AFTER_HEADER: Final = {"Retry-After": "Seconds after which asking again is worth while."}
TICKET_HEADERS: Final = RETRY_AFTER_HEADER | {
    "Location": "Where to ask for the job.",
    "Link": "Where to follow it (`events`), cancel it (`cancel`), and find its files "
    "(`artifacts`), unless its tasks have those.",
    "Idempotent-Replayed": "`true`: the idempotency key was known, no job was created.",
    "Idempotency-Mismatch": "`true`: it was known with another payload.",
    "Preference-Applied": "What was made of `Prefer`.",
}
NOT_MODIFIED: Final = ResponseSpec(
    HTTPStatus.NOT_MODIFIED, "The job is as it was.", empty=True, headers={"ETag": "As it was."}
)
