"""Jobs on disk, where two make or end one at the same moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.tts_remote import End, JobFolders, Order, job_folders

ORDER = Order(text="One.", language="en", token="one")


def test_the_slower_of_two_with_one_token_finds_the_job_of_the_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, write = JobFolders(tmp_path), job_folders.write_through

    def overtaken(path: Path, data: bytes) -> None:
        monkeypatch.undo()
        assert folders.make(ORDER)[1], "the faster one has made it"
        write(path, data)

    monkeypatch.setattr(job_folders, "write_through", overtaken)
    job_id, is_new = folders.make(ORDER)
    assert not is_new
    assert [each.name for each in tmp_path.iterdir()] == [job_id], "nothing is left of the slower"


def test_a_job_that_was_cancelled_as_its_speech_came_stays_cancelled(tmp_path: Path) -> None:
    folders = JobFolders(tmp_path)
    job_id, _ = folders.make(ORDER)
    cancelled = folders.fail(job_id, "cancelled")
    folders.draft(job_id).write_bytes(b"RIFF")
    assert folders.complete(job_id, 1.0) == cancelled == End("failed", "cancelled")
    assert not folders.speech(job_id).exists()


def test_a_job_that_was_completed_first_is_not_cancelled(tmp_path: Path) -> None:
    folders = JobFolders(tmp_path)
    job_id, _ = folders.make(ORDER)
    folders.draft(job_id).write_bytes(b"RIFF")
    completed = folders.complete(job_id, 1.0)
    assert folders.fail(job_id, "cancelled") == completed
    assert folders.speech(job_id).exists()
