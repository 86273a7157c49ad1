"""The routes of the protocol, and their common checks.

POST  /submit-job   {text, language, token?, prompt_url?, callback_url?}  ->  {job_id}
                    {type: "design_preview", description, text, language, ...}
                    {type: "clone", reference_url, language, ...}
GET   /job-status?job_id=   ->  {job_id, status: running|completed|failed, error?,
                                 duration_seconds?}
GET   /job-result?job_id=   ->  the WAV, or the clone; 409 unless the job is completed
POST  /job-cancel   {job_id}  ->  as job-status; a cancelled job has failed with "cancelled"
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from examples.tts_remote.callbacks import status_of
from examples.tts_remote.exchange import Answer, Exchange
from examples.tts_remote.failures import Refused, Stopped
from examples.tts_remote.faults import Faults
from examples.tts_remote.job_folders import JobFolders, Order
from examples.tts_remote.job_runner import JobRunner
from examples.tts_remote.records import Request, Seen
from examples.tts_remote.sabotage import Saboteur
from examples.tts_remote.tuning import Tuning

_TOKEN_CHARS_MAX = 255
_LANGUAGE_CHARS_MAX = 100
_T = TypeVar("_T")

Route = Callable[[Exchange, Request], Awaitable[Answer]]


class _Named(msgspec.Struct):
    job_id: str


class Service:
    """Answers requests. ``cut`` ends one caller's connection."""

    def __init__(
        self,
        folders: JobFolders,
        runner: JobRunner,
        saboteur: Saboteur,
        *,
        tuning: Tuning,
        faults: Faults,
        seen: Seen,
        bearer: str | None,
        cut: Callable[[Exchange], None],
    ) -> None:
        self._folders = folders
        self._runner = runner
        self._saboteur = saboteur
        self._tuning = tuning
        self._faults = faults
        self._seen = seen
        self._bearer = bearer
        self._cut = cut
        self._routes: dict[str, tuple[str, Route]] = {
            "/submit-job": ("POST", self._submit),
            "/job-status": ("GET", self._status),
            "/job-result": ("GET", self._result),
            "/job-cancel": ("POST", self._cancel),
        }

    async def serve(self, exchange: Exchange) -> None:
        """Answer one request."""
        try:
            await self._answer(exchange)
        except Refused as refused:
            await exchange.answer(
                Answer({"error": refused.message}, status=refused.status, headers=refused.headers)
            )
        except Stopped:
            self._cut(exchange)

    async def _answer(self, exchange: Exchange) -> None:
        method, route = self._routes.get(exchange.path, ("", None))
        if route is None:
            raise Refused(404, f"no such route: {exchange.path[:200]}")
        if method != exchange.method:
            raise Refused(405, f"{exchange.path} needs {method}", (("allow", method),))
        request = self._seen.request(exchange.path, exchange.headers, await exchange.body())
        self._let_in(exchange)
        cleared, fault = self._faults.cleared, self._faults.next_for_request(exchange.path)
        if fault is None:
            await exchange.answer(await route(exchange, request))
            return
        self._seen.faults[fault.kind] += 1
        if await self._saboteur.before(exchange, fault, cleared):
            await self._saboteur.answer(exchange, fault, await route(exchange, request))

    def _let_in(self, exchange: Exchange) -> None:
        if self._bearer is None:
            return
        wanted, given = f"Bearer {self._bearer}", exchange.headers.get("authorization", "")
        if not hmac.compare_digest(wanted.encode(), given.encode()):
            raise Refused(401, "unauthorized", (("www-authenticate", "Bearer"),))

    async def _submit(self, exchange: Exchange, request: Request) -> Answer:
        order = self._order(request.body)
        job_id, is_new = await asyncio.to_thread(self._folders.make, order)
        request.job_id = job_id
        if is_new:
            self._seen.jobs_made += 1
            self._runner.start(job_id)
        else:
            self._seen.jobs_found += 1
        return Answer({"job_id": job_id})

    async def _status(self, exchange: Exchange, request: Request) -> Answer:
        job_id = self._known(exchange.query("job_id"), request)
        return Answer(status_of(job_id, self._folders.end(job_id)))

    async def _result(self, exchange: Exchange, request: Request) -> Answer:
        job_id = self._known(exchange.query("job_id"), request)
        end = self._folders.end(job_id)
        if end is None:
            raise Refused(409, "the job is running")
        if end.status == "failed":
            raise Refused(409, f"the job has failed: {end.error}")
        if end.duration_seconds is None:
            return Answer(file=self._folders.speech(job_id), media_type="application/octet-stream")
        return Answer(
            file=self._folders.speech(job_id),
            media_type="audio/wav",
            headers=(("x-duration-seconds", f"{end.duration_seconds:.3f}"),),
        )

    async def _cancel(self, exchange: Exchange, request: Request) -> Answer:
        job_id = self._known(_decoded(request.body, _Named).job_id, request)
        return Answer(status_of(job_id, await self._runner.cancel(job_id)))

    def _order(self, body: bytes) -> Order:
        order = _decoded(body, Order)
        if "\0" in order.text or not (order.text.strip() or order.type == "clone"):
            raise Refused(400, "text must not be empty")
        if order.type == "design_preview" and not (order.description or "").strip():
            raise Refused(400, "description must describe the voice")
        if order.type == "clone" and order.reference_url is None:
            raise Refused(400, "reference_url must be the URL of the recording")
        if len(order.text) > self._tuning.text_chars_max:
            raise Refused(400, f"text is longer than {self._tuning.text_chars_max} characters")
        if len(order.language) > _LANGUAGE_CHARS_MAX or "\0" in order.language:
            raise Refused(400, "language must be a code such as en or pt-BR")
        if order.token is not None and not 1 <= len(order.token) <= _TOKEN_CHARS_MAX:
            raise Refused(400, f"token must have 1 to {_TOKEN_CHARS_MAX} characters")
        if order.callback_url is not None and not order.callback_url.startswith(
            ("http://", "https://")
        ):
            raise Refused(400, "callback_url must begin with http:// or https://")
        return order

    def _known(self, job_id: str | None, request: Request) -> str:
        if job_id is None:
            raise Refused(400, "job_id is missing")
        if not self._folders.exists(job_id):
            raise Refused(404, "no such job")
        request.job_id = job_id
        return job_id


def _decoded(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Refused(400, str(error)) from None
