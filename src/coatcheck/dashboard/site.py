"""What holds for every page: its session, its headers, its token, and what its errors look like."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from coatcheck.control.asgi import ASGIApp
from coatcheck.control.call import Call
from coatcheck.control.draining import Draining
from coatcheck.control.operations import Answer, Held, Method, Operation
from coatcheck.control.problems import internal_error, problem_of
from coatcheck.control.reply import RawHeaders, Reply, StreamReply
from coatcheck.dashboard import assets, csrf, headers, live, navigation, paths
from coatcheck.dashboard.api import Api, ApiProblem
from coatcheck.dashboard.fields import Fields, read_form, read_query
from coatcheck.dashboard.notices import Notice, Notices
from coatcheck.dashboard.rendering import templates
from coatcheck.dashboard.sealing import Seal
from coatcheck.dashboard.session import Session, Sessions
from coatcheck.dashboard.visit import Visit, is_by_htmx
from coatcheck.domain.errors import ClientGone, CoatcheckError
from coatcheck.settings import Settings

_log = logging.getLogger(__name__)

CONFIRMED: Final = "confirmed"
"""The field of a form whose sender was asked whether they mean it."""

Handler = Callable[[Visit], Awaitable[Reply | StreamReply]]
_Answer = Callable[[Call], Awaitable[Reply | StreamReply]]


class Site:
    """Declares pages and actions, and does for them what is the same for all."""

    def __init__(self, settings: Settings, draining: Draining, api: ASGIApp) -> None:
        self.seal = Seal(settings.require("key_pepper"))
        self.sessions = Sessions(self.seal)
        self.public_url = settings.public_url
        self._notices = Notices(self.seal)
        self._draining = draining
        self._app = api
        self._templates = templates(assets.address)
        self._is_secure = settings.public_url.startswith("https://")

    # Declaring

    def page(self, path: str, name: str, handler: Handler) -> Operation:
        """A page, or a part of one: it is read, and changes nothing."""
        return self._operation(["GET"], path, name, handler)

    def live(self, path: str, name: str, handler: Handler) -> Operation:
        """A stream of events, for a page that stays current."""

        async def follow(visit: Visit) -> Reply | StreamReply:
            try:
                # So that it is known whose stream it is, and refused if they have too many.
                await visit.api.get("/api/v1/me")
            except ApiProblem as problem:
                if problem.status != HTTPStatus.UNAUTHORIZED:
                    raise
                return self._gone(visit.call)
            return await handler(visit)

        return self._operation(["GET"], path, name, follow, held=Held.ALWAYS)

    def action(self, path: str, name: str, handler: Handler, *, asks: str = "") -> Operation:
        """What a form does. It is sent by POST with the session's token, or nothing is done.

        ``asks``: a question that is answered first, on a page of its own where no script has asked
        it: "Cancel this job?".
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
        """A page for anyone, such as the one to sign in on; its errors are pages, too."""

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
            call.credential = session.credential  # a stream of a page ends with it

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

    # Answering

    def api_for(self, credential: bytes, call: Call) -> Api:
        return Api(
            self._app, credential, call.request_id, head=call.method == "HEAD", place=call.place
        )

    def is_secure(self, call: Call) -> bool:
        """Whether the browser speaks https with us, or with what stands before us."""
        return self._is_secure or call.scope.get("scheme") == "https"

    def render(
        self, visit: Visit, template: str, context: Mapping[str, Any], *, status: int
    ) -> Reply:
        """A whole page for a visitor."""
        notice, nonce = self._notices.read(visit.call), headers.new_nonce()
        body = self.render_text(visit, template, {"notice": notice, "nonce": nonce, **context})
        told = [] if notice is None else [self._notices.gone(secure=self.is_secure(visit.call))]
        return Reply(status, body.encode(), [*_page_headers(nonce), *told])

    def render_text(self, visit: Visit, template: str, context: Mapping[str, Any]) -> str:
        return self._templates.get_template(template).render(
            session=visit.session,
            csrf_token=self.seal.token(visit.session.pages),
            navigation=navigation.for_visitor(visit.session, visit.call.path),
            here=_own_address(visit.call),
            **context,
        )

    def render_open(self, template: str, context: Mapping[str, Any], status: int) -> Reply:
        """A whole page for anyone."""
        nonce = headers.new_nonce()
        body = self._templates.get_template(template).render(
            session=None, notice=None, nonce=nonce, **context
        )
        return Reply(status, body.encode(), _page_headers(nonce))

    def redirect(
        self, call: Call, path: str, notice: Notice | None = None, *, more: RawHeaders = ()
    ) -> Reply:
        assert path.startswith("/ui"), "pages lead to pages"
        told = [] if notice is None else [self._notices.cookie(notice, secure=self.is_secure(call))]
        answered = [*headers.GUARDS, headers.NOT_KEPT, *told, *more]
        if is_by_htmx(call):
            # A 303 would be followed by htmx itself, which puts the next page into a part of this.
            return Reply(HTTPStatus.OK, b"", [(b"hx-redirect", path.encode("ascii")), *answered])
        return Reply(HTTPStatus.SEE_OTHER, b"", [(b"location", path.encode("ascii")), *answered])

    async def pause(self, seconds: float) -> bool:
        async with self._draining.cut_short():
            await asyncio.sleep(seconds)
        return not self._draining.begun

    # What goes wrong

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
            told = ApiProblem(HTTPStatus.FORBIDDEN, _told(forged.code, str(forged)))
            return self._problem_page(call, session, told)
        except CoatcheckError as error:
            reply = problem_of(call, error)
            return self._problem_page(call, session, ApiProblem(reply.status, reply.body))
        except Exception:  # noqa: BLE001 - logged whole; the reader gets a page that says nothing
            _log.exception("unexpected error in the page %s", call.path)
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
        """The page to sign in on, and from there back to where the visitor wanted to go."""
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
        """A stream cannot lead anywhere: its page does, when it is loaded again."""
        gone = self.sessions.gone(secure=self.is_secure(call))
        told = [headers.EVENT_STREAM, *headers.GUARDS, headers.NOT_KEPT, gone]
        return Reply(HTTPStatus.OK, live.GONE, told)

    @staticmethod
    def _load_again() -> Reply:
        """For a part of a page whose session has changed meanwhile, in another window."""
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


def _told(code: str, detail: str) -> bytes:
    return msgspec.json.encode({"code": code, "detail": detail})
