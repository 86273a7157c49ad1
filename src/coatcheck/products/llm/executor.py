"""The built-in service that asks language models, for a worker to serve beside its own.

A job is bound to a target when it is claimed (``queries.py``). What the target says is passed on
as it comes, one chunk for each object of its stream; the whole answer, composed of them, is the
job's result. Nothing that was asked or answered is ever logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from http import HTTPStatus
from types import TracebackType
from typing import Final, NoReturn, Self, cast
from uuid import UUID

import httpx2
import msgspec

from coatcheck.core.queries.leases import ClaimOrder
from coatcheck.crash import crash_point, is_armed
from coatcheck.db.connection import Connection
from coatcheck.db.errors import retried
from coatcheck.db.notifications import Notifier
from coatcheck.domain.errors import (
    DatabaseUnavailable,
    JobSignal,
    OutcomeUnknown,
    TargetUnreachable,
)
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import OUTPUT_CHUNK_BYTES_MAX
from coatcheck.domain.retry import Backoff
from coatcheck.job import Chunk, Job
from coatcheck.products.llm import outcomes, queries, upstream
from coatcheck.products.llm.answers import (
    ANSWER_BYTES_MAX,
    AnswerInvalid,
    AnswerTooLarge,
    ChatAnswer,
    TargetSaidError,
    all_choices,
    without_text,
)
from coatcheck.products.llm.images import ImageFetcher, read_images
from coatcheck.products.llm.model import (
    ANSWER_ARTIFACT,
    ANSWER_INLINE_BYTES_MAX,
    JOB_TIMEOUT_SECONDS,
    LLM_ENDPOINTS,
    LLM_SERVICE,
    LlmKind,
    LlmRequest,
    StoredAnswer,
)
from coatcheck.products.llm.target_monitor import TargetMonitor
from coatcheck.products.llm.upstream import (
    DOUBT_SECONDS,
    SILENCE_SECONDS_MAX,
    StallDetector,
    TargetStalled,
    Upstream,
)
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.settings.llm_targets import LlmTarget
from coatcheck.telemetry import metrics
from coatcheck.worker.cancellation import unless_cancelled
from coatcheck.worker.reports import JobReporter
from coatcheck.worker.worker import Worker

_log = logging.getLogger(__name__)

_LANES: Final = (Lane.URGENT, Lane.STANDARD)
_LEFTOVER_SECONDS_MAX: Final = 0.25
"""For the end of an answer that is whole, which comes with it unless something is odd."""
DROP_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=30.0, jitter=0.5)
"""Before a target that dropped a chat, and is there, is asked again."""

Turns = tuple[dict[str, msgspec.Raw], ...]
Handler = Callable[[Job, LlmKind, str, msgspec.Raw, Turns, bool], Awaitable[StoredAnswer]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a claimed job is to be run."""

    target: str
    loading: bool
    had_output: bool


class LlmExecutor:
    """Asks language models. A context manager, around the worker's whole run.

    >>> async with LlmExecutor(settings) as models:
    ...     await models.worker().run()
    """

    def __init__(
        self,
        settings: Settings,
        *,
        silence_seconds_max: float = SILENCE_SECONDS_MAX,
        doubt_seconds: float = DOUBT_SECONDS,
    ) -> None:
        self._settings = settings
        self._doubt_seconds = doubt_seconds
        self._db = Connection(settings.database_url, name="llm targets")
        self._upstream = Upstream(silence_seconds_max=silence_seconds_max)
        self._monitor = TargetMonitor(
            self._db, self._upstream, settings.llm_targets, self._look_for_work
        )
        self._images = ImageFetcher(settings)
        self._places: dict[UUID, _Place] = {}
        self._workers: list[Worker] = []
        self.service = Service(LLM_SERVICE, _builtin=True)
        for kind in LLM_ENDPOINTS:
            self.service.post(f"/{kind}", timeout=JOB_TIMEOUT_SECONDS, starts_itself=True)(
                self._handler(kind)
            )

    async def __aenter__(self) -> Self:
        await self._monitor.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._monitor.__aexit__(kind, error, trace)
        await self._upstream.__aexit__(kind, error, trace)
        await self._images.aclose()
        await self._db.close()

    def worker(self, notifier: Notifier | None = None) -> Worker:
        """A worker of its own for chats, which takes what its targets have places for."""
        places = sum(target.concurrency for target in self._settings.llm_targets)
        settings = replace(
            self._settings,
            lane_concurrency={lane: places if lane in _LANES else 0 for lane in Lane},
            # Its claims share the places of each target out by themselves.
            lane_reserved_percent=dict.fromkeys(Lane, 0.0),
        )
        name = f"{socket.gethostname()}:{os.getpid()}:{LLM_SERVICE}"
        worker = Worker(settings, [self.service], name=name, claims=self._claim, notifier=notifier)
        self._workers.append(worker)
        return worker

    def _look_for_work(self) -> None:
        for worker in self._workers:
            worker.look_for_work()

    async def _claim(self, db: Connection, order: ClaimOrder) -> list[ClaimedJob]:
        assigned = await queries.claim(
            db,
            order,
            self._monitor.offers(),
            turn_seconds=self._settings.llm_turn_seconds,
        )
        for each in assigned:
            self._places[each.job.uuid] = _Place(each.target, each.loading, each.had_output)
        if assigned:
            crash_point("llm.claimed")
        return [each.job for each in assigned]

    def _handler(self, endpoint_kind: LlmKind) -> Handler:
        async def handler(
            job: Job,
            kind: LlmKind,
            model: str,
            body: msgspec.Raw,
            turns: Turns = (),
            fetch_images: bool = False,
        ) -> StoredAnswer:
            request = LlmRequest(kind, model, body, turns, fetch_images)
            return await unless_cancelled(job, self._run(job, request))

        handler.__name__ = handler.__qualname__ = endpoint_kind
        return handler

    # One job

    async def _run(self, job: Job, request: LlmRequest) -> StoredAnswer:
        place = self._places.pop(job.uuid)
        target = self._monitor.target(place.target)
        model = request.model
        silence = StallDetector(lambda: self._monitor.is_alive(target.name), self._doubt_seconds)
        asking = _Asking(job, request, place, self._monitor, silence)
        self._monitor.began(target.name, model, loading=place.loading)
        try:
            body = bytes(request.body)
            if request.fetch_images:
                body = await self._images.put_in(body, job.org)
            await silence.unless_asleep(self._ask_all(asking, target, body))
        except TargetStalled as error:
            away = outcomes.unreachable(target.name, "fell silent and does not answer")
            await self._monitor.found_away(target.name, str(away))
            raise away from error
        except outcomes.AnswerDropped as error:
            if not await self._monitor.is_there(target.name):
                away = outcomes.unreachable(target.name, "broke off and does not answer")
                await self._monitor.found_away(target.name, str(away))
                raise away from error
            raise await self._dropped(job, target.name) from error
        except TargetUnreachable as error:
            await self._monitor.found_away(target.name, str(error))
            raise
        finally:
            self._monitor.ended(target.name, model, loading=asking.loading)
        return await _store(job, asking.responses)

    async def _ask_all(self, asking: _Asking, target: LlmTarget, body: bytes) -> None:
        """Ask the target once, and once more for each further turn."""
        await self._ask(asking, target, body)
        for turn in asking.request.turns:
            asking.next_turn()
            await self._ask(asking, target, _encode(_decode_fields(body) | dict(turn)))

    async def _dropped(self, job: Job, target: str) -> JobSignal:
        """What becomes of a job whose target dropped it, and is there: counted in its row, so that
        the count outlives this worker."""
        claimed = cast(JobReporter, job.reporter).claimed
        try:
            drops = await retried(
                lambda: queries.note_drop(self._db, claimed.org, claimed.uuid, claimed.lease)
            )
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("a drop is not counted: %s", error)
            drops = None
        return outcomes.dropped(
            target, drops, DROP_BACKOFF.delay((drops or 1) - 1, random.random())
        )

    async def _ask(self, asking: _Asking, target: LlmTarget, body: bytes) -> None:
        """Send the job to its target and pass on what comes back, until that is whole."""
        name, request = target.name, asking.request
        try:
            async with self._upstream.ask(
                target, request.kind, body, on_sent=asking.sent
            ) as response:
                await self._monitor.answered(name)
                if not response.is_success:
                    await self._refused(name, request.model, response)
                await _pass_on(asking, response)
        except httpx2.ReadTimeout as error:
            raise outcomes.silent(name, self._upstream.silence_seconds_max) from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise outcomes.no_answer(name, error) from error
        except httpx2.HTTPError as error:
            raise outcomes.AnswerDropped from error
        except AnswerInvalid as error:
            raise outcomes.invalid_answer(name) from error
        except AnswerTooLarge as error:
            raise outcomes.too_large(ANSWER_BYTES_MAX) from error
        except TargetSaidError as error:
            raise outcomes.said_error(name, str(error)) from error
        if not asking.whole:
            raise outcomes.AnswerDropped

    async def _refused(self, name: str, model: str, response: httpx2.Response) -> NoReturn:
        said = outcomes.said_in(await upstream.read_refusal(response))
        refused = outcomes.refusal(name, response.status_code, response.headers, said)
        missing = response.status_code == HTTPStatus.NOT_FOUND
        if missing and await self._monitor.others_have(name, model):
            raise outcomes.has_moved(refused)  # what we knew of them may have been a minute old
        raise refused


class _Asking:
    """One attempt at one job: what has come of it so far."""

    def __init__(
        self,
        job: Job,
        request: LlmRequest,
        place: _Place,
        targets: TargetMonitor,
        silence: StallDetector,
    ) -> None:
        self.job = job
        self.request = request
        self.responses = [ChatAnswer(request.kind)]
        self.loading = place.loading
        self.whole = False
        self._room = ANSWER_BYTES_MAX
        self._target = place.target
        self._sent_at = time.monotonic()
        self._begins_again = place.had_output or job.attempt > 1
        self._monitor = targets
        self._silence = silence
        self._reporter = cast(JobReporter, job.reporter)

    @property
    def answer(self) -> ChatAnswer:
        """Of the turn that is under way."""
        return self.responses[-1]

    def next_turn(self) -> None:
        """Ask for one more answer; all of them together have the room of one."""
        self._room -= len(self.answer.whole())
        self.responses.append(ChatAnswer(self.request.kind, self._room))
        self.whole = False

    def sent(self) -> None:
        """The target has the request. It is at work on it, unless it loads the model first; one
        that cannot be reached never is."""
        if not self.loading:
            self.job.started()

    async def pass_on(self, db: bytes) -> None:
        """Take one object of the stream in, and let those who follow the job have it."""
        self._silence.heard()
        self.answer.add(db)
        if self.answer.objects == 1 and len(self.responses) == 1:
            metrics.record_llm_first_object(self._target, time.monotonic() - self._sent_at)
        if self.loading:
            self.loading = False
            self._monitor.loaded(self._target, self.request.model)
            await self.job.started()
        if self.request.kind == "embed":
            return  # nobody can do anything with a part of it
        if self._begins_again:
            self._begins_again = False
            await self._emit(_encode(_restarted(self.job.attempt)))
        if len(db) > OUTPUT_CHUNK_BYTES_MAX and self.request.turns and self.answer.done:
            db = without_text(db)  # by which a reader knows that the next answer begins
        if len(db) <= OUTPUT_CHUNK_BYTES_MAX:
            await self._emit(db)

    async def _emit(self, data: bytes) -> None:
        await self._reporter.report(Chunk("json", data))
        if is_armed("llm.chunk_stored"):
            await self._reporter.desk.settle(self._reporter.claimed)
            crash_point("llm.chunk_stored")


async def _pass_on(asking: _Asking, response: httpx2.Response) -> None:
    answer = asking.answer
    async with aclosing(upstream.lines(response)) as stream:
        async for db in stream:
            await asking.pass_on(db)
            if answer.done:
                break
        else:
            # What is not streamed has one object, and need not say that it was the last.
            plain = response.headers.get("content-type", "").startswith("application/json")
            asking.whole = plain and answer.objects == 1
            return
        asking.whole = True
        # To its end, so that the connection can be used again.
        with contextlib.suppress(TimeoutError, httpx2.HTTPError, AnswerTooLarge):
            async with asyncio.timeout(_LEFTOVER_SECONDS_MAX):
                await anext(stream, None)


async def _store(job: Job, responses: Sequence[ChatAnswer]) -> StoredAnswer:
    """Keep the answer in the row, or beside it if it is long, and its images as files."""
    for image in read_images([image for answer in responses for image in answer.images]):
        await job.attach(image.name, image.data, media_type=image.media_type)
    whole = all_choices([answer.whole() for answer in responses])
    if len(whole) <= ANSWER_INLINE_BYTES_MAX:
        stored = StoredAnswer(inline=msgspec.Raw(whole))
    else:
        await job.attach(ANSWER_ARTIFACT, whole, media_type="application/json")
        stored = StoredAnswer(artifact=ANSWER_ARTIFACT)
    crash_point("llm.answered")
    return stored


_encode: Final = msgspec.json.Encoder().encode
_decode_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _restarted(attempt: int) -> dict[str, object]:
    """Told before the output of a further try: what came before it counts no more."""
    return {"coatcheck": {"restarted": True, "attempt": attempt}}
