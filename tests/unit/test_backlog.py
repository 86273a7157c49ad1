"""The backlog limit: counted at most once a second, and with what was let in since."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from coatcheck.domain.errors import DatabaseUnavailable, QueueFull
from coatcheck.domain.tenants import ALL_SCOPES, Principal
from coatcheck.http import gate
from coatcheck.http.gate import Backlog

CALLER = Principal("acme", "key", "user:u1", ALL_SCOPES, key_id="k1", org_backlog_max=3)


class Jobs:
    """Jobs that wait, and how often they were counted."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.away = False
        self.asked: list[tuple[str, int]] = []

    async def count(self, org: str, most: int) -> int:
        self.asked.append((org, most))
        await asyncio.sleep(0)
        if self.away:
            raise DatabaseUnavailable("away")
        return self.waiting


async def test_jobs_are_let_in_until_the_limit_is_reached() -> None:
    jobs = Jobs(waiting=1)
    limit = Backlog(jobs.count)
    await limit.check(CALLER)
    await limit.check(CALLER)
    with pytest.raises(QueueFull) as refused:
        await limit.check(CALLER)
    assert refused.value.retry_after > 0
    assert jobs.asked == [("acme", 3)]


async def test_an_organisation_without_a_limit_is_not_counted() -> None:
    jobs = Jobs(waiting=1_000)
    await Backlog(jobs.count).check(replace(CALLER, org_backlog_max=None))
    assert jobs.asked == []


async def test_a_crowd_is_counted_once_and_let_in_up_to_the_limit() -> None:
    jobs = Jobs(waiting=0)
    limit = Backlog(jobs.count)
    crowd = [limit.check(CALLER) for _ in range(50)]
    answers = await asyncio.gather(*crowd, return_exceptions=True)
    assert [answer for answer in answers if answer is None] == [None] * 3
    assert all(isinstance(answer, QueueFull) for answer in answers if answer is not None)
    assert len(jobs.asked) == 1


async def test_a_count_is_good_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "COUNT_SECONDS", 0.0001)
    jobs = Jobs(waiting=3)
    limit = Backlog(jobs.count)
    with pytest.raises(QueueFull):
        await limit.check(CALLER)
    jobs.waiting = 2
    await asyncio.sleep(0.001)  # longer than a count is good for: that is what is tested
    await limit.check(CALLER)
    assert len(jobs.asked) >= 2


async def test_each_organisation_is_counted_by_itself() -> None:
    jobs = Jobs(waiting=2)
    limit = Backlog(jobs.count)
    await limit.check(CALLER)
    await limit.check(replace(CALLER, org="other"))
    assert [org for org, _ in jobs.asked] == ["acme", "other"]


async def test_a_limit_that_is_raised_holds_at_once() -> None:
    limit = Backlog(Jobs(waiting=3).count)
    with pytest.raises(QueueFull):
        await limit.check(CALLER)
    await limit.check(replace(CALLER, org_backlog_max=4))


async def test_a_count_that_fails_is_told_to_everybody_and_tried_again() -> None:
    jobs = Jobs(waiting=0)
    jobs.away = True
    limit = Backlog(jobs.count)
    answers = await asyncio.gather(*(limit.check(CALLER) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 3
    jobs.away = False
    await limit.check(CALLER)


async def test_a_caller_that_leaves_does_not_take_the_count_with_it() -> None:
    jobs = Jobs(waiting=0)
    limit = Backlog(jobs.count)
    leaving = asyncio.create_task(limit.check(CALLER))
    staying = asyncio.create_task(limit.check(CALLER))
    await asyncio.sleep(0)
    leaving.cancel()
    await staying
    assert len(jobs.asked) == 1
