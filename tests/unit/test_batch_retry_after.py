"""When to ask for a batch again, from how fast its tasks end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from coatcheck.products.batches.jobs import retry_after
from coatcheck.products.batches.model import BatchState, BatchView, RunView, TaskCounts

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def batch(total: int, succeeded: int, failed: int = 0) -> BatchView:
    run = RunView(
        uuid=UUID(int=2),
        number=1,
        parent=None,
        selection=None,
        status=BatchState.RUNNING,
        counts=TaskCounts(total, 0, succeeded, failed, 0),
        lines=total,
        bad_lines=0,
        error_code=None,
        error_message=None,
        created_at=BEGAN,
        closed_at=BEGAN,
        cancel_requested_at=None,
        completed_at=None,
        mirrored=total,
        replaced_succeeded=0,
        replaced_failed=0,
        replaced_cancelled=0,
        repeats_all=False,
    )
    return BatchView(
        org="default",
        uuid=UUID(int=1),
        owner="user:dev",
        service="sums",
        service_endpoint="/add",
        endpoint="sums.post__add",
        lane="bulk",
        is_open=False,
        concurrency=None,
        rate_per_second=None,
        rate_key=None,
        rate_key_per_second=None,
        webhook_events=(),
        metadata=None,
        payload_prefix=b"",
        payload_suffix=b"",
        created_at=BEGAN,
        completed_at=None,
        expires_at=None,
        runs=[run],
    )


@pytest.mark.parametrize(
    ("total", "ended", "seconds", "expected"),
    [
        (100, 50, 20, 10),  # another 20 seconds are left: half of that
        (1_000_000, 10, 10, 60),  # no longer than a minute
        (100, 99, 10, 1),  # no sooner than a second
        (100, 0, 10, 2),  # nothing is known yet
        (100, 100, 10, 1),
    ],
)
def test_half_of_what_is_left_is_waited(
    total: int, ended: int, seconds: int, expected: int
) -> None:
    now = BEGAN + timedelta(seconds=seconds)
    assert retry_after(batch(total, ended - ended // 2, ended // 2), now) == expected


def test_a_clock_that_is_behind_the_databases_does_no_harm() -> None:
    assert retry_after(batch(10, 5), BEGAN - timedelta(seconds=3)) == 2
