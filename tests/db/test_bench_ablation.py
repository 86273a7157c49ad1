"""The bench's ablation: its variants are what they are called; its figures are the exchange's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from bench.ablation.amounts import Amounts
from bench.ablation.figures import Measure, figure
from bench.ablation.job_path import WrongBatchError, path_of_jobs
from bench.ablation.report import ablation_tables
from bench.ablation.scenario import AblationRound
from bench.ablation.variants import PLAIN, VARIANTS, Variant, organisations
from bench.postgres import Postgres
from bench.results import Results
from coatcheck import Engine
from coatcheck.db.migrate import migrate
from coatcheck.domain.states import State
from coatcheck.products.batches.repository import BatchRepository

AMOUNTS: Final = Amounts(exchanges=2, warm_up=2, batch=20, organisations=4)
JOBS_OF_EACH: Final = AMOUNTS.jobs // AMOUNTS.organisations
A_DAY_SECONDS: Final = 86_400
FEATURES: Final[Mapping[str, set[str]]] = {
    "plain": set(),
    "keys": {"key"},
    "webhook": {"delivery"},
    "endpoint": {"delivery", "endpoint"},
    "endpoint_elsewhere": {"endpoint elsewhere"},
    "limit_elsewhere": {"limit elsewhere"},
    "tasks": {"batch"},
    "deadline": {"deadline"},
    "retention": {"retention"},
}


async def features(engine: Engine) -> set[str]:
    """What one organisation's jobs have, and what another organisation has that has no jobs."""
    org, elsewhere = organisations(AMOUNTS)[-1], "another organisation"
    jobs = await engine.list(org=org, limit=2 * JOBS_OF_EACH)
    batches = await engine.extension(BatchRepository).list(org, owner=None)
    assert len(jobs) == (0 if batches else JOBS_OF_EACH)
    assert {job.state for job in jobs} <= {State.COMPLETED}
    deliveries = await engine.webhooks.deliveries(org, limit=2 * JOBS_OF_EACH)
    assert len(deliveries) in (0, JOBS_OF_EACH)
    found = {
        "key": all(job.idempotency_key for job in jobs),
        "delivery": deliveries,
        "endpoint": await engine.webhooks.list_endpoints(org),
        "endpoint elsewhere": await engine.webhooks.list_endpoints(elsewhere),
        "limit elsewhere": await engine.limits(org=elsewhere),
        "deadline": all(job.start_deadline for job in jobs),
        "retention": all(
            job.expires_at
            and job.finished_at
            and (job.expires_at - job.finished_at).total_seconds() < A_DAY_SECONDS
            for job in jobs
        ),
    }
    # Tasks are not in the list of jobs.
    return {"batch"} if batches else {name for name, has in found.items() if has}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.key)
async def test_a_variant_is_what_it_is_called(variant: Variant, dsn: str) -> None:
    async with path_of_jobs(dsn, AMOUNTS) as path:
        await path.submit(variant)
        await path.exchange(AMOUNTS.warm_up + AMOUNTS.exchanges)
        await path.complete()
    async with await Engine.connect(dsn) as engine:
        assert await features(engine) == FEATURES[variant.key]
        assert not any((await engine.health()).depth.values())


async def test_an_exchange_that_claims_fewer_jobs_fails(dsn: str) -> None:
    async with path_of_jobs(dsn, AMOUNTS) as path:
        await path.submit(PLAIN)
        with pytest.raises(WrongBatchError, match="for 20 jobs claimed 0"):
            await path.exchange(AMOUNTS.warm_up + AMOUNTS.exchanges + 1)


async def test_a_round_has_every_figure_of_every_variant(data_root: Path) -> None:
    found: dict[str, float] = {}
    chosen = VARIANTS[:2]
    server = Postgres(data_root / "postgres")
    await server.start()
    try:
        await migrate(await server.create_template("coatcheck"))
        await AblationRound(server, AMOUNTS, 1, found.__setitem__, chosen).run()
    finally:
        await server.stop()
    assert [*found] == [figure(each, measure) for each in reversed(chosen) for measure in Measure]
    for each in chosen:
        assert found[figure(each, Measure.CPU)] > 0
        assert found[figure(each, Measure.WAL)] > 0
        assert 0 <= found[figure(each, Measure.HOT)] <= 100


def test_the_report_compares_each_round_with_the_plain_jobs_of_that_round() -> None:
    results = Results()
    with_keys = next(each for each in VARIANTS if each.key == "keys")
    for variant, cpu in ((PLAIN, [20.0, 40.0, 21.0]), (with_keys, [23.0, 43.5, 23.0])):
        results.ablation[figure(variant, Measure.CPU)] = cpu
        results.ablation[figure(variant, Measure.WAL)] = [1_000.0]
        results.ablation[figure(variant, Measure.HOT)] = [50.0]
    assert ablation_tables(results).splitlines()[2:] == [
        "| plain | 21.0 (20.0..40.0) | - | 1,000 | - | 50 | 3 |",
        "| an idempotency key each | 23.0 (23.0..43.5) | +3.0 | 1,000 | +0 | 50 | 3 |",
    ]
