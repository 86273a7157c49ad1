"""Usage is sent to Stripe: each hour once, whatever fails on the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coatcheck.core.queries import usage
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.maintenance.retention import StatsPruner
from coatcheck.maintenance.usage import StripeClient, StripeMeter
from coatcheck.settings import Settings
from tests.all_products import maintenance
from tests.maintenance.fake_stripe import KEY, Failure, FakeStripe, fake_stripe

METERS = {"completed": "jobs_completed", "run_seconds": "job_seconds"}
HOUR = timedelta(hours=1)
NOW = datetime.now(UTC)
LAST = NOW.replace(minute=0, second=0, microsecond=0) - 3 * HOUR
"""An hour that has ended, whenever the test runs."""


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name="stripe meter", server_settings=PINNED_PLANS)
    await customer(line, "acme", "cus_1")
    yield line
    await line.close()


@pytest.fixture
async def stripe() -> AsyncIterator[FakeStripe]:
    async with fake_stripe() as running:
        yield running


@pytest.fixture
async def meter(line: Connection, stripe: FakeStripe) -> AsyncIterator[StripeMeter]:
    meter = new_meter(line, stripe)
    yield meter
    await meter.stop()


def new_meter(line: Connection, stripe: FakeStripe, key: str = KEY) -> StripeMeter:
    return StripeMeter(line, StripeClient(key, base_url=stripe.url), METERS)


async def customer(line: Connection, org: str, name: str | None) -> None:
    """An organisation whose usage has been sent for long."""
    await line.fetch(
        "INSERT INTO orgs (org_id, name, subscription, stripe_customer, stripe_metered_from)"
        " VALUES ($1, $1, 'active', $2, now() - interval '100 days')",
        org,
        name,
    )


async def use(
    line: Connection, jobs: int, *, hour: datetime = LAST, org: str = "acme", seconds: float = 0.0
) -> None:
    """Jobs that ended in an hour, rolled up."""
    await line.fetch(
        "INSERT INTO usage_deltas (org_id, day, ended_at, completed, failed, cancelled, attempts,"
        " payload_bytes, result_bytes, run_seconds, endpoint, flow)"
        " VALUES ($1, ($2::timestamptz AT TIME ZONE 'UTC')::date, $2, $3, 0, 0, 0, 0, 0, $4,"
        " 'e', '')",
        org,
        hour + timedelta(minutes=5),
        jobs,
        seconds,
    )
    assert (await usage.roll_up(line, 100)).deltas == 1


async def stored(line: Connection) -> list[Any]:
    return await line.fetch("SELECT * FROM stripe_meter_events ORDER BY hour, measure, part")


async def make_due(line: Connection) -> None:
    await line.fetch("UPDATE stripe_meter_events SET due_at = now() WHERE status = 'pending'")


async def test_an_hour_is_sent_once_for_each_meter(
    line: Connection, stripe: FakeStripe, meter: StripeMeter
) -> None:
    await use(line, 3, seconds=1.25)
    await use(line, 2, seconds=1.0)
    await meter.tick()
    await meter.tick()
    assert (stripe.sum_of("jobs_completed"), stripe.sum_of("job_seconds")) == (5, 2)
    assert len(stripe.events) == 2
    for event in stripe.events:
        at = datetime.fromtimestamp(int(event["timestamp"]), UTC)
        assert at == LAST + HOUR - timedelta(seconds=1)
    assert {row["status"] for row in await stored(line)} == {"acknowledged"}
    assert await meter.tick() > 0
    assert len(stripe.server.requests) == 2


async def test_an_hour_that_is_not_over_is_not_sent(
    line: Connection, stripe: FakeStripe, meter: StripeMeter
) -> None:
    await use(line, 3, hour=NOW)
    await meter.tick()
    assert (stripe.server.requests, await stored(line)) == ([], [])


async def test_what_is_added_to_an_hour_later_is_sent_as_the_difference(
    line: Connection, stripe: FakeStripe, meter: StripeMeter
) -> None:
    await use(line, 3, seconds=0.4)
    await meter.tick()
    await use(line, 4, seconds=0.4)
    await meter.tick()
    await meter.tick()
    assert [event["payload[value]"] for event in stripe.events] == ["3", "4", "1"]
    assert stripe.sum_of("jobs_completed") == 7
    assert stripe.sum_of("job_seconds") == 1, "0.4 seconds twice: rounded once they are one"
    assert len({event["identifier"] for event in stripe.events}) == 3


async def test_identifiers_are_the_same_whoever_computes_them(
    line: Connection, stripe: FakeStripe, meter: StripeMeter
) -> None:
    """As after a restore of the database: Stripe knows the events, and takes none twice."""
    await use(line, 3)
    await meter.tick()
    await line.fetch("DELETE FROM stripe_meter_events")
    await line.fetch("UPDATE usage_hours SET metered = false")
    await meter.tick()
    assert stripe.sum_of("jobs_completed") == 3
    assert stripe.answers == [200, 400]
    assert {row["status"] for row in await stored(line)} == {"acknowledged"}


async def test_sent_but_not_marked_is_sent_again_under_the_same_identifier(
    line: Connection, stripe: FakeStripe, meter: StripeMeter
) -> None:
    await use(line, 3)
    stripe.failures = [Failure(takes_it=True, drops=True)]
    assert await meter.tick() > 0
    (row,) = await stored(line)
    assert (row["status"], row["attempted_at"] is not None) == ("pending", True)
    await make_due(line)
    await meter.tick()
    first, second = stripe.server.requests
    assert first.body == second.body
    assert stripe.sum_of("jobs_completed") == 3
    assert (await stored(line))[0]["status"] == "acknowledged"


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_stripe_that_fails_is_left_in_peace_and_nothing_is_lost(
    line: Connection, stripe: FakeStripe, meter: StripeMeter, status: int
) -> None:
    for hours in range(5):
        await use(line, 1, hour=LAST - hours * HOUR)
    stripe.failures = [Failure(status), Failure(status), Failure(status, takes_it=True)]
    pauses = [await meter.tick() for _ in range(3)]
    assert len(stripe.server.requests) == 3, "one request a tick, not one for each event"
    assert 1 <= pauses[0] <= 1.5
    assert pauses[0] < pauses[1] < pauses[2]
    while await meter.tick() == 0.0:
        continue
    assert stripe.sum_of("jobs_completed") == 5
    assert {row["status"] for row in await stored(line)} == {"acknowledged"}


async def test_retry_after_is_obeyed(
    line: Connection, stripe: FakeStripe, meter: StripeMeter
) -> None:
    await use(line, 1)
    stripe.failures = [Failure(429, retry_after="120")]
    assert await meter.tick() == 120


async def test_a_stripe_that_cannot_be_reached_leaves_no_doubt(dsn: str, line: Connection) -> None:
    await use(line, 1)
    async with fake_stripe() as stripe:
        gone = stripe
    meter = new_meter(line, gone)
    assert await meter.tick() > 0
    await meter.stop()
    (row,) = await stored(line)
    assert (row["status"], row["attempted_at"], row["attempts"]) == ("pending", None, 1)


async def test_what_stripe_refuses_is_kept_and_sent_when_it_was_put_right(
    line: Connection, stripe: FakeStripe, meter: StripeMeter, caplog: pytest.LogCaptureFixture
) -> None:
    await use(line, 1, seconds=2)
    meters, stripe.meters = stripe.meters, {"job_seconds": "mtr_seconds"}
    with caplog.at_level(logging.INFO):
        assert await meter.tick() == 0.0, "the other meter is not held up"
    assert stripe.sum_of("job_seconds") == 2
    assert "Stripe refused usage: 400 invalid_request_error" in caplog.text
    assert await meter.tick() > 0
    stripe.meters = meters
    await make_due(line)
    await meter.tick()
    assert stripe.sum_of("jobs_completed") == 1


async def test_the_key_is_in_no_log_line_and_no_row(
    line: Connection, stripe: FakeStripe, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where Stripe's own words quote it."""
    await use(line, 1)
    wrong = "sk_test_wrong9876543210"
    meter = new_meter(line, stripe, wrong)
    with caplog.at_level(logging.DEBUG, logger="coatcheck"):
        await meter.tick()
    await meter.stop()
    assert stripe.answers == [401]
    (row,) = await stored(line)
    for text in (caplog.text, row["last_error"]):
        assert "401" in text
        assert "sk_test" not in text


async def test_an_answer_that_never_came_a_day_ago_is_asked_for_before_it_is_sent_again(
    line: Connection, stripe: FakeStripe, meter: StripeMeter
) -> None:
    """Stripe has forgotten the identifiers by then: it would take each of them once more."""
    await use(line, 3)
    await meter.tick()
    await use(line, 4)
    stripe.failures = [Failure(takes_it=True, drops=True)]
    await meter.tick()
    await use(line, 5, hour=LAST - HOUR)
    stripe.failures = [Failure(500)]
    await meter.tick()
    assert stripe.sum_of("jobs_completed") == 7
    stripe.identifiers.clear()
    await line.fetch(
        "UPDATE stripe_meter_events SET attempted_at = now() - interval '30 hours', due_at = now()"
        " WHERE status = 'pending'"
    )
    # Not even an outage while it asks makes it forget that it must.
    stripe.failures = [Failure(drops=True)]
    assert await meter.tick() > 0
    await make_due(line)
    while await meter.tick() == 0.0:
        continue
    assert stripe.sum_of("jobs_completed") == 12
    assert {row["status"] for row in await stored(line)} == {"acknowledged"}


async def test_what_stripe_takes_no_more_is_given_up_and_said(
    line: Connection, stripe: FakeStripe, meter: StripeMeter, caplog: pytest.LogCaptureFixture
) -> None:
    await use(line, 3)
    stripe.failures = [Failure(500)]
    await meter.tick()
    await line.fetch("UPDATE stripe_meter_events SET hour = hour - interval '36 days'")
    with caplog.at_level(logging.ERROR):
        await meter.tick()
    assert "too old now: 3 completed" in caplog.text
    assert [row["status"] for row in await stored(line)] == ["expired"]
    await use(line, 3, hour=LAST - timedelta(days=40))
    await meter.tick()
    assert stripe.events == []


async def test_nothing_is_sent_of_the_time_before_it_was_switched_on(
    line: Connection, stripe: FakeStripe, meter: StripeMeter
) -> None:
    await customer(line, "unlinked", None)
    await line.fetch("UPDATE orgs SET stripe_metered_from = NULL")
    await use(line, 3)
    await use(line, 3, org="unlinked")
    await use(line, 3, org="unknown")
    await meter.tick()
    assert stripe.server.requests == []
    since = await line.fetch("SELECT stripe_metered_from FROM orgs WHERE org_id = 'acme'")
    assert since[0][0] > LAST
    others = await line.fetch("SELECT stripe_metered_from FROM orgs WHERE org_id = 'unlinked'")
    assert others[0][0] is None


async def test_two_that_meter_at_once_make_and_send_nothing_twice(
    dsn: str, line: Connection, stripe: FakeStripe
) -> None:
    for hours in range(4):
        await use(line, 2, hour=LAST - hours * HOUR)
    lines = [Connection(dsn, name=f"rival {n}") for n in range(3)]
    rivals = [new_meter(each, stripe) for each in lines]
    try:
        await asyncio.gather(*(rival.tick() for rival in rivals))
    finally:
        for rival, each in zip(rivals, lines, strict=True):
            await rival.stop()
            await each.close()
    assert stripe.sum_of("jobs_completed") == 8
    assert len(await stored(line)) == 4
    assert stripe.answers == [200] * 4


async def test_events_are_kept_as_long_as_their_hours(
    line: Connection, stripe: FakeStripe, meter: StripeMeter
) -> None:
    await use(line, 3)
    await use(line, 3, hour=LAST - HOUR)
    await meter.tick()
    await line.fetch(
        "UPDATE stripe_meter_events SET hour = hour - interval '63 days' WHERE hour = $1", LAST
    )
    assert await StatsPruner(line).tick() > 0
    (left,) = await stored(line)
    assert left["hour"] == LAST - HOUR


async def test_a_process_sends_only_with_a_key(dsn: str, tmp_path: Path) -> None:
    without = Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri())
    for settings, sends in (
        (without, False),
        (replace(without, stripe_api_key=KEY, stripe_meters=METERS), True),
    ):
        upkeep = maintenance(settings)
        assert ("stripe meter" in {loop.name for loop in upkeep.loops}) is sends
        await upkeep.stop()
