"""A statement was committed, and its answer was lost with the connection.

The store is told to do its work and then to break, as a connection does between the commit and the
answer. What the worker makes of it is what a user would see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from coatcheck import Service, State
from coatcheck.core.queries import leases
from coatcheck.domain.errors import OutcomeUnknown
from coatcheck.worker import exchange_loop
from tests.deployment import Deployment


class LosesAnswers:
    """Wraps a function of the store: the answers that ``when`` picks are lost, once each."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        when: Callable[[tuple[Any, ...], Any], object],
        *,
        module: ModuleType = leases,
    ) -> None:
        self._real: Callable[..., Awaitable[Any]] = getattr(module, name)
        self._when = when
        self.lost = 0
        monkeypatch.setattr(module, name, self)

    async def __call__(self, *arguments: Any) -> Any:
        answer = await self._real(*arguments)
        if self.lost == 0 and self._when(arguments, answer):
            self.lost += 1
            raise OutcomeUnknown("the connection broke after the commit")
        return answer


class Handlers:
    def __init__(self) -> None:
        self.service = Service("lab")
        self.ran = 0

        @self.service.post("/greet")
        async def greet() -> str:
            self.ran += 1
            return "hello"

        @self.service.post("/fail")
        async def fail() -> None:
            self.ran += 1
            raise LookupError


async def test_jobs_of_a_claim_whose_answer_was_lost_are_given_back_and_run_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = LosesAnswers(monkeypatch, "exchange", lambda _, answer: answer[0])
    handlers = Handlers()
    ticket = await deployment.engine.submit("lab.post__greet", retries=0)
    await deployment.start_worker(handlers.service)  # and its first look finds the job
    view = await deployment.wait_for_end(ticket)

    assert exchange.lost == 1
    assert (view.state, view.interruptions) == (State.COMPLETED, 1)
    assert (view.failures, view.crashes, handlers.ran) == (0, 0, 1)


async def test_a_completion_whose_answer_was_lost_is_handed_in_again_and_counts_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = LosesAnswers(monkeypatch, "exchange", lambda _, answer: answer[1])
    handlers = Handlers()
    ticket = await deployment.engine.submit("lab.post__greet")
    worker = await deployment.start_worker(handlers.service)
    view = await deployment.wait_for_end(ticket)
    await deployment.stop_worker(worker)

    assert exchange.lost == 1
    assert (view.state, view.result, handlers.ran) == (State.COMPLETED, b'"hello"', 1)
    assert await deployment.engine.get(ticket.id) == view
    assert worker.rejected == 0


async def test_a_named_job_whose_claim_lost_its_answer_is_given_back_and_runs_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = LosesAnswers(monkeypatch, "claim_named", lambda _, answer: answer[0])
    handlers = Handlers()
    await deployment.start_worker(handlers.service)
    views = []
    while not claim.lost:  # until one comes when the worker knows that nothing else waits
        ticket = await deployment.engine.submit("lab.post__greet", retries=0)
        views.append(await deployment.wait_for_end(ticket))

    assert [view.interruptions for view in views] == [0] * (len(views) - 1) + [1]
    assert {(view.state, view.failures, view.crashes) for view in views} == {
        (State.COMPLETED, 0, 0)
    }
    assert handlers.ran == len(views)


async def test_a_completion_that_notified_and_lost_its_answer_counts_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = LosesAnswers(monkeypatch, "complete_and_notify", lambda _, answer: answer)
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service)
    views = []
    while not complete.lost:
        ticket = await deployment.engine.submit("lab.post__greet")
        views.append(await deployment.wait_for_end(ticket))
    await deployment.stop_worker(worker)

    assert {(view.state, view.attempts, view.result) for view in views} == {
        (State.COMPLETED, 1, b'"hello"')
    }
    assert await deployment.engine.get(views[-1].id) == views[-1]
    assert (handlers.ran, worker.rejected) == (len(views), 0)


async def test_a_failed_attempt_whose_answer_was_lost_counts_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = LosesAnswers(monkeypatch, "settle", lambda _, answer: answer)
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service)
    ticket = await deployment.engine.submit("lab.post__fail", retries=5)
    view = await deployment.wait_for_state(ticket, State.RETRYING)
    await deployment.stop_worker(worker)

    assert settle.lost == 1
    assert (view.failures, handlers.ran, worker.rejected) == (1, 1, 0)
    assert await deployment.engine.get(ticket.id) == view


async def test_permits_of_a_limited_claim_whose_answer_was_lost_come_back(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = LosesAnswers(
        monkeypatch, "claim_limited", lambda _, answer: answer, module=exchange_loop
    )
    service = Service("lab")

    @service.post("/greet", concurrency=1)
    async def greet() -> str:
        return "hello"

    await deployment.start_worker(service)
    view = await deployment.wait_for_end(await deployment.engine.submit("lab.post__greet"))

    assert claim.lost == 1
    assert (view.state, view.interruptions, view.crashes) == (State.COMPLETED, 1, 0)
