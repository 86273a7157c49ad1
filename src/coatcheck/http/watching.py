"""What callers submit and then watch until it has ended: a job, a batch.

A resource says how to find, read and show one, and what its ETag is. This module decides when to
respond, with which status and headers, so that everything that can be watched keeps one contract:
``Prefer: wait``, ETag and long poll, an event stream, cancellation, ``Retry-After``, and the
entries of the OpenAPI document.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from coatcheck.domain.changes import CURSOR, ChangeCursor, InvalidCursor
from coatcheck.domain.errors import Conflict, InvalidParameter, JobNotFound, Unauthenticated
from coatcheck.domain.explanation import Explanation
from coatcheck.domain.job import JobEvent
from coatcheck.domain.tenants import Scope
from coatcheck.http import event_stream
from coatcheck.http.context import ServerContext
from coatcheck.http.event_stream import ChangeStream, LookForChanges, ShowChange
from coatcheck.http.explanations import explain_route, explanation_response
from coatcheck.http.parameters import Preferences, read_preferences
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Access, Parameter, ResponseSpec, Route

_SEQ_DIGITS_MAX: Final = 18


class Watched(Protocol):
    """One thing as it is now."""

    @property
    def id(self) -> str: ...

    @property
    def org(self) -> str: ...

    @property
    def terminal(self) -> bool:
        """Whether it has ended."""


V = TypeVar("V", bound=Watched)
T = TypeVar("T")


class JobLinks(NamedTuple):
    """The paths of a job, or of something that is watched like one."""

    poll: str
    events: str
    cancel: str

    @classmethod
    def at(cls, poll: str) -> JobLinks:
        return cls(poll, poll + "/events", poll + "/cancel")

    @property
    def artifacts(self) -> str:
        """The path of its list of artifacts."""
        return f"{self.poll}/artifacts"

    def headers(self, *, artifacts: bool = True) -> RawHeaders:
        """For a response that refers its caller to the job."""
        link = f'<{self.events}>; rel="events", <{self.cancel}>; rel="cancel"'
        if artifacts:
            link += f', <{self.artifacts}>; rel="artifacts"'
        return [(b"location", self.poll.encode("ascii")), (b"link", link.encode("ascii"))]

    def link(self) -> tuple[bytes, bytes]:
        """For a response that is the job's result, and may have a Location that means something
        else."""
        return b"link", f'<{self.poll}>; rel="job"'.encode("ascii")


class WatchedResource(ABC, Generic[V]):
    """One kind of thing that can be watched, and the routes of one such thing.

    The attributes name it in paths, in the names of routes and in the OpenAPI document. The methods
    up to ``explanation`` are the product's; most have a default.
    """

    product: str
    """The name of its product, which is also the tag of its routes."""
    path: ClassVar[str]
    """The path of one, such as ``/echoes/{id}``."""
    name: ClassVar[str]
    """Stands for one in the names of routes, such as ``explain_echo``."""
    noun: ClassVar[str] = "job"
    """What callers call one."""
    body: ClassVar[type[msgspec.Struct]]
    """The body that shows one."""
    path_parameters: ClassVar[Sequence[Parameter]] = (
        Parameter("id", "path", "The job's id.", ULID),
    )
    status_headers: ClassVar[RawHeaders] = ()
    """Further headers of every answer that shows one."""
    also: ClassVar[Sequence[ResponseSpec]] = ()
    """Responses that finding one may cause."""
    handler_authorizes: ClassVar[bool] = False
    """Whether ``find`` checks the caller's credential and scope, and not the gate."""
    stores_events: ClassVar[bool] = True
    """Whether its event stream has events that are stored, after which a reader can resume."""
    has_artifacts: ClassVar[bool] = True
    """Whether one has files of its own."""
    unfinished: ClassVar[HTTPStatus] = HTTPStatus.OK
    """The status of an answer that shows one that has not ended, unless the caller waited."""
    refreshes: ClassVar[bool] = False
    """Whether a read looks whether one has ended, because nobody else may have."""
    status_description: ClassVar[str] = ""
    events_description: ClassVar[str] = ""
    cancel_description: ClassVar[str] = ""
    cancel_route: ClassVar[str] = ""
    """The name of the route that cancels one, unless it is ``cancel_`` and ``name``."""
    cancels_ended: ClassVar[bool] = False
    """Whether cancelling one that has ended answers with it, instead of 409."""
    cancel_wait_seconds: ClassVar[float] = 0.0
    """How long to wait for the end of one that was asked to stop."""

    def __init__(self, server: ServerContext) -> None:
        self.server = server
        self.engine = server.engine
        self.gate = server.gate
        self._draining = server.draining

    # What a product supplies

    @abstractmethod
    async def find(self, request: Request, scope: Scope) -> V:
        """The one that the path names. Raises JobNotFound unless the caller may see it."""

    @abstractmethod
    async def read(self, one: str, org: str) -> V:
        """The one with this id as it is now. Raises JobNotFound."""

    @abstractmethod
    def etag(self, view: V) -> bytes:
        """Its ETag, which changes with everything that is shown."""

    @abstractmethod
    async def retry_after(self, view: V) -> int:
        """The seconds after which to ask for it again. It has not ended."""

    @abstractmethod
    async def show(self, view: V) -> Any:
        """The body that shows it."""

    @abstractmethod
    def phase(self, view: V) -> object:
        """Its state: a stream sends the event ``state`` whenever this is another one."""

    @abstractmethod
    def progress(self, view: V) -> Any:
        """The data of the event ``progress``; None if it has reported none."""

    @abstractmethod
    async def cancel(self, view: V) -> V:
        """Cancel it, and return it as it is then. Raises a conflict if it has ended."""

    @abstractmethod
    async def explanation(self, view: V) -> tuple[Explanation, int]:
        """Why it waits or what it does, and the Retry-After if the explanation has none."""

    async def response(
        self, view: V, status: HTTPStatus, headers: RawHeaders, retry_after: int | None = None
    ) -> Response | StreamResponse:
        """A response that shows it. ``retry_after`` is among the headers already."""
        del retry_after
        return json_response(await self.show(view), status, headers)

    async def at_end(self, view: V) -> V:
        """It with everything that the event ``end`` shows."""
        return view

    async def events_after(self, view: V, after: int) -> AsyncIterator[Sequence[JobEvent]]:
        """Pages of its stored events after the one with the number ``after``."""
        del view, after
        return
        yield  # makes this a generator

    async def refreshed(self, view: V) -> V:
        """It after this server has looked whether it has ended (``refreshes``)."""
        return view

    def has_ended(self, view: V) -> None:
        """Note that one was read which has ended."""

    def links(self, one: str) -> JobLinks:
        """The paths of the one with this id."""
        return JobLinks.at(self.path.replace("{id}", one))

    async def found(self, request: Request, scope: Scope = Scope.READ) -> V:
        """As ``find``. The error says where the caller finds a job that is another product's; any
        other id answers as one that does not exist."""
        try:
            return await self.find(request, scope)
        except JobNotFound as error:
            caller = request.caller
            if caller is not None:
                found = await self.server.adapters.locate(caller, request.params["id"])
                if found is not None:
                    error.found_at = f"this is a job of {found.product}: GET {found.path}"
            raise

    # Reading one

    async def status(self, request: Request) -> Response | StreamResponse:
        """It now, or once the caller's conditions are met (``wait``, If-None-Match)."""
        view = await self.found(request, Scope.READ)
        preferences = read_preferences(request)
        known = request.headers.get(b"if-none-match")
        if not view.terminal:
            if preferences.wait is None:
                if self.refreshes:
                    view = await self.refreshed(view)
            elif known is None or _matches(known, self.etag(view)):
                view = await self.wait(request, view.id, view.org, preferences.wait, since=known)
        if view.terminal:
            self.has_ended(view)
        etag = self.etag(view)
        headers, seconds = await self._headers(view, etag)
        headers += preferences.headers
        if known is not None and _matches(known, etag):
            return Response(HTTPStatus.NOT_MODIFIED, b"", headers)
        return await self.response(view, self._status(view, preferences), headers, seconds)

    async def submitted(
        self,
        request: Request,
        view: V,
        preferences: Preferences,
        *,
        status: HTTPStatus,
        headers: RawHeaders = (),
    ) -> Response | StreamResponse:
        """The response to a submission that shows the whole: ``status``; or, if the caller waits,
        200 once it has ended and 202 until then."""
        if preferences.wait is not None:
            view = await self.wait(request, view.id, view.org, preferences.wait)
            status = HTTPStatus.OK if view.terminal else HTTPStatus.ACCEPTED
        links = self.links(view.id).headers(artifacts=self.has_artifacts)
        return await self.shown(view, status, [*preferences.headers, *headers, *links])

    async def shown(
        self, view: V, status: HTTPStatus, headers: RawHeaders = ()
    ) -> Response | StreamResponse:
        """A response that shows it, with its ETag and, until it ends, ``Retry-After``."""
        own, seconds = await self._headers(view, self.etag(view))
        return await self.response(view, status, [*headers, *own], seconds)

    async def _headers(self, view: V, etag: bytes) -> tuple[list[tuple[bytes, bytes]], int | None]:
        headers = [(b"etag", etag), *self.status_headers]
        if view.terminal:
            return headers, None
        seconds = await self.retry_after(view)
        headers.append((b"retry-after", b"%d" % seconds))
        return headers, seconds

    def _status(self, view: V, preferences: Preferences) -> HTTPStatus:
        """A caller who waited never gets 200 without a result."""
        if view.terminal:
            return HTTPStatus.OK
        return self.unfinished if preferences.wait is None else HTTPStatus.ACCEPTED

    async def wait(
        self, request: Request, one: str, org: str, seconds: float, *, since: bytes | None = None
    ) -> V:
        """Wait until it has ended, its ETag is not ``since`` any more, or the time is up.

        Raises Unauthenticated once the credential of the request is no longer valid.
        """
        deadline = time.monotonic() + seconds
        with self.engine.watch(one) as watch, self.gate.watch(request, watch.wake) as credential:
            while True:
                view = await self.read(one, org)
                if not await credential.is_valid():
                    raise Unauthenticated
                remaining = deadline - time.monotonic()
                if view.terminal:
                    self.has_ended(view)
                changed = since is not None and not _matches(since, self.etag(view))
                if view.terminal or changed or remaining <= 0 or self._draining.begun:
                    return view
                async with self._draining.cut_short():
                    await watch.changed(remaining)

    # Its other routes

    async def events(self, request: Request) -> StreamResponse:
        """A stream of its states and progress, and of its stored events."""
        view = await self.found(request, Scope.READ)
        after = resume_after(request) if self.stores_events else 0
        return event_stream.response(event_stream.follow(self, self._draining, view, after))

    async def explain(self, request: Request) -> Response:
        """Why it waits or what it does, as far as the caller may see it."""
        view = await self.found(request, Scope.READ)
        explanation, unknown = await self.explanation(view)
        return explanation_response(request, view.org, explanation, unknown=unknown)

    async def cancelled(self, request: Request) -> Response | StreamResponse:
        """200 if it has ended, 202 if it was asked to stop."""
        view = await self.found(request, Scope.SUBMIT)
        try:
            after = await self.cancel(view)
        except Conflict:
            if not self.cancels_ended:
                raise
            after = await self.read(view.id, view.org)
        if not after.terminal and self.cancel_wait_seconds:
            after = await self.wait(request, view.id, view.org, self.cancel_wait_seconds)
        status = HTTPStatus.OK if after.terminal else HTTPStatus.ACCEPTED
        return await self.shown(after, status)

    def changes(
        self, request: Request, name: str, look: LookForChanges[T], show: ShowChange[T]
    ) -> StreamResponse:
        """A stream of the changes of many, as events ``name``. Raises InvalidParameter."""
        seconds = read_preferences(request).wait
        stream = ChangeStream(self.engine, self._draining)
        pieces = stream.follow(name, look, show, change_cursor(request), seconds=seconds)
        return event_stream.response(pieces)

    def access(self, scope: Scope) -> Access | Scope:
        """Who may call a route that needs this scope."""
        return Access.HANDLER if self.handler_authorizes else scope

    def status_responses(self) -> Sequence[ResponseSpec]:
        """The responses of the route that reads one."""
        return (
            ResponseSpec(HTTPStatus.OK, f"The {self.noun}.", self.body, headers=STATUS_HEADERS),
            ResponseSpec(
                HTTPStatus.ACCEPTED,
                f"The {self.noun} did not end within the requested wait.",
                self.body,
                headers=STATUS_HEADERS,
            ),
            NOT_MODIFIED,
        )

    def routes(self) -> list[Route]:
        """The routes of one: read, follow, explain, cancel."""
        noun, cancel_name = self.noun, self.cancel_route or f"cancel_{self.name}"
        events = (EVENTS, RESUME_PARAMETERS) if self.stores_events else (UNSTORED_EVENTS, ())
        ended = (
            "The {} is cancelled, or had ended before."
            if self.cancels_ended
            else ("The {} is cancelled.")
        )
        refused = ResponseSpec.problem(HTTPStatus.CONFLICT, f"The {noun} has already ended.")
        return [
            Route(
                methods=("GET",),
                path=self.path,
                name=self.name,
                summary=f"Read a {noun}, or wait for its end.",
                description=self.status_description,
                handler=self.status,
                access=self.access(Scope.READ),
                tag=self.product,
                parameters=(*self.path_parameters, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
                responses=(*self.status_responses(), *self.also),
            ),
            Route(
                methods=("GET",),
                path=f"{self.path}/events",
                name=f"{self.name}_events",
                summary=f"Stream a {noun}'s states, progress and output as Server-Sent Events.",
                description=self.events_description,
                handler=self.events,
                access=self.access(Scope.READ),
                tag=self.product,
                parameters=(*self.path_parameters, *events[1]),
                responses=(events[0], *self.also),
            ),
            explain_route(
                self.path,
                f"explain_{self.name}",
                self.explain,
                tag=self.product,
                access=self.access(Scope.READ),
                parameters=self.path_parameters,
                responses=self.also,
            ),
            Route(
                methods=("POST",),
                path=f"{self.path}/cancel",
                name=cancel_name,
                summary=f"Cancel a {noun}.",
                description=self.cancel_description,
                handler=self.cancelled,
                access=self.access(Scope.SUBMIT),
                tag=self.product,
                parameters=self.path_parameters,
                responses=(
                    ResponseSpec(HTTPStatus.OK, ended.format(noun), self.body),
                    ResponseSpec(HTTPStatus.ACCEPTED, f"The {noun} was asked to stop.", self.body),
                    *(() if self.cancels_ended else (refused,)),
                    *self.also,
                ),
            ),
        ]


def _matches(known: bytes, etag: bytes) -> bool:
    # A weak comparison, as RFC 9110 requires for If-None-Match: a W/ prefix makes no difference.
    return known.strip() == b"*" or etag.removeprefix(b"W/") in known


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
UNSTORED_EVENTS: Final = ResponseSpec(
    HTTPStatus.OK,
    "Events `state`, `progress`, and `end`, after which the stream closes. `reconnect` says that "
    "this server cannot continue and another can, or that the credential is no longer valid.",
    media_type="text/event-stream",
    schema={
        "description": "One event of the stream.",
        "type": "object",
        "properties": {
            "event": {"enum": ["state", "progress", "end", "reconnect"]},
            "data": {"type": "string", "contentMediaType": "application/json"},
            "retry": {"type": "integer"},
        },
    },
)
"""Of something that stores none of its events."""
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
STATUS_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with everything that is shown.",
    "Preference-Applied": "The parts of `Prefer` that were applied.",
}
NOT_MODIFIED: Final = ResponseSpec(
    HTTPStatus.NOT_MODIFIED,
    "The job has not changed.",
    empty=True,
    headers={"ETag": "The same ETag."},
)
