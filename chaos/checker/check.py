"""Runs all checks on the evidence of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chaos.checker import counts
from chaos.checker.attempts import attempts_are_counted_apart
from chaos.checker.batches import exports_are_whole, runs_are_counted
from chaos.checker.curves import curves
from chaos.checker.dead_states import all_ends, no_dead_state
from chaos.checker.ends import one_end
from chaos.checker.evidence import Evidence
from chaos.checker.executions import completed_jobs_were_executed
from chaos.checker.exits import nobody_ends_by_itself
from chaos.checker.expectations import ends_as_expected
from chaos.checker.finding import Finding, Verdict
from chaos.checker.holders import results_are_of_the_holder
from chaos.checker.lost import lost
from chaos.checker.one_key import one_key_one_job
from chaos.checker.outbox import deliveries_end, hasten_deliveries, webhooks_match_transitions
from chaos.checker.receipts import receipts_cover_the_outbox, requested_webhooks_arrived
from chaos.checker.remotes import one_live_execution
from chaos.checker.rescues import no_false_rescue
from chaos.checker.seen import ends_stay_as_seen
from chaos.checker.tenants import shown_as_it_is, tenants_are_apart
from chaos.checker.unexpected import unexpected
from chaos.checker.usage import metered_once
from chaos.checker.validity import what_is_missing

Check = Callable[[Evidence], Awaitable[list[Finding]]]

CHECKS: tuple[Check, ...] = (
    lost,
    unexpected,
    one_key_one_job,
    one_end,
    metered_once,
    ends_stay_as_seen,
    ends_as_expected,
    completed_jobs_were_executed,
    results_are_of_the_holder,
    no_dead_state,
    all_ends,
    attempts_are_counted_apart,
    runs_are_counted,
    exports_are_whole,
    webhooks_match_transitions,
    deliveries_end,
    receipts_cover_the_outbox,
    requested_webhooks_arrived,
    one_live_execution,
    no_false_rescue,
    nobody_ends_by_itself,
    tenants_are_apart,
    shown_as_it_is,
)
"""All checks before the deletion. The search for canaries comes after it (``forgetting.py``)."""

DELIVERY_SECONDS = 90.0


async def check(evidence: Evidence, *, delivery_seconds: float = DELIVERY_SECONDS) -> Verdict:
    """The verdict on a run. The deployment still runs, without faults."""
    await hasten_deliveries(evidence, delivery_seconds)
    evidence = evidence.reread()
    verdict = Verdict()
    for each in CHECKS:
        verdict.findings += await each(evidence)
    verdict.counts = await counts.counted(evidence) | counts.judged(verdict.findings)
    verdict.invalid = what_is_missing(evidence)
    verdict.curves = await curves(evidence)
    return verdict
