"""What all pages share: sessions, security headers, CSRF checks and error pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from coatcheck.dashboard import assets, csrf, headers, live, navigation, paths
from coatcheck.dashboard.api import Api, ApiProblem
from coatcheck.dashboard.fields import Fields, read_form, read_query
from coatcheck.dashboard.notices import Notice, Notices
from coatcheck.dashboard.rendering import templates
from coatcheck.dashboard.sealing import Seal
from coatcheck.dashboard.session import Session, Sessions
from coatcheck.dashboard.visit import Visit, is_by_htmx
from coatcheck.domain.errors import ClientGone, CoatcheckError
from coatcheck.http.asgi import ASGIApp
from coatcheck.http.draining import Draining
from coatcheck.http.problems import internal_error, problem_of
from coatcheck.http.request import Call
from coatcheck.http.response import RawHeaders, Reply, StreamReply
from coatcheck.http.routing import Answer, Held, Method, Operation
from coatcheck.settings import Settings

_log = logging.getLogger(__name__)

CONFIRMED: Final = "confirmed"
"""The form field that says that the visitor has confirmed the action."""

Handler = Callable[[Visit], Awaitable[Reply | StreamReply]]
_Answer = Callable[[Call], Awaitable[Reply | StreamReply]]


class Site:
    """Declares pages and actions, and handles what they have in common."""

    def __init__(self, settings: Settings, draining: Draining, api: ASGIApp) -> None:
        self.seal = Seal(settings.require("key_pepper"))
        self.sessions = Sessions(self.seal)
        self.public_url = settings.public_url
        self._notices = Notices(self.seal)
        self._draining = draining
        self._app = api
        self._templates = templates(assets.address)
        self._is_secure = settings.public_url.startswith("https://")

    # Declarations

    def page(self, path: str, name: str, handler: Handler) -> Operation:
        """Declare a page or a part of one. It is read-only."""
        return self._operation(["GET"], path, name, handler)

    def live(self, path: str, name: str, handler: Handler) -> Operation:
        """Declare an event stream that keeps a page current."""

        async def follow(visit: Visit) -> Reply | StreamReply:
            try:
                # Identifies the caller, so that the limit of streams per caller applies.
                await visit.api.get("/api/v1/me")
            except ApiProblem as problem:
                if problem.status != HTTPStatus.UNAUTHORIZED:
                    raise
                return self._gone(visit.call)
            return await handler(visit)

        return self._operation(["GET"], path, name, follow, held=Held.ALWAYS)

    def action(self, path: str, name: str, handler: Handler, *, asks: str = "") -> Operation:
        """Declare the action of a form: a POST that needs the session's CSRF token.

        ``asks`` is a question such as "Cancel this job?". If no script has asked it, a page of its
        own asks it before the action runs.
        """

        async def asked(visit: Visit) -> Reply | StreamReply:
            if asks and visit.form.get(CONFIRMED) != "yes":
                given = [each for each in visit.form if each[0] not in (csrf.FIELD, CONFIRMED)]
                back = paths.own_page(_path_of(visit.call.header(b"referer") or ""))
                return visit.page("confirm.html", question=asks, given=given, back=back)
            return await handler(visit)

        return self._operation(["POST"], path, name, asked)

    def open_page(
        self, methods: Sequence[Method], path: str, name: str, answer: _Answer
    ) -> Operation:
        """Declare a page that needs no session, such as the sign-in page."""

        async def guarded(call: Call) -> Reply | StreamReply:
            return await self._guarded(call, answer, None)

        return self._declared(methods, path, name, guarded)

    def _operation(
        self,
        methods: Sequence[Method],
        path: str,
        name: str,
        handler: Handler,
        *,
        held: Held = Held.NEVER,
    ) -> Operation:
        async def answer(call: Call) -> Reply | StreamReply:
            session = self.sessions.read(call)
            if session is None:
                return self._to_sign_in(call)
            call.credential = session.credential  # revoking it ends the page's streams

            async def visited(call: Call) -> Reply | StreamReply:
                form = Fields([])
                if call.method not in ("GET", "HEAD"):
                    call.payer = session.org
                    form = await read_form(call)
                    csrf.check(call, form, self.seal, session.pages, self.public_url)
                elif csrf.is_of_other_pages(call, self.seal, session.pages):
                    return self._load_again()
                return await handler(self._visit(call, session, form))

            return await self._guarded(call, visited, session)

        return self._declared(methods, path, name, answer, held)

    @staticmethod
    def _declared(
        methods: Sequence[Method],
        path: str,
        name: str,
        answer: _Answer,
        held: Held = Held.NEVER,
    ) -> Operation:
        return Operation(
            methods=methods,
            path=path,
            name=name,
            summary="A page of the dashboard.",
            handler=answer,
            answers=[Answer(HTTPStatus.OK, "A page.", media_type="text/html")],
            tag="dashboard",
            held=held,
        )

    # Responses

    def api_for(self, credential: bytes, call: Call) -> Api:
        return Api(
            self._app, credential, call.request_id, head=call.method == "HEAD", place=call.place
        )

    def is_secure(self, call: Call) -> bool:
        """Whether the browser uses https to reach us or the proxy in front of us."""
        return self._is_secure or call.scope.get("scheme") == "https"

    def render(
        self, visit: Visit, template: str, context: Mapping[str, Any], *, status: int
    ) -> Reply:
        """Render a whole page for a signed-in visitor."""
        notice, nonce = self._notices.read(visit.call), headers.new_nonce()
        body = self.render_text(visit, template, {"notice": notice, "nonce": nonce, **context})
        cleared = [] if notice is None else [self._notices.gone(secure=self.is_secure(visit.call))]
        return Reply(status, body.encode(), [*_page_headers(nonce), *cleared])

    def render_text(self, visit: Visit, template: str, context: Mapping[str, Any]) -> str:
        return self._templates.get_template(template).render(
            session=visit.session,
            csrf_token=self.seal.token(visit.session.pages),
            navigation=navigation.for_visitor(visit.session, visit.call.path),
            here=_own_address(visit.call),
            **context,
        )

    def render_open(self, template: str, context: Mapping[str, Any], status: int) -> Reply:
        """Render a whole page that needs no session."""
        nonce = headers.new_nonce()
        body = self._templates.get_template(template).render(
            session=None, notice=None, nonce=nonce, **context
        )
        return Reply(status, body.encode(), _page_headers(nonce))

    def redirect(
        self, call: Call, path: str, notice: Notice | None = None, *, more: RawHeaders = ()
    ) -> Reply:
        assert path.startswith("/ui"), "redirects stay on the dashboard"
        carried = (
            [] if notice is None else [self._notices.cookie(notice, secure=self.is_secure(call))]
        )
        answered = [*headers.GUARDS, headers.NOT_KEPT, *carried, *more]
        if is_by_htmx(call):
            # htmx would follow a 303 itself and swap the next page into a part of this one.
            return Reply(HTTPStatus.OK, b"", [(b"hx-redirect", path.encode("ascii")), *answered])
        return Reply(HTTPStatus.SEE_OTHER, b"", [(b"location", path.encode("ascii")), *answered])

    async def pause(self, seconds: float) -> bool:
        async with self._draining.cut_short():
            await asyncio.sleep(seconds)
        return not self._draining.begun

    # Errors

    async def _guarded(
        self, call: Call, answer: _Answer, session: Session | None
    ) -> Reply | StreamReply:
        try:
            return await answer(call)
        except ClientGone:
            raise
        except ApiProblem as problem:
            if problem.status == HTTPStatus.UNAUTHORIZED and session is not None:
                return self._to_sign_in(call)
            return self._problem_page(call, session, problem)
        except csrf.ForgedForm as forged:
            refused = ApiProblem(HTTPStatus.FORBIDDEN, _problem_body(forged.code, str(forged)))
            return self._problem_page(call, session, refused)
        except CoatcheckError as error:
            reply = problem_of(call, error)
            return self._problem_page(call, session, ApiProblem(reply.status, reply.body))
        except Exception:  # noqa: BLE001 - logged with its traceback; the visitor gets a generic error page
            _log.exception("unexpected error on page %s", call.path)
            reply = internal_error(call)
            return self._problem_page(call, session, ApiProblem(reply.status, reply.body))

    def _problem_page(self, call: Call, session: Session | None, problem: ApiProblem) -> Reply:
        context = {"problem": problem, "request_id": problem.request_id or call.request_id}
        if session is None:
            reply = self.render_open("problem.html", context, problem.status)
        else:
            template = "problem_notice.html" if is_by_htmx(call) else "problem.html"
            visit = self._visit(call, session, Fields([]), query=Fields([]))
            reply = self.render(visit, template, context, status=problem.status)
        if problem.retry_after is not None:
            reply.headers = [*reply.headers, (b"retry-after", problem.retry_after.encode())]
        return reply

    def _to_sign_in(self, call: Call) -> Reply:
        """Redirect to the sign-in page, which leads back to the requested page."""
        if call.header(b"accept") == "text/event-stream":
            return self._gone(call)
        gone = self.sessions.gone(secure=self.is_secure(call))
        wanted = _own_address(call) if call.method == "GET" and not is_by_htmx(call) else ""
        if is_by_htmx(call):
            wanted = _path_of(call.header(b"hx-current-url") or "")
        back = paths.own_page(wanted)
        where = paths.with_query(paths.SIGN_IN, {"next": None if back == paths.HOME else back})
        return self.redirect(call, where, more=[gone])

    def _gone(self, call: Call) -> Reply:
        """End a stream whose session is over. A stream cannot redirect, so its page reloads."""
        gone = self.sessions.gone(secure=self.is_secure(call))
        sent = [headers.EVENT_STREAM, *headers.GUARDS, headers.NOT_KEPT, gone]
        return Reply(HTTPStatus.OK, live.GONE, sent)

    @staticmethod
    def _load_again() -> Reply:
        """Reload a page whose session has changed in another window."""
        return Reply(
            HTTPStatus.OK, b"", [(b"hx-refresh", b"true"), *headers.GUARDS, headers.NOT_KEPT]
        )

    def _visit(
        self, call: Call, session: Session, form: Fields, query: Fields | None = None
    ) -> Visit:
        api = self.api_for(session.credential, call)
        return Visit(self, call, session, api, read_query(call) if query is None else query, form)


def _page_headers(nonce: str) -> RawHeaders:
    return [headers.HTML, *headers.guards(nonce), headers.NOT_KEPT]


def _own_address(call: Call) -> str:
    query = str(call.scope["query_string"], "latin-1")
    return f"{call.raw_path}?{query}" if query else call.raw_path


def _path_of(url: str) -> str:
    _, _, rest = url.partition("://")
    return "/" + rest.partition("/")[2]


def _problem_body(code: str, detail: str) -> bytes:
    return msgspec.json.encode({"code": code, "detail": detail})
