"""One request of a person who is signed in: what was asked, who asks, and ways to answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from coatcheck.control.call import Call
from coatcheck.control.reply import Reply, StreamReply
from coatcheck.dashboard import headers, live
from coatcheck.dashboard.api import Api
from coatcheck.dashboard.fields import Fields
from coatcheck.dashboard.notices import Notice
from coatcheck.dashboard.session import Session

if TYPE_CHECKING:
    from coatcheck.dashboard.site import Site


class Visit:
    """What a page's handler is given.

    ``api`` is the public API with the visitor's own credential; ``org`` is the organisation that
    is looked at; ``query`` and ``form`` are what was filled in (``form``: only in an action, whose
    token has been checked).
    """

    def __init__(
        self, site: Site, call: Call, session: Session, api: Api, query: Fields, form: Fields
    ) -> None:
        self._site = site
        self.call = call
        self.session = session
        self.api = api
        self.query = query
        self.form = form

    @property
    def org(self) -> str:
        return self.session.org

    @property
    def params(self) -> Mapping[str, str]:
        """The names in the path."""
        return self.call.params

    @property
    def by_htmx(self) -> bool:
        """Whether a part of a page asks, rather than the browser for a whole one."""
        return is_by_htmx(self.call)

    def page(self, template: str, status: int = HTTPStatus.OK, **context: Any) -> Reply:
        """A whole page. What ``base.html`` needs is there besides ``context``."""
        return self._site.render(self, template, context, status=status)

    def fragment(self, template: str, **context: Any) -> Reply:
        """A part of a page, for htmx to put into its place."""
        body = self.text(template, **context).encode()
        return Reply(HTTPStatus.OK, body, [headers.HTML, *headers.GUARDS, headers.NOT_KEPT])

    def text(self, template: str, **context: Any) -> str:
        """A part of a page as text, for an event of a stream."""
        return self._site.render_text(self, template, context)

    def redirect(self, path: str, notice: Notice | None = None) -> Reply:
        """Go on to another page of ours, which says ``notice`` once."""
        return self._site.redirect(self.call, path, notice)

    def events(self, pieces: AsyncIterator[bytes]) -> StreamReply:
        """A stream of events (``dashboard.live.event``), for htmx's ``sse-connect``."""
        return StreamReply(
            HTTPStatus.OK,
            pieces,
            [
                headers.EVENT_STREAM,
                *headers.GUARDS,
                headers.NOT_KEPT,
                (b"x-accel-buffering", b"no"),
            ],
            live.GONE,
        )

    async def pause(self, seconds: float) -> bool:
        """Wait, in a stream, and say whether to go on: not once the server is about to end."""
        return await self._site.pause(seconds)


def is_by_htmx(call: Call) -> bool:
    return call.header(b"hx-request") == "true"
