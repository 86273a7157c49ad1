"""Says why a job waits or what it does, behind how many others, and how long that may take.

Some jobs wait for what only their product knows: a ``JobExplainer`` of the product says so.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from coatcheck.core.queries import explain, roll_ups
from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries.explain import AHEAD_MAX, Ahead, Circumstance
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.errors import retried
from coatcheck.domain.durations import summed
from coatcheck.domain.explanation import (
    Blocker,
    BlockerKind,
    Eta,
    Explanation,
    Holder,
    Spread,
    end_by_progress,
    eta_of,
    rates_of,
    retry_after,
    retry_when_due,
    spread_of,
    start_of,
)
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.installed import load_products
from coatcheck.settings import Settings

_MINUTES: Final = 15
_KNOWN_SECONDS: Final = 5.0
_KINDS_MAX: Final = 1_000
_RUN: Final = re.compile(r"([0-9a-f]{32})(?:/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Form:
    """How fast a lane starts its organisation's jobs (usually, and when slow), how long they wait
    for it, and how long jobs of the kind run; None where nobody knows."""

    rates: tuple[float, float] | None
    waits: Spread | None
    runs: Spread | None


class Forecasts:
    """Asks the roll-ups and the newest ended jobs, once for each kind in a few seconds."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._known: OrderedDict[tuple[str, ...], tuple[float, Form]] = OrderedDict()

    async def form(self, view: JobView) -> Form:
        """How jobs like this one have got on of late."""
        kind = (view.org, view.lane, view.endpoint, view.queue_key, view.owner)
        now = time.monotonic()
        known = self._known.get(kind)
        if known is not None and now - known[0] < _KNOWN_SECONDS:
            return known[1]
        form = await self._read(view)
        self._known[kind] = (now, form)
        self._known.move_to_end(kind)
        if len(self._known) > _KINDS_MAX:
            self._known.popitem(last=False)
        return form

    async def ahead(self, view: JobView) -> Ahead | None:
        """What stands before a job in the queue; None if it is not in it."""
        return await retried(lambda: explain.ahead(self._db, view.org, view.uuid))

    async def eta_in_queue(self, view: JobView) -> Eta | None:
        """When a queued job may start and end, if it is known what others took."""
        if view.state is not State.QUEUED:
            return None
        form = await self.form(view)
        if form.rates is None or form.runs is None:
            return None
        before = await self.ahead(view)
        return None if before is None else eta_behind(before, form)

    async def _read(self, view: JobView) -> Form:
        db = self._db
        minutes = await retried(lambda: roll_ups.lately(db, view.org, view.lane, _MINUTES))
        run = run_of(view.queue_key)
        if run is None:
            runs = await retried(
                lambda: explain.recent_runs(db, view.org, view.owner, view.endpoint, view.queue_key)
            )
        else:
            runs = await retried(lambda: explain.recent_task_runs(db, view.org, run))
        return Form(
            rates_of([(minute.started, minute.seconds) for minute in minutes]),
            spread_of((), summed([minute.waits for minute in minutes])),
            spread_of(runs, summed([minute.runs for minute in minutes])),
        )


def eta_behind(before: Ahead, form: Form, per_second_max: float | None = None) -> Eta | None:
    """When a job starts and ends that stands behind others, under a rate if there is one."""
    if form.rates is None:
        return eta_of(form.waits, form.runs) if form.waits is not None else None
    rates, queues = form.rates, before.queues
    if per_second_max is not None:
        usual, slow = rates
        rates, queues = (min(usual, per_second_max), min(slow, per_second_max)), 1
    return eta_of(start_of(before.jobs, queues, rates), form.runs)


def is_exact(before: Ahead) -> bool:
    """Whether all that stand before were counted."""
    return before.jobs < AHEAD_MAX


def run_of(queue_key: str) -> UUID | None:
    """The run of a batch whose tasks have this queue key; None for any other."""
    found = _RUN.fullmatch(queue_key)
    return None if found is None else UUID(found[1])


_MINUTE = 60
_HOUR = 3_600
_DAY = 86_400


def clock(moment: datetime, now: datetime) -> str:
    """A moment, with its day unless that is today's."""
    moment, now = moment.astimezone(UTC), now.astimezone(UTC)
    form = "%H:%M:%S UTC" if moment.date() == now.date() else "%Y-%m-%d %H:%M:%S UTC"
    return moment.strftime(form)


def seconds_in_words(seconds: float) -> str:
    """A span, as exactly as anybody wants to know."""
    if seconds < 1:
        return "less than a second"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _DAY:.0f} days"


def counted(number: int, one: str, many: str) -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def sentence_of(
    blockers: Sequence[Blocker], eta: Eta | None, otherwise: str = "It is about to start."
) -> str:
    """The strongest reason, or else what is given, and how long it may take."""
    reason = blockers[0].message if blockers else otherwise
    if eta is None:
        return reason
    usual, slow = seconds_in_words(eta.end_p50), seconds_in_words(eta.end_p90)
    tail = "" if usual == slow else f"; 90 % finish within {slow}"
    return f"{reason} It should end in about {usual}{tail}."


if TYPE_CHECKING:
    from coatcheck.core.engine import Engine

_UNREACHABLE: Final = "target_unreachable"
_ORDER: Final = {kind: place for place, kind in enumerate(BlockerKind)}
_NO_FORECAST: Final = frozenset(
    {
        BlockerKind.PAUSED,
        BlockerKind.NO_WORKER,
        BlockerKind.THREADS_HELD,
        BlockerKind.TARGET_UNREACHABLE,
        BlockerKind.WAITING_FOR_INPUT,
        BlockerKind.HEARTBEAT_LOST,
    }
)
"""What nobody can say the end of."""
_AT_ONCE_SECONDS: Final = 5.0
_LOOKS_MAX: Final = 3
_UNTIL: Final = frozenset(
    {BlockerKind.SCHEDULED, BlockerKind.BACKOFF, BlockerKind.TARGET_UNREACHABLE}
)
"""What nothing happens before the end of."""


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """A job, what it stands under, and what is before it."""

    view: JobView
    found: Sequence[Circumstance]
    before: Ahead | None


class JobExplainer:
    """What a product knows of its own jobs, and nobody else does. By default, nothing."""

    def spends_no_attempt(self, view: JobView) -> bool:
        """Whether the error after which a job is tried again was not counted as a failure."""
        del view
        return False

    async def unreachable(self, view: JobView) -> Sequence[Blocker]:
        """For a queued job: that what it is to be sent to cannot be reached, if so."""
        del view
        return ()

    async def full(self, view: JobView) -> Sequence[Blocker]:
        """For a queued job that nothing else holds up: that its product has no room, if so."""
        del view
        return ()

    async def starting(self, view: JobView) -> Blocker | None:
        """For a job that a worker holds: what is done before it runs, if anything."""
        del view
        return None


_SAYS_NOTHING: Final = JobExplainer()


def product_explainers(engine: Engine) -> Mapping[str, JobExplainer]:
    """The explainers of the products that are on, by the services whose jobs they explain."""
    return {
        service: product.explainer(engine)
        for product in load_products(engine.settings.products)
        if product.explainer is not None
        for service in product.services
    }


class Explainer:
    """Explains jobs, one at a time. Its connection is made when first needed."""

    def __init__(
        self, settings: Settings, products: Callable[[], Mapping[str, JobExplainer]]
    ) -> None:
        self._db = Connection(settings.database_url, name="explain", server_settings=PINNED_PLANS)
        self._products = products
        self._by_service: Mapping[str, JobExplainer] | None = None
        self.forecasts = Forecasts(self._db)

    async def close(self) -> None:
        await self._db.close()

    async def explain(self, view: JobView) -> Explanation:
        """Everything there is to say of a job as it was just read. ``retry_after`` is 0 if the job
        has ended, and if nobody can say when to ask again."""
        circumstances = await self._look(view)
        view = circumstances.view
        if view.terminal:
            return Explanation(view.id, view.state, True, _ended(view))
        blockers = sorted(await self._blockers(circumstances), key=lambda each: _ORDER[each.kind])
        eta = await self._eta(circumstances, blockers)
        return Explanation(
            job_id=view.id,
            state=view.state,
            terminal=False,
            summary=sentence_of(blockers, eta, _no_reason(view)),
            blockers=blockers,
            position=None if circumstances.before is None else circumstances.before.jobs + 1,
            eta=eta,
            retry_after=_retry_after(view, blockers, eta),
        )

    async def next_of_run(self, org: str, run: UUID) -> JobView | None:
        """A job that stands for those of a run that have not ended; None if all have."""
        task = await retried(lambda: explain.next_of_run(self._db, org, run))
        if task is None:
            return None
        return await self._view(org, task)

    async def _look(self, view: JobView) -> _Circumstances:
        """What a job stands under. One that has moved on meanwhile is looked at again: what was
        found may be of the state before, or of the one after."""
        circumstances = _Circumstances(view, (), None)
        for _ in range(_LOOKS_MAX):
            if view.terminal:
                return _Circumstances(view, (), None)
            org, uuid = view.org, view.uuid
            found = await retried(partial(explain.circumstances, self._db, org, uuid))
            before = await self.forecasts.ahead(view) if view.state is State.QUEUED else None
            circumstances = _Circumstances(view, found, before)
            after = await self._view(org, uuid)
            if after is None or after.state is view.state:
                break
            view = after
        return circumstances

    async def held_of(self, endpoints: Sequence[str]) -> int:
        """How many jobs of these endpoints are held, whoever's they are."""
        return await retried(lambda: explain.held_of(self._db, [*endpoints]))

    async def _view(self, org: str, job: UUID) -> JobView | None:
        key = (org, job)
        return (await retried(lambda: job_store.get(self._db, [key]))).get(key)

    async def _blockers(self, circumstances: _Circumstances) -> list[Blocker]:
        view = circumstances.view
        match view.state:
            case State.STAGED:
                return [
                    Blocker(
                        BlockerKind.SCHEDULED,
                        f"It is scheduled for {clock(view.run_at, view.read_at)}.",
                        since=view.created_at,
                        until=view.run_at,
                    )
                ]
            case State.RETRYING:
                return [await self._postponed(view)]
            case State.QUEUED:
                return await self._queued(circumstances)
            case _:
                return [await self._held(circumstances)]

    async def _postponed(self, view: JobView) -> Blocker:
        again = f"The next attempt is at {clock(view.run_at, view.read_at)}."
        if view.error_code == _UNREACHABLE:
            return Blocker(
                BlockerKind.TARGET_UNREACHABLE,
                f"Its target could not be reached: {_error(view)}. {again} "
                "This does not count as an attempt.",
                since=view.updated_at,
                until=view.run_at,
            )
        if self._of(view).spends_no_attempt(view):
            return Blocker(
                BlockerKind.BACKOFF,
                f"{_error(view)}. {again} This does not count as an attempt.",
                since=view.updated_at,
                until=view.run_at,
            )
        left = view.failures_max - view.failures + 1
        return Blocker(
            BlockerKind.BACKOFF,
            f"Attempt {view.failures} failed: {_error(view)}. {again} "
            f"{counted(left, 'attempt is', 'attempts are')} left.",
            since=view.updated_at,
            until=view.run_at,
        )

    async def _queued(self, circumstances: _Circumstances) -> list[Blocker]:
        view, found = circumstances.view, circumstances.found
        blockers = [await self._limit(view, each) for each in found if _is_full(each)]
        blockers += [_rate(each) for each in found if each.kind == "rate"]
        blockers += [_threads(view, each) for each in found if each.kind == "threads"]
        serving = next((each for each in found if each.kind == "server" and each.is_fit), None)
        blockers += await self._of(view).unreachable(view)
        if serving is None:
            blockers.append(_no_worker(view, found))
        elif not blockers and serving.number and (serving.of or 0) >= serving.number:
            blockers.append(await self._lane_full(view, serving))
        elif not blockers:
            kept = next((each for each in found if each.kind == "share"), None)
            if kept is not None and not kept.is_fit:
                blockers.append(await self._share_used_up(view, kept))
        if not blockers:
            blockers += await self._of(view).full(view)
        if circumstances.before is not None and circumstances.before.jobs:
            blockers.append(_behind(view, circumstances.before))
        return blockers

    async def _limit(self, view: JobView, limit: Circumstance) -> Blocker:
        scope, name = limit.scope or "", limit.name or ""
        most, held = int(limit.of or 0), int(limit.number or 0)
        what = {
            "org": "The organisation",
            "flow": f"The queue key {name!r}",
            "endpoint": f"The endpoint {name}",
            "run": "Its batch",
        }[scope]
        if most == 0:
            return Blocker(
                BlockerKind.PAUSED,
                f"{what} is paused.",
                key=_key(scope, name),
                limit=0,
                held=held,
                is_shared=limit.is_shared,
            )
        message = f"{what} is at its concurrency limit of {counted(most, 'job', 'jobs')}."
        if limit.is_shared:
            # How many run for everybody is for operators to know, who see the number beside it.
            message = f"{what} is at its concurrency limit."
        return Blocker(
            BlockerKind.CONCURRENCY_LIMIT,
            message,
            key=_key(scope, name),
            limit=most,
            held=held,
            holders=await self.holders(view.org, scope, name),
            is_shared=limit.is_shared,
        )

    async def _lane_full(self, view: JobView, serving: Circumstance) -> Blocker:
        return Blocker(
            BlockerKind.LANE_FULL,
            f"All slots of the lane {view.lane.value} are in use.",
            key=view.lane.value,
            limit=serving.number,
            held=int(serving.of or 0),
            holders=await self.holders(view.org, "lane", view.lane.value),
            is_shared=True,
        )

    async def _share_used_up(self, view: JobView, kept: Circumstance) -> Blocker:
        """Only slots are free that are kept for organisations that hold none."""
        lane, held = view.lane.value, int(kept.number or 0)
        return Blocker(
            BlockerKind.LANE_FULL,
            f"Its organisation holds {counted(held, 'slot', 'slots')} of the lane {lane}, and "
            "the free slots are reserved for organisations that hold none.",
            key=lane,
            held=held,
            holders=await self.holders(view.org, "lane", lane),
        )

    def _of(self, view: JobView) -> JobExplainer:
        if self._by_service is None:
            self._by_service = self._products()
        return self._by_service.get(view.endpoint.partition(".")[0], _SAYS_NOTHING)

    async def holders(self, org: str, scope: str, name: str) -> Sequence[Holder]:
        """The organisation's jobs that hold what a limit, a lane or an endpoint has to give."""
        return await retried(lambda: explain.holders(self._db, org, scope, name))

    async def _held(self, circumstances: _Circumstances) -> Blocker:
        view, found = circumstances.view, circumstances.found
        since = view.started_at or view.dispatched_at
        asked = " It was asked to stop." if view.state is State.CANCEL_REQUESTED else ""
        remote = next((each for each in found if each.kind == "remote"), None)
        holder = next((each for each in found if each.kind == "holder"), None)
        if remote is not None and not remote.is_fit:
            return Blocker(
                BlockerKind.TARGET_UNREACHABLE,
                "The remote that runs it does not answer; the last "
                f"{counted(int(remote.number or 0), 'check', 'checks')} failed.{asked}",
                key=view.execution_id,
                since=remote.since,
                until=remote.until,
            )
        if remote is not None or (holder is None and view.execution_id is not None):
            return Blocker(
                BlockerKind.RUNNING_ELSEWHERE,
                f"It runs on a remote{lasting(since, view)}.{asked}",
                key=view.execution_id,
                since=since,
                until=None if remote is None else remote.until,
            )
        if holder is None or not holder.is_fit:
            return _silent(view, holder, asked)
        starting = await self._of(view).starting(view)
        if starting is not None:
            return replace(starting, message=starting.message + asked)
        attempt = f", attempt {view.attempts}" if view.attempts > 1 else ""
        return Blocker(
            BlockerKind.RUNNING, f"It runs{lasting(since, view)}{attempt}.{asked}", since=since
        )

    async def _eta(self, circumstances: _Circumstances, blockers: Sequence[Blocker]) -> Eta | None:
        view = circumstances.view
        if any(each.kind in _NO_FORECAST for each in blockers):
            return None
        form = await self.forecasts.form(view)
        match view.state:
            case State.QUEUED:
                rate = min(
                    (
                        each.limit
                        for each in blockers
                        if each.kind is BlockerKind.RATE_LIMIT and each.limit
                    ),
                    default=None,
                )
                return (
                    None
                    if circumstances.before is None
                    else eta_behind(circumstances.before, form, rate)
                )
            case State.STAGED | State.RETRYING:
                due = max(0.0, (view.run_at - view.read_at).total_seconds())
                waits = form.waits or Spread(0.0, 0.0)
                return eta_of(Spread(due + waits.p50, due + waits.p90), form.runs)
            case _:
                since = view.started_at or view.dispatched_at or view.updated_at
                elapsed = max(0.0, (view.read_at - since).total_seconds())
                left = end_by_progress(elapsed, view.progress)
                if left is None and form.runs is not None:
                    left = form.runs.less(elapsed)
                return eta_of(None, left)


def _no_reason(view: JobView) -> str:
    waited = (view.read_at - max(view.run_at, view.created_at)).total_seconds()
    if waited < _AT_ONCE_SECONDS:
        return "It is about to start."
    return "It is first in its queue, which takes turns with other queues."


def _is_full(each: Circumstance) -> bool:
    return each.kind == "limit" and not each.is_fit


def _key(scope: str, name: str) -> str:
    return f"{scope}:{name}" if name else scope


def _rate(rate: Circumstance) -> Blocker:
    of_all = not rate.name
    what = "Its batch" if of_all else "Its key"
    return Blocker(
        BlockerKind.RATE_LIMIT,
        f"{what} is at its rate limit of {rate.number:g} jobs started per second.",
        key="run" if of_all else f"key:{(rate.name or '').partition('/')[2]}",
        limit=rate.number,
        until=rate.until,
    )


def _threads(view: JobView, threads: Circumstance) -> Blocker:
    held = int(threads.number or 0)
    return Blocker(
        BlockerKind.THREADS_HELD,
        f"All threads of the workers for {view.endpoint} are blocked by handlers that did not stop "
        "at their timeout. Jobs start again when one of these ends or a worker restarts.",
        key=view.endpoint,
        held=held,
        is_shared=True,
    )


def _no_worker(view: JobView, found: Sequence[Circumstance]) -> Blocker:
    gone = next((each for each in found if each.kind == "server"), None)
    last = None if gone is None else gone.since
    ending = (
        "None is registered."
        if last is None
        else f"The last one was seen at {clock(last, view.read_at)}."
    )
    return Blocker(
        BlockerKind.NO_WORKER,
        f"No worker serves {view.endpoint} in the lane {view.lane.value}. {ending}",
        key=view.endpoint,
        since=last or view.run_at,
    )


def _behind(view: JobView, before: Ahead) -> Blocker:
    number = f"{before.jobs:,}" if is_exact(before) else f"more than {before.jobs:,}"
    jobs = "job is" if before.jobs == 1 else "jobs are"
    turns = f"; {before.queues} queues take turns" if before.queues > 1 else ""
    return Blocker(
        BlockerKind.QUEUED_BEHIND,
        f"{number} {jobs} ahead of it in its queue{turns}.",
        since=max(view.run_at, view.created_at),
    )


def _silent(view: JobView, holder: Circumstance | None, asked: str) -> Blocker:
    if holder is None or holder.since is None:
        return Blocker(
            BlockerKind.HEARTBEAT_LOST,
            f"Its worker has died; another takes over in a moment.{asked}",
            since=view.dispatched_at,
        )
    until = holder.since + timedelta(seconds=holder.number or 0.0)
    return Blocker(
        BlockerKind.HEARTBEAT_LOST,
        f"Its worker was last seen at {clock(holder.since, view.read_at)}; if it stays silent, "
        f"another takes over at {clock(until, view.read_at)}.{asked}",
        since=holder.since,
        until=until,
    )


def lasting(since: datetime | None, view: JobView) -> str:
    """For how long, as the end of a sentence."""
    if since is None:
        return ""
    return f", for {seconds_in_words((view.read_at - since).total_seconds())}"


def _error(view: JobView) -> str:
    return (view.error_message or view.error_code or "no reason was given").rstrip(".")


def _ended(view: JobView) -> str:
    moment = view.finished_at or view.updated_at
    at = clock(moment, view.read_at)
    match view.state:
        case State.COMPLETED:
            return f"It completed at {at}."
        case State.CANCELLED:
            return f"It was cancelled at {at}."
        case _:
            return f"It failed at {at}: {_error(view)}."


def _retry_after(view: JobView, blockers: Sequence[Blocker], eta: Eta | None) -> int:
    due = [each.until for each in blockers if each.kind in _UNTIL and each.until is not None]
    if due and view.state in (State.STAGED, State.RETRYING):
        return retry_when_due((max(due) - view.read_at).total_seconds())
    return 0 if eta is None else retry_after(eta.end_p50)
