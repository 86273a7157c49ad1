"""What goes over the wire for a batch, and what the client makes of answers and of broken lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from coatcheck.client import (
    BatchFailed,
    ConflictError,
    ExportFailed,
    NotFoundError,
    PermissionDeniedError,
    UnexpectedAnswer,
    WaitTimeout,
)
from coatcheck.client.task_lines import BODY_BYTES_MAX, LISTED_TASKS_MAX, PIECE_BYTES
from tests.client.conftest import TOKEN, Connect

BATCH_ID = "01JAV8M2Q0XW3N5T7R9Y1B3D5F"
EXPORT_ID = "01JAV8M2Q0XW3N5T7R9Y1B3D5G"
UPLOAD_ID = "01JAV8M2Q0XW3N5T7R9Y1B3D5H"
SIGNED = "/v1/blobs/token"
ABSENT = {"status": 404, "problem": {"code": "batch_not_found", "message": "no such batch"}}

Scripted = Callable[..., Any]


def batch(status: str = "running", **fields: Any) -> dict[str, Any]:
    counts = {"total": 3, "pending": 1, "running": 0, "succeeded": 1, "failed": 1, "cancelled": 0}
    return {
        "id": BATCH_ID,
        "type": "closed",
        "status": status,
        "service": "docs",
        "endpoint": "/analyze",
        "counts": counts,
        "ingest": {"lines": 4, "bad_lines": 1, "error": None},
        "runs": [],
        "terminal": status in ("completed", "cancelled", "failed_ingest"),
        **fields,
    }


def upload(url: str = SIGNED) -> dict[str, Any]:
    headers = {"Content-Type": "application/x-ndjson"}
    body = {"upload_id": UPLOAD_ID, "url": url, "method": "PUT", "headers": headers}
    return {"status": 201, "json": body}


def export(content: str, status: str = "completed", **fields: Any) -> dict[str, Any]:
    is_there = status == "completed"
    return {
        "id": EXPORT_ID,
        "status": status,
        "url": SIGNED if is_there else None,
        "bytes": len(content) if is_there else None,
        "sha256": hashlib.sha256(content.encode()).hexdigest() if is_there else None,
        "terminal": status != "pending",
        **fields,
    }


CREATED = {"status": 201, "json": batch()}
STORED = {"status": 201, "json": {"bytes": 1, "sha256": ""}}


async def test_a_short_list_goes_with_its_request(connect: Connect, scripted: Scripted) -> None:
    server = await scripted(CREATED)
    made = await connect(server.url).batches.submit(
        "docs",
        "/analyze",
        ({"n": n} for n in range(2)),
        version=2,
        is_open=True,
        asynchronous=True,
        lane="urgent",
        concurrency=3,
        rate=2.5,
        rate_key="url",
        key_rate=1,
        retries=0,
        keep_seconds=60,
        webhook_url="https://example.org/hook",
        webhook_events=("completed",),
        metadata={"a": 1},
        idempotency_key="mine",
    )
    (asked,) = server.asked
    assert (asked.method, asked.target) == ("POST", "/v1/jobs")
    assert asked.headers["idempotency-key"] == "mine"
    assert asked.headers["content-type"] == "application/json"
    assert json.loads(asked.body) == {
        "service": "docs",
        "endpoint": "/analyze",
        "tasks": [{"n": 0}, {"n": 1}],
        "version": 2,
        "type": "open",
        "async": True,
        "lane": "urgent",
        "concurrency": 3,
        "rate": {"per_second": 2.5, "key": "url", "key_per_second": 1},
        "retries": 0,
        "keep_seconds": 60,
        "webhook_url": "https://example.org/hook",
        "webhook_events": ["completed"],
        "metadata": {"a": 1},
    }
    assert (made.id, made.status, made.terminal) == (BATCH_ID, "running", False)
    assert (made.counts.total, made.counts.ended, made.ingest.bad_lines) == (3, 2, 1)


async def test_what_was_not_said_is_left_to_the_server(
    connect: Connect, scripted: Scripted
) -> None:
    server = await scripted(CREATED, CREATED)
    client = connect(server.url)
    for _ in range(2):
        await client.batches.submit("docs", "/analyze", [1])
    first, second = server.asked
    assert json.loads(first.body) == {"service": "docs", "endpoint": "/analyze", "tasks": [1]}
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


@pytest.mark.parametrize("number", [LISTED_TASKS_MAX - 1, LISTED_TASKS_MAX, 2 * LISTED_TASKS_MAX])
async def test_many_short_tasks_are_the_body_of_their_request(
    connect: Connect, scripted: Scripted, number: int
) -> None:
    server = await scripted(CREATED)
    tasks = [{"n": n} for n in range(number)]
    await connect(server.url).batches.submit(
        "docs",
        "/analyze",
        iter(tasks),
        asynchronous=True,
        rate=0.5,
        rate_key="url",
        webhook_url="https://example.org/hook?a=b&c",
        webhook_events=["completed", "task.failed"],
        metadata={"team": "search & co"},
        concurrency=4,
    )
    (asked,) = server.asked
    assert asked.path == "/v1/jobs"
    if number < LISTED_TASKS_MAX:
        assert json.loads(asked.body)["tasks"] == tasks
        return
    assert asked.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in asked.body.splitlines()] == tasks
    assert dict(parse_qsl(asked.target.partition("?")[2])) == {
        "service": "docs",
        "endpoint": "/analyze",
        "async": "true",
        "concurrency": "4",
        "rate_per_second": "0.5",
        "rate_key": "url",
        "webhook_url": "https://example.org/hook?a=b&c",
        "webhook_events": "completed,task.failed",
        "metadata": '{"team":"search & co"}',
    }


@pytest.mark.parametrize(
    "tasks",
    [
        pytest.param(["x" * 1000 for _ in range(BODY_BYTES_MAX // 1000)], id="few and long"),
        pytest.param([{"n": n} for n in range(BODY_BYTES_MAX // 8)], id="many and short"),
        pytest.param(["ü" * PIECE_BYTES, "x", "y" * PIECE_BYTES], id="longer than a piece"),
    ],
)
async def test_a_long_list_is_staged(
    connect: Connect, scripted: Scripted, tasks: list[Any]
) -> None:
    server = await scripted(upload(), STORED, CREATED)
    await connect(server.url).batches.submit("docs", "/analyze", iter(tasks))
    staged, put, made = server.asked
    assert [(asked.method, asked.target) for asked in server.asked] == [
        ("POST", "/v1/uploads"),
        ("PUT", SIGNED),
        ("POST", "/v1/jobs"),
    ]
    assert staged.headers["authorization"] == f"Bearer {TOKEN}"
    assert put.headers["content-type"] == "application/x-ndjson"
    assert "authorization" not in put.headers
    assert [json.loads(line) for line in put.body.splitlines()] == tasks
    assert json.loads(made.body)["source"] == {"upload_id": UPLOAD_ID}
    assert "tasks" not in json.loads(made.body)


@pytest.mark.parametrize("size", [0, 7, BODY_BYTES_MAX])
async def test_a_short_file_is_the_body_of_its_request(
    connect: Connect, scripted: Scripted, tmp_path: Path, size: int
) -> None:
    path = tmp_path / "tasks.ndjson"
    path.write_bytes((b'{"n": 1}\nnot json\n\n' * BODY_BYTES_MAX)[:size])
    server = await scripted({"drop": True}, CREATED)
    await connect(server.url).batches.submit("docs", "/analyze", file=path)
    lost, asked = server.asked
    assert asked.body == lost.body == path.read_bytes()
    assert asked.target == "/v1/jobs?service=docs&endpoint=%2Fanalyze"
    assert asked.headers["idempotency-key"] == lost.headers["idempotency-key"]
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("given", ["idempotency_key", "headers"])
async def test_a_list_under_a_key_of_the_callers_is_sent_so_that_it_can_be_compared(
    connect: Connect, scripted: Scripted, tmp_path: Path, given: str
) -> None:
    path = tmp_path / "tasks.ndjson"
    path.write_bytes(b"1\n" * BODY_BYTES_MAX)
    server = await scripted(CREATED)
    key: Any = {"Idempotency-Key": "mine"} if given == "headers" else "mine"
    await connect(server.url).batches.submit("docs", "/x", file=path, **{given: key})
    (asked,) = server.asked
    assert asked.headers["idempotency-key"] == "mine"
    assert asked.body == path.read_bytes()


async def test_a_file_is_staged_as_it_is_and_from_its_beginning_when_the_line_breaks(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    content = b'{"n": 1}\nnot json\n\n' * PIECE_BYTES
    path = tmp_path / "tasks.ndjson"
    path.write_bytes(content[: 2 * PIECE_BYTES + 7])
    away = {"status": 503, "problem": {"code": "unavailable", "message": "later"}}
    server = await scripted(upload(), {"drop": True}, away, STORED, CREATED)
    client = connect(server.url)
    await client.batches.submit("docs", "/analyze", file=path)
    sent = [asked.body for asked in server.asked if asked.method == "PUT"]
    assert sent == [path.read_bytes()] * 3
    assert len(client.pauses) == 2


async def test_a_store_elsewhere_never_sees_the_credential(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    store = await scripted(STORED, {"text": "zip"})
    ready = export("zip", url=f"{store.url}/bucket/zip?sig=1")
    server = await scripted(
        upload(f"{store.url}/bucket/list?sig=1"),
        CREATED,
        {"status": 202, "json": export("", "pending")},
        {"json": ready},
    )
    client = connect(server.url)
    await client.batches.submit("docs", "/analyze", ["x" * BODY_BYTES_MAX])
    await client.batches.export(BATCH_ID, tmp_path / "results.zip")
    assert [asked.target for asked in store.asked] == ["/bucket/list?sig=1", "/bucket/zip?sig=1"]
    for asked in store.asked:
        assert TOKEN not in str(asked)


async def test_a_refused_upload_is_an_error_and_no_batch_is_made(
    connect: Connect, scripted: Scripted
) -> None:
    server = await scripted(upload(), {"status": 403, "text": "<Error>expired</Error>"})
    with pytest.raises(PermissionDeniedError) as raised:
        await connect(server.url).batches.submit("docs", "/x", ["x" * BODY_BYTES_MAX])
    assert raised.value.code == "http_403"


async def test_a_task_that_was_written_over_several_lines_is_one_line(
    connect: Connect, scripted: Scripted
) -> None:
    pretty = msgspec.Raw(b'{\r\n  "n": 12345678901234567890123,\n  "s": "a\\nb"\n}')
    server = await scripted(CREATED)
    await connect(server.url).batches.submit("docs", "/x", [pretty] * LISTED_TASKS_MAX)
    lines = server.asked[0].body.splitlines()
    assert len(lines) == LISTED_TASKS_MAX
    assert json.loads(lines[0]) == {"n": 12345678901234567890123, "s": "a\nb"}


async def test_two_sources_of_tasks_are_a_mistake(connect: Connect, scripted: Scripted) -> None:
    server = await scripted()
    with pytest.raises(ValueError, match="give only one of tasks"):
        await connect(server.url).batches.submit("docs", "/x", [1], upload_id=UPLOAD_ID)


async def test_tasks_are_added_under_a_key_until_the_batch_is_closed(
    connect: Connect, scripted: Scripted
) -> None:
    server = await scripted(
        {"status": 202, "json": batch("open")},
        {"drop": True},
        {"status": 201, "json": batch("open")},
        {"status": 202, "json": batch("running")},
    )
    client = connect(server.url)
    made = await client.batches.submit("docs", "/x", is_open=True)
    await client.do(made.add, [1, 2])
    _, lost, added = server.asked
    assert added.target == f"/v1/jobs/{BATCH_ID}/tasks"
    assert json.loads(added.body) == {"tasks": [1, 2]}
    assert lost.headers["idempotency-key"] == added.headers["idempotency-key"]
    await client.do(made.close)
    assert server.asked[-1].target == f"/v1/jobs/{BATCH_ID}/close"
    assert made.status == "running"


async def test_a_wait_asks_until_every_task_has_ended(connect: Connect, scripted: Scripted) -> None:
    server = await scripted(
        {"status": 202, "json": batch("ingesting")},
        {"drop": True},
        {"status": 202, "json": batch("running")},
        {"json": batch("completed")},
    )
    client = connect(server.url)
    waited = await client.batches.wait(BATCH_ID)
    assert (waited.status, waited.counts.failed) == ("completed", 1)
    assert {asked.target for asked in server.asked} == {f"/v1/jobs/{BATCH_ID}?wait=30"}
    assert await client.batches.wait(waited) is waited


async def test_a_wait_raises_when_the_batch_failed_or_the_time_is_up(
    connect: Connect, scripted: Scripted
) -> None:
    error = {"code": "list_empty", "message": "no line is a task"}
    refused = batch("failed_ingest", ingest={"lines": 0, "bad_lines": 0, "error": error})
    server = await scripted(
        {"json": refused},
        {"json": batch("cancelled")},
        {"json": batch("cancelled")},
        {"status": 202, "json": batch("running")},
    )
    client = connect(server.url)
    with pytest.raises(BatchFailed, match="no line is a task") as failed:
        await client.batches.wait(BATCH_ID)
    assert (failed.value.code, failed.value.batch.status) == ("list_empty", "failed_ingest")
    with pytest.raises(BatchFailed) as cancelled:
        await client.batches.wait(BATCH_ID)
    assert cancelled.value.code == "cancelled"
    ended = await client.batches.wait(BATCH_ID, raise_on_failure=False)
    assert ended.status == "cancelled"
    with pytest.raises(WaitTimeout) as raised:
        await client.batches.wait(BATCH_ID, 0)
    assert raised.value.job.id == BATCH_ID


async def test_tasks_are_asked_for_page_by_page(connect: Connect, scripted: Scripted) -> None:
    def page(*indexes: int, cursor: str | None) -> dict[str, Any]:
        items = [
            {
                "id": f"{index:032x}",
                "index": index,
                "status": "failed",
                "terminal": True,
                "error": {"code": "no_mailbox", "message": "none"},
                "a_newer_field": 1,
            }
            for index in indexes
        ]
        return {"json": {"items": items, "next": cursor}}

    server = await scripted(page(0, 1, cursor="c/1"), page(2, cursor=None))
    tasks = await connect(server.url).batches.all("tasks", BATCH_ID, status="failed", run="R")
    assert [task.index for task in tasks] == [0, 1, 2]
    assert tasks[0].error.code == "no_mailbox"
    first, second = server.asked
    assert first.target == f"/v1/jobs/{BATCH_ID}/tasks?limit=200&status=failed&run=R"
    assert second.target.endswith("&cursor=c%2F1")


async def test_a_rerun_names_what_to_run_again_and_has_a_key(
    connect: Connect, scripted: Scripted
) -> None:
    answer = {"status": 202, "json": batch("running")}
    server = await scripted(answer, answer, answer, answer)
    client = connect(server.url)
    await client.batches.rerun(BATCH_ID)
    await client.batches.rerun(BATCH_ID, status="failed")
    await client.batches.rerun(BATCH_ID, status=("failed", "cancelled"), error_code=["a", "b"])
    await client.batches.rerun(BATCH_ID, status="failed", run="all")
    assert [json.loads(asked.body) for asked in server.asked] == [
        {},
        {"filter": {"status": "failed"}},
        {"filter": {"status": ["failed", "cancelled"], "error_code": ["a", "b"]}},
        {"filter": {"status": "failed"}, "run": "all"},
    ]
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 4


async def test_cancelling_and_deleting_twice_is_doing_it_once(
    connect: Connect, scripted: Scripted
) -> None:
    ended = {"status": 409, "problem": {"code": "batch_already_ended", "message": "has ended"}}
    server = await scripted(
        {"drop": True},
        ended,
        {"json": batch("cancelled")},
        {"json": batch("cancelled")},
        {"drop": True},
        ABSENT,
    )
    client = connect(server.url)
    assert (await client.batches.cancel(BATCH_ID)).status == "cancelled"
    await client.batches.delete(BATCH_ID)
    assert server.asked[-1].method == "DELETE"


async def test_what_has_ended_or_is_not_there_is_neither_cancelled_nor_deleted(
    connect: Connect, scripted: Scripted
) -> None:
    ended = {"status": 409, "problem": {"code": "batch_already_ended", "message": "has ended"}}
    server = await scripted(ended, {"json": batch("completed")}, ABSENT)
    client = connect(server.url)
    with pytest.raises(ConflictError):
        await client.batches.cancel(BATCH_ID)
    with pytest.raises(NotFoundError):
        await client.batches.delete(BATCH_ID)


async def test_an_export_is_waited_for_and_goes_on_where_its_line_broke(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    content = "0123456789" * (PIECE_BYTES // 5)
    server = await scripted(
        {"status": 202, "json": export(content, "pending")},
        {"json": export(content, "pending")},
        {"json": export(content)},
        {"text": content[: PIECE_BYTES + 9], "then": "cut"},
        {"drop": True},
        {"status": 206, "text": content[PIECE_BYTES:]},
    )
    path = await connect(server.url).batches.export(
        BATCH_ID, tmp_path / "results.zip", run="01JAV8M2Q0XW3N5T7R9Y1B3D5R"
    )
    assert path.read_text() == content
    ordered = server.asked[0]
    assert ordered.target == f"/v1/jobs/{BATCH_ID}/exports"
    assert json.loads(ordered.body) == {"run": "01JAV8M2Q0XW3N5T7R9Y1B3D5R"}
    ranges = [asked.headers.get("range") for asked in server.asked if asked.target == SIGNED]
    assert ranges == [None, f"bytes={PIECE_BYTES}-", f"bytes={PIECE_BYTES}-"]
    assert list(tmp_path.iterdir()) == [path]


async def test_an_export_that_comes_whole_again_is_taken_from_its_beginning(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    content = "0123456789" * (PIECE_BYTES // 5)
    server = await scripted(
        {"status": 202, "json": export(content)},
        {"text": content[: PIECE_BYTES + 9], "then": "cut"},
        {"text": content},
    )
    path = await connect(server.url).batches.export(BATCH_ID, tmp_path / "results.zip")
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["a zip of another kind", "a zip", "an apple"])
async def test_what_is_not_the_export_is_not_kept(
    connect: Connect, scripted: Scripted, tmp_path: Path, content: str
) -> None:
    server = await scripted({"status": 202, "json": export("a violin")}, {"text": content})
    (tmp_path / "results.zip").write_text("from before")
    with pytest.raises(UnexpectedAnswer):
        await connect(server.url).batches.export(BATCH_ID, tmp_path / "results.zip")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["from before"]


async def test_an_export_that_failed_or_takes_too_long_says_so(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    error = {"code": "blob_unavailable", "message": "the store is away"}
    server = await scripted(
        {"status": 202, "json": export("", "failed", error=error)},
        {"status": 202, "json": export("", "pending")},
    )
    client = connect(server.url)
    with pytest.raises(ExportFailed, match="the store is away") as failed:
        await client.batches.export(BATCH_ID, tmp_path / "results.zip")
    assert failed.value.code == "blob_unavailable"
    with pytest.raises(ExportFailed) as late:
        await client.batches.export(BATCH_ID, tmp_path / "results.zip", timeout=0)
    assert (late.value.code, late.value.export.id) == ("wait_timeout", EXPORT_ID)


async def test_dead_letters_are_listed_and_redriven(connect: Connect, scripted: Scripted) -> None:
    letter = {
        "id": UPLOAD_ID,
        "job_id": BATCH_ID,
        "run_id": EXPORT_ID,
        "error": {"code": "list_missing", "message": "there is no list"},
        "redrives": 1,
    }
    server = await scripted({"json": {"items": [letter], "next": None}}, {"json": letter})
    client = connect(server.url)
    (found,) = await client.batches.all("dead_letters")
    assert (found.job_id, found.error.code, found.redrives) == (BATCH_ID, "list_missing", 1)
    await client.batches.redrive(found)
    assert server.asked[-1].target == f"/v1/dlq/{UPLOAD_ID}/redrive"


async def test_an_answer_without_a_batch_is_unexpected(
    connect: Connect, scripted: Scripted
) -> None:
    server = await scripted({"json": {"status": "running"}}, {"json": batch(counts={"total": 1})})
    client = connect(server.url)
    with pytest.raises(UnexpectedAnswer):
        await client.batches.get(BATCH_ID)
    got = await client.batches.get(BATCH_ID)
    with pytest.raises(UnexpectedAnswer):
        _ = got.counts
