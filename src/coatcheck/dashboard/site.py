"""The base of all pages: sessions, security headers, CSRF checks and error pages.

A Visit is one request of a signed-in visitor, with helpers for the response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from coatcheck.dashboard import assets, paths, responses
from coatcheck.dashboard import session as csrf
from coatcheck.dashboard.api import Api, ApiProblem
from coatcheck.dashboard.rendering import templates
from coatcheck.dashboard.session import (
    Fields,
    FlashMessage,
    FlashMessages,
    Seal,
    Session,
    Sessions,
    read_form,
    read_query,
)
from coatcheck.domain.errors import ClientGone, CoatcheckError
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.problems import internal_error, problem_of
from coatcheck.http.request import Request
from coatcheck.http.response import ASGIApp, RawHeaders, Response, StreamResponse
from coatcheck.http.routing import HoldsOpen, Method, ResponseSpec, Route
from coatcheck.settings import Settings

if TYPE_CHECKING:
    from jinja2 import Environment


class Visit:
    """The argument of a page's handler.

    ``api`` calls the public API with the visitor's own credential. ``org`` is the organisation that
    the page shows. ``query`` and ``form`` are the fields of the request; only actions have a
    ``form``, after the check of its CSRF token.
    """

    def __init__(
        self, site: Site, request: Request, session: Session, api: Api, query: Fields, form: Fields
    ) -> None:
        self._site = site
        self.request = request
        self.session = session
        self.api = api
        self.query = query
        self.form = form

    @property
    def org(self) -> str:
        return self.session.org

    @property
    def params(self) -> Mapping[str, str]:
        """The path parameters."""
        return self.request.params

    @property
    def by_htmx(self) -> bool:
        """Whether htmx asks for a part of a page."""
        return is_by_htmx(self.request)

    def page(self, template: str, status: int = HTTPStatus.OK, **context: Any) -> Response:
        """Render a whole page. The site adds what ``base.html`` needs to ``context``."""
        return self._site.render(self, template, context, status=status)

    def fragment(self, template: str, *blocks: str, **context: Any) -> Response:
        """Render parts of a page, which are blocks of its template, for htmx to swap in."""
        body = self.text(template, *blocks, **context).encode()
        return Response(
            HTTPStatus.OK, body, [responses.HTML, *responses.GUARDS, responses.NO_STORE]
        )

    def text(self, template: str, *blocks: str, **context: Any) -> str:
        """Render parts of a page as text, for a stream event."""
        return self._site.render_text(self, template, context, blocks)

    def redirect(self, path: str, notice: FlashMessage | None = None) -> Response:
        """Redirect to another page of the dashboard, which shows ``notice`` once."""
        return self._site.redirect(self.request, path, notice)

    def events(self, pieces: AsyncIterator[bytes]) -> StreamResponse:
        """A stream of events (``dashboard.responses.event``), for htmx's ``sse-connect``."""
        return StreamResponse(
            HTTPStatus.OK,
            pieces,
            [
                responses.EVENT_STREAM,
                *responses.GUARDS,
                responses.NO_STORE,
                (b"x-accel-buffering", b"no"),
            ],
            responses.RELOAD,
        )

    async def pause(self, seconds: float) -> bool:
        """Wait in a stream. Returns False once the server is shutting down."""
        return await self._site.pause(seconds)


def is_by_htmx(request: Request) -> bool:
    return request.header(b"hx-request") == "true"


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """A page in the menu. ``needs`` is the scope without which the page would be empty."""

    title: str
    path: str
    icon: str
    needs: str = "read"


@dataclass(frozen=True, slots=True)
class Listed:
    """A menu entry, and whether the visitor is on its page or on one below it."""

    item: NavigationItem
    is_here: bool


NAVIGATION: Final = (
    NavigationItem("Overview", "/ui/", "overview"),
    NavigationItem("Jobs", "/ui/jobs", "jobs"),
    NavigationItem("Batches", "/ui/batches", "batches"),
    NavigationItem("Webhooks", "/ui/webhooks", "webhooks", "admin"),
    NavigationItem("Services", "/ui/services", "services"),
    NavigationItem("API keys", "/ui/keys", "keys", "admin"),
    NavigationItem("Usage", "/ui/usage", "usage"),
)


def for_visitor(session: Session, path: str) -> list[Listed]:
    """The menu entries that the visitor's credential allows."""
    return [Listed(each, _is_at(each, path)) for each in NAVIGATION if session.may(each.needs)]


def _is_at(item: NavigationItem, path: str) -> bool:
    if item.path == "/ui/":
        return path == item.path
    return path == item.path or path.startswith(f"{item.path}/")


CONFIRMED: Final = "confirmed"
"""The form field that says that the visitor has confirmed the action."""

Handler = Callable[[Visit], Awaitable[Response | StreamResponse]]
_Answer = Callable[[Request], Awaitable[Response | StreamResponse]]


class Site:
    """Declares pages and actions, and handles what they have in common."""

    def __init__(self, settings: Settings, draining: ServerDraining, api: ASGIApp) -> None:
        self.seal = Seal(settings.require("key_pepper"))
        self.sessions = Sessions(self.seal)
        self.public_url = settings.public_url
        self._notices = FlashMessages(self.seal)
        self._draining = draining
        self._app = api
        self._is_secure = settings.public_url.startswith("https://")

    @cached_property
    def _templates(self) -> Environment:
        """Loaded with the first page: most servers of an API never show one."""
        return templates(assets.address)

    # Declarations

    def page(self, path: str, name: str, handler: Handler) -> Route:
        """Declare a page or a part of one. It is read-only."""
        return self._route(["GET"], path, name, handler)

    def live(self, path: str, name: str, handler: Handler) -> Route:
        """Declare an event stream that keeps a page current."""

        async def follow(visit: Visit) -> Response | StreamResponse:
            try:
                # Identifies the caller, so that the limit of streams per caller applies.
                await visit.api.get("/api/v1/me")
            except ApiProblem as problem:
                if problem.status != HTTPStatus.UNAUTHORIZED:
                    raise
                return self._end_stream(visit.request)
            return await handler(visit)

        return self._route(["GET"], path, name, follow, held=HoldsOpen.ALWAYS)

    def action(self, path: str, name: str, handler: Handler, *, asks: str = "") -> Route:
        """Declare the action of a form: a POST that needs the session's CSRF token.

        ``asks`` is a question such as "Cancel this job?". If no script has asked it, a page of its
        own asks it before the action runs.
        """

        async def confirmed(visit: Visit) -> Response | StreamResponse:
            if asks and visit.form.get(CONFIRMED) != "yes":
                given = [each for each in visit.form if each[0] not in (csrf.FIELD, CONFIRMED)]
                back = paths.own_page(_path_of(visit.request.header(b"referer") or ""))
                return visit.page("confirm.html", question=asks, given=given, back=back)
            return await handler(visit)

        return self._route(["POST"], path, name, confirmed)

    def open_page(self, methods: Sequence[Method], path: str, name: str, answer: _Answer) -> Route:
        """Declare a page that needs no session, such as the sign-in page."""

        async def guarded(request: Request) -> Response | StreamResponse:
            return await self._guarded(request, answer, None)

        return self._declared(methods, path, name, guarded)

    def _route(
        self,
        methods: Sequence[Method],
        path: str,
        name: str,
        handler: Handler,
        *,
        held: HoldsOpen = HoldsOpen.NEVER,
    ) -> Route:
        async def answer(request: Request) -> Response | StreamResponse:
            session = self.sessions.read(request)
            if session is None:
                return self._to_sign_in(request)
            request.credential = session.credential  # revoking it ends the page's streams

            async def visited(request: Request) -> Response | StreamResponse:
                form = Fields([])
                if request.method not in ("GET", "HEAD"):
                    request.payer = session.org
                    form = await read_form(request)
                    csrf.check(request, form, self.seal, session.pages, self.public_url)
                elif csrf.is_of_other_pages(request, self.seal, session.pages):
                    return self._load_again()
                return await handler(self._visit(request, session, form))

            return await self._guarded(request, visited, session)

        return self._declared(methods, path, name, answer, held)

    @staticmethod
    def _declared(
        methods: Sequence[Method],
        path: str,
        name: str,
        answer: _Answer,
        held: HoldsOpen = HoldsOpen.NEVER,
    ) -> Route:
        return Route(
            methods=methods,
            path=path,
            name=name,
            summary="A page of the dashboard.",
            handler=answer,
            responses=[ResponseSpec(HTTPStatus.OK, "A page.", media_type="text/html")],
            tag="dashboard",
            held=held,
        )

    # Responses

    def api_for(self, credential: bytes, request: Request) -> Api:
        return Api(
            self._app,
            credential,
            request.request_id,
            head=request.method == "HEAD",
            response_slot=request.response_slot,
        )

    def is_secure(self, request: Request) -> bool:
        """Whether the browser uses https to reach us or the proxy in front of us."""
        return self._is_secure or request.scope.get("scheme") == "https"

    def render(
        self,
        visit: Visit,
        template: str,
        context: Mapping[str, Any],
        blocks: Sequence[str] = (),
        *,
        status: int,
    ) -> Response:
        """Render a page, or these blocks of it, for a signed-in visitor."""
        notice, nonce = self._notices.read(visit.request), responses.new_nonce()
        context = {"notice": notice, "nonce": nonce, **context}
        body = self.render_text(visit, template, context, blocks)
        cleared = (
            [] if notice is None else [self._notices.expired(secure=self.is_secure(visit.request))]
        )
        return Response(status, body.encode(), [*_page_headers(nonce), *cleared])

    def render_text(
        self, visit: Visit, template: str, context: Mapping[str, Any], blocks: Sequence[str] = ()
    ) -> str:
        """Render these blocks of a template, or all of it if none is named."""
        page = self._templates.get_template(template)
        shown = {
            "session": visit.session,
            "csrf_token": self.seal.token(visit.session.pages),
            "navigation": for_visitor(visit.session, visit.request.path),
            "here": _own_address(visit.request),
            **context,
        }
        if not blocks:
            return page.render(shown)
        all_of = page.new_context(shown)
        return "".join(text for block in blocks for text in page.blocks[block](all_of))

    def render_open(self, template: str, context: Mapping[str, Any], status: int) -> Response:
        """Render a whole page that needs no session."""
        nonce = responses.new_nonce()
        body = self._templates.get_template(template).render(
            session=None, notice=None, nonce=nonce, **context
        )
        return Response(status, body.encode(), _page_headers(nonce))

    def redirect(
        self,
        request: Request,
        path: str,
        notice: FlashMessage | None = None,
        *,
        more: RawHeaders = (),
    ) -> Response:
        assert path.startswith("/ui"), "redirects stay on the dashboard"
        carried = (
            [] if notice is None else [self._notices.cookie(notice, secure=self.is_secure(request))]
        )
        answered = [*responses.GUARDS, responses.NO_STORE, *carried, *more]
        if is_by_htmx(request):
            # htmx would follow a 303 itself and swap the next page into a part of this one.
            return Response(HTTPStatus.OK, b"", [(b"hx-redirect", path.encode("ascii")), *answered])
        return Response(HTTPStatus.SEE_OTHER, b"", [(b"location", path.encode("ascii")), *answered])

    async def pause(self, seconds: float) -> bool:
        async with self._draining.cut_short():
            await asyncio.sleep(seconds)
        return not self._draining.begun

    # Errors

    async def _guarded(
        self, request: Request, answer: _Answer, session: Session | None
    ) -> Response | StreamResponse:
        try:
            return await answer(request)
        except ClientGone:
            raise
        except ApiProblem as problem:
            if problem.status == HTTPStatus.UNAUTHORIZED and session is not None:
                return self._to_sign_in(request)
            return self._problem_page(request, session, problem)
        except csrf.ForgedForm as forged:
            refused = ApiProblem(HTTPStatus.FORBIDDEN, _problem_body(forged.code, str(forged)))
            return self._problem_page(request, session, refused)
        except CoatcheckError as error:
            response = problem_of(request, error)
            return self._problem_page(request, session, ApiProblem(response.status, response.body))
        except Exception:  # noqa: BLE001 - logged with its traceback; the visitor gets a generic error page
            _log.exception("unexpected error on page %s", request.path)
            response = internal_error(request)
            return self._problem_page(request, session, ApiProblem(response.status, response.body))

    def _problem_page(
        self, request: Request, session: Session | None, problem: ApiProblem
    ) -> Response:
        context = {"problem": problem, "request_id": problem.request_id or request.request_id}
        if session is None:
            response = self.render_open("problem.html", context, problem.status)
        else:
            blocks = ["notice"] if is_by_htmx(request) else []
            visit = self._visit(request, session, Fields([]), query=Fields([]))
            response = self.render(visit, "problem.html", context, blocks, status=problem.status)
        if problem.retry_after is not None:
            response.headers = [*response.headers, (b"retry-after", problem.retry_after.encode())]
        return response

    def _to_sign_in(self, request: Request) -> Response:
        """Redirect to the sign-in page, which leads back to the requested page."""
        if request.header(b"accept") == "text/event-stream":
            return self._end_stream(request)
        cookie = self.sessions.expired(secure=self.is_secure(request))
        wanted = (
            _own_address(request) if request.method == "GET" and not is_by_htmx(request) else ""
        )
        if is_by_htmx(request):
            wanted = _path_of(request.header(b"hx-current-url") or "")
        back = paths.own_page(wanted)
        where = paths.with_query(paths.SIGN_IN, {"next": None if back == paths.HOME else back})
        return self.redirect(request, where, more=[cookie])

    def _end_stream(self, request: Request) -> Response:
        """End a stream whose session is over. A stream cannot redirect, so its page reloads."""
        cookie = self.sessions.expired(secure=self.is_secure(request))
        sent = [responses.EVENT_STREAM, *responses.GUARDS, responses.NO_STORE, cookie]
        return Response(HTTPStatus.OK, responses.RELOAD, sent)

    @staticmethod
    def _load_again() -> Response:
        """Reload a page whose session has changed in another window."""
        return Response(
            HTTPStatus.OK, b"", [(b"hx-refresh", b"true"), *responses.GUARDS, responses.NO_STORE]
        )

    def _visit(
        self, request: Request, session: Session, form: Fields, query: Fields | None = None
    ) -> Visit:
        api = self.api_for(session.credential, request)
        return Visit(
            self, request, session, api, read_query(request) if query is None else query, form
        )


def _page_headers(nonce: str) -> RawHeaders:
    return [responses.HTML, *responses.guards(nonce), responses.NO_STORE]


def _own_address(request: Request) -> str:
    query = str(request.scope["query_string"], "latin-1")
    return f"{request.raw_path}?{query}" if query else request.raw_path


def _path_of(url: str) -> str:
    _, _, rest = url.partition("://")
    return "/" + rest.partition("/")[2]


def _problem_body(code: str, detail: str) -> bytes:
    return msgspec.json.encode({"code": code, "detail": detail})
