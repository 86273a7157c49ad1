"""Watches the targets of this process: their models, the loaded models, and whether they answer.

It reads ``/api/tags`` every minute, and when a target says that it does not know a model. It reads
``/api/ps`` every minute too, and every few seconds while jobs run there, and when a job has ended.
An unreachable target is probed, with backoff, until it answers; then the jobs that wait for it are
due at once. The worker that probes a target records when it will probe next; if it never does,
other workers take over.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import httpx2
import msgspec

from coatcheck.db.connection import Connection
from coatcheck.domain.errors import DatabaseUnavailable, InvalidParameter, OutcomeUnknown
from coatcheck.domain.retry import Backoff
from coatcheck.products.llm import repository
from coatcheck.products.llm.model import model_name
from coatcheck.products.llm.queries import SlotOffer
from coatcheck.products.llm.upstream import Upstream
from coatcheck.settings.targets import LlmTarget
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
_IDLE_LOOK_SECONDS: Final = 60.0
BUSY_LOOK_SECONDS: Final = 5.0
STATES_SECONDS: Final = 5.0
LOOK_INTERVAL_MIN_SECONDS: Final = 1.0
"""The shortest time between two reads of a list, however many jobs end meanwhile."""
_ANNOUNCED_MARGIN_SECONDS: Final = 1.0
PROBE_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=30.0, jitter=0.0)
OVERDUE_SECONDS: Final = PROBE_BACKOFF.cap_seconds + 10.0
"""A worker that has announced no further probe of a target for this long has stopped probing it."""
_PROBES: Final = 2
PROBE_INTERVAL_SECONDS: Final = 0.5
"""A server that is being killed may answer one more probe."""
_FOREVER: Final = float("inf")
_NO_LIST: Final = "cannot read the models of a target: %s"


class _ListedModel(msgspec.Struct):
    """A model in a target's list."""

    name: str = ""
    model: str = ""
    expires_at: str = ""


class _List(msgspec.Struct):
    models: list[_ListedModel] | None = None


_decode_list: Final = msgspec.json.Decoder(_List).decode
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError)


@dataclass(slots=True)
class _MonitoredTarget:
    """The last known state of one target."""

    target: LlmTarget
    models: frozenset[str] | None = None
    resident: dict[str, float] = field(default_factory=dict)
    """When each model will be unloaded if nobody uses it before, by our own clock."""
    loading: dict[str, int] = field(default_factory=dict)
    """Models that jobs of this process wait for. A target lists them as loaded meanwhile."""
    jobs: int = 0
    looked_at: bool = False
    tags_due_at: float = 0.0
    tags_seen_at: float = -_FOREVER
    ps_due_at: float = 0.0
    ps_seen_at: float = -_FOREVER
    away: bool = False
    """Whether the last call, or the last read of the database, found it unreachable."""
    announced: datetime | None = None
    """When the worker that probes it will probe next, by the database's clock."""
    announced_at: float = -_FOREVER
    """When we saw ``announced`` change, by our own clock."""
    probing: asyncio.Task[None] | None = None
    looking: asyncio.Task[None] | None = None

    def set_away(self, away: bool) -> None:
        self.away = away
        metrics.set_llm_target_up(self.target.name, up=not away)


class TargetMonitor:
    """Watches the targets of this process. A context manager.

    ``on_work`` is called when there may be jobs to claim: a target answers again or for the first
    time, or its models changed.
    """

    def __init__(
        self,
        db: Connection,
        upstream: Upstream,
        targets: Sequence[LlmTarget],
        on_work: Callable[[], None],
    ) -> None:
        self._db = db
        self._upstream = upstream
        self._targets = {target.name: _MonitoredTarget(target) for target in targets}
        self._on_work = on_work
        self._states_due_at = 0.0
        self._states_known = False
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._ticking = asyncio.create_task(self._tick_forever(), name="llm target monitor")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = [self._ticking]
        for view in self._targets.values():
            tasks += [view.probing, view.looking]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # What is known of the targets

    def target(self, name: str) -> LlmTarget:
        return self._targets[name].target

    def offers(self) -> list[SlotOffer]:
        """The targets that a claim may use."""
        now = time.monotonic()
        return [
            SlotOffer(
                target=view.target.name,
                # 0 while it is away: a probe finds out when it is back, not a job. 0 before the
                # first look: a job could get a target that does not have its model.
                concurrency=0 if view.away or not view.looked_at else view.target.concurrency,
                models=view.models,
                resident=frozenset(
                    model
                    for model, until in view.resident.items()
                    if until > now and model not in view.loading
                ),
            )
            for view in self._targets.values()
        ]

    # Reports of the executor

    def began(self, name: str, model: str, *, loading: bool) -> None:
        """A job is about to be sent to the target."""
        view = self._targets[name]
        view.jobs += 1
        metrics.set_llm_running(name, view.jobs)
        if loading:
            view.loading[model] = view.loading.get(model, 0) + 1

    def ended(self, name: str, model: str, *, loading: bool) -> None:
        """The job has ended. ``loading``: before its model was loaded."""
        view = self._targets[name]
        view.jobs -= 1
        metrics.set_llm_running(name, view.jobs)
        if loading:
            self._loading_over(view, model)
        self._request_resident(view)

    def loaded(self, name: str, model: str) -> None:
        """The target has begun to answer: the model that the job waited for is loaded."""
        view = self._targets[name]
        self._loading_over(view, model)
        view.resident[model] = _FOREVER  # the next look says until when
        self._request_resident(view)

    async def others_have(self, name: str, model: str) -> bool:
        """Whether another target has the model, by a fresh look, after this one said it has not."""
        reachable = [view for view in self._targets.values() if not view.away]
        await asyncio.gather(*(self._models_now(view) for view in reachable))
        return any(
            view.models is not None and model in view.models
            for view in self._targets.values()
            if view.target.name != name
        )

    async def answered(self, name: str) -> None:
        """The target answered a job. If it was away, the database records that it is back."""
        view = self._targets[name]
        if view.away:
            await self._unless_database_away(self._store_reachable(view))

    async def mark_unreachable(self, name: str, why: str) -> None:
        """The target could not be reached. It gets no jobs and is probed from now on. Callers of
        waiting jobs see ``why``."""
        view = self._targets[name]
        if view.probing is None:
            self._probe(view)
            await self._unless_database_away(
                self._store_unreachable(view, why, PROBE_BACKOFF.delay(0, 0.0))
            )

    async def is_alive(self, name: str) -> bool:
        """Whether the target answers right now, with any status below 500."""
        try:
            await self._upstream.get(self._targets[name].target, "/api/version")
        except httpx2.HTTPStatusError as error:
            return error.response.status_code < 500  # 5xx may come from a proxy
        except httpx2.HTTPError:
            return False
        return True

    async def is_still_alive(self, name: str) -> bool:
        """Whether a target that has just dropped a connection still answers, probed twice."""
        for probe in range(_PROBES):
            if probe:
                await asyncio.sleep(PROBE_INTERVAL_SECONDS)
            if not await self.is_alive(name):
                return False
        return True

    @staticmethod
    def _loading_over(view: _MonitoredTarget, model: str) -> None:
        left = view.loading.get(model, 0) - 1
        if left > 0:
            view.loading[model] = left
        else:
            view.loading.pop(model, None)

    # Reading the lists of models

    def _request_resident(self, view: _MonitoredTarget) -> None:
        view.ps_due_at = min(view.ps_due_at, view.ps_seen_at + LOOK_INTERVAL_MIN_SECONDS)
        self._look_soon(view)

    async def _tick_forever(self) -> None:
        while True:
            try:
                await self.tick()
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info("reading the states of targets failed, and is tried again: %s", error)
            except Exception:  # noqa: BLE001 - tried again; jobs go on meanwhile
                _log.exception("monitoring the targets failed")
            await asyncio.sleep(TICK_SECONDS)

    async def tick(self) -> None:
        """Read the lists and states that are due."""
        for view in self._targets.values():
            self._look_soon(view)
        now = time.monotonic()
        if now >= self._states_due_at:
            await self._read_states()
            any_away = any(view.away for view in self._targets.values())
            self._states_due_at = now + (TICK_SECONDS if any_away else STATES_SECONDS)

    async def _read_states(self) -> None:
        """Read which targets other workers found away, and probe those that nobody probes."""
        states = {state.name: state for state in await repository.target_states(self._db)}
        now = time.monotonic()
        for name, view in self._targets.items():
            if view.probing is not None:
                continue
            state = states.get(name)
            was_away = view.away
            view.set_away(state is not None and state.unreachable_since is not None)
            if was_away and not view.away:
                self._on_work()
            if state is None or not view.away:
                view.announced = None
                continue
            # We do not compare the clocks of two machines. At our start the age of an announcement
            # is unknown: a worker that has stopped since may have left it.
            if state.next_try_at != view.announced:
                view.announced, view.announced_at = state.next_try_at, now
            if not self._states_known or now - view.announced_at > OVERDUE_SECONDS:
                self._probe(view)
        self._states_known = True

    def _look_soon(self, view: _MonitoredTarget) -> None:
        """Read the lists of the target in the background, if they are due."""
        now = time.monotonic()
        if view.jobs and view.ps_due_at > now + BUSY_LOOK_SECONDS:
            view.ps_due_at = now + BUSY_LOOK_SECONDS
        due = view.tags_due_at <= now or view.ps_due_at <= now
        if due and view.looking is None and view.probing is None:
            view.looking = _background_task(self._look(view), "llm look")

    async def _look(self, view: _MonitoredTarget) -> None:
        try:
            while view.tags_due_at <= time.monotonic() or view.ps_due_at <= time.monotonic():
                now = time.monotonic()
                if view.tags_due_at <= now:
                    view.tags_seen_at, view.tags_due_at = now, now + _IDLE_LOOK_SECONDS
                    await self._look_at_models(view)
                if view.ps_due_at <= now:
                    wait = BUSY_LOOK_SECONDS if view.jobs else _IDLE_LOOK_SECONDS
                    view.ps_seen_at, view.ps_due_at = now, now + wait
                    await self._look_at_resident(view)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            name = view.target.name
            await self.mark_unreachable(name, f"The target {name} cannot be connected to.")
        except (httpx2.HTTPError, *_UNREADABLE) as error:
            # The error may quote the target, so log its type only. Jobs still go to the target: it
            # need not have lists.
            _log.info(_NO_LIST, type(error).__name__, extra=_log_fields(view))
        finally:
            view.looking = None
            if not view.looked_at:
                view.looked_at = True
                self._on_work()

    async def _models_now(self, view: _MonitoredTarget) -> None:
        now = time.monotonic()
        if now - view.tags_seen_at < LOOK_INTERVAL_MIN_SECONDS:
            return  # another job has just asked
        view.tags_seen_at, view.tags_due_at = now, now + _IDLE_LOOK_SECONDS
        try:
            await self._look_at_models(view)
        except (httpx2.HTTPError, *_UNREADABLE) as error:
            _log.info(_NO_LIST, type(error).__name__, extra=_log_fields(view))

    async def _look_at_models(self, view: _MonitoredTarget) -> None:
        listed = _decode_list((await self._upstream.get(view.target, "/api/tags")).body)
        before, view.models = view.models, frozenset(_names(listed))
        if view.models != before:
            self._on_work()

    async def _look_at_resident(self, view: _MonitoredTarget) -> None:
        asked_at, answering_before = time.monotonic(), _answering_models(view)
        document = await self._upstream.get(view.target, "/api/ps")
        listed = {
            name: asked_at + _seconds_left(each.expires_at, document.at)
            for each in _decode_list(document.body).models or ()
            for name in _names(_List([each]))
        }
        # A model that began to answer since may have been loaded after the target made its list.
        since = dict.fromkeys(_answering_models(view) - answering_before, _FOREVER)
        view.resident = listed | since

    # Probing

    def _probe(self, view: _MonitoredTarget) -> None:
        _log.warning(
            "a target is unreachable; it is probed until it answers", extra=_log_fields(view)
        )
        view.set_away(True)
        view.resident.clear()
        view.probing = _background_task(self._probe_until_back(view), "llm probe")

    async def _probe_until_back(self, view: _MonitoredTarget) -> None:
        failures = 0
        try:
            await asyncio.sleep(PROBE_BACKOFF.delay(failures, 0.0))
            while not (
                await self.is_alive(view.target.name)
                and await self._unless_database_away(self._store_reachable(view))
            ):
                failures += 1
                delay = PROBE_BACKOFF.delay(failures, 0.0)
                why = f"The target {view.target.name} does not answer."
                await self._unless_database_away(self._store_unreachable(view, why, delay))
                await asyncio.sleep(delay)
        finally:
            if view.probing is asyncio.current_task():
                view.probing = None  # in any case: others may take over

    async def _store_unreachable(
        self, view: _MonitoredTarget, why: str, retry_seconds: float
    ) -> None:
        await repository.mark_unreachable(
            self._db, view.target.name, why, retry_seconds + _ANNOUNCED_MARGIN_SECONDS
        )

    async def _store_reachable(self, view: _MonitoredTarget) -> None:
        due = await repository.mark_reachable(self._db, view.target.name)
        _log.info(
            "a target answers again; %d jobs that waited for a target are due now",
            due,
            extra=_log_fields(view),
        )
        view.set_away(False)
        view.tags_due_at = view.ps_due_at = 0.0
        probing, view.probing = view.probing, None
        if probing is not None and probing is not asyncio.current_task():
            probing.cancel()
        self._on_work()

    @staticmethod
    async def _unless_database_away(doing: Awaitable[None]) -> bool:
        """Whether it was done. It is not if the database is unavailable."""
        try:
            await doing
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("the state of a target is stored later: %s", error)
            return False
        return True


def _background_task(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task whose log lines do not name the job that happened to start it."""
    return asyncio.create_task(work, name=name, context=contextvars.Context())


def _answering_models(view: _MonitoredTarget) -> set[str]:
    """The models that have begun to answer since the last look."""
    return {name for name, until in view.resident.items() if until == _FOREVER}


def _log_fields(view: _MonitoredTarget) -> dict[str, str]:
    return {"target": view.target.name}


def _names(listed: _List) -> list[str]:
    """The canonical names of the models, without invalid ones."""
    names = []
    for each in listed.models or ():
        try:
            names.append(model_name(each.model or each.name))
        except InvalidParameter:
            continue
    return names


def _seconds_left(expires_at: str, now: datetime) -> float:
    try:
        until = datetime.fromisoformat(expires_at)
    except ValueError:
        return _FOREVER  # unknown, so until the next look
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return (until - now).total_seconds()
