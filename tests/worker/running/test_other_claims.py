"""A worker that takes out work by a claim of its own: here that of the llm surface."""

from __future__ import annotations

import asyncio

from coatcheck import Service, State, Ticket
from coatcheck.core.queries.leases import ClaimOrder
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import OutcomeUnknown
from coatcheck.domain.job import ClaimedJob
from coatcheck.products.llm import queries
from coatcheck.products.llm.model import LLM_ENDPOINTS, LLM_SERVICE
from coatcheck.products.llm.queries import Assignment, SlotOffer
from coatcheck.products.llm.repository import LlmRepository
from coatcheck.worker.worker import Worker
from tests.worker.workshop import Workshop, until_true

CHAT = LLM_ENDPOINTS["chat"]
CONCURRENCY = 2


class Claims:
    """Claims for one target, while ``open``. Loses the answer of the first if told to."""

    def __init__(self) -> None:
        self.open = True
        self.asked = 0
        self.lose_one = False

    async def __call__(self, line: Connection, order: ClaimOrder) -> list[ClaimedJob]:
        self.asked += 1
        if not self.open:
            return []
        offers = [SlotOffer("gpu", CONCURRENCY, None, frozenset())]
        held = await queries.claim(line, order, offers, turn_seconds=30.0)
        if held and self.lose_one:
            self.lose_one = False
            raise OutcomeUnknown("the answer was lost")
        return [assigned.job for assigned in held]


class Chats:
    """A service whose jobs run until the gate opens, and who count how many do at once."""

    def __init__(self) -> None:
        self.service = Service(LLM_SERVICE, _builtin=True)
        self.gate = asyncio.Event()
        self.running = 0
        self.most = 0
        self.service.post("/chat")(self.chat)

    async def chat(self) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.gate.wait()
        await asyncio.sleep(0)  # so that others begin meanwhile, if any can
        self.running -= 1
        return "done"


async def submit(workshop: Workshop, jobs: int) -> list[Ticket]:
    return [await workshop.engine.submit(CHAT, queue_key="a:1") for _ in range(jobs)]


async def test_its_jobs_run_and_are_handed_in_as_any_other(workshop: Workshop) -> None:
    chats, claims = Chats(), Claims()
    chats.gate.set()
    await workshop.run_worker(Worker(workshop.settings(), [chats.service], claims=claims))
    views = await workshop.end_of_all(await submit(workshop, 20))
    assert {(view.state, view.result) for view in views} == {(State.COMPLETED, b'"done"')}


async def test_a_target_s_concurrency_holds_over_workers(workshop: Workshop) -> None:
    chats = Chats()
    for _ in range(2):
        await workshop.run_worker(Worker(workshop.settings(), [chats.service], claims=Claims()))
    tickets = await submit(workshop, 12)
    await until_true(lambda: chats.running == CONCURRENCY, "as many run as may")
    chats.gate.set()
    await workshop.end_of_all(tickets)
    assert chats.most == CONCURRENCY


async def test_nothing_is_claimed_in_another_way(workshop: Workshop) -> None:
    chats, claims = Chats(), Claims()
    chats.gate.set()
    claims.open = False
    worker = Worker(workshop.settings(), [chats.service], claims=claims)
    await workshop.run_worker(worker)
    (ticket,) = await submit(workshop, 1)
    asked = claims.asked
    await until_true(lambda: claims.asked > asked + 1, "it is asked again")
    assert await workshop.state(ticket) is State.QUEUED

    claims.open = True
    worker.look_for_work()
    await workshop.end_of(ticket)


async def test_it_looks_for_work_when_told_to(workshop: Workshop) -> None:
    """There is no notification, and the next look by itself is an hour away."""
    chats, claims = Chats(), Claims()
    chats.gate.set()
    claims.open = False
    settings = workshop.settings(poll_seconds_min=3_600.0, poll_seconds_max=3_600.0)
    worker = await workshop.run_worker(Worker(settings, [chats.service], claims=claims))
    (ticket,) = await submit(workshop, 1)
    await until_true(lambda: claims.asked >= 2, "it was asked when the job came")
    claims.open = True
    worker.look_for_work()
    assert (await workshop.end_of(ticket)).state is State.COMPLETED


async def test_a_claim_whose_answer_was_lost_is_given_back(workshop: Workshop) -> None:
    chats, claims = Chats(), Claims()
    chats.gate.set()
    claims.lose_one = True
    await workshop.run_worker(Worker(workshop.settings(), [chats.service], claims=claims))
    (ticket,) = await submit(workshop, 1)
    view = await workshop.end_of(ticket)
    assert (view.state, view.interruptions) == (State.COMPLETED, 1)


async def test_the_engine_says_where_a_job_is(workshop: Workshop) -> None:
    chats = Chats()
    await workshop.run_worker(Worker(workshop.settings(), [chats.service], claims=Claims()))
    ticket, *others = await submit(workshop, CONCURRENCY + 1)
    waiting = others[-1]
    desk = workshop.engine.extension(LlmRepository)
    await until_true(lambda: chats.running == CONCURRENCY, "as many run as may")
    assert await desk.assignment("default", ticket.uuid) == Assignment("gpu", True, True)
    assert await desk.assignment("default", waiting.uuid) is None
    assert await desk.assignment("other", ticket.uuid) is None
    (state,) = await desk.target_states()
    assert (state.name, state.unreachable_since, state.next_try_at) == ("gpu", None, None)
    chats.gate.set()
    await workshop.end_of_all([ticket, *others])
    assert await desk.assignment("default", ticket.uuid) == Assignment("gpu", True, False)
