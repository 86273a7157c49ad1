"""What a handler may report of its job, within which bounds, and how it learns to stop."""

from __future__ import annotations

import asyncio
import io
import uuid
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pydantic
import pytest

from coatcheck.domain.errors import FailJob, JobCancelled, RetryLater
from coatcheck.domain.ids import from_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import (
    ARTIFACT_BYTES_MAX,
    ARTIFACT_NAME_CHARACTERS_MAX,
    LOG_LINE_CHARACTERS_MAX,
    OUTPUT_CHUNK_BYTES_MAX,
    PROGRESS_NOTE_CHARACTERS_MAX,
)
from coatcheck.job import DONE, Attachment, Chunk, Job, LogLine, ProgressReport, Report


class Recorder:
    def __init__(self) -> None:
        self.reports: list[Report] = []

    def report(self, report: Report) -> Awaitable[None]:
        self.reports.append(report)
        return DONE


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def job(recorder: Recorder) -> Job:
    return Job(
        uuid.UUID(int=2**100), "acme", "docs.post__a", Lane.URGENT, 2, 100, "request-1", recorder
    )


class Model(pydantic.BaseModel):
    number: int


def test_a_job_shows_who_asked_for_what(job: Job) -> None:
    assert from_text(job.id) == job.uuid
    assert job.id is job.id
    assert (job.org, job.endpoint, job.lane, job.attempt) == (
        "acme",
        "docs.post__a",
        Lane.URGENT,
        2,
    )
    assert (job.payload_size, job.request_id, job.temp_dir) == (100, "request-1", None)


async def test_reports_leave_at_once_whether_awaited_or_not(job: Job, recorder: Recorder) -> None:
    job.progress(0.25)
    await job.progress(1, "done")
    assert recorder.reports == [ProgressReport(0.25), ProgressReport(1.0, "done")]


def test_a_log_line_carries_plain_copies_of_its_fields(job: Job, recorder: Recorder) -> None:
    pages = [1, 2]
    job.log("read", level="warning", pages=pages, model=Model(number=1))
    pages.append(3)
    assert recorder.reports == [
        LogLine("read", "warning", {"pages": [1, 2], "model": {"number": 1}})
    ]


def test_output_is_text_bytes_or_json(job: Job, recorder: Recorder) -> None:
    for chunk in ("é", b"\xff", bytearray(b"x"), {"a": 1}, None, Model(number=1)):
        job.emit(chunk)
    assert recorder.reports == [
        Chunk("text", "é".encode()),
        Chunk("binary", b"\xff"),
        Chunk("binary", b"x"),
        Chunk("json", b'{"a":1}'),
        Chunk("json", b"null"),
        Chunk("json", b'{"number":1}'),
    ]


def test_bytes_paths_and_files_can_be_attached(
    job: Job, recorder: Recorder, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"data")
    file = io.BytesIO(b"data")
    job.attach("a.txt", b"data", media_type="text/plain")
    job.attach("b.bin", memoryview(b"data"))
    job.attach("c.bin", path)
    job.attach("d.bin", file)
    assert recorder.reports == [
        Attachment("a.txt", "text/plain", b"data"),
        Attachment("b.bin", "application/octet-stream", b"data"),
        Attachment("c.bin", "application/octet-stream", path),
        Attachment("d.bin", "application/octet-stream", file),
    ]


def test_what_postgresql_cannot_hold_is_replaced(job: Job, recorder: Recorder) -> None:
    job.progress(0.5, "a\x00b\ud800")
    job.log("a\x00b", field="c\x00d")
    assert recorder.reports == [
        ProgressReport(0.5, "a\ufffdb?"),
        LogLine("a\ufffdb", "info", {"field": "c\ufffdd"}),
    ]


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), float("inf")])
def test_progress_outside_of_0_to_1_is_refused(job: Job, fraction: float) -> None:
    with pytest.raises(ValueError, match="a fraction from 0 to 1"):
        job.progress(fraction)


def test_each_bound_holds_to_the_character_and_the_byte(job: Job, recorder: Recorder) -> None:
    job.progress(0, "x" * PROGRESS_NOTE_CHARACTERS_MAX)
    job.log("x" * LOG_LINE_CHARACTERS_MAX, f="x" * (LOG_LINE_CHARACTERS_MAX - len('{"f":""}')))
    job.emit("x" * OUTPUT_CHUNK_BYTES_MAX)
    job.attach("x" * ARTIFACT_NAME_CHARACTERS_MAX, b"")
    assert len(recorder.reports) == 4
    with pytest.raises(ValueError, match="note may have at most 1000 characters, not 1001"):
        job.progress(0, "x" * (PROGRESS_NOTE_CHARACTERS_MAX + 1))
    with pytest.raises(ValueError, match="a log line may have at most 8000 characters, not 8001"):
        job.log("x" * (LOG_LINE_CHARACTERS_MAX + 1))
    with pytest.raises(ValueError, match="the fields of a log line may have at most 8000 bytes"):
        job.log("x", f="x" * (LOG_LINE_CHARACTERS_MAX - len('{"f":""}') + 1))
    with pytest.raises(ValueError, match="an output chunk may have at most 262144 bytes"):
        job.emit("x" * (OUTPUT_CHUNK_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="name must have 1 to 255 characters, not 256"):
        job.attach("x" * (ARTIFACT_NAME_CHARACTERS_MAX + 1), b"")
    assert len(recorder.reports) == 4


def test_a_file_over_the_bound_is_refused(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(ARTIFACT_BYTES_MAX + 1)  # takes no room: the file is all hole
    with pytest.raises(ValueError, match="an attachment may have at most"):
        job.attach("large", path)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\x00b", "a\nb"])
def test_an_attachment_name_that_is_no_plain_file_name_is_refused(job: Job, name: str) -> None:
    with pytest.raises(ValueError, match="an attachment's name"):
        job.attach(name, b"")


@pytest.mark.parametrize("media_type", ["", "text", "/plain", "text/", "a/b\nc", "x/é"])
def test_a_bad_media_type_is_refused(job: Job, media_type: str) -> None:
    with pytest.raises(ValueError, match="a media type looks like"):
        job.attach("a", b"", media_type=media_type)


def test_what_cannot_be_attached_is_refused(job: Job, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must name an existing file"):
        job.attach("a", tmp_path / "absent")
    with pytest.raises(ValueError, match="must name an existing file"):
        job.attach("a", tmp_path)
    text: Any = io.StringIO("a")
    with pytest.raises(TypeError, match="opened for bytes"):
        job.attach("a", text)
    number: Any = 5
    with pytest.raises(TypeError, match="attach takes bytes, a Path or a file, not int"):
        job.attach("a", number)


def test_an_unknown_log_level_is_refused(job: Job) -> None:
    level: Any = "loud"
    with pytest.raises(ValueError, match="one of debug, info, warning, error, not 'loud'"):
        job.log("a", level=level)


def test_retry_and_fail_raise_what_says_so(job: Job) -> None:
    with pytest.raises(RetryLater, match="busy") as retry:
        job.retry("busy", after=5, code="upstream_busy")
    assert (retry.value.after, retry.value.code) == (5, "upstream_busy")
    with pytest.raises(FailJob, match="no") as failure:
        job.fail("no", code="refused")
    assert failure.value.code == "refused"


@pytest.mark.parametrize("after", [-1, float("nan"), 31 * 86_400])
def test_a_retry_delay_out_of_bounds_is_refused(job: Job, after: float) -> None:
    with pytest.raises(ValueError, match="after must be from 0 to"):
        job.retry("busy", after=after)


async def test_a_handler_learns_of_cancellation_by_looking_or_by_waiting(job: Job) -> None:
    job.check_cancelled()
    assert not job.cancel_requested
    waiter = asyncio.create_task(job.wait_cancelled())
    await asyncio.sleep(0)
    assert not waiter.done()
    job.mark_cancel_requested()
    await waiter
    await job.wait_cancelled()
    assert job.cancel_requested
    with pytest.raises(JobCancelled):
        job.check_cancelled()
