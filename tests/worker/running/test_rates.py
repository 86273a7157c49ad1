"""Workers keep to the rates of runs, and look again when a token is there: not sooner or later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from coatcheck import Service
from coatcheck.core.queries.claims import claim_limited
from coatcheck.core.queries.leases import ClaimOrder
from coatcheck.core.queries.limits import set_run_limits
from coatcheck.db.notifications import READY
from coatcheck.domain.ids import new_id
from coatcheck.domain.limits import RATE_BURST_SECONDS
from coatcheck.worker import exchange_loop
from tests.db.rows import recorded
from tests.deployment import Deployment
from tests.waiting import eventually_async, until_true

NO_POLL = {"poll_seconds_min": 3_600.0, "poll_seconds_max": 3_600.0}
"""Nothing is found by polling while the test lasts."""


def scraper() -> Service:
    service = Service("lab")

    @service.post("/scrape")
    async def scrape() -> None:
        return None

    return service


async def put_run(deployment: Deployment, tasks: int, keys: Sequence[str], **rates: float) -> UUID:
    """A run with so many tasks for each key, written past the engine: nobody is told."""
    run = new_id()
    none: dict[str, Any] = {"concurrency": None, "per_second": None, "key_per_second": None}
    async with deployment.sql.transaction():
        await set_run_limits(deployment.sql, "default", run, **(none | rates))
        await deployment.sql.execute(
            recorded("""
            INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, payload)
            SELECT 'default', gen_random_uuid(), 'standard', 3, 'lab.post__scrape',
                   $1 || '/' || key, '{}'
            FROM unnest($2::text[]) AS key, generate_series(1, $3::integer)
            """),
            run.hex,
            keys,
            tasks,
        )
    return run


async def tell(deployment: Deployment) -> None:
    await deployment.sql.execute(f"NOTIFY {READY}")


async def ended(deployment: Deployment, tasks: int) -> None:
    async def all_of_them() -> bool:
        query = "SELECT count(*) FROM jobs WHERE state = 'completed'"
        return bool(await deployment.sql.fetchval(query) == tasks)

    await eventually_async(all_of_them, f"{tasks} tasks are completed")


@pytest.mark.parametrize(
    ("keys", "rates"),
    [
        (["a"], {"per_second": 20.0}),
        (["a", "b"], {"key_per_second": 10.0}),
        (["a", "b"], {"per_second": 16.0, "key_per_second": 10.0}),
    ],
    ids=["of the run", "of each key", "of both"],
)
async def test_tasks_under_a_rate_are_started_when_it_allows_without_any_poll(
    keys: list[str], rates: dict[str, float], deployment: Deployment
) -> None:
    for _ in range(2):
        await deployment.start_worker(scraper(), **NO_POLL)
    await put_run(deployment, 8, keys, **rates)
    began = await deployment.sql.fetchval("SELECT clock_timestamp()")
    await tell(deployment)
    await ended(deployment, 8 * len(keys))

    rate = min(rates.get("per_second", 1e9), len(keys) * rates.get("key_per_second", 1e9))
    now = await deployment.sql.fetchval("SELECT clock_timestamp()")
    elapsed = (now - began).total_seconds()
    assert 8 * len(keys) <= len(keys) + rate * (elapsed + RATE_BURST_SECONDS)


async def test_limits_that_nobody_told_of_are_found_by_polling(deployment: Deployment) -> None:
    """Whoever creates a run may end before it tells the workers."""
    await deployment.start_worker(scraper(), poll_seconds_min=0.05)
    await put_run(deployment, 2, ["a", "b"], concurrency=1)
    await ended(deployment, 4)


async def test_a_worker_whose_runs_wait_for_nothing_does_not_look_again(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims: list[float | None] = []

    async def noted(line: Any, order: ClaimOrder) -> Any:
        claimed = await claim_limited(line, order)
        claims.append(order.look_again_seconds)
        return claimed

    monkeypatch.setattr(exchange_loop, "claim_limited", noted)
    await deployment.start_worker(scraper(), **NO_POLL)
    await put_run(deployment, 4, ["a"], per_second=5.0)
    await tell(deployment)
    await ended(deployment, 4)
    await until_true(lambda: claims[-1] is None, "it was told that no token is to come")
    assert any(seconds is not None for seconds in claims), "it was told of tokens to come"
    assert len(claims) <= 2 + 4 * 4, "for each task: its token, its claim, its end, and one more"
