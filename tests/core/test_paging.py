"""Pages of jobs: newest first, narrowed, numbered or resumed, and counted up to a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from coatcheck.core import Engine, Submission, Ticket
from coatcheck.core.queries import jobs
from coatcheck.domain.errors import DatabaseUnavailable, InvalidSubmission, JobNotFound
from coatcheck.domain.job import JobPage, JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.settings import Settings
from tests.db.claimer import claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, put_job, put_queue

OTHER = "demo.post__other"
UPSTREAM = "gateway.post__http"
TOTAL_MAX = 10_000


def ids(views: Sequence[JobView]) -> list[str]:
    return [view.id for view in views]


def newest_first(*tickets: Ticket) -> list[str]:
    """Their ids in a page's order. Of one millisecond, which of two is newer is left to chance."""
    return sorted((ticket.id for ticket in tickets), reverse=True)


def shape(page: JobPage) -> tuple[int, int, bool]:
    return len(page.items), page.total, page.total_is_exact


async def test_pages_are_newest_first_by_number_or_by_the_last_id(engine: Engine) -> None:
    tickets = await engine.submit_many([Submission(ENDPOINT) for _ in range(7)])
    in_order = [ticket.id for ticket in reversed(tickets)]
    numbered = [await engine.page(endpoints=[ENDPOINT], offset=at, limit=3) for at in (0, 3, 6)]
    assert [ids(page.items) for page in numbered] == [
        in_order[:3],
        in_order[3:6],
        in_order[6:],
    ]
    assert [(page.total, page.total_is_exact) for page in numbered] == [(7, True)] * 3
    resumed = await engine.page(endpoints=[ENDPOINT], after=in_order[2], limit=3)
    assert (ids(resumed.items), resumed.total) == (in_order[3:6], 7)


async def test_a_page_and_its_total_are_narrowed_by_the_time_of_creation(engine: Engine) -> None:
    older = [await engine.submit(ENDPOINT) for _ in range(3)]
    at = (await engine.get(older[-1].id)).created_at
    newer = [await engine.submit(ENDPOINT) for _ in range(2)]
    for endpoints in (None, [ENDPOINT]):  # among all jobs, and by service
        page = await engine.page(endpoints=endpoints, created_before=at, limit=1)
        assert (ids(page.items), page.total) == (newest_first(*older[:2])[:1], 2)
        page = await engine.page(endpoints=endpoints, created_after=at)
        assert sorted(ids(page.items)) == sorted(each.id for each in (older[-1], *newer))


async def test_a_page_beyond_the_end_is_empty_and_still_knows_the_total(engine: Engine) -> None:
    await engine.submit_many([Submission(ENDPOINT) for _ in range(3)])
    assert shape(await engine.page(endpoints=[ENDPOINT], offset=5)) == (0, 3, True)
    assert shape(await engine.page(endpoints=["demo.post__none"])) == (0, 0, True)


@pytest.mark.parametrize("owner", [None, "user:ann"])
async def test_a_page_shows_jobs_in_every_state(
    owner: str | None, engine: Engine, connection: AsyncpgConnection
) -> None:
    jobs = [
        await put_job(connection, state, org_id="default", owner=owner or "") for state in State
    ]
    page = await engine.page(endpoints=[ENDPOINT], owner=owner)
    assert [view.uuid for view in page.items] == sorted((j.uuid for j in jobs), reverse=True)
    assert page.total == len(State)
    for state in State:
        (view,) = (await engine.page(endpoints=[ENDPOINT], states=[state], owner=owner)).items
        assert view.state is state


async def test_a_page_is_narrowed_by_endpoint_lane_and_state(engine: Engine) -> None:
    urgent = await engine.submit(ENDPOINT, lane="urgent")
    other = await engine.submit(OTHER)
    cancelled = await engine.submit(ENDPOINT)
    await engine.cancel(cancelled.id)
    await engine.submit("elsewhere.post__work")
    both = [ENDPOINT, OTHER]
    assert ids((await engine.page(endpoints=both)).items) == newest_first(urgent, other, cancelled)
    assert ids((await engine.page(endpoints=both, lane=Lane.URGENT)).items) == [urgent.id]
    page = await engine.page(endpoints=both, states=[State.CANCELLED, State.FAILED])
    assert (ids(page.items), page.total) == ([cancelled.id], 1)
    assert (await engine.page(endpoints=[])).items == []
    assert len((await engine.page()).items) == 4


async def test_a_queue_key_prefix_is_taken_letter_by_letter(engine: Engine) -> None:
    """What is a wildcard to LIKE is a letter here."""
    keys = ["docs.v1.get__a", "docs.v1.get__b", "docs.v11.get__a", "docsXv1.get__a", "d%"]
    tickets = {key: await engine.submit(UPSTREAM, queue_key=key, owner="x") for key in keys}

    async def found(prefix: str) -> list[str]:
        page = await engine.page(endpoints=[UPSTREAM], queue_key_prefix=prefix, owner="x")
        assert page.total == len(page.items)
        return ids(page.items)

    assert await found("docs.v1.") == newest_first(*(tickets[key] for key in keys[:2]))
    assert await found("docs.") == newest_first(*(tickets[key] for key in keys[:3]))
    assert await found("d%") == [tickets["d%"].id]
    assert await found("docs_v1") == []
    assert await found("d\\%") == []
    assert len(await found("")) == len(keys)


async def test_a_page_shows_an_owner_their_jobs_and_what_is_anyone_s(engine: Engine) -> None:
    mine = await engine.submit(ENDPOINT, owner="user:ann")
    theirs = await engine.submit(ENDPOINT, owner="user:bob")
    anyones = await engine.submit(ENDPOINT, owner="*")
    for ended in (mine, theirs, anyones):
        await engine.cancel(ended.id)
    page = await engine.page(endpoints=[ENDPOINT], owner="user:ann")
    assert (ids(page.items), page.total) == (newest_first(mine, anyones), 2)
    everyones = await engine.page(endpoints=[ENDPOINT])
    assert ids(everyones.items) == newest_first(mine, theirs, anyones)


async def test_with_very_many_owners_a_page_still_shows_everybody_s_jobs(engine: Engine) -> None:
    """More than are looked for one by one."""
    owners = [f"user:{number}" for number in range(250)]
    tickets = await engine.submit_many([Submission(ENDPOINT, owner=owner) for owner in owners])
    await asyncio.gather(*(engine.cancel(ticket.id) for ticket in tickets))
    page = await engine.page(endpoints=[ENDPOINT], limit=200)
    assert (ids(page.items), page.total) == (newest_first(*tickets)[:200], 250)
    assert {view.owner for view in page.items} < set(owners)


async def test_a_page_shows_nothing_of_another_organisation(engine: Engine) -> None:
    await engine.submit(ENDPOINT, org="them")
    assert shape(await engine.page(org="us", endpoints=[ENDPOINT])) == (0, 0, True)


async def test_a_page_leaves_results_out(dsn: str, engine: Engine) -> None:
    await engine.submit(ENDPOINT)
    async with claimer(dsn) as worker:
        (job,) = await worker.claim(1)
        await worker.complete(job, result=b'"large"')
    (view,) = (await engine.page(endpoints=[ENDPOINT])).items
    assert (view.state, view.result) == (State.COMPLETED, None)


@pytest.mark.parametrize("owner", [None, "user:ann"])
async def test_names_that_meet_in_the_index_are_told_apart(
    owner: str | None, engine: Engine
) -> None:
    """It holds a hash of the service's and the organisation's name, one after the other."""
    ours = await engine.submit("dem.post__work", org="ox", owner="user:ann")
    theirs = await engine.submit("demo.post__work", org="x", owner="user:ann")
    await engine.cancel(ours.id, org="ox")
    await engine.cancel(theirs.id, org="x")
    both = ["dem.post__work", "demo.post__work"]
    assert ids((await engine.page(org="ox", endpoints=both, owner=owner)).items) == [ours.id]
    assert ids((await engine.page(org="x", endpoints=both, owner=owner)).items) == [theirs.id]
    assert (await engine.page(org="o", endpoints=both, owner=owner)).total == 0


@pytest.mark.parametrize("owner", [None, "user:ann"])
async def test_a_total_is_not_counted_beyond_its_bound(
    owner: str | None, engine: Engine, connection: AsyncpgConnection
) -> None:
    async def page() -> tuple[int, int, bool]:
        return shape(await engine.page(endpoints=[ENDPOINT], owner=owner, limit=2))

    await put_queue(connection, TOTAL_MAX, org="default", owner=owner or "")
    assert await page() == (2, TOTAL_MAX, True)
    await put_queue(connection, 1, org="default", owner=owner or "")
    assert await page() == (2, TOTAL_MAX, False)
    await put_queue(
        connection, 2 * TOTAL_MAX, org="default", owner=owner or ""
    )  # a queue that is not read whole
    assert await page() == (2, TOTAL_MAX, False)


@pytest.mark.parametrize(("field", "value"), [("limit", 0), ("limit", 201), ("offset", -1)])
async def test_a_page_has_bounds(field: str, value: int, engine: Engine) -> None:
    with pytest.raises(InvalidSubmission, match=f"{field}: must be"):
        await engine.page(**{field: value})  # type: ignore[arg-type]


async def test_a_page_after_what_is_no_id_is_refused(engine: Engine) -> None:
    with pytest.raises(JobNotFound):
        await engine.page(after="not an id")


async def test_a_list_that_takes_too_long_is_broken_off(
    settings: Settings, connection: AsyncpgConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the statement; nothing is left running, and it is not tried again."""
    monkeypatch.setattr(jobs, "LISTING", jobs.LISTING | {"statement_timeout": "50"})
    async with Engine(settings) as engine:
        async with connection.transaction():
            await connection.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(DatabaseUnavailable, match="took too long"):
                await engine.page()
        assert shape(await engine.page()) == (0, 0, True)


async def test_many_jobs_are_read_in_the_order_asked(engine: Engine) -> None:
    tickets = await engine.submit_many([Submission(ENDPOINT) for _ in range(5)])
    foreign = await engine.submit(ENDPOINT, org="them")
    wanted = [tickets[3].id, foreign.id, tickets[0].id, "not an id", tickets[3].id]
    views = await engine.get_many(wanted)
    assert [view and view.id for view in views] == [
        tickets[3].id,
        None,
        tickets[0].id,
        None,
        tickets[3].id,
    ]
    assert await engine.get_many([]) == []


async def test_a_backlog_is_counted_up_to_a_bound(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    for lane in Lane:
        await put_queue(connection, 4, org="default", lane=lane)
    await put_queue(connection, 2, org="default", endpoint=OTHER, flow="f")
    await put_queue(connection, 9, org="them")
    await engine.submit(ENDPOINT, delay=60)
    assert await engine.backlog("default", [ENDPOINT], 100) == 12
    assert await engine.backlog("default", [ENDPOINT, OTHER], 100) == 14
    assert await engine.backlog("default", [ENDPOINT, OTHER], 5) == 5
    assert await engine.backlog("nobody", [ENDPOINT], 5) == 0
    assert await engine.backlog("default", None, 100) == 14
    assert await engine.backlog("default", None, 5) == 5
    assert await engine.backlog("nobody", None, 5) == 0


async def test_a_job_that_runs_or_has_ended_is_no_backlog(dsn: str, engine: Engine) -> None:
    await engine.submit_many([Submission(ENDPOINT) for _ in range(3)])
    async with claimer(dsn) as worker:
        done, _ = await worker.claim(2)
        await worker.complete(done)
    assert await engine.backlog("default", [ENDPOINT], 100) == 1


async def test_ages_are_counted_by_the_database_s_clock(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    ticket = await engine.submit(ENDPOINT)
    before = await connection.fetchval("SELECT clock_timestamp()")
    view = await engine.get(ticket.id)
    assert view.created_at <= before <= view.read_at
    assert view.read_at <= await connection.fetchval("SELECT clock_timestamp()")
    assert view == await engine.get(ticket.id)  # a later look at the same is the same


@pytest.mark.parametrize("owner", ["", "user:ann", "claims:" + "0" * 64])
async def test_a_job_has_its_owner_however_it_was_handed_in(owner: str, engine: Engine) -> None:
    alone = await engine.submit(ENDPOINT, owner=owner)
    keyed = await engine.submit(ENDPOINT, owner=owner, idempotency_key="k")
    (copied,) = await engine.submit_many([Submission(ENDPOINT, owner=owner)])
    (inserted,) = await engine.submit_many([Submission(ENDPOINT, owner=owner, delay=1)])
    for ticket in (alone, keyed, copied, inserted):
        assert (await engine.get(ticket.id)).owner == owner


async def test_owners_of_one_statement_are_kept_apart(engine: Engine) -> None:
    owners = ["user:ann", "", "user:bob", "user:ann"]
    tickets = await engine.submit_many([Submission(ENDPOINT, owner=owner) for owner in owners])
    views = await engine.get_many([ticket.id for ticket in tickets])
    assert [view and view.owner for view in views] == owners


@pytest.mark.parametrize("owner", ["x" * 263, "a\0b", "\ud800", 7])
async def test_an_owner_is_checked_like_the_other_names(owner: str, engine: Engine) -> None:
    with pytest.raises(InvalidSubmission, match="owner: "):
        await engine.submit(ENDPOINT, owner=owner)


async def test_usage_can_be_read_as_soon_as_a_job_has_ended(
    dsn: str, engine: Engine, connection: AsyncpgConnection
) -> None:
    await engine.submit(ENDPOINT, {"n": 1})
    async with claimer(dsn) as worker:
        (job,) = await worker.claim(1)
        await worker.settle(job, TransitionEvent.FAIL)
    today = await connection.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date")
    (row,) = await engine.usage("default", today, today)
    assert (row.day, row.endpoint, row.queue_key) == (today, ENDPOINT, "")
    assert (row.jobs, row.failed) == (1, 1)
    assert row.payload_bytes == len(b'{"n":1}')
    assert await engine.usage("default", today, today, OTHER) == []
    assert await engine.usage("them", today, today) == []
    with pytest.raises(InvalidSubmission, match="last_day"):
        await engine.usage("default", today, today.replace(year=today.year - 1))
