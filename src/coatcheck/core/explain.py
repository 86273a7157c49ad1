"""Explains why a job waits or what it is doing, how many jobs are ahead, and how long it may take.

Some jobs wait for something that only their product knows: the product's ``JobExplainer`` adds it.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from uuid import UUID

from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import roll_ups, sql
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.database import Database
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
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
from coatcheck.domain.lanes import Lane, LanePolicy
from coatcheck.domain.states import State
from coatcheck.installed import load_products
from coatcheck.settings import Settings

if TYPE_CHECKING:
    from coatcheck.core.engine import Engine


_MINUTES: Final = 15
_KNOWN_SECONDS: Final = 5.0
_KINDS_MAX: Final = 1_000
_AHEAD_MAX: Final = 10_000
_QUEUES_MAX: Final = 50
_RUNS_LOOKED_AT: Final = 100
JOBS_WALKED: Final = 1_000
_HOLDERS_LOOKED_AT: Final = 50
_RUN: Final = re.compile(r"([0-9a-f]{32})(?:/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Recent figures for jobs of one kind; None where there are none.
    ``rates``: how many jobs the lane starts per second for the organisation, usually and when
    slow. ``waits``: how long they wait for it. ``runs``: how long they run.
    """

    rates: tuple[float, float] | None
    waits: Spread | None
    runs: Spread | None


class Ahead(NamedTuple):
    """How many jobs are ahead of a job in its queue, and how many queues take turns."""

    jobs: int
    queues: int


class Forecasts:
    """Predicts starts and ends from roll-ups and recent jobs; caches each kind for 5 seconds."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._known: OrderedDict[tuple[str, ...], tuple[float, JobFigures]] = OrderedDict()

    async def figures(self, view: JobView) -> JobFigures:
        """The recent figures for jobs like this one."""
        kind = (view.org, view.lane, view.endpoint, view.queue_key, view.owner)
        now = time.monotonic()
        known = self._known.get(kind)
        if known is not None and now - known[0] < _KNOWN_SECONDS:
            return known[1]
        figures = await self._read(view)
        self._known[kind] = (now, figures)
        self._known.move_to_end(kind)
        if len(self._known) > _KINDS_MAX:
            self._known.popitem(last=False)
        return figures

    async def ahead(self, view: JobView) -> Ahead | None:
        """How many jobs are ahead of this one in the queue; None if it is not queued."""
        row = await sql.first(
            self._db,
            "explain/ahead",
            org=view.org,
            job=view.uuid,
            jobs_max=_AHEAD_MAX,
            flows_max=_QUEUES_MAX,
        )
        return None if row is None else Ahead(*row)

    async def eta_in_queue(self, view: JobView) -> Eta | None:
        """When a queued job may start and end; None if there are no figures to predict from."""
        if view.state is not State.QUEUED:
            return None
        figures = await self.figures(view)
        if figures.rates is None or figures.runs is None:
            return None
        before = await self.ahead(view)
        return None if before is None else eta_behind(before, figures)

    async def _read(self, view: JobView) -> JobFigures:
        db = self._db
        minutes = await roll_ups.recent(db, view.org, view.lane, _MINUTES)
        run = run_of(view.queue_key)
        if run is None:
            of_upstream = view.endpoint == UPSTREAM_ENDPOINT
            ended = await sql.fetch(
                db,
                "explain/recent_runs",
                org=view.org,
                service=(view.queue_key if of_upstream else view.endpoint).partition(".")[0],
                owner=view.owner,
                endpoint=view.endpoint,
                flow=view.queue_key if of_upstream else None,
                lane=view.lane,
                line=view.queue_key,
                rows_max=_RUNS_LOOKED_AT,
                walked_max=JOBS_WALKED,
            )
        else:
            ended = await sql.fetch(
                db, "explain/recent_task_runs", org=view.org, run=run, rows_max=_RUNS_LOOKED_AT
            )
        runs = [row["seconds"] for row in ended]
        return JobFigures(
            rates_of([(minute.started, minute.seconds) for minute in minutes]),
            spread_of((), summed([minute.waits for minute in minutes])),
            spread_of(runs, summed([minute.runs for minute in minutes])),
        )


def eta_behind(
    before: Ahead, figures: JobFigures, per_second_max: float | None = None
) -> Eta | None:
    """When a job behind others starts and ends, under a rate limit if there is one."""
    if figures.rates is None:
        return eta_of(figures.waits, figures.runs) if figures.waits is not None else None
    rates, queues = figures.rates, before.queues
    if per_second_max is not None:
        usual, slow = rates
        rates, queues = (min(usual, per_second_max), min(slow, per_second_max)), 1
    return eta_of(start_of(before.jobs, queues, rates), figures.runs)


def is_exact(before: Ahead) -> bool:
    """Whether all jobs ahead were counted."""
    return before.jobs < _AHEAD_MAX


def run_of(queue_key: str) -> UUID | None:
    """The run whose tasks have this queue key; None for the key of other jobs."""
    found = _RUN.fullmatch(queue_key)
    return None if found is None else UUID(found[1])


_MINUTE = 60
_HOUR = 3_600
_DAY = 86_400


def clock(moment: datetime, now: datetime) -> str:
    """A time of day, with the date unless that is today."""
    moment, now = moment.astimezone(UTC), now.astimezone(UTC)
    layout = "%H:%M:%S UTC" if moment.date() == now.date() else "%Y-%m-%d %H:%M:%S UTC"
    return moment.strftime(layout)


def seconds_in_words(seconds: float) -> str:
    """A duration in words, rounded to what a reader needs."""
    if seconds < 1:
        return "less than a second"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.0f} h"
    return f"{seconds / _DAY:.0f} days"


def plural(number: int, one: str, many: str) -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def summary_of(
    blockers: Sequence[Blocker], eta: Eta | None, otherwise: str = "It is about to start."
) -> str:
    """A summary: the strongest reason (or ``otherwise``), and how long it may take."""
    reason = blockers[0].message if blockers else otherwise
    if eta is None:
        return reason
    usual, slow = seconds_in_words(eta.end_p50), seconds_in_words(eta.end_p90)
    tail = "" if usual == slow else f"; 90 % finish within {slow}"
    return f"{reason} It should end in about {usual}{tail}."


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
"""Blockers whose end cannot be predicted."""
_AT_ONCE_SECONDS: Final = 5.0
_LOOKS_MAX: Final = 3
_UNTIL: Final = frozenset(
    {BlockerKind.SCHEDULED, BlockerKind.BACKOFF, BlockerKind.TARGET_UNREACHABLE}
)
"""Blockers before whose end nothing happens."""


class Condition(NamedTuple):
    """One condition that applies to a job; ``explain/explain`` describes its fields."""

    kind: Literal["limit", "rate", "server", "threads", "share", "holder", "remote"]
    scope: str | None
    name: str | None
    number: float | None
    of: float | None
    since: datetime | None
    until: datetime | None
    is_shared: bool
    is_fit: bool


@dataclass(frozen=True, slots=True)
class _Conditions:
    """A job, the conditions that apply to it, and the jobs ahead of it."""

    view: JobView
    found: Sequence[Condition]
    before: Ahead | None


class JobExplainer:
    """Explains what only a product knows of its jobs. The default implementation adds nothing."""

    def spends_no_attempt(self, view: JobView) -> bool:
        """Whether the error for which the job is retried was not counted as a failure."""
        del view
        return False

    async def unreachable(self, view: JobView) -> Sequence[Blocker]:
        """For a queued job: a blocker if its target cannot be reached."""
        del view
        return ()

    async def full(self, view: JobView) -> Sequence[Blocker]:
        """For a queued job that nothing else blocks: a blocker if its product has no capacity."""
        del view
        return ()

    async def starting(self, view: JobView) -> Blocker | None:
        """For a job that a worker holds: what has to happen before it runs, if anything."""
        del view
        return None


_SAYS_NOTHING: Final = JobExplainer()


def product_explainers(engine: Engine) -> Mapping[str, JobExplainer]:
    """The explainers of the products that are on, by the service whose jobs they explain."""
    return {
        service: product.explainer(engine)
        for product in load_products(engine.settings.products)
        if product.explainer is not None
        for service in product.services
    }


class Explainer:
    """Explains single jobs."""

    def __init__(
        self, database: Database, products: Callable[[], Mapping[str, JobExplainer]]
    ) -> None:
        self._db = database.pooled("explain", server_settings=PINNED_PLANS, is_long=True)
        self._products = products
        self._by_service: Mapping[str, JobExplainer] | None = None
        self.forecasts = Forecasts(self._db)

    async def explain(self, view: JobView) -> Explanation:
        """Explain a job. ``retry_after`` is 0 if the job has ended or its end is unpredictable."""
        conditions = await self._look(view)
        view = conditions.view
        if view.terminal:
            return Explanation(view.id, view.state, True, _ended(view))
        blockers = sorted(await self._blockers(conditions), key=lambda each: _ORDER[each.kind])
        eta = await self._eta(conditions, blockers)
        return Explanation(
            job_id=view.id,
            state=view.state,
            terminal=False,
            summary=summary_of(blockers, eta, _no_reason(view)),
            blockers=blockers,
            position=None if conditions.before is None else conditions.before.jobs + 1,
            eta=eta,
            retry_after=_retry_after(view, blockers, eta),
        )

    async def next_of_run(self, org: str, run: UUID) -> JobView | None:
        """A job that represents the unfinished tasks of a run; None if all have ended."""
        task = await sql.value(self._db, "explain/next_of_run", org=org, run=run)
        return None if task is None else await self._view(org, task)

    async def _look(self, view: JobView) -> _Conditions:
        """The conditions that apply to a job. If the job changes state during the look, the look
        is repeated: its result may belong to either state."""
        conditions = _Conditions(view, (), None)
        for _ in range(_LOOKS_MAX):
            if view.terminal:
                return _Conditions(view, (), None)
            org, uuid = view.org, view.uuid
            rows = await sql.fetch(self._db, "explain/explain", org=org, job=uuid)
            found = [Condition(*row) for row in rows]
            before = await self.forecasts.ahead(view) if view.state is State.QUEUED else None
            conditions = _Conditions(view, found, before)
            after = await self._view(org, uuid)
            if after is None or after.state is view.state:
                break
            view = after
        return conditions

    async def held_of(self, endpoints: Sequence[str]) -> int:
        """How many jobs of these endpoints are held, over all organisations."""
        held: int = await sql.value(self._db, "explain/held_of", endpoints=endpoints)
        return held

    async def _view(self, org: str, job: UUID) -> JobView | None:
        key = (org, job)
        return (await job_store.get(self._db, [key])).get(key)

    async def _blockers(self, conditions: _Conditions) -> list[Blocker]:
        view = conditions.view
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
                return await self._queued(conditions)
            case _:
                return [await self._held(conditions)]

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
            f"{plural(left, 'attempt is', 'attempts are')} left.",
            since=view.updated_at,
            until=view.run_at,
        )

    async def _queued(self, conditions: _Conditions) -> list[Blocker]:
        view, found = conditions.view, conditions.found
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
        if conditions.before is not None and conditions.before.jobs:
            blockers.append(_behind(view, conditions.before))
        return blockers

    async def _limit(self, view: JobView, limit: Condition) -> Blocker:
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
        message = f"{what} is at its concurrency limit of {plural(most, 'job', 'jobs')}."
        if limit.is_shared:
            # How many run for everybody is for operators, who see the number beside it.
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

    async def _lane_full(self, view: JobView, serving: Condition) -> Blocker:
        return Blocker(
            BlockerKind.LANE_FULL,
            f"All slots of the lane {view.lane.value} are in use.",
            key=view.lane.value,
            limit=serving.number,
            held=int(serving.of or 0),
            holders=await self.holders(view.org, "lane", view.lane.value),
            is_shared=True,
        )

    async def _share_used_up(self, view: JobView, kept: Condition) -> Blocker:
        """The free slots are all reserved for organisations that hold none."""
        lane, held = view.lane.value, int(kept.number or 0)
        return Blocker(
            BlockerKind.LANE_FULL,
            f"Its organisation holds {plural(held, 'slot', 'slots')} of the lane {lane}, and "
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
        """The organisation's jobs that use up a limit, a lane or an endpoint."""
        rows = await sql.fetch(
            self._db,
            "explain/holders",
            org=org,
            scope=scope,
            name=name,
            rows_max=_HOLDERS_LOOKED_AT,
        )
        return [Holder(*row) for row in rows]

    async def _held(self, conditions: _Conditions) -> Blocker:
        view, found = conditions.view, conditions.found
        since = view.started_at or view.dispatched_at
        asked = " It was asked to stop." if view.state is State.CANCEL_REQUESTED else ""
        remote = next((each for each in found if each.kind == "remote"), None)
        holder = next((each for each in found if each.kind == "holder"), None)
        if remote is not None and not remote.is_fit:
            return Blocker(
                BlockerKind.TARGET_UNREACHABLE,
                "The remote that runs it does not answer; the last "
                f"{plural(int(remote.number or 0), 'check', 'checks')} failed.{asked}",
                key=view.execution_id,
                since=remote.since,
                until=remote.until,
            )
        if remote is not None or (holder is None and view.execution_id is not None):
            return Blocker(
                BlockerKind.RUNNING_ELSEWHERE,
                f"It runs on a remote{for_duration(since, view)}.{asked}",
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
            BlockerKind.RUNNING, f"It runs{for_duration(since, view)}{attempt}.{asked}", since=since
        )

    async def _eta(self, conditions: _Conditions, blockers: Sequence[Blocker]) -> Eta | None:
        view = conditions.view
        if any(each.kind in _NO_FORECAST for each in blockers):
            return None
        figures = await self.forecasts.figures(view)
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
                    if conditions.before is None
                    else eta_behind(conditions.before, figures, rate)
                )
            case State.STAGED | State.RETRYING:
                due = max(0.0, (view.run_at - view.read_at).total_seconds())
                waits = figures.waits or Spread(0.0, 0.0)
                return eta_of(Spread(due + waits.p50, due + waits.p90), figures.runs)
            case _:
                since = view.started_at or view.dispatched_at or view.updated_at
                elapsed = max(0.0, (view.read_at - since).total_seconds())
                left = end_by_progress(elapsed, view.progress)
                if left is None and figures.runs is not None:
                    left = figures.runs.less(elapsed)
                return eta_of(None, left)


def _no_reason(view: JobView) -> str:
    waited = (view.read_at - max(view.run_at, view.created_at)).total_seconds()
    if waited < _AT_ONCE_SECONDS:
        return "It is about to start."
    return "It is first in its queue, which takes turns with other queues."


def _is_full(each: Condition) -> bool:
    return each.kind == "limit" and not each.is_fit


def _key(scope: str, name: str) -> str:
    return f"{scope}:{name}" if name else scope


def _rate(rate: Condition) -> Blocker:
    of_all = not rate.name
    what = "Its batch" if of_all else "Its key"
    return Blocker(
        BlockerKind.RATE_LIMIT,
        f"{what} is at its rate limit of {rate.number:g} jobs started per second.",
        key="run" if of_all else f"key:{(rate.name or '').partition('/')[2]}",
        limit=rate.number,
        until=rate.until,
    )


def _threads(view: JobView, threads: Condition) -> Blocker:
    held = int(threads.number or 0)
    return Blocker(
        BlockerKind.THREADS_HELD,
        f"All threads of the workers for {view.endpoint} are blocked by handlers that did not stop "
        "at their timeout. Jobs start again when one of these ends or a worker restarts.",
        key=view.endpoint,
        held=held,
        is_shared=True,
    )


def _no_worker(view: JobView, found: Sequence[Condition]) -> Blocker:
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


def _silent(view: JobView, holder: Condition | None, asked: str) -> Blocker:
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


def for_duration(since: datetime | None, view: JobView) -> str:
    """How long it has lasted, as the end of a sentence."""
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


_READ_ROWS_MAX: Final = 500

JobKey = tuple[str, UUID]


class Stalls:
    """Finds stall reasons, for many callers at once."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._lanes = settings.lanes
        self._db = database.pooled("stalls", server_settings=PINNED_PLANS)
        self._reader: Batcher[JobKey, str | None] = Batcher(self._read, rows_max=_READ_ROWS_MAX)

    async def reason(self, view: JobView) -> str | None:
        """Why the job waits or runs for longer than its lane allows, or None."""
        if view.terminal or not self._took_long(view):
            return None
        return await self._reader.ask((view.org, view.uuid))

    async def close(self) -> None:
        await self._reader.drain()

    def _took_long(self, view: JobView) -> bool:
        """Whether the job is old enough to ask about. A held job is after half of its lane's time:
        after the whole time it is taken from a silent worker, and waits again."""
        limit = self._lanes[view.lane].ack_seconds
        if view.state.held:
            held_since = view.dispatched_at or view.created_at
            return (view.read_at - held_since).total_seconds() > limit / 2
        return (view.read_at - view.created_at).total_seconds() > limit

    async def _read(self, keys: Sequence[JobKey]) -> Sequence[str | None]:
        found = await stall_reasons(self._db, [*set(keys)], self._lanes)
        return [found.get(key) for key in keys]


async def stall_reasons(
    db: Connection, keys: Sequence[JobKey], lanes: Mapping[Lane, LanePolicy]
) -> dict[JobKey, str]:
    """Why each of these (org, id) is stalled; jobs that are not, or do not exist, are left out."""
    rows = await sql.fetch(
        db,
        "explain/stall",
        orgs=[org for org, _ in keys],
        ids=[job_id for _, job_id in keys],
        lanes=[lane.value for lane in lanes],
        lane_seconds=[policy.ack_seconds for policy in lanes.values()],
    )
    return {(row["org_id"], row["id"]): row["reason"] for row in rows if row["reason"] is not None}
