"""Responses that show a job: at once, after it ended, after it changed, or as an event stream."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from coatcheck.core import Engine
from coatcheck.domain import explanation
from coatcheck.domain.errors import (
    DatabaseUnavailable,
    JobNotFound,
    OutcomeUnknown,
    Unauthenticated,
)
from coatcheck.http import event_stream
from coatcheck.http.event_stream import KEEP_ALIVE, RECONNECT, RECONNECT_MILLISECONDS, event
from coatcheck.http.gate import Gate
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.parameters import Preferences, read_preferences
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, json_response
from coatcheck.products.batches import presenter
from coatcheck.products.batches.model import BatchView
from coatcheck.products.batches.repository import BatchRepository
from coatcheck.products.batches.schemas import BatchProgress

_UNKNOWN_SECONDS: Final = 2


def retry_after(view: BatchView, now: datetime) -> int:
    """Seconds until the run ends if it continues at its average speed, for ``Retry-After``."""
    run = view.current
    tasks = run.counts
    ended = tasks.succeeded + tasks.failed + tasks.cancelled
    age = (now - run.created_at).total_seconds()
    if not ended or age <= 0:
        return _UNKNOWN_SECONDS
    return explanation.retry_after((tasks.total - ended) * age / ended)


class BatchResponses:
    """Builds the responses that show a job."""

    def __init__(self, engine: Engine, draining: ServerDraining, gate: Gate) -> None:
        self._engine = engine
        self._draining = draining
        self._gate = gate

    async def submitted(
        self,
        request: Request,
        view: BatchView,
        preferences: Preferences,
        *,
        status: HTTPStatus,
        headers: RawHeaders = (),
    ) -> Response:
        """The response to a submission: ``status``; or, if the caller waits, 200 when the job has
        ended and 202 when it has not."""
        if preferences.wait is not None:
            view = await self.wait(request, view, preferences.wait)
            status = HTTPStatus.OK if view.status.terminal else HTTPStatus.ACCEPTED
        urls = presenter.urls(view.id)
        links = f'<{urls.events}>; rel="events", <{urls.cancel}>; rel="cancel"'
        headers = [
            *preferences.headers,
            *headers,
            (b"location", urls.poll.encode("ascii")),
            (b"link", links.encode("ascii")),
        ]
        return self.job_response(view, status, headers)

    async def status(self, request: Request, view: BatchView) -> Response:
        """The job now, or when it ended or no longer matches the caller's ETag."""
        preferences = read_preferences(request)
        known = request.headers.get(b"if-none-match")
        unchanged = known is None or _matches(known, view)
        if preferences.wait is not None and not view.status.terminal and unchanged:
            view = await self.wait(request, view, preferences.wait, since=known)
        if known is not None and _matches(known, view):
            headers = [*preferences.headers, *_headers(view)]
            return Response(HTTPStatus.NOT_MODIFIED, b"", headers)
        unfinished = preferences.wait is not None and not view.status.terminal
        status = HTTPStatus.ACCEPTED if unfinished else HTTPStatus.OK
        return self.job_response(view, status, preferences.headers)

    def job_response(
        self, view: BatchView, status: HTTPStatus, headers: RawHeaders = ()
    ) -> Response:
        """The job, with its ETag and, until it ends, ``Retry-After``."""
        return json_response(presenter.job(view), status, [*headers, *_headers(view)])

    async def wait(
        self, request: Request, view: BatchView, seconds: float, *, since: bytes | None = None
    ) -> BatchView:
        """Wait until the job ends, no longer matches the ETag ``since``, or the time is over.

        Raises Unauthenticated when the caller's credential becomes invalid meanwhile.
        """
        deadline = time.monotonic() + seconds
        with (
            self._engine.watch(view.id) as watch,
            self._gate.watch(request, watch.wake) as credential,
        ):
            while True:
                view = await self._engine.extension(BatchRepository).get(view.id, org=view.org)
                if not await credential.is_valid():
                    raise Unauthenticated
                remaining = deadline - time.monotonic()
                changed = since is not None and not _matches(since, view)
                if view.status.terminal or changed or remaining <= 0 or self._draining.begun:
                    return view
                async with self._draining.cut_short():
                    await watch.changed(remaining)


def _headers(view: BatchView) -> RawHeaders:
    headers = [(b"etag", presenter.etag(view))]
    if not view.status.terminal:
        headers.append((b"retry-after", b"%d" % retry_after(view, datetime.now(UTC))))
    return headers


def _matches(known: bytes, view: BatchView) -> bool:
    # RFC 9110 requires the weak comparison here: a W/ prefix makes no difference.
    return known.strip() == b"*" or presenter.etag(view).removeprefix(b"W/") in known


class BatchEventStream:
    """Streams the events of jobs (server-sent events)."""

    def __init__(self, engine: Engine, draining: ServerDraining) -> None:
        self._engine = engine
        self._draining = draining

    async def follow(self, view: BatchView) -> AsyncIterator[bytes]:
        """Send ``state`` and ``progress`` now and whenever they change, then ``end``."""
        yield b"retry: %d\n\n" % RECONNECT_MILLISECONDS
        try:
            async with aclosing(self._events(view)) as events:
                async for piece in events:
                    yield piece
        except JobNotFound:
            return  # deleted meanwhile
        except (DatabaseUnavailable, OutcomeUnknown):  # for a reader they are the same
            yield RECONNECT

    async def _events(self, view: BatchView) -> AsyncGenerator[bytes, None]:
        state: tuple[str, str] | None = None
        shown: BatchProgress | None = None
        sent_at = time.monotonic()
        with self._engine.watch(view.id) as watch:
            while True:
                view = await self._engine.extension(BatchRepository).get(view.id, org=view.org)
                ended, drained = view.status.terminal, self._draining.begun
                pieces = []
                if not ended and state != (view.current.id, view.status.value):
                    pieces.append(event("state", presenter.job(view)))
                state = (view.current.id, view.status.value)
                progress = presenter.job_progress(view)
                if progress != shown:
                    pieces.append(event("progress", progress))
                shown = progress
                if ended:
                    pieces.append(event("end", presenter.job(view)))
                elif drained:
                    pieces.append(RECONNECT)
                elif not pieces and self._needs_keep_alive(sent_at):
                    pieces.append(KEEP_ALIVE)
                if pieces:
                    yield b"".join(pieces)
                    sent_at = time.monotonic()
                if ended or drained:
                    return
                async with self._draining.cut_short():
                    await watch.changed(event_stream.KEEP_ALIVE_SECONDS)

    @staticmethod
    def _needs_keep_alive(sent_at: float) -> bool:
        return time.monotonic() - sent_at >= event_stream.KEEP_ALIVE_SECONDS
