"""Dead letters: lists that could not be taken in, and those who have them taken in after all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.domain.errors import FailJob, InvalidParameter, NotFound
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.listing import PageQuery
from coatcheck.domain.webhooks import INTERNAL
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches.ingest_repository import TaskBlock, encode, ingest_job
from coatcheck.products.batches.model import INGEST_ENDPOINT, BatchState, NewBatch, NewPart
from tests.products.batches.ingest_deployment import ORG, OWNER, IngestDeployment, new_batch


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[IngestDeployment]:
    async with IngestDeployment(dsn, tmp_path) as opened:
        yield opened


async def dead_letter(deployment: IngestDeployment, **changes: object) -> tuple[NewBatch, NewPart]:
    """A batch whose upload has gone, and is missed."""
    part = await deployment.uploaded(b"1\n2\n")
    new = new_batch(**changes)
    await deployment.batches.create(new, part)
    assert part.source_key is not None
    await deployment.blobs.delete([part.source_key])
    with pytest.raises(FailJob):
        await deployment.ingest(part)
    return new, part


async def test_a_redrive_gives_the_list_a_fresh_job_and_the_batch_goes_on(
    deployment: IngestDeployment,
) -> None:
    new, part = await dead_letter(deployment)
    before = (await deployment.part_row(part))["ingest_job"]
    letter = await deployment.batches.dead_letters.redrive(ORG, to_text(part.uuid), OWNER)

    row = await deployment.part_row(part)
    job = await deployment.sql.fetchrow("SELECT * FROM jobs WHERE id = $1", row["ingest_job"])
    assert job is not None
    assert (letter.uuid, letter.redrives, letter.error_code) == (part.uuid, 1, "list_missing")
    assert (row["state"], row["ingest_job"] != before) == ("pending", True)
    assert (job["endpoint"], job["state"], job["org_id"]) == (INGEST_ENDPOINT, "queued", ORG)
    assert job["webhook"] == INTERNAL, "no endpoint is sent its moves"
    assert (await deployment.view(new)).status is BatchState.INGESTING
    assert await deployment.batches.dead_letters.page(ORG, owner=OWNER) == []


async def test_a_redrive_whose_answer_was_lost_is_not_done_twice(
    deployment: IngestDeployment,
) -> None:
    _, part = await dead_letter(deployment)
    job = ingest_job(ORG, part.uuid, None)
    first = await ingest.redrive(deployment.ingest_connection, part.uuid, OWNER, job)
    again = await ingest.redrive(deployment.ingest_connection, part.uuid, OWNER, job)

    assert (first.redrives, again.redrives) == (1, 1)
    jobs = await deployment.sql.fetchval("SELECT count(*) FROM jobs WHERE id = $1", job.uuid)
    assert jobs == 1


async def test_what_is_no_dead_letter_of_the_owners_is_not_found(
    deployment: IngestDeployment,
) -> None:
    _, part = await dead_letter(deployment)
    _, healthy = await deployment.create(b"1\n")
    letters = deployment.batches.dead_letters

    for org, letter_id, owner in (
        (ORG, to_text(new_id()), OWNER),
        (ORG, "no id", OWNER),
        (ORG, to_text(healthy.uuid), OWNER),
        (ORG, to_text(part.uuid), "somebody else"),
        ("another org", to_text(part.uuid), OWNER),
    ):
        with pytest.raises(NotFound, match="there is no such dead letter"):
            await letters.redrive(org, letter_id, owner)
    assert (await letters.redrive(ORG, to_text(part.uuid), None)).uuid == part.uuid


async def test_dead_letters_are_listed_newest_first_a_page_at_a_time(
    deployment: IngestDeployment,
) -> None:
    mine = [(await dead_letter(deployment))[1].uuid for _ in range(3)]
    foreign = new_batch(owner="somebody else")
    part = await deployment.staged(foreign.uuid, b"oops")
    await deployment.batches.create(foreign, part)
    with pytest.raises(FailJob):
        await deployment.ingest(part)
    letters = deployment.batches.dead_letters

    first = await letters.page(ORG, PageQuery(limit=2), owner=OWNER)
    rest = await letters.page(ORG, PageQuery(limit=2, after=first[-1].uuid), owner=OWNER)
    everybodys = await letters.page(ORG, owner=None)

    assert [each.uuid for each in (*first, *rest)] == sorted(mine, reverse=True)
    assert {each.uuid for each in everybodys} == {*mine, part.uuid}
    assert await letters.page("another org", owner=None) == []


@pytest.mark.parametrize(("after", "limit"), [("nonsense", 10), (None, 0), (None, 201)])
async def test_a_page_of_bad_lines_that_cannot_be_is_refused(
    deployment: IngestDeployment, after: str | None, limit: int
) -> None:
    new, _ = await deployment.create(b"1\n")
    view = await deployment.view(new)
    with pytest.raises(InvalidParameter):
        await deployment.batches.dead_letters.bad_lines(
            view, view.current, after=after, limit=limit
        )


async def test_a_dead_letter_of_a_deleted_batch_is_gone(deployment: IngestDeployment) -> None:
    new, part = await dead_letter(deployment)
    await deployment.batches.delete(to_text(new.uuid), org=ORG)

    assert await deployment.batches.dead_letters.page(ORG, owner=OWNER) == []
    with pytest.raises(NotFound):
        await deployment.batches.dead_letters.redrive(ORG, to_text(part.uuid), OWNER)


async def test_a_list_of_a_cancelled_run_is_not_redriven(deployment: IngestDeployment) -> None:
    new, part = await dead_letter(deployment)
    await deployment.batches.cancel(to_text(new.uuid), org=ORG)

    with pytest.raises(NotFound):
        await deployment.batches.dead_letters.redrive(ORG, to_text(part.uuid), OWNER)


async def test_tasks_taken_in_before_a_list_failed_stay_and_the_run_cannot_complete(
    deployment: IngestDeployment,
) -> None:
    new = new_batch()
    part = await deployment.uploaded(b"1\n2\n")
    await deployment.batches.create(new, part)
    order = await ingest.read_snapshot(deployment.ingest_connection, ORG, part.uuid)
    assert order is not None
    block = TaskBlock([b"1"], [None], None, (), 1, 2)
    await ingest.write_chunk(
        deployment.ingest_connection, order, await encode(order, 0, [block]), is_last=False
    )
    assert part.source_key is not None
    await deployment.blobs.delete([part.source_key])
    with pytest.raises(FailJob):
        await deployment.ingest(part)

    view = await deployment.view(new)
    assert [task["state"] for task in await deployment.tasks(new.run)] == ["queued"]
    assert (view.status, view.current.counts.pending) == (BatchState.FAILED_INGEST, 1)
    assert not await ingest.latch(deployment.ingest_connection, ORG, new.run)
