"""The routes of all pages of the dashboard, and its entry points: sign-in with an API key or token,
sign-out, and switching organisations."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.dashboard import (
    assets,
    batches,
    jobs,
    keys,
    overview,
    paths,
    services,
    usage,
    webhooks,
)
from coatcheck.dashboard import session as csrf
from coatcheck.dashboard.api import ApiProblem
from coatcheck.dashboard.session import (
    CREDENTIAL_BYTES_MAX,
    Cookie,
    FlashMessage,
    begin,
    read_form,
    read_query,
)
from coatcheck.dashboard.site import Site, Visit
from coatcheck.domain.errors import NotFound
from coatcheck.http.context import ServerContext
from coatcheck.http.request import Request
from coatcheck.http.response import ASGIApp, Response, StreamResponse
from coatcheck.http.routing import Route


def routes(server: ServerContext, api: ASGIApp, products: Sequence[str]) -> list[Route]:
    """The dashboard's routes; ``api`` is the ASGI application of the public API, ``products`` are
    those whose jobs can be listed."""
    site = Site(server.settings, server.draining, api)
    return [
        assets.route(),
        *sign_in_routes(site),
        *overview.routes(site),
        *jobs.list_routes(site, products),
        *jobs.routes(site),
        *batches.routes(site),
        *webhooks.routes(site),
        *services.routes(site),
        *keys.routes(site),
        *usage.routes(site),
        *_entry_points(site),
    ]


def _entry_points(site: Site) -> list[Route]:
    """Redirects to the first page, and the 404 page."""

    async def go_home(_: Request) -> Response | StreamResponse:
        return Response(HTTPStatus.SEE_OTHER, b"", [(b"location", paths.HOME.encode())])

    async def not_found(_: Visit) -> Response | StreamResponse:
        raise NotFound

    return [
        site.open_page(["GET"], "/", "ui_root", go_home),
        site.open_page(["GET"], "/ui", "ui", go_home),
        site.page("/ui/{rest:path}", "ui_nowhere", not_found),
    ]


_VISITOR: Final = Cookie("coatcheck_visitor", paths.SIGN_IN, 3600)
"""Identifies a visitor before there is a session, so that the sign-in form has a CSRF token, too:
another site must not sign anybody in as somebody else."""
_VISITOR_BYTES: Final = 16
_FORM_BYTES_MAX: Final = 8 * 1024
"""The size limit of the sign-in form, which anyone can send."""
_FIT: Final = re.compile(r"[A-Za-z0-9_-]{22}")

_REFUSED: Final = "This API key or token is not valid. It may be mistyped, expired or revoked."


def sign_in_routes(site: Site) -> list[Route]:
    return [
        site.open_page(["GET"], paths.SIGN_IN, "ui_sign_in", _SignIn(site).show),
        site.open_page(["POST"], paths.SIGN_IN, "ui_sign_in_sent", _SignIn(site).enter),
        site.action("/ui/sign-out", "ui_sign_out", _SignIn(site).leave),
        site.page("/ui/orgs", "ui_orgs", _list_orgs),
        site.action("/ui/orgs", "ui_orgs_choose", _SignIn(site).switch_org),
    ]


class _SignIn:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def show(self, request: Request) -> Response | StreamResponse:
        back = paths.own_page(read_query(request).get("next"))
        if self._site.sessions.read(request) is not None:
            return self._site.redirect(request, back)
        return self._form(request, back)

    async def enter(self, request: Request) -> Response | StreamResponse:
        form = await read_form(request, _FORM_BYTES_MAX)
        visitor = _VISITOR.read(request) or ""
        csrf.check(request, form, self._site.seal, visitor.encode(), self._site.public_url)
        back = paths.own_page(form.get("next"))
        credential = form.get("credential").encode()
        if not visitor or not credential:
            return self._form(request, back, "Enter an API key or token.")
        if len(credential) > CREDENTIAL_BYTES_MAX:
            said = (
                f"The token has {len(credential)} bytes. A browser cookie holds at most "
                f"{CREDENTIAL_BYTES_MAX}. Use an API key."
            )
            return self._form(request, back, said)
        try:
            me = await self._site.api_for(credential, request).get("/api/v1/me")
        except ApiProblem as problem:
            if problem.status != HTTPStatus.UNAUTHORIZED:
                raise
            return self._form(request, back, _REFUSED)
        secure = self._site.is_secure(request)
        session = self._site.sessions.cookie(begin(credential, me), secure=secure)
        return self._site.redirect(request, back, more=[session, _VISITOR.clear(secure=secure)])

    async def leave(self, visit: Visit) -> Response | StreamResponse:
        cookie = self._site.sessions.expired(secure=self._site.is_secure(visit.request))
        return self._site.redirect(visit.request, paths.SIGN_IN, more=[cookie])

    async def switch_org(self, visit: Visit) -> Response | StreamResponse:
        org = visit.form.get("org")
        orgs = (await visit.api.get("/api/v1/operator/orgs"))["items"]
        if org not in {each["org_id"] for each in orgs}:
            return visit.redirect("/ui/orgs", FlashMessage("Organisation not found.", "error"))
        session = msgspec.structs.replace(visit.session, org=org)
        cookie = self._site.sessions.cookie(session, secure=self._site.is_secure(visit.request))
        return self._site.redirect(visit.request, paths.HOME, more=[cookie])

    def _form(self, request: Request, back: str, said: str = "") -> Response:
        # Keep an existing cookie, so that the sign-in form in another window stays valid.
        visitor = _VISITOR.read(request) or ""
        if _FIT.fullmatch(visitor) is None:
            visitor = base64.urlsafe_b64encode(os.urandom(_VISITOR_BYTES)).rstrip(b"=").decode()
        status = HTTPStatus.UNPROCESSABLE_ENTITY if said else HTTPStatus.OK
        response = self._site.render_open(
            "sign_in.html",
            {"back": back, "said": said, "csrf_token": self._site.seal.token(visitor.encode())},
            status,
        )
        cookie = _VISITOR.set(visitor, secure=self._site.is_secure(request))
        response.headers = [*response.headers, cookie]
        return response


async def _list_orgs(visit: Visit) -> Response | StreamResponse:
    orgs = (await visit.api.get("/api/v1/operator/orgs"))["items"]
    return visit.page("orgs.html", orgs=orgs)
