"""Readers that follow a job until it finishes, each in another way, and record what they see."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx2

from chaos.load.calls import CONNECT_SECONDS, Answer, Calls
from chaos.load.event_stream import Event, events_of

_WAIT_SECONDS: Final = 5
_POLL_SECONDS: Final = (0.2, 2.0)
_SILENCE_SECONDS: Final = 20.0
"""A stream sends something every 15 s, at least a comment."""


@dataclass(frozen=True)
class Sight:
    """A job as a reader saw it, in its product's words."""

    state: str
    terminal: bool
    outcome: Any = None
    """The result or error of a finished job. None if the answer has neither."""


@dataclass(frozen=True)
class Ticket:
    """An acknowledged job and its URL. ``show`` reads the body of a job."""

    org: str
    job: str
    poll: str
    show: Callable[[Any], Sight]


class Reader:
    """Follows the jobs of one product."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._last_seen: dict[str, tuple[object, ...]] = {}

    async def follow(self, ticket: Ticket) -> Any:
        """The body of the finished job, read in this reader's way."""
        (way,) = self._calls.rng.choices(["poll", "wait", "events"], weights=[3, 5, 2])
        if way == "events":
            await self.listen(ticket)
        return await self.poll(ticket, wait_seconds=_WAIT_SECONDS if way == "wait" else 0)

    async def poll(self, ticket: Ticket, *, wait_seconds: int = 0) -> Any:
        """Poll; with ``wait_seconds``, long-poll."""
        query = f"?wait={wait_seconds}" if wait_seconds else ""
        for tried in itertools.count():
            answer = await self._calls.read(
                ticket.org, ticket.poll + query, seconds=10.0 + wait_seconds
            )
            if answer is None:
                await asyncio.sleep(self._calls.pause(tried))
                continue
            body = self.look(ticket, answer)
            if ticket.show(body).terminal:
                return body
            least, most = _POLL_SECONDS
            await asyncio.sleep(
                least if wait_seconds else min(most, max(least, answer.retry_after))
            )
        raise AssertionError("never reached")

    def look(self, ticket: Ticket, answer: Answer) -> Any:
        """Record the job of an answer. Returns its body; raises Lost if it has none."""
        if answer.status >= 400:
            what = f"{answer.status} {answer.code}"
            self._calls.violation("an acknowledged job can be read", what, ticket.job)
            raise Lost(f"{self._calls.surface} job {ticket.job} was acknowledged: {what}")
        body = answer.json
        self.note(ticket, ticket.show(body), asked=answer.asked)
        return body

    def note(self, ticket: Ticket, sight: Sight, *, asked: float, again: bool = False) -> None:
        """Record a state unless it is the same as before; with ``again``, always.

        ``asked`` is the time of the request: a delayed answer may show an older state.
        """
        told = sight.terminal and sight.outcome is not None
        digest = digest_of(sight.outcome) if told else None
        fresh = (sight.state, sight.terminal, digest)
        if self._last_seen.get(ticket.job) == fresh and not again:
            return
        self._last_seen[ticket.job] = fresh
        self._calls.history.note(
            "seen",
            surface=self._calls.surface,
            org=ticket.org,
            job=ticket.job,
            asked=round(asked, 6),
            state=sight.state,
            terminal=sight.terminal,
            result_digest=digest,
        )

    async def look_again(self, ticket: Ticket) -> None:
        """Read a finished job once more, and record its state."""
        answer = await self._calls.surely_read(ticket.org, ticket.poll)
        body = self.look(ticket, answer)
        self.note(ticket, ticket.show(body), asked=answer.asked, again=True)

    async def listen(self, ticket: Ticket) -> list[Event]:
        """Follow every event of a job to its end, with reconnections.

        The server stores events with an id: none may come twice or be missing.
        """
        heard: list[Event] = []
        last_id = 0
        for tried in itertools.count():
            asked = self._calls.history.now()
            try:
                async for event in self._stream(ticket, last_id):
                    if event.id is not None:
                        if int(event.id) <= last_id:
                            self._calls.violation(
                                "events come once", f"{event.id} after {last_id}", ticket.job
                            )
                        last_id = int(event.id)
                    heard.append(event)
                    if event.name == "state":
                        # Results come with the end only.
                        sight = replace(ticket.show(event.data), outcome=None)
                        self.note(ticket, sight, asked=asked)
                    if event.name == "end":
                        return heard
            except httpx2.HTTPError:
                pass  # disconnected: resume
            await asyncio.sleep(self._calls.pause(min(tried, 2)))
        raise AssertionError("never reached")

    async def _stream(self, ticket: Ticket, last_id: int) -> Any:
        client = self._calls.servers.client(self._calls.rng.randrange(1_000))
        headers = self._calls.servers.credential(ticket.org)
        if last_id:
            headers["Last-Event-ID"] = str(last_id)
        timeout = httpx2.Timeout(_SILENCE_SECONDS, connect=CONNECT_SECONDS)
        path = f"{ticket.poll}/events"
        async with client.stream("GET", path, headers=headers, timeout=timeout) as answer:
            if 400 <= answer.status_code < 500 and answer.status_code != 429:
                what = f"{answer.status_code} of its events"
                self._calls.violation("an acknowledged job can be read", what, ticket.job)
                raise Lost(f"{self._calls.surface} job {ticket.job} was acknowledged: {what}")
            if answer.status_code != 200:
                return
            async for event in events_of(answer):
                yield event


class Lost(Exception):
    """An acknowledged job is not shown. The history has it as a violation."""


def digest_of(value: Any) -> str:
    """A digest of a value, the same for the same JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
