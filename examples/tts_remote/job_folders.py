"""Stores jobs on disk, one folder each. The folders are the remote's only state.

    <job id>/order.json      the request; the folder appears with it
             callback.due    the callback is still due
             speech.part     being spoken
             speech.wav      the result: a WAV or a clone
             end.json        how it ended; without it the job runs, or must run again

A folder or file appears complete, by a rename or a link. A kill at any moment leaves an older
state, never half of one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Literal

import msgspec

_JOB_ID = re.compile(r"[0-9a-f]{32}")
_UNFINISHED = "making-"


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request. Unknown fields are ignored."""

    language: str
    text: str = ""
    """The text to speak; for a clone, the transcript of its recording, which is not used."""
    type: Literal["generate", "design_preview", "clone"] = "generate"
    token: str | None = None
    description: str | None = None
    """For a preview: a description of the voice."""
    reference_url: str | None = None
    """For a clone: the URL of its recording."""
    prompt_url: str | None = None
    """The URL of the clone that speaks the text."""
    callback_url: str | None = None


class End(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job ended."""

    status: Literal["completed", "failed"]
    error: str | None = None
    duration_seconds: float | None = None


class InUse(Exception):
    """Another process uses the folder."""


class JobFolders:
    """The jobs below ``root``. Its methods may be called from any thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock: int | None = None

    def hold(self) -> None:
        """Lock the folder, and remove unfinished files of a killed process."""
        self._root.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise InUse(f"another remote uses {self._root}") from None
        self._lock = lock
        for begun in self._root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(begun)

    def let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def make(self, order: Order) -> tuple[str, bool]:
        """The job's id, and whether it is new: a token has one job."""
        job_id = _id_of(order.token)
        folder = self._root / job_id
        if folder.exists():
            return job_id, False
        making = self._root / f"{_UNFINISHED}{secrets.token_hex(16)}"
        making.mkdir()
        write_through(making / "order.json", msgspec.json.encode(order))
        if order.callback_url is not None:
            write_through(making / "callback.due", b"")
        _sync_folder(making)
        try:
            making.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            shutil.rmtree(making)  # another request with this token was faster
            return job_id, False
        _sync_folder(self._root)
        return job_id, True

    def order(self, job_id: str) -> Order | None:
        """None if the job was removed."""
        try:
            return msgspec.json.decode(
                (self._root / job_id / "order.json").read_bytes(), type=Order
            )
        except FileNotFoundError:
            return None

    def exists(self, job_id: str) -> bool:
        return bool(_JOB_ID.fullmatch(job_id)) and (self._root / job_id).is_dir()

    def end(self, job_id: str) -> End | None:
        """None while it runs."""
        try:
            return msgspec.json.decode((self._root / job_id / "end.json").read_bytes(), type=End)
        except FileNotFoundError:
            return None

    def draft(self, job_id: str) -> Path:
        """Where its speech is written."""
        return self._root / job_id / "speech.part"

    def speech(self, job_id: str) -> Path:
        """Where its speech is, once it is completed."""
        return self._root / job_id / "speech.wav"

    def complete(self, job_id: str, duration_seconds: float | None) -> End:
        """Complete the job with its draft. Returns how it ended, maybe another way."""
        self.draft(job_id).rename(self.speech(job_id))
        _sync_folder(self._root / job_id)
        ended = self._end(job_id, End("completed", duration_seconds=duration_seconds))
        if ended.status != "completed":
            self.speech(job_id).unlink()
        return ended

    def fail(self, job_id: str, error: str) -> End:
        """Returns how the job ended, maybe another way."""
        self.draft(job_id).unlink(missing_ok=True)
        return self._end(job_id, End("failed", error=error))

    def called_back(self, job_id: str) -> None:
        (self._root / job_id / "callback.due").unlink(missing_ok=True)

    def callback_due(self, job_id: str) -> bool:
        return (self._root / job_id / "callback.due").exists()

    def all(self) -> list[str]:
        return sorted(each.name for each in self._root.iterdir() if _JOB_ID.fullmatch(each.name))

    def undone(self) -> list[str]:
        """Jobs that have not ended, or whose caller has not been called back."""
        return [
            job_id
            for job_id in self.all()
            if not (self._root / job_id / "end.json").exists() or self.callback_due(job_id)
        ]

    def _end(self, job_id: str, end: End) -> End:
        """Only the first end of a job is stored."""
        folder = self._root / job_id
        writing = folder / f"end.{secrets.token_hex(8)}"
        write_through(writing, msgspec.json.encode(end))
        try:
            os.link(writing, folder / "end.json")
        except FileExistsError:
            stays = self.end(job_id)
            assert stays is not None
            return stays
        finally:
            writing.unlink()
        _sync_folder(folder)
        return end


def _id_of(token: str | None) -> str:
    if token is None:
        return secrets.token_hex(16)
    return hashlib.sha256(b"token " + token.encode()).hexdigest()[:32]


def write_through(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
