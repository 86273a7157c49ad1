"""How the jobs of a kind have got on of late, remembered for a few seconds."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from coatcheck.core.queries import explain as explaining
from coatcheck.core.queries import roll_ups
from coatcheck.core.queries.explain import AHEAD_MAX, Ahead
from coatcheck.db.connection import Line
from coatcheck.db.errors import retried
from coatcheck.domain.durations import summed
from coatcheck.domain.explanation import Eta
from coatcheck.domain.forecast import Spread, eta_of, rates_of, spread_of, start_of
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State

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

    def __init__(self, line: Line) -> None:
        self._line = line
        self._known: OrderedDict[tuple[str, ...], tuple[float, Form]] = OrderedDict()

    async def form(self, view: JobView) -> Form:
        """How jobs like this one have got on of late."""
        kind = (view.org, view.lane, view.endpoint, view.flow, view.owner)
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
        return await retried(lambda: explaining.ahead(self._line, view.org, view.uuid))

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
        line = self._line
        minutes = await retried(lambda: roll_ups.lately(line, view.org, view.lane, _MINUTES))
        run = run_of(view.flow)
        if run is None:
            runs = await retried(
                lambda: explaining.recent_runs(line, view.org, view.owner, view.endpoint, view.flow)
            )
        else:
            runs = await retried(lambda: explaining.recent_task_runs(line, view.org, run))
        return Form(
            rates_of([(minute.started, minute.seconds) for minute in minutes]),
            spread_of((), summed([minute.waits for minute in minutes])),
            spread_of(runs, summed([minute.runs for minute in minutes])),
        )


def eta_behind(before: Ahead, form: Form, per_second_max: float | None = None) -> Eta | None:
    """When a job starts and ends that stands behind others, under a rate if there is one."""
    if form.rates is None:
        return eta_of(form.waits, form.runs) if form.waits is not None else None
    rates, flows = form.rates, before.flows
    if per_second_max is not None:
        usual, slow = rates
        rates, flows = (min(usual, per_second_max), min(slow, per_second_max)), 1
    return eta_of(start_of(before.jobs, flows, rates), form.runs)


def is_exact(before: Ahead) -> bool:
    """Whether all that stand before were counted."""
    return before.jobs < AHEAD_MAX


def run_of(flow: str) -> UUID | None:
    """The run of a batch whose tasks stand in this flow; None for any other."""
    found = _RUN.fullmatch(flow)
    return None if found is None else UUID(found[1])
