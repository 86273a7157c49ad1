"""When a job is answered: at once, once it has ended, or once it is no longer as it was."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from http import HTTPStatus

from coatcheck.core import Engine
from coatcheck.domain.errors import Unauthenticated
from coatcheck.http.draining import Draining
from coatcheck.http.gate import Gate
from coatcheck.http.prefer_header import Preferences, read_preferences
from coatcheck.http.request import Call
from coatcheck.http.response import RawHeaders, Reply, json_reply
from coatcheck.products.batches import presenter as showing
from coatcheck.products.batches.model import BatchView
from coatcheck.products.batches.repository import Batches
from coatcheck.products.batches.retry_after import retry_after


class Answers:
    """Answers that show a job."""

    def __init__(self, engine: Engine, draining: Draining, gate: Gate) -> None:
        self._engine = engine
        self._draining = draining
        self._gate = gate

    async def handed_in(
        self,
        call: Call,
        view: BatchView,
        preferences: Preferences,
        *,
        status: HTTPStatus,
        headers: RawHeaders = (),
    ) -> Reply:
        """``status``; or, if the caller waits for the job: 200 once it has ended, else 202."""
        if preferences.wait is not None:
            view = await self.held(call, view, preferences.wait)
            status = HTTPStatus.OK if view.status.terminal else HTTPStatus.ACCEPTED
        urls = showing.urls(view.id)
        links = f'<{urls.events}>; rel="events", <{urls.cancel}>; rel="cancel"'
        headers = [
            *preferences.headers,
            *headers,
            (b"location", urls.poll.encode("ascii")),
            (b"link", links.encode("ascii")),
        ]
        return self.shown(view, status, headers)

    async def status(self, call: Call, view: BatchView) -> Reply:
        """The job as it is, or as it is once the caller's conditions are met."""
        preferences = read_preferences(call)
        known = call.headers.get(b"if-none-match")
        unchanged = known is None or _matches(known, view)
        if preferences.wait is not None and not view.status.terminal and unchanged:
            view = await self.held(call, view, preferences.wait, since=known)
        if known is not None and _matches(known, view):
            headers = [*preferences.headers, *_headers(view)]
            return Reply(HTTPStatus.NOT_MODIFIED, b"", headers)
        unfinished = preferences.wait is not None and not view.status.terminal
        status = HTTPStatus.ACCEPTED if unfinished else HTTPStatus.OK
        return self.shown(view, status, preferences.headers)

    def shown(self, view: BatchView, status: HTTPStatus, headers: RawHeaders = ()) -> Reply:
        """The job, with when to ask for it again."""
        return json_reply(showing.job(view), status, [*headers, *_headers(view)])

    async def held(
        self, call: Call, view: BatchView, seconds: float, *, since: bytes | None = None
    ) -> BatchView:
        """The job once it has ended, or changed since that ETag, or the time is up.

        Raises Unauthenticated once what the call was let in with does not count any more.
        """
        deadline = time.monotonic() + seconds
        with (
            self._engine.watch(view.id) as watch,
            self._gate.watch(call, watch.wake) as credential,
        ):
            while True:
                view = await self._engine.extension(Batches).get(view.id, org=view.org)
                if not await credential.counts():
                    raise Unauthenticated
                remaining = deadline - time.monotonic()
                changed = since is not None and not _matches(since, view)
                if view.status.terminal or changed or remaining <= 0 or self._draining.begun:
                    return view
                async with self._draining.cut_short():
                    await watch.changed(remaining)


def _headers(view: BatchView) -> RawHeaders:
    headers = [(b"etag", showing.etag(view))]
    if not view.status.terminal:
        headers.append((b"retry-after", b"%d" % retry_after(view, datetime.now(UTC))))
    return headers


def _matches(known: bytes, view: BatchView) -> bool:
    # Weakly, as RFC 9110 has it here: a W/ in front makes no difference.
    return known.strip() == b"*" or showing.etag(view).removeprefix(b"W/") in known
