"""One request of a signed-in visitor, with helpers for the response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from coatcheck.dashboard import responses
from coatcheck.dashboard.api import Api
from coatcheck.dashboard.session import Fields, FlashMessage, Session
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse

if TYPE_CHECKING:
    from coatcheck.dashboard.site import Site


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

    def fragment(self, template: str, **context: Any) -> Response:
        """Render a part of a page for htmx to swap in."""
        body = self.text(template, **context).encode()
        return Response(
            HTTPStatus.OK, body, [responses.HTML, *responses.GUARDS, responses.NO_STORE]
        )

    def text(self, template: str, **context: Any) -> str:
        """Render a part of a page as text, for a stream event."""
        return self._site.render_text(self, template, context)

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
