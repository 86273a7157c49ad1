"""Runs llm jobs: sends each to its target, streams the output and stores the answer.

This is a built-in service that a worker serves beside its own. A job is bound to a target when it
is claimed (``queries.py``). Each object of the target's stream becomes one chunk at once; the whole
answer, composed of them, is the job's result. Prompts and answers are never logged.
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
from coatcheck.db.database import Database
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
    TargetError,
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
from coatcheck.products.llm.repository import count_drop
from coatcheck.products.llm.target_monitor import TargetMonitor
from coatcheck.products.llm.upstream import (
    SILENCE_SECONDS_MAX,
    STALL_PROBE_SECONDS,
    StallDetector,
    TargetStalled,
    Upstream,
)
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.settings.targets import LlmTarget
from coatcheck.telemetry import metrics
from coatcheck.worker.cancellation import unless_cancelled
from coatcheck.worker.reports import JobReporter
from coatcheck.worker.worker import Worker

_log = logging.getLogger(__name__)

_LANES: Final = (Lane.URGENT, Lane.STANDARD)
_LEFTOVER_SECONDS_MAX: Final = 0.25
"""How long to read on after the last object of an answer. The stream normally ends with it."""
DROP_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=30.0, jitter=0.5)
"""The pause before a target that dropped a chat, but answers others, is asked again."""

Turns = tuple[dict[str, msgspec.Raw], ...]
Handler = Callable[[Job, LlmKind, str, msgspec.Raw, Turns, bool], Awaitable[StoredAnswer]]


@dataclass(frozen=True, slots=True)
class _Placement:
    """The target of a claimed job, as ``AssignedJob`` has it."""

    target: str
    loading: bool
    had_output: bool


class LlmExecutor:
    """Runs llm jobs. A context manager, around the worker's whole run.

    >>> async with LlmExecutor(settings, database) as models:
    ...     await models.worker().run()
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        silence_seconds_max: float = SILENCE_SECONDS_MAX,
        stall_probe_seconds: float = STALL_PROBE_SECONDS,
    ) -> None:
        self._settings = settings
        self._stall_probe_seconds = stall_probe_seconds
        self._database = database
        self._db = database.pooled("llm targets")
        self._upstream = Upstream(silence_seconds_max=silence_seconds_max)
        self._monitor = TargetMonitor(
            self._db,
            self._upstream,
            settings.llm_targets,
            self._look_for_work,
        )
        self._images = ImageFetcher(settings)
        self._placements: dict[UUID, _Placement] = {}
        self._workers: list[Worker] = []
        self.service = Service(LLM_SERVICE, product="llm")
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

    def worker(self) -> Worker:
        """A separate worker for chats, with as many slots as its targets together."""
        slots = sum(target.concurrency for target in self._settings.llm_targets)
        settings = replace(
            self._settings,
            lane_concurrency={lane: slots if lane in _LANES else 0 for lane in Lane},
            # The claims themselves share out the slots of each target.
            lane_reserved_percent=dict.fromkeys(Lane, 0.0),
        )
        name = f"{socket.gethostname()}:{os.getpid()}:{LLM_SERVICE}"
        worker = Worker(
            settings, [self.service], name=name, claims=self._claim, database=self._database
        )
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
            self._placements[each.job.uuid] = _Placement(each.target, each.loading, each.had_output)
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
        placement = self._placements.pop(job.uuid)
        target = self._monitor.target(placement.target)
        model = request.model
        stall_detector = StallDetector(
            lambda: self._monitor.is_alive(target.name), self._stall_probe_seconds
        )
        attempt = _Attempt(job, request, placement, self._monitor, stall_detector)
        self._monitor.began(target.name, model, loading=placement.loading)
        try:
            body = bytes(request.body)
            if request.fetch_images:
                body = await self._images.inline_images(body, job.org)
            await stall_detector.run_unless_stalled(self._ask_all_turns(attempt, target, body))
        except TargetStalled as error:
            away = outcomes.unreachable(target.name, "fell silent and does not answer")
            await self._monitor.mark_unreachable(target.name, str(away))
            raise away from error
        except outcomes.AnswerDropped as error:
            if not await self._monitor.is_still_alive(target.name):
                away = outcomes.unreachable(target.name, "broke off and does not answer")
                await self._monitor.mark_unreachable(target.name, str(away))
                raise away from error
            raise await self._dropped(job, target.name) from error
        except TargetUnreachable as error:
            await self._monitor.mark_unreachable(target.name, str(error))
            raise
        finally:
            self._monitor.ended(target.name, model, loading=attempt.loading)
        return await _store(job, attempt.answers)

    async def _ask_all_turns(self, attempt: _Attempt, target: LlmTarget, body: bytes) -> None:
        """Call the target once, and once more for each further turn."""
        await self._ask(attempt, target, body)
        for turn in attempt.request.turns:
            attempt.next_turn()
            await self._ask(attempt, target, _encode(_decode_fields(body) | dict(turn)))

    async def _dropped(self, job: Job, target: str) -> JobSignal:
        """The outcome of a job whose target dropped it, though it answers others. The database
        counts the drops, so that the count outlives this worker."""
        claimed = cast(JobReporter, job.reporter).claimed
        try:
            drops = await count_drop(self._db, claimed.org, claimed.uuid, claimed.lease)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("a drop is not counted: %s", error)
            drops = None
        return outcomes.dropped(
            target, drops, DROP_BACKOFF.delay((drops or 1) - 1, random.random())
        )

    async def _ask(self, attempt: _Attempt, target: LlmTarget, body: bytes) -> None:
        """Send the job to its target and stream the output, until the answer is whole."""
        name, request = target.name, attempt.request
        try:
            async with self._upstream.ask(
                target, request.kind, body, on_sent=attempt.sent
            ) as response:
                await self._monitor.answered(name)
                if not response.is_success:
                    await self._refused(name, request.model, response)
                await _pass_on(attempt, response)
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
        except TargetError as error:
            raise outcomes.stream_error(name, str(error)) from error
        if not attempt.whole:
            raise outcomes.AnswerDropped

    async def _refused(self, name: str, model: str, response: httpx2.Response) -> NoReturn:
        text = outcomes.error_text(await upstream.read_refusal(response))
        refused = outcomes.refusal(name, response.status_code, response.headers, text)
        missing = response.status_code == HTTPStatus.NOT_FOUND
        if missing and await self._monitor.others_have(name, model):
            raise outcomes.has_moved(refused)  # our list of models may have been a minute old
        raise refused


class _Attempt:
    """The state of one attempt at one job."""

    def __init__(
        self,
        job: Job,
        request: LlmRequest,
        placement: _Placement,
        targets: TargetMonitor,
        stall_detector: StallDetector,
    ) -> None:
        self.job = job
        self.request = request
        self.answers = [ChatAnswer(request.kind)]
        self.loading = placement.loading
        self.whole = False
        self._room = ANSWER_BYTES_MAX
        self._target = placement.target
        self._sent_at = time.monotonic()
        self._restarts = placement.had_output or job.attempt > 1
        self._monitor = targets
        self._stall_detector = stall_detector
        self._reporter = cast(JobReporter, job.reporter)

    @property
    def answer(self) -> ChatAnswer:
        """The answer of the current turn."""
        return self.answers[-1]

    def next_turn(self) -> None:
        """Begin the next answer. All answers together may have the size of one."""
        self._room -= len(self.answer.whole())
        self.answers.append(ChatAnswer(self.request.kind, self._room))
        self.whole = False

    def sent(self) -> None:
        """The target has the whole request. The job has started, unless the model is being loaded.
        An unreachable target never starts a job."""
        if not self.loading:
            self.job.started()

    async def pass_on(self, line: bytes) -> None:
        """Add one object of the stream to the answer, and send it to the job's readers."""
        self._stall_detector.on_output()
        self.answer.add(line)
        if self.answer.objects == 1 and len(self.answers) == 1:
            metrics.record_llm_first_object(self._target, time.monotonic() - self._sent_at)
        if self.loading:
            self.loading = False
            self._monitor.loaded(self._target, self.request.model)
            await self.job.started()
        if self.request.kind == "embed":
            return  # a part of it is of no use
        if self._restarts:
            self._restarts = False
            await self._emit(_encode(_restarted(self.job.attempt)))
        if len(line) > OUTPUT_CHUNK_BYTES_MAX and self.request.turns and self.answer.done:
            line = without_text(line)  # a reader must see that the next answer begins
        if len(line) <= OUTPUT_CHUNK_BYTES_MAX:
            await self._emit(line)

    async def _emit(self, data: bytes) -> None:
        await self._reporter.report(Chunk("json", data))
        if is_armed("llm.chunk_stored"):
            await self._reporter.writer.settle(self._reporter.claimed)
            crash_point("llm.chunk_stored")


async def _pass_on(attempt: _Attempt, response: httpx2.Response) -> None:
    answer = attempt.answer
    async with aclosing(upstream.lines(response)) as stream:
        async for line in stream:
            await attempt.pass_on(line)
            if answer.done:
                break
        else:
            # An answer that is not streamed is one object, which need not say that it is the last.
            plain = response.headers.get("content-type", "").startswith("application/json")
            attempt.whole = plain and answer.objects == 1
            return
        attempt.whole = True
        # Read to the end, so that the connection can be reused.
        with contextlib.suppress(TimeoutError, httpx2.HTTPError, AnswerTooLarge):
            async with asyncio.timeout(_LEFTOVER_SECONDS_MAX):
                await anext(stream, None)


async def _store(job: Job, answers: Sequence[ChatAnswer]) -> StoredAnswer:
    """Store the answer in the row, or as an artifact if it is long, and its images as artifacts."""
    for image in read_images([image for answer in answers for image in answer.images]):
        await job.attach(image.name, image.data, media_type=image.media_type)
    whole = all_choices([answer.whole() for answer in answers])
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
    """The chunk before the output of another attempt: all output before it is void."""
    return {"coatcheck": {"restarted": True, "attempt": attempt}}
