"""What this process knows of its targets: which models they have, which are loaded, who is away.

``/api/tags`` is looked at every minute, and when a target says that it does not know a model;
``/api/ps`` as well, and every few seconds while jobs run there, and when one has ended. A target
that was found away is probed, with backoff, until it answers: then its jobs are due at once. Who
probes a target says when it will do so next; should it never come to that, others take over.
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
from coatcheck.products.llm import queries
from coatcheck.products.llm.model import model_name
from coatcheck.products.llm.queries import SlotOffer
from coatcheck.products.llm.upstream import Upstream
from coatcheck.settings.llm_targets import LlmTarget
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)

_TICK_SECONDS: Final = 1.0
_IDLE_LOOK_SECONDS: Final = 60.0
_BUSY_LOOK_SECONDS: Final = 5.0
_STATES_SECONDS: Final = 5.0
_LOOKS_APART_SECONDS: Final = 1.0
"""However many jobs end meanwhile."""
_ANNOUNCED_MARGIN_SECONDS: Final = 1.0
PROBE_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=30.0, jitter=0.0)
_OVERDUE_SECONDS: Final = PROBE_BACKOFF.cap_seconds + 10.0
"""Who has announced no further probe of a target for so long does not probe it any more."""
_PROBES: Final = 2
PROBES_APART_SECONDS: Final = 0.5
"""A server that is just being killed may answer once more."""
_FOR_EVER: Final = float("inf")
_SAYS_NOTHING: Final = "a target did not say what it has: %s"


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
class _View:
    """One target, as it was last seen."""

    target: LlmTarget
    models: frozenset[str] | None = None
    resident: dict[str, float] = field(default_factory=dict)
    """Until when each is loaded, if nobody asks for it before, by our own clock."""
    loading: dict[str, int] = field(default_factory=dict)
    """Models that jobs of this process wait for: a target lists them as loaded meanwhile."""
    jobs: int = 0
    looked_at: bool = False
    tags_due_at: float = 0.0
    tags_seen_at: float = -_FOR_EVER
    ps_due_at: float = 0.0
    ps_seen_at: float = -_FOR_EVER
    away: bool = False
    """Whether it was away when it was last called or when the database was last asked."""
    announced: datetime | None = None
    """When whoever probes it says that it will next, by the database's clock."""
    announced_at: float = -_FOR_EVER
    """When we saw that change, by our own clock."""
    probing: asyncio.Task[None] | None = None
    looking: asyncio.Task[None] | None = None

    def set_away(self, away: bool) -> None:
        self.away = away
        metrics.set_llm_target_up(self.target.name, up=not away)


class TargetMonitor:
    """The targets of this process. A context manager.

    ``work_may_wait`` is called when a target has come back, or is seen for the first time.
    """

    def __init__(
        self,
        db: Connection,
        upstream: Upstream,
        targets: Sequence[LlmTarget],
        work_may_wait: Callable[[], None],
    ) -> None:
        self._db = db
        self._upstream = upstream
        self._views = {target.name: _View(target) for target in targets}
        self._work_may_wait = work_may_wait
        self._states_due_at = 0.0
        self._states_known = False
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._ticking = asyncio.create_task(self._tick_for_ever(), name="llm landscape")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = [self._ticking]
        for view in self._views.values():
            tasks += [view.probing, view.looking]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # What is known

    def target(self, name: str) -> LlmTarget:
        return self._views[name].target

    def offers(self) -> list[SlotOffer]:
        """What each target can take, for a claim."""
        now = time.monotonic()
        return [
            SlotOffer(
                target=view.target.name,
                # None while it is away: it is the prober that finds out, not a job. None before it
                # was looked at: a job could come to the one that does not have its model.
                concurrency=0 if view.away or not view.looked_at else view.target.concurrency,
                models=view.models,
                resident=frozenset(
                    model
                    for model, until in view.resident.items()
                    if until > now and model not in view.loading
                ),
            )
            for view in self._views.values()
        ]

    # What jobs tell

    def began(self, name: str, model: str, *, loading: bool) -> None:
        """A job is about to be sent to the target."""
        view = self._views[name]
        view.jobs += 1
        metrics.set_llm_running(name, view.jobs)
        if loading:
            view.loading[model] = view.loading.get(model, 0) + 1

    def ended(self, name: str, model: str, *, loading: bool) -> None:
        """The job is over, however; ``loading`` if it ended before its model was loaded."""
        view = self._views[name]
        view.jobs -= 1
        metrics.set_llm_running(name, view.jobs)
        if loading:
            self._loading_over(view, model)
        self._want_resident(view)

    def loaded(self, name: str, model: str) -> None:
        """The target has begun to answer: the model that the job waited for is loaded."""
        view = self._views[name]
        self._loading_over(view, model)
        view.resident[model] = _FOR_EVER  # the next look says until when
        self._want_resident(view)

    async def others_have(self, name: str, model: str) -> bool:
        """The target said that it does not know a model: whether another one does, asked anew."""
        reachable = [view for view in self._views.values() if not view.away]
        await asyncio.gather(*(self._models_now(view) for view in reachable))
        return any(
            view.models is not None and model in view.models
            for view in self._views.values()
            if view.target.name != name
        )

    async def answered(self, name: str) -> None:
        """The target answered a job. If it was away, everybody is told that it is back."""
        view = self._views[name]
        if view.away:
            await self._safely(self._back(view))

    async def found_away(self, name: str, why: str) -> None:
        """The target could not be reached. It is probed from now on, and given no jobs; ``why`` is
        for those who wait."""
        view = self._views[name]
        if view.probing is None:
            self._probe(view)
            await self._safely(self._note_away(view, why, PROBE_BACKOFF.delay(0, 0.0)))

    async def is_alive(self, name: str) -> bool:
        """Whether the target answers at all, right now."""
        try:
            await self._upstream.look(self._views[name].target, "/api/version")
        except httpx2.HTTPStatusError as error:
            return error.response.status_code < 500  # from there on it may be a proxy that speaks
        except httpx2.HTTPError:
            return False
        return True

    async def is_there(self, name: str) -> bool:
        """Whether the target that has just dropped a connection goes on answering."""
        for probe in range(_PROBES):
            if probe:
                await asyncio.sleep(PROBES_APART_SECONDS)
            if not await self.is_alive(name):
                return False
        return True

    @staticmethod
    def _loading_over(view: _View, model: str) -> None:
        left = view.loading.get(model, 0) - 1
        if left > 0:
            view.loading[model] = left
        else:
            view.loading.pop(model, None)

    # Looking

    def _want_resident(self, view: _View) -> None:
        view.ps_due_at = min(view.ps_due_at, view.ps_seen_at + _LOOKS_APART_SECONDS)
        self._look_soon(view)

    async def _tick_for_ever(self) -> None:
        while True:
            try:
                await self.tick()
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info("targets are looked at again later: %s", error)
            except Exception:  # noqa: BLE001 - it is tried again; jobs go on meanwhile
                _log.exception("looking at the targets failed")
            await asyncio.sleep(_TICK_SECONDS)

    async def tick(self) -> None:
        """Look at what is due to be looked at."""
        for view in self._views.values():
            self._look_soon(view)
        now = time.monotonic()
        if now >= self._states_due_at:
            await self._read_states()
            any_away = any(view.away for view in self._views.values())
            self._states_due_at = now + (_TICK_SECONDS if any_away else _STATES_SECONDS)

    async def _read_states(self) -> None:
        """Learn which targets others found away, and probe those that nobody does any more."""
        states = {state.name: state for state in await queries.target_states(self._db)}
        now = time.monotonic()
        for name, view in self._views.items():
            if view.probing is not None:
                continue
            state = states.get(name)
            was_away = view.away
            view.set_away(state is not None and state.unreachable_since is not None)
            if was_away and not view.away:
                self._work_may_wait()
            if state is None or not view.away:
                view.announced = None
                continue
            # The clocks of two machines are not held against each other. How old it is what we
            # find when we start, nobody knows: it may have been left by the last who worked here.
            if state.next_try_at != view.announced:
                view.announced, view.announced_at = state.next_try_at, now
            if not self._states_known or now - view.announced_at > _OVERDUE_SECONDS:
                self._probe(view)
        self._states_known = True

    def _look_soon(self, view: _View) -> None:
        """Look at the target if that is due, beside whatever else goes on."""
        now = time.monotonic()
        if view.jobs and view.ps_due_at > now + _BUSY_LOOK_SECONDS:
            view.ps_due_at = now + _BUSY_LOOK_SECONDS
        due = view.tags_due_at <= now or view.ps_due_at <= now
        if due and view.looking is None and view.probing is None:
            view.looking = _beside(self._look(view), "llm look")

    async def _look(self, view: _View) -> None:
        try:
            while view.tags_due_at <= time.monotonic() or view.ps_due_at <= time.monotonic():
                now = time.monotonic()
                if view.tags_due_at <= now:
                    view.tags_seen_at, view.tags_due_at = now, now + _IDLE_LOOK_SECONDS
                    await self._look_at_models(view)
                if view.ps_due_at <= now:
                    wait = _BUSY_LOOK_SECONDS if view.jobs else _IDLE_LOOK_SECONDS
                    view.ps_seen_at, view.ps_due_at = now, now + wait
                    await self._look_at_resident(view)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            name = view.target.name
            await self.found_away(name, f"The target {name} cannot be connected to.")
        except (httpx2.HTTPError, *_UNREADABLE) as error:
            # Its text may quote the target. It is asked all the same: it need not have lists.
            _log.info(_SAYS_NOTHING, type(error).__name__, extra=_named(view))
        finally:
            view.looking = None
            if not view.looked_at:
                view.looked_at = True
                self._work_may_wait()

    async def _models_now(self, view: _View) -> None:
        now = time.monotonic()
        if now - view.tags_seen_at < _LOOKS_APART_SECONDS:
            return  # somebody else has just asked
        view.tags_seen_at, view.tags_due_at = now, now + _IDLE_LOOK_SECONDS
        try:
            await self._look_at_models(view)
        except (httpx2.HTTPError, *_UNREADABLE) as error:
            _log.info(_SAYS_NOTHING, type(error).__name__, extra=_named(view))

    async def _look_at_models(self, view: _View) -> None:
        listed = _decode_list((await self._upstream.look(view.target, "/api/tags")).body)
        before, view.models = view.models, frozenset(_names(listed))
        if view.models != before:
            self._work_may_wait()

    async def _look_at_resident(self, view: _View) -> None:
        asked_at, told_before = time.monotonic(), _told(view)
        looked = await self._upstream.look(view.target, "/api/ps")
        listed = {
            name: asked_at + _seconds_left(each.expires_at, looked.at)
            for each in _decode_list(looked.body).models or ()
            for name in _names(_List([each]))
        }
        # What has begun to answer since may have been loaded after the target made its list.
        since = dict.fromkeys(_told(view) - told_before, _FOR_EVER)
        view.resident = listed | since

    # Who is away

    def _probe(self, view: _View) -> None:
        _log.warning("a target is away; it is probed until it answers", extra=_named(view))
        view.set_away(True)
        view.resident.clear()
        view.probing = _beside(self._probe_until_back(view), "llm probe")

    async def _probe_until_back(self, view: _View) -> None:
        failures = 0
        try:
            await asyncio.sleep(PROBE_BACKOFF.delay(failures, 0.0))
            while not (
                await self.is_alive(view.target.name) and await self._safely(self._back(view))
            ):
                failures += 1
                delay = PROBE_BACKOFF.delay(failures, 0.0)
                why = f"The target {view.target.name} does not answer."
                await self._safely(self._note_away(view, why, delay))
                await asyncio.sleep(delay)
        finally:
            if view.probing is asyncio.current_task():
                view.probing = None  # however it ended: others may take over

    async def _note_away(self, view: _View, why: str, retry_seconds: float) -> None:
        await queries.note_unreachable(
            self._db, view.target.name, why, retry_seconds + _ANNOUNCED_MARGIN_SECONDS
        )

    async def _back(self, view: _View) -> None:
        due = await queries.note_alive(self._db, view.target.name)
        _log.info(
            "a target is back; %d jobs that were sent to it are tried again",
            due,
            extra=_named(view),
        )
        view.set_away(False)
        view.tags_due_at = view.ps_due_at = 0.0
        probing, view.probing = view.probing, None
        if probing is not None and probing is not asyncio.current_task():
            probing.cancel()
        self._work_may_wait()

    @staticmethod
    async def _safely(doing: Awaitable[None]) -> bool:
        """Whether it was done; the database may be away as well."""
        try:
            await doing
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("what became of a target is noted later: %s", error)
            return False
        return True


def _beside(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task whose log lines do not name the job that happened to be the reason for it."""
    return asyncio.create_task(work, name=name, context=contextvars.Context())


def _told(view: _View) -> set[str]:
    """The models that have begun to answer, and were not looked at since."""
    return {name for name, until in view.resident.items() if until == _FOR_EVER}


def _named(view: _View) -> dict[str, str]:
    return {"target": view.target.name}


def _names(listed: _List) -> list[str]:
    """The models' names, spelt as they are everywhere; what is no name is left out."""
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
        return _FOR_EVER  # it does not say, so until the next look
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return (until - now).total_seconds()
