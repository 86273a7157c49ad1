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
from coatcheck.products.llm.queries import SlotOffer
from coatcheck.products.llm.repository import Assignment, LlmRepository
from coatcheck.worker.worker import Worker
from tests.deployment import Deployment
from tests.waiting import until_true

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
        self.service = Service(LLM_SERVICE, product="llm")
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


async def submit(deployment: Deployment, jobs: int) -> list[Ticket]:
    return [await deployment.engine.submit(CHAT, queue_key="a:1") for _ in range(jobs)]


async def test_its_jobs_run_and_are_handed_in_as_any_other(deployment: Deployment) -> None:
    chats, claims = Chats(), Claims()
    chats.gate.set()
    await deployment.run_worker(Worker(deployment.settings, [chats.service], claims=claims))
    views = await deployment.wait_for_ends(await submit(deployment, 20))
    assert {(view.state, view.result) for view in views} == {(State.COMPLETED, b'"done"')}


async def test_a_target_s_concurrency_holds_over_workers(deployment: Deployment) -> None:
    chats = Chats()
    for _ in range(2):
        await deployment.run_worker(Worker(deployment.settings, [chats.service], claims=Claims()))
    tickets = await submit(deployment, 12)
    await until_true(lambda: chats.running == CONCURRENCY, "as many run as may")
    chats.gate.set()
    await deployment.wait_for_ends(tickets)
    assert chats.most == CONCURRENCY


async def test_nothing_is_claimed_in_another_way(deployment: Deployment) -> None:
    chats, claims = Chats(), Claims()
    chats.gate.set()
    claims.open = False
    worker = Worker(deployment.settings, [chats.service], claims=claims)
    await deployment.run_worker(worker)
    (ticket,) = await submit(deployment, 1)
    asked = claims.asked
    await until_true(lambda: claims.asked > asked + 1, "it is asked again")
    assert await deployment.state(ticket) is State.QUEUED

    claims.open = True
    worker.look_for_work()
    await deployment.wait_for_end(ticket)


async def test_it_looks_for_work_when_told_to(deployment: Deployment) -> None:
    """There is no notification, and the next look by itself is an hour away."""
    chats, claims = Chats(), Claims()
    chats.gate.set()
    claims.open = False
    settings = deployment.settings_with(poll_seconds_min=3_600.0, poll_seconds_max=3_600.0)
    worker = await deployment.run_worker(Worker(settings, [chats.service], claims=claims))
    (ticket,) = await submit(deployment, 1)
    await until_true(lambda: claims.asked >= 2, "it was asked when the job came")
    claims.open = True
    worker.look_for_work()
    assert (await deployment.wait_for_end(ticket)).state is State.COMPLETED


async def test_a_claim_whose_answer_was_lost_is_given_back(deployment: Deployment) -> None:
    chats, claims = Chats(), Claims()
    chats.gate.set()
    claims.lose_one = True
    await deployment.run_worker(Worker(deployment.settings, [chats.service], claims=claims))
    (ticket,) = await submit(deployment, 1)
    view = await deployment.wait_for_end(ticket)
    assert (view.state, view.interruptions) == (State.COMPLETED, 1)


async def test_the_engine_says_where_a_job_is(deployment: Deployment) -> None:
    chats = Chats()
    await deployment.run_worker(Worker(deployment.settings, [chats.service], claims=Claims()))
    ticket, *others = await submit(deployment, CONCURRENCY + 1)
    waiting = others[-1]
    desk = deployment.engine.extension(LlmRepository)
    await until_true(lambda: chats.running == CONCURRENCY, "as many run as may")
    assert await desk.assignment("default", ticket.uuid) == Assignment("gpu", True, True)
    assert await desk.assignment("default", waiting.uuid) is None
    assert await desk.assignment("other", ticket.uuid) is None
    (state,) = await desk.target_states()
    assert (state.name, state.unreachable_since, state.next_try_at) == ("gpu", None, None)
    chats.gate.set()
    await deployment.wait_for_ends([ticket, *others])
    assert await desk.assignment("default", ticket.uuid) == Assignment("gpu", True, False)
