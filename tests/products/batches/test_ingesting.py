"""Lists that a worker takes in: what becomes of their lines, and of lists that are not right."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coatcheck.domain.errors import FailJob, RetryLater, TargetUnreachable
from coatcheck.domain.ids import to_text
from coatcheck.domain.limits import BAD_LINES_KEPT_MAX
from coatcheck.products.batches import ingest, ingest_repository
from coatcheck.products.batches.model import BatchState, task_id
from tests.db.edge_guard import unguarded
from tests.db.rows import recorded
from tests.products.batches.ingest_deployment import (
    ENDPOINT,
    ORG,
    OWNER,
    IngestDeployment,
    new_batch,
)


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[IngestDeployment]:
    async with IngestDeployment(dsn, tmp_path) as opened:
        yield opened


def numbers(count: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % number for number in range(count))


async def test_a_list_becomes_tasks_numbered_in_its_order(deployment: IngestDeployment) -> None:
    new, part = await deployment.create(numbers(3))
    report = await deployment.ingest(part)

    tasks = await deployment.tasks(new.run)
    assert (report.state, report.lines, report.tasks) == ("done", 3, 3)
    assert [task["task_index"] for task in tasks] == [0, 1, 2]
    assert [task["id"].bytes for task in tasks] == [task_id(new.run, at) for at in range(3)]
    assert [task["payload"] for task in tasks] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    first = tasks[0]
    assert (first["org_id"], first["owner"], first["endpoint"]) == (ORG, OWNER, ENDPOINT)
    assert (first["lane"], first["state"], first["failures_max"]) == ("bulk", "queued", 3)
    assert (first["flow"], first["request_id"]) == (new.run.hex, "req-1")
    assert (first["custom_id"], first["webhook"], first["expires_at"]) == (None, None, None)


async def test_a_run_is_latched_with_its_total_once_its_list_is_in(
    deployment: IngestDeployment,
) -> None:
    new, part = await deployment.create(numbers(5))
    before = await deployment.view(new)
    await deployment.ingest(part)
    after = await deployment.view(new)

    assert (before.status, before.current.counts.total) == (BatchState.INGESTING, 0)
    assert (after.status, after.current.counts.total) == (BatchState.RUNNING, 5)
    row = await deployment.run_row(new.run)
    assert (row["total"], row["tasks"], row["latched_at"] is not None) == (5, 5, True)


async def test_a_list_that_was_taken_in_is_deleted_wherever_it_was_staged(
    deployment: IngestDeployment,
) -> None:
    _, in_pieces = await deployment.create(numbers(2))
    uploaded = await deployment.uploaded(numbers(2))
    await deployment.batches.create(new_batch(), uploaded)
    assert len(await deployment.staged_blobs()) == 2

    await deployment.ingest(in_pieces)
    await deployment.ingest(uploaded)

    assert await deployment.staged_blobs() == []


async def test_what_was_taken_in_already_is_not_taken_in_again(
    deployment: IngestDeployment,
) -> None:
    new, part = await deployment.create(numbers(2))
    await deployment.ingest(part)
    again = await deployment.ingest(part)

    assert (again.state, again.tasks) == ("done", 2)
    assert len(await deployment.tasks(new.run)) == 2
    assert (await deployment.run_row(new.run))["total"] == 2


async def test_a_bad_line_fails_alone_and_is_told_with_its_number(
    deployment: IngestDeployment,
) -> None:
    data = b'1\n{"oops\n\n{"custom_id":"four","input":4}\n"\xff"\n6\n'
    new, part = await deployment.create(data)
    await deployment.ingest(part)

    view = await deployment.view(new)
    tasks = await deployment.tasks(new.run)
    assert [(task["task_index"], task["custom_id"], task["payload"]) for task in tasks] == [
        (0, None, b"1"),
        (1, "four", b"4"),
        (2, None, b"6"),
    ]
    assert (view.current.lines, view.current.bad_lines, view.current.counts.total) == (6, 2, 3)
    bad, following = await deployment.batches.dead_letters.bad_lines(view, view.current)
    assert [(each.line, each.code) for each in bad] == [(2, "not_json"), (5, "not_utf8")]
    assert following is None


async def test_bad_lines_are_paged_and_those_beyond_the_first_thousand_only_counted(
    deployment: IngestDeployment,
) -> None:
    new, part = await deployment.create(b"oops\n" * (BAD_LINES_KEPT_MAX + 500) + b"1\n")
    await deployment.ingest(part)

    view = await deployment.view(new)
    found: list[int] = []
    cursor: str | None = None
    while True:
        page, cursor = await deployment.batches.dead_letters.bad_lines(
            view, view.current, after=cursor, limit=200
        )
        found += [bad.line for bad in page]
        if cursor is None:
            break
    assert found == list(range(1, BAD_LINES_KEPT_MAX + 1))
    assert view.current.bad_lines == BAD_LINES_KEPT_MAX + 500
    assert view.current.counts.total == 1


async def test_a_payload_is_the_input_in_its_frame(deployment: IngestDeployment) -> None:
    new, part = await deployment.create(
        b'1\n{"custom_id":"a","input":[2]}\n', payload_prefix=b'{"body":', payload_suffix=b"}"
    )
    await deployment.ingest(part)

    payloads = [task["payload"] for task in await deployment.tasks(new.run)]
    assert payloads == [b'{"body":1}', b'{"body":[2]}']


async def test_tasks_of_a_run_with_a_rate_for_each_key_stand_in_a_flow_for_each(
    deployment: IngestDeployment,
) -> None:
    new, part = await deployment.create(
        b'{"url":"https://a.example/1"}\n{"url":"https://B.example/"}\n{"nothing":1}\n',
        rate_key="url",
        rate_key_per_second=1.0,
    )
    await deployment.ingest(part)

    flows = [task["flow"] for task in await deployment.tasks(new.run)]
    assert flows == [f"{new.run.hex}/a.example", f"{new.run.hex}/b.example", new.run.hex]


async def test_tasks_whose_failure_is_told_by_webhook_are_marked(
    deployment: IngestDeployment,
) -> None:
    new, part = await deployment.create(
        numbers(1), webhook_url="https://example.org/hook", webhook_events=("task.failed",)
    )
    await deployment.ingest(part)

    assert [task["webhook"] for task in await deployment.tasks(new.run)] == [3]


async def test_a_list_of_many_chunks_is_taken_in_whole(
    deployment: IngestDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "CHUNK_LINES", 1_000)
    new = new_batch()
    part = await deployment.staged(new.uuid, b"\xef\xbb\xbf" + numbers(50_000))
    await deployment.batches.create(new, part)
    report = await deployment.ingest(part)

    tasks = await deployment.tasks(new.run)
    assert report.tasks == 50_000
    assert [json.loads(task["payload"])["n"] for task in tasks] == list(range(50_000))
    row = await deployment.part_row(part)
    assert (row["source_offset"], row["lines"]) == (part.source_bytes, 50_000)


async def test_a_line_longer_than_a_task_may_be_is_bad_and_the_next_are_not(
    deployment: IngestDeployment,
) -> None:
    new, part = await deployment.create(b'1\n"' + b"x" * 5_000_000 + b'"\n3\n')
    await deployment.ingest(part)

    view = await deployment.view(new)
    bad, _ = await deployment.batches.dead_letters.bad_lines(view, view.current)
    assert [(each.line, each.code) for each in bad] == [(2, "line_too_long")]
    assert [task["payload"] for task in await deployment.tasks(new.run)] == [b"1", b"3"]


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"\n \r\n\n", "list_empty", "only blank lines"),
        (b"oops\n\n[1,\n", "no_usable_line", "of 3 lines 2 are invalid"),
        ("eins\nzwei\n".encode("utf-16"), "no_usable_line", "are invalid"),
    ],
)
async def test_a_list_without_a_task_is_a_dead_letter(
    deployment: IngestDeployment, data: bytes, code: str, message: str
) -> None:
    new, part = await deployment.create(data)
    with pytest.raises(FailJob, match=message) as failed:
        await deployment.ingest(part)

    view = await deployment.view(new)
    (letter,) = await deployment.batches.dead_letters.page(ORG, owner=OWNER)
    assert failed.value.code == code
    assert (view.status, view.current.error_code) == (BatchState.FAILED_INGEST, code)
    assert (letter.uuid, letter.batch, letter.error_code) == (part.uuid, new.uuid, code)
    assert message in letter.error_message
    assert await deployment.staged_blobs() != [], "a redrive may want it"


async def test_an_empty_upload_is_a_dead_letter(deployment: IngestDeployment) -> None:
    part = await deployment.uploaded(b"")
    await deployment.batches.create(new_batch(), part)

    with pytest.raises(FailJob) as failed:
        await deployment.ingest(part)
    assert failed.value.code == "list_empty"


async def test_a_list_that_ends_in_the_middle_of_a_line_has_a_bad_last_line(
    deployment: IngestDeployment,
) -> None:
    new, part = await deployment.create('1\n2\n{"a": "grü'.encode()[:-1])
    await deployment.ingest(part)

    view = await deployment.view(new)
    bad, _ = await deployment.batches.dead_letters.bad_lines(view, view.current)
    assert [(each.line, each.code) for each in bad] == [(3, "not_utf8")]
    assert view.current.counts.total == 2


async def test_a_list_that_is_gone_is_a_dead_letter_and_is_taken_in_once_it_is_back(
    deployment: IngestDeployment,
) -> None:
    part = await deployment.uploaded(numbers(3))
    new = new_batch()
    await deployment.batches.create(new, part)
    assert part.source_key is not None
    await deployment.blobs.delete([part.source_key])
    with pytest.raises(FailJob) as failed:
        await deployment.ingest(part)
    assert failed.value.code == "list_missing"

    await deployment.blobs.put(part.source_key, numbers(3))
    await deployment.batches.dead_letters.redrive(ORG, to_text(part.uuid), OWNER)
    await deployment.ingest(part)

    view = await deployment.view(new)
    assert (view.status, view.current.counts.total) == (BatchState.RUNNING, 3)


async def test_a_list_that_lost_a_piece_stops_there_and_goes_on_from_there(
    deployment: IngestDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "CHUNK_LINES", 100)
    data = b"".join(b'{"n":"%07d","pad":"%s"}\n' % (n, b"x" * 100) for n in range(100_000))
    new, part = await deployment.create(data)
    last_piece = max(await deployment.staged_blobs())
    lost = await deployment.blobs.get(last_piece)
    await deployment.blobs.delete([last_piece])
    with pytest.raises(FailJob) as failed:
        await deployment.ingest(part)
    assert failed.value.code == "list_missing"
    taken_in = (await deployment.run_row(new.run))["tasks"]
    assert 0 < taken_in < 100_000

    await deployment.blobs.put_whole(last_piece, lost)
    await deployment.batches.dead_letters.redrive(ORG, to_text(part.uuid), OWNER)
    await deployment.ingest(part)

    found = await deployment.sql.fetchrow(
        """
        SELECT count(*) AS tasks, count(DISTINCT payload) AS payloads, max(task_index) AS last
        FROM jobs WHERE run_id = $1
        """,
        new.run,
    )
    assert found is not None
    assert tuple(found) == (100_000, 100_000, 99_999)


async def test_a_list_shorter_than_it_was_is_truncated_and_its_last_line_is_not_taken(
    deployment: IngestDeployment,
) -> None:
    part = await deployment.uploaded(numbers(10))
    new = new_batch()
    await deployment.batches.create(new, part)
    assert part.source_key is not None
    await deployment.blobs.put(part.source_key, numbers(10)[:-5])

    with pytest.raises(FailJob) as failed:
        await deployment.ingest(part)

    assert failed.value.code == "list_truncated"
    assert await deployment.tasks(new.run) == []


async def test_pieces_that_are_shorter_than_they_were_are_a_truncated_list(
    deployment: IngestDeployment,
) -> None:
    new = new_batch()
    part = await deployment.staged(new.uuid, numbers(10))
    assert part.source_bytes is not None
    await deployment.batches.create(new, replace(part, source_bytes=part.source_bytes + 1))

    with pytest.raises(FailJob) as failed:
        await deployment.ingest(part)
    assert failed.value.code == "list_truncated"


async def test_a_list_that_was_replaced_by_a_longer_one_is_refused(
    deployment: IngestDeployment,
) -> None:
    part = await deployment.uploaded(numbers(10))
    await deployment.batches.create(new_batch(), part)
    assert part.source_key is not None
    await deployment.blobs.put(part.source_key, numbers(11))

    with pytest.raises(FailJob) as failed:
        await deployment.ingest(part)
    assert failed.value.code == "list_changed"


async def test_a_run_takes_no_more_tasks_than_it_may_have(
    deployment: IngestDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_repository, "RUN_TASKS_MAX", 4)
    new, part = await deployment.create(numbers(5))

    with pytest.raises(FailJob) as failed:
        await deployment.ingest(part)

    assert failed.value.code == "too_many_tasks"
    assert await deployment.tasks(new.run) == []
    assert (await deployment.view(new)).status is BatchState.FAILED_INGEST


async def test_a_blob_store_that_is_away_costs_an_attempt_and_no_list(
    deployment: IngestDeployment, tmp_path: Path
) -> None:
    new, part = await deployment.create(numbers(2))
    (tmp_path / "blobs").rename(tmp_path / "away")

    with pytest.raises(RetryLater) as failed:
        await deployment.ingest(part)
    assert failed.value.code == "blob_store_unavailable"
    assert (await deployment.part_row(part))["state"] == "pending"

    (tmp_path / "away").rename(tmp_path / "blobs")
    await deployment.ingest(part)
    assert len(await deployment.tasks(new.run)) == 2


async def test_lists_of_an_open_batch_are_taken_in_one_after_the_other(
    deployment: IngestDeployment,
) -> None:
    new, first = await deployment.create(b"1\n2\n", is_open=True)
    second = await deployment.staged(new.uuid, b"3\n")
    await deployment.batches.add(ORG, new.uuid, second, None)

    with pytest.raises(TargetUnreachable):
        await deployment.ingest(second)
    await deployment.ingest(first)
    await deployment.ingest(second)
    open_still = await deployment.view(new)
    closed = await deployment.batches.close(to_text(new.uuid), org=ORG)

    assert [task["payload"] for task in await deployment.tasks(new.run)] == [b"1", b"2", b"3"]
    assert (open_still.status, closed.status) == (BatchState.OPEN, BatchState.RUNNING)
    assert (await deployment.run_row(new.run))["total"] == 3


@pytest.mark.parametrize("data", [b"1\n", b"\n"], ids=["taken in", "unusable"])
async def test_the_list_that_comes_next_is_called_and_need_not_ask_often(
    deployment: IngestDeployment, data: bytes
) -> None:
    new, first = await deployment.create(data, is_open=True)
    others = [await deployment.staged(new.uuid, b"2\n") for _ in range(2)]
    for other in others:
        await deployment.batches.add(ORG, new.uuid, other, None)
    jobs = [(await deployment.part_row(other))["ingest_job"] for other in others]
    async with unguarded(deployment.sql):
        await deployment.sql.execute(
            recorded(
                "UPDATE jobs SET state = 'retrying', run_at = now() + interval '1 hour' "
                "WHERE id = ANY ($1)"
            ),
            jobs,
        )
        await deployment.sql.execute("DELETE FROM queue WHERE id = ANY ($1)", jobs)
    with suppress(FailJob):
        await deployment.ingest(first)

    states = [
        await deployment.sql.fetchval("SELECT state::text FROM jobs WHERE id = $1", job)
        for job in jobs
    ]
    assert states == ["queued", "retrying"]


async def test_a_batch_closed_while_its_list_comes_in_is_latched_with_all_of_it(
    deployment: IngestDeployment,
) -> None:
    new, part = await deployment.create(b"1\n2\n", is_open=True)
    closed = await deployment.batches.close(to_text(new.uuid), org=ORG)
    assert closed.status is BatchState.INGESTING
    await deployment.ingest(part)

    assert (await deployment.run_row(new.run))["total"] == 2


async def test_a_list_that_failed_does_not_hold_up_those_after_it(
    deployment: IngestDeployment,
) -> None:
    new, first = await deployment.create(b"oops\n", is_open=True)
    second = await deployment.staged(new.uuid, b"1\n")
    await deployment.batches.add(ORG, new.uuid, second, None)
    with pytest.raises(FailJob):
        await deployment.ingest(first)

    assert (await deployment.ingest(second)).tasks == 1


async def test_nothing_is_taken_into_a_run_that_was_cancelled(deployment: IngestDeployment) -> None:
    new, part = await deployment.create(numbers(2))
    await deployment.batches.cancel(to_text(new.uuid), org=ORG)

    assert (await deployment.ingest(part)).state == "cancelled"
    assert await deployment.tasks(new.run) == []


async def test_nothing_is_taken_into_a_batch_that_was_deleted(deployment: IngestDeployment) -> None:
    new, part = await deployment.create(numbers(2))
    await deployment.batches.delete(to_text(new.uuid), org=ORG)

    assert (await deployment.ingest(part)).state == "cancelled"
    assert await deployment.tasks(new.run) == []


async def test_how_far_a_list_was_taken_in_is_shown_chunk_by_chunk(
    deployment: IngestDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "CHUNK_LINES", 1)
    data = b"".join(b'{"n":%d,"pad":"%s"}\n' % (n, b"x" * 1_000) for n in range(1_000))
    new, part = await deployment.create(data)
    seen: list[int] = []
    write = ingest.list_chunks

    async def watched(*of: Any) -> AsyncIterator[object]:
        async for chunk in write(*of):
            seen.append((await deployment.view(new)).current.lines)
            yield chunk

    monkeypatch.setattr(ingest, "list_chunks", watched)
    await deployment.ingest(part)

    assert seen == sorted(seen)
    assert 0 < seen[-1] < 1_000
