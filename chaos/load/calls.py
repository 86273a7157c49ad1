"""Calls that may fail at any moment: each attempt is recorded, and repeated until its outcome is
known."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

from chaos.history import History
from coatcheck.tls import trusted_authorities

CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 10.0
"""How long to wait for an answer before the connection counts as dead."""
AGAIN_SECONDS: Final = (0.2, 4.0)
"""The delay before a repetition: the first, and the longest."""
_BUSY_SECONDS_MAX: Final = 5.0
_FORESEEN: Final = (502, 503, 504)
"""The allowed errors during a fault. Any other server error is a violation."""
_CONNECTIONS_MAX: Final = 200
_WEBHOOK_HEADERS: Final = ("X-Webhook-Url", "X-State-Webhook-Url")
_WEBHOOK_FIELDS: Final = ("webhook_url", "state_webhook_url")

JobOf = Callable[["Answer"], str | None]


class Servers:
    """The servers of a deployment, with a client for each."""

    def __init__(self, urls: Sequence[str], keys: Mapping[str, str]) -> None:
        self._keys = keys
        self._clients = [
            httpx2.AsyncClient(
                base_url=url,
                trust_env=False,
                verify=trusted_authorities(trust_env=False),
                limits=httpx2.Limits(max_connections=_CONNECTIONS_MAX),
                timeout=_timeout(ANSWER_SECONDS),
            )
            for url in urls
        ]
        self.numbers = itertools.count(1)
        """Of the calls of a whole run."""

    def client(self, index: int) -> httpx2.AsyncClient:
        return self._clients[index % len(self._clients)]

    def credential(self, org: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._keys[org]}"}

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@dataclass(frozen=True)
class Answer:
    """The answer to a request sent at ``asked``, in the time of the history."""

    asked: float
    status: int
    headers: httpx2.Headers
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether it was done, or its job is known to have failed."""
        return 200 <= self.status < 400 or (self.status == 502 and "location" in self.headers)

    @property
    def unclear(self) -> bool:
        """Whether its outcome is unknown."""
        return self.status >= 500 and not self.ok

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The code of a problem document."""
        if "json" not in self.headers.get("content-type", ""):
            return None
        told = self.json
        return told.get("code") if isinstance(told, dict) else None

    @property
    def retry_after(self) -> float:
        return float(self.headers.get("retry-after", "1"))


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request, repeated as often as necessary. ``key`` is its idempotency key."""

    operation: str
    method: str
    path: str
    org: str
    key: str | None = None
    expect: str | None = None
    tasks: int | None = None
    job: str | None = None
    """Its subject, if it creates no job."""
    job_of: JobOf | None = None
    """Finds the created job in the answer."""
    json: Any = None
    content: bytes | None = None
    files: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = ANSWER_SECONDS
    anonymous: bool = False
    """Whether to send no credential: signed URLs need none."""


class Calls:
    """The calls of one product. ``rng`` chooses servers; a failed call goes to another one."""

    def __init__(
        self, servers: Servers, history: History, surface: str, rng: random.Random
    ) -> None:
        self.servers = servers
        self.history = history
        self.surface = surface
        self.rng = rng

    async def settled(self, request: Request, *, repeats: int | None = None) -> Answer:
        """The first definite answer: done, or refused."""
        server = self.rng.randrange(1_000)
        for tried in itertools.count():
            number = self.invoked(request, repeats)
            answer = await self._tried(request, number, server + tried)
            repeats = number if repeats is None else repeats
            if answer is None or answer.unclear:
                await asyncio.sleep(self.pause(tried))
            elif answer.status == 429:
                await asyncio.sleep(min(answer.retry_after, _BUSY_SECONDS_MAX))
            else:
                return answer
        raise AssertionError("never reached")

    def invoked(self, request: Request, repeats: int | None = None) -> int:
        """Record that a request is about to be sent. Returns its number."""
        number = next(self.servers.numbers)
        said = {
            "expect": request.expect,
            "tasks": request.tasks,
            "repeats": repeats,
            "webhooks": _webhooks(request) or None,
        }
        self.history.note(
            "invoked",
            call=number,
            surface=self.surface,
            operation=request.operation,
            org=request.org,
            key=request.key,
            job=request.job,
            **{name: value for name, value in said.items() if value is not None},
        )
        return number

    def answered(self, request: Request, number: int, answer: Answer) -> None:
        """Record its outcome."""
        if answer.unclear:
            self.unknown(request, number, f"{answer.status} {answer.code}")
        elif answer.ok:
            job = request.job if request.job_of is None else request.job_of(answer)
            self._note("ok", request, number, job=job, status=answer.status)
        else:
            self._note("failed", request, number, status=answer.status, code=answer.code)

    def unknown(self, request: Request, number: int, why: str) -> None:
        self._note("unknown", request, number, why=why)

    async def read(
        self, org: str, path: str, *, seconds: float = ANSWER_SECONDS, **headers: str
    ) -> Answer | None:
        """Read something; None if no server answers now. Reads are not in the history, but what
        they showed is."""
        client = self.servers.client(self.rng.randrange(1_000))
        asked = self.history.now()
        try:
            got = await client.get(
                path,
                headers=self.servers.credential(org) | headers,
                timeout=_timeout(seconds),
            )
        except httpx2.HTTPError:
            return None
        answer = Answer(asked, got.status_code, got.headers, got.content)
        self._judge(f"GET {path}", answer)
        return None if answer.unclear or answer.status == 429 else answer

    async def surely_read(self, org: str, path: str, **headers: str) -> Answer:
        """The same, as soon as a server answers."""
        for tried in itertools.count():
            answer = await self.read(org, path, seconds=ANSWER_SECONDS, **headers)
            if answer is not None:
                return answer
            await asyncio.sleep(self.pause(tried))
        raise AssertionError("never reached")

    def violation(self, check: str, detail: str, job: str | None = None) -> None:
        """Record a violation."""
        self.history.note("violation", check=check, surface=self.surface, job=job, detail=detail)

    def pause(self, tried: int) -> float:
        """How long to wait before the next try."""
        least, most = AGAIN_SECONDS
        return float(min(most, least * 2 ** min(tried, 8)) * self.rng.uniform(0.5, 1.5))

    async def _tried(self, request: Request, number: int, server: int) -> Answer | None:
        asked = self.history.now()
        try:
            got = await self.servers.client(server).request(
                request.method,
                request.path,
                headers=self.headers(request),
                json=request.json,
                content=request.content,
                files=request.files,
                timeout=_timeout(request.seconds),
            )
        except httpx2.HTTPError as error:
            self.unknown(request, number, type(error).__name__)
            return None
        answer = Answer(asked, got.status_code, got.headers, got.content)
        self._judge(f"{request.method} {request.path}", answer)
        self.answered(request, number, answer)
        return answer

    def _judge(self, asked: str, answer: Answer) -> None:
        """Check an error: no bare 500 during a fault, and a 503 has a Retry-After."""
        if answer.unclear and answer.status not in _FORESEEN:
            self.violation("no unexpected error", f"{asked}: {answer.status}")
        if answer.status == 503 and "retry-after" not in answer.headers:
            self.violation("a 503 has a Retry-After", asked)

    def headers(self, request: Request) -> dict[str, str]:
        credential = {} if request.anonymous else self.servers.credential(request.org)
        key = {} if request.key is None else {"Idempotency-Key": request.key}
        return credential | key | dict(request.headers)

    def _note(self, kind: str, request: Request, number: int, **fields: object) -> None:
        self.history.note(
            kind,
            call=number,
            surface=self.surface,
            operation=request.operation,
            org=request.org,
            key=request.key,
            **fields,
        )


def _webhooks(request: Request) -> list[str]:
    """The paths of the job's webhook receivers, from the headers, the body or the query."""
    body = request.json if isinstance(request.json, dict) else {}
    asked = [request.headers.get(name) for name in _WEBHOOK_HEADERS]
    asked += [body.get(name) for name in _WEBHOOK_FIELDS]
    asked += [httpx2.URL(request.path).params.get(name) for name in _WEBHOOK_FIELDS]
    return [httpx2.URL(url).path for url in asked if url]


def _timeout(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
