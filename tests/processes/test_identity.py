"""A process is said to be gone on proof only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from coatcheck.processes import is_gone, name_this_process, this_host, this_process
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")

SAY = """
import sys
from coatcheck.processes import this_process
said = this_process()
print(said.host, said.pid, said.ticks, sep="\\t", flush=True)
"""
WAIT = SAY + "sys.stdin.read()"
FIRST_THREAD_ENDS = (
    SAY
    + """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(3600,)).start()
ctypes.CDLL(None).syscall(93 if platform.machine() == "aarch64" else 60, 0)  # exit, of this thread
"""
)


class Other:
    """Another process, and who it says it is."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        host, pid, ticks = self.process.stdout.readline().decode().rstrip("\n").split("\t")
        self.host, self.pid, self.ticks = host, int(pid), int(ticks)

    @property
    def is_gone(self) -> bool:
        return is_gone(self.pid, self.ticks)

    def status(self) -> str:
        return str(psutil.Process(self.pid).status())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def other() -> Iterator[Other]:
    started = Other(WAIT)
    yield started
    started.close()


def test_processes_of_one_host_say_so_and_see_each_other(other: Other) -> None:
    assert other.host == this_host()
    assert other.pid == other.process.pid
    own = this_process()
    assert (own.host, own.pid) == (this_host(), os.getpid())
    assert own.pid is not None
    assert own.ticks is not None
    assert not is_gone(own.pid, own.ticks)
    assert not other.is_gone


@pytest.mark.crash
def test_a_killed_process_is_gone_before_and_after_it_is_reaped(other: Other) -> None:
    other.process.kill()
    eventually(lambda: other.status() == psutil.STATUS_ZOMBIE, "it is a zombie")
    assert other.is_gone
    other.process.wait()
    assert other.is_gone


def test_a_stopped_process_is_there(other: Other) -> None:
    other.process.send_signal(signal.SIGSTOP)
    eventually(lambda: other.status() == psutil.STATUS_STOPPED, "it has stopped")
    assert not other.is_gone


def test_a_process_whose_first_thread_has_ended_is_there_while_another_runs() -> None:
    other = Other(FIRST_THREAD_ENDS)
    try:
        eventually(lambda: other.status() == psutil.STATUS_ZOMBIE, "its first thread has ended")
        assert not other.is_gone
        other.process.kill()
        eventually(lambda: other.is_gone, "all of it has ended")
    finally:
        other.close()


def test_a_number_that_was_given_out_again_is_another_process(other: Other) -> None:
    assert is_gone(other.pid, other.ticks - 1)


def test_a_process_of_another_user_is_there_whatever_can_be_seen_of_it(
    monkeypatch: pytest.MonkeyPatch, other: Other
) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", refuse)
        assert not is_gone(other.pid, other.ticks - 1)


def test_a_process_that_the_kernel_shows_nothing_of_is_there(
    monkeypatch: pytest.MonkeyPatch, other: Other, tmp_path: Path
) -> None:
    monkeypatch.setattr("coatcheck.processes.PROC", tmp_path)
    assert not is_gone(other.pid, other.ticks - 1)


def test_where_the_host_cannot_be_established_nothing_is_said_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where /proc is another namespace's, or where there is none."""
    monkeypatch.setattr("coatcheck.processes.PROC", tmp_path)
    assert this_host() is None
    (tmp_path / "self").symlink_to("1" if os.getpid() != 1 else "2")
    assert this_host() is None
    own = this_process()
    assert (own.host, own.pid, own.ticks) == (None, None, None)


def test_another_host_name_is_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that were made of one snapshot share the rest."""
    before = this_host()
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    assert this_host() != before


def test_a_process_goes_by_the_name_that_its_parent_chose() -> None:
    before = this_process().process
    chosen = uuid.uuid4()
    try:
        name_this_process(chosen)
        assert this_process().process == chosen
    finally:
        name_this_process(before)
