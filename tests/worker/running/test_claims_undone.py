"""A crash of PostgreSQL takes a claim back, or a claim comes about after it was given up.

A claim commits without waiting for the disk (docs/adr/0009): the row is then queued again while its
handler runs on, and the same worker may claim it again beside that. A test sets the row back by
hand, as the lost piece of the log would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from coatcheck import Job, Service, State, Ticket
from coatcheck.core.queries import leases
from coatcheck.core.queries.leases import HeldJob
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.job import ClaimedJob
from coatcheck.worker import worker as agent
from coatcheck.worker.lease import LeaseReconciler
from tests.db.edge_guard import unguarded
from tests.db.rows import holding, recorded
from tests.deployment import Deployment, lane_seconds, lane_slots
from tests.waiting import until_true

LOOKS_OFTEN = lane_seconds(3.0)
"""A worker looks at what it holds six times in a lease."""


class Handlers:
    """Each execution says that it began, and ends when it is told to, or interrupted."""

    def __init__(self) -> None:
        self.service = Service("lab")
        self.began = 0
        self.may_speak = asyncio.Event()
        self.interrupted: list[int] = []
        self.may_end = [asyncio.Event() for _ in range(3)]

        @self.service.post("/wait")
        async def wait() -> int:
            number = self.began
            self.began += 1
            try:
                await self.may_end[number].wait()
            except asyncio.CancelledError:
                self.interrupted.append(number)
                raise
            return number

        @self.service.post("/speak")
        async def speak(job: Job) -> int:
            number = self.began
            self.began += 1
            await self.may_speak.wait()
            await job.emit(f"said by {number}")
            await self.may_end[number].wait()
            return number

    async def have_begun(self, times: int) -> None:
        await until_true(lambda: self.began == times, f"execution {times} has begun")


async def undo_the_claim(deployment: Deployment, ticket: Ticket) -> None:
    """Set the row back to where it was before it was claimed."""
    await deployment.sql.execute(
        recorded("""
        UPDATE jobs
        SET state = 'queued', lease = NULL, run_deadline = NULL, dispatched_at = NULL,
            started_at = NULL
        WHERE id = $1
        """),
        ticket.uuid,
    )


async def test_an_attempt_whose_claim_was_undone_is_stopped_and_its_job_runs_again(
    deployment: Deployment,
) -> None:
    handlers = Handlers()
    await deployment.start_worker(handlers.service, lane_ack_seconds=LOOKS_OFTEN)
    ticket = await deployment.engine.submit("lab.post__wait", retries=0)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await undo_the_claim(deployment, ticket)
    await handlers.have_begun(2)
    await until_true(lambda: handlers.interrupted == [0], "the first attempt is stopped")
    handlers.may_end[1].set()
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.result) == (State.COMPLETED, b"1")
    assert (view.failures, view.crashes, view.interruptions) == (0, 0, 0)
    assert handlers.interrupted == [0]


async def test_an_attempt_without_room_beside_it_ends_so_that_its_job_can_run_again(
    deployment: Deployment,
) -> None:
    handlers = Handlers()
    await deployment.start_worker(
        handlers.service, lane_concurrency=lane_slots(standard=1), lane_ack_seconds=LOOKS_OFTEN
    )
    ticket = await deployment.engine.submit("lab.post__wait", retries=0)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await undo_the_claim(deployment, ticket)
    # Its first execution would never end by itself, and there is one slot.
    await handlers.have_begun(2)
    handlers.may_end[1].set()
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.result) == (State.COMPLETED, b"1")
    assert handlers.interrupted == [0]


async def test_both_results_in_one_statement_count_once(deployment: Deployment) -> None:
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service)
    ticket = await deployment.engine.submit("lab.post__wait", retries=0)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await undo_the_claim(deployment, ticket)
    await handlers.have_begun(2)
    handlers.may_end[0].set()
    handlers.may_end[1].set()
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.result) == (State.COMPLETED, b"1")
    await until_true(lambda: worker.rejected == 1, "the first result is refused")


async def test_what_the_first_attempt_says_beside_the_second_is_dropped(
    deployment: Deployment,
) -> None:
    handlers = Handlers()
    await deployment.start_worker(handlers.service)
    ticket = await deployment.engine.submit("lab.post__speak", retries=0)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    await undo_the_claim(deployment, ticket)
    await handlers.have_begun(2)
    # Both wake in one step of the loop, so that one statement has the words of both.
    handlers.may_speak.set()
    handlers.may_end[1].set()
    view = await deployment.wait_for_end(ticket)
    handlers.may_end[0].set()

    assert (view.state, view.result) == (State.COMPLETED, b"1")
    said = await deployment.engine.events(ticket.id)
    assert [event.data for event in said if event.kind == "text"] == [b"said by 1"]


async def test_jobs_of_a_claim_that_was_committed_after_it_was_given_up_are_found(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = Handlers()
    handlers.may_end[0].set()
    exchange, release = leases.exchange, leases.release_claim
    given_back = asyncio.Event()
    underway: list[asyncio.Task[object]] = []

    async def broken_off(*arguments: object) -> object:
        """The connection breaks; the server goes on, and commits once nobody asks any more."""
        if underway:
            return await exchange(*arguments)  # type: ignore[arg-type]

        async def the_server() -> object:
            await given_back.wait()
            return await exchange(*arguments)  # type: ignore[arg-type]

        underway.append(asyncio.create_task(the_server()))
        raise OutcomeUnknown("the connection broke")

    async def too_early(*arguments: object) -> object:
        released = await release(*arguments)  # type: ignore[arg-type]
        given_back.set()
        await asyncio.wait(underway)
        return released

    ticket = await deployment.engine.submit("lab.post__wait", retries=0)
    monkeypatch.setattr(leases, "exchange", broken_off)
    monkeypatch.setattr(leases, "release_claim", too_early)
    await deployment.start_worker(handlers.service, lane_ack_seconds=LOOKS_OFTEN)
    view = await deployment.wait_for_end(ticket)

    assert (view.state, view.failures, view.crashes) == (State.COMPLETED, 0, 0)
    assert view.interruptions == 1


async def test_a_look_gives_back_what_never_began_and_leaves_alone_what_has(
    deployment: Deployment,
) -> None:
    """What has begun was known: its run deadline ends it, and counts it."""
    handlers = Handlers()
    worker = await deployment.start_worker(handlers.service)
    ticket = await deployment.engine.submit("lab.post__wait", retries=0)
    await deployment.wait_for_state(ticket, State.PROCESSING)
    given_back: list[int] = []
    holdings = LeaseReconciler(
        deployment.connection,
        boot=lambda: worker.boot,
        running=lambda: (),
        known=set,
        lose=lambda running: None,
        release=given_back.append,
    )
    await holdings.check()
    await holdings.check()
    assert given_back == []

    async with unguarded(deployment.sql):
        await deployment.sql.execute("UPDATE jobs SET state = 'dispatching'")
    await holdings.check()
    assert given_back == []
    await holdings.check()
    (lease,) = given_back
    assert lease >> 40 == worker.boot


async def test_an_attempt_that_is_being_stopped_is_not_interrupted_by_every_look(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "STOP_AGAIN_SECONDS", 3_600.0)
    service = Service("lab")
    began, may_end, interruptions = asyncio.Event(), asyncio.Event(), 0
    held_jobs, mark_started = leases.held_jobs, leases.mark_started
    looks, may_mark, marked = 0, asyncio.Event(), asyncio.Event()

    async def counted(line: Connection, boot: int) -> list[HeldJob]:
        nonlocal looks
        held = await held_jobs(line, boot)
        looks += 1
        return held

    async def late(line: Connection, starts: Sequence[tuple[ClaimedJob, float]]) -> set[UUID]:
        await may_mark.wait()
        held = await mark_started(line, starts)
        marked.set()
        return held

    monkeypatch.setattr(leases, "held_jobs", counted)
    monkeypatch.setattr(leases, "mark_started", late)

    @service.post("/tidy-up")
    async def tidy_up() -> None:
        nonlocal interruptions
        began.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                interruptions += 1

    await deployment.start_worker(service, lane_ack_seconds=LOOKS_OFTEN)
    ticket = await deployment.engine.submit("lab.post__tidy_up", retries=0)
    await began.wait()
    await deployment.take_lease_away(ticket)
    before = looks
    await until_true(lambda: looks == before + 4, "it was looked at twice, and twice more")
    assert interruptions == 1
    # Nor by its start mark, which comes late, and finds that it is not held.
    may_mark.set()
    await marked.wait()
    await until_true(lambda: looks == before + 5, "it was looked at once more")
    assert interruptions == 1
    may_end.set()


async def test_a_standby_is_not_asked_what_a_worker_holds(deployment: Deployment) -> None:
    await deployment.sql.execute(
        "CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    )
    await deployment.connection.fetch("SET search_path = public, pg_catalog")
    with pytest.raises(DatabaseUnavailable, match="does not accept writes"):
        await leases.held_jobs(deployment.connection, 1)


async def test_of_two_leases_that_are_given_back_at_once_neither_is_forgotten(
    deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = leases.release_claim
    released: list[int] = []
    worker = await deployment.start_worker(Handlers().service, lane_ack_seconds=LOOKS_OFTEN)
    tickets = [await deployment.engine.submit("nobody.post__runs") for _ in range(2)]
    first, second = (worker.boot << 40 | 1_000_000 + number for number in range(2))

    async def hold(ticket: Ticket, lease: int) -> None:
        async with holding(deployment.sql):
            await deployment.sql.execute(
                "UPDATE jobs SET state = 'dispatching', lease = $2 WHERE id = $1",
                ticket.uuid,
                lease,
            )

    def found() -> int:
        return caplog.messages.count("found leases in the database that this worker does not know")

    async def while_another_comes(line: Connection, lease: int, keep: float) -> list[UUID]:
        released.append(lease)
        if lease == first:
            before = found()
            await hold(tickets[1], second)
            await until_true(lambda: found() > before, "the second one is found")
        return await release(line, lease, keep)

    monkeypatch.setattr(leases, "release_claim", while_another_comes)
    await hold(tickets[0], first)
    for ticket in tickets:
        view = await deployment.wait_for_job(
            ticket, lambda view: view.state is State.QUEUED and view.interruptions, "it is released"
        )
        assert view.interruptions == 1
    assert set(released) == {first, second}


async def test_a_handler_that_cancels_its_own_task_fails_and_its_slot_lives(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/cancel-oneself")
    async def cancel_oneself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @service.post("/greet")
    async def greet() -> str:
        return "hello"

    await deployment.start_worker(service, lane_concurrency=lane_slots(standard=1))
    ticket = await deployment.engine.submit("lab.post__cancel_oneself", retries=0)
    view = await deployment.wait_for_end(ticket)
    assert (view.state, view.failures, view.interruptions) == (State.FAILED, 1, 0)
    greeting = await deployment.engine.submit("lab.post__greet", retries=0)
    assert (await deployment.wait_for_end(greeting)).state is State.COMPLETED


async def test_a_slot_survives_a_stopped_job_whose_reports_the_database_refuses(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/speak-and-hang", timeout=0.2)
    async def speak_and_hang(job: Job) -> None:
        await job.emit("refused")
        await asyncio.Event().wait()

    @service.post("/greet")
    async def greet() -> str:
        return "hello"

    await deployment.sql.execute("ALTER TABLE job_events ADD CHECK (kind <> 'text') NOT VALID")
    await deployment.start_worker(service, lane_concurrency=lane_slots(standard=1))
    ticket = await deployment.engine.submit("lab.post__speak_and_hang", retries=0)
    assert (await deployment.wait_for_end(ticket)).state is State.FAILED
    greeting = await deployment.engine.submit("lab.post__greet", retries=0)
    assert (await deployment.wait_for_end(greeting)).state is State.COMPLETED


async def test_a_job_that_was_lost_as_it_ended_does_not_interrupt_the_next(
    deployment: Deployment,
) -> None:
    service = Service("lab")

    @service.post("/start-and-end", starts_itself=True)
    async def start_and_end(job: Job) -> str:
        await deployment.take_lease_away(ticket)
        await job.started()
        return "too late"

    @service.post("/greet")
    async def greet() -> str:
        await asyncio.sleep(0)
        return "hello"

    ticket = await deployment.engine.submit("lab.post__start_and_end", retries=0)
    greeting = await deployment.engine.submit("lab.post__greet", retries=0)
    await deployment.start_worker(service, lane_concurrency=lane_slots(standard=1))
    view = await deployment.wait_for_end(greeting)

    assert (view.state, view.failures, view.interruptions) == (State.COMPLETED, 0, 0)
    # The greeting may have had its turn before: then it is claimed by now, and taken away soon.
    await deployment.wait_for_state(ticket, State.RETRYING)
