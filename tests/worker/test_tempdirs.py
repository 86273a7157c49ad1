"""Folders for isolated jobs: private while their worker lives, swept once it is dead."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coatcheck.processes import kill_strays
from coatcheck.worker.temp_dirs import TempRoot, disk_id
from tests.waiting import eventually
from tests.worker.isolation import is_alive

NOBODY = 65534
SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]

HOLDER = """
import subprocess, sys, time
from pathlib import Path
from coatcheck.worker.temp_dirs import TempRoot
temp_root = TempRoot(Path(sys.argv[1]), sys.argv[2])
folder = temp_root.create("job")
(folder / "secret").write_text("customer data")
if sys.argv[3:]:
    print(subprocess.Popen(sys.argv[3:], close_fds=False, stdout=subprocess.DEVNULL).pid)
print(folder, flush=True)
time.sleep(600)
"""


class Holder:
    """Another worker process on the same root, with one job's folder and a child if it is told."""

    def __init__(self, root: Path, boot: str, *child: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(root), boot, *child],
            env={"PYTHONPATH": ":".join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.child = int(self.process.stdout.readline()) if child else None
        self.folder = Path(self.process.stdout.readline().strip())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "temp"


@pytest.fixture
def temp_root(root: Path) -> Iterator[TempRoot]:
    with TempRoot(root, "one") as temp_root:
        yield temp_root


def test_every_folder_is_new_and_readable_by_its_owner_only(temp_root: TempRoot) -> None:
    first, second = temp_root.create("job"), temp_root.create("job")
    assert first != second
    assert first.parent == second.parent == temp_root.directory
    for folder in (first, temp_root.directory, temp_root.directory.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_is_removed_with_all_in_it_whatever_its_modes(temp_root: TempRoot) -> None:
    folder = temp_root.create("job")
    closed = folder / "a" / "b"
    closed.mkdir(parents=True)
    (closed / "file").write_text("x")
    (closed / "file").chmod(0)
    closed.chmod(0)
    closed.parent.chmod(0)
    temp_root.remove(folder)
    assert not folder.exists()


def test_a_link_in_a_folder_is_removed_and_what_it_points_to_is_not(
    temp_root: TempRoot, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (tmp_path / "file").write_text("x")
    folder = temp_root.create("job")
    (folder / "folder-link").symlink_to(outside)
    (folder / "file-link").symlink_to(tmp_path / "file")
    temp_root.remove(folder)
    assert not folder.exists()
    assert (tmp_path / "file").read_text() == "x"
    assert outside.stat().st_mode & 0o777 == 0o500


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path / "victim")


class Victim:
    """A folder of somebody else, with modes that a removal would change and files that it would
    delete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "closed").mkdir(parents=True)
        (folder / "closed" / "file").write_text("theirs")
        (folder / "closed" / "file").chmod(0o640)
        (folder / "closed").chmod(0o510)
        folder.chmod(0o555)
        self._before = self._seen()

    def replace(self, path: Path) -> None:
        """Put a link to this folder at a path."""
        path.symlink_to(self.folder)

    def check_untouched(self) -> None:
        assert self._seen() == self._before

    def _seen(self) -> list[tuple[str, int]]:
        paths = sorted([self.folder, *self.folder.rglob("*")])
        return [(str(path), path.stat().st_mode) for path in paths]


def test_a_link_in_place_of_a_jobs_folder_is_unlinked_and_not_followed(
    temp_root: TempRoot, victim: Victim
) -> None:
    folder = temp_root.create("job")
    (folder / "secret").write_text("customer data")
    moved = folder.rename(folder.with_name("moved"))
    victim.replace(folder)
    temp_root.remove(folder)
    assert not os.path.lexists(folder)
    assert not moved.exists()
    victim.check_untouched()


def test_a_link_in_place_of_a_nested_folder_is_unlinked_and_not_followed(
    temp_root: TempRoot, victim: Victim
) -> None:
    folder = temp_root.create("job")
    (folder / "a" / "b").mkdir(parents=True)
    victim.replace(folder / "a" / "b" / "link")
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    temp_root.remove(folder)
    assert not os.path.lexists(folder)
    victim.check_untouched()


def test_links_in_place_of_a_dead_workers_folders_and_lock_are_unlinked(
    root: Path, temp_root: TempRoot, victim: Victim
) -> None:
    victim.replace(root / "coatcheck-dead")
    victim.replace(root / "coatcheck-dead.lock")
    (root / "coatcheck-gone").mkdir()
    victim.replace(root / "coatcheck-gone" / "job")
    assert temp_root.sweep() == ["coatcheck-dead", "coatcheck-gone"]
    assert sorted(path.name for path in root.iterdir()) == ["coatcheck-one", "coatcheck-one.lock"]
    victim.check_untouched()


def test_a_worker_whose_own_folder_became_a_link_follows_it_nowhere(
    root: Path, victim: Victim
) -> None:
    temp_root = TempRoot(root, "one")
    folder = temp_root.create("job")
    moved = temp_root.directory.rename(root / "coatcheck-moved")
    victim.replace(temp_root.directory)
    temp_root.remove(folder)
    assert list(moved.iterdir()) == []
    temp_root.close()
    assert [path.name for path in root.iterdir()] == ["coatcheck-moved"]
    victim.check_untouched()


def test_what_lies_where_a_lock_should_be_does_not_keep_the_others_from_being_swept(
    root: Path, temp_root: TempRoot
) -> None:
    (root / "coatcheck-a.lock").mkdir()
    (root / "coatcheck-b").mkdir()
    assert temp_root.sweep() == ["coatcheck-b"]


def test_folders_that_turn_into_links_while_they_are_removed_lead_nowhere(
    temp_root: TempRoot, victim: Victim
) -> None:
    folder = temp_root.create("job")
    over = threading.Event()

    def swap() -> None:
        """Be a process that escaped: folders and links take turns under the same names. By
        handles, too, or it would itself write to where its links lead."""
        holding = os.open(temp_root.directory, os.O_RDONLY)
        for number in range(2_000):
            with contextlib.suppress(OSError):
                os.mkdir(folder.name, dir_fd=holding)
            with contextlib.suppress(OSError):
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                handle = os.open(folder.name, flags, dir_fd=holding)
                turn_into_link(handle, f"{number % 3}")
                os.close(handle)
            if number % 5 == 0:
                turn_into_link(holding, folder.name)
        os.close(holding)
        over.set()

    def turn_into_link(parent: int, name: str) -> None:
        with contextlib.suppress(OSError):
            os.mkdir(name, 0, dir_fd=parent)
        with contextlib.suppress(OSError):
            os.rename(name, f"away-{name}", src_dir_fd=parent, dst_dir_fd=parent)
        with contextlib.suppress(OSError):
            os.symlink(victim.folder, name, dir_fd=parent)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        while not over.is_set():
            temp_root.remove(folder)
    finally:
        swapper.join()
    temp_root.remove(folder)
    assert list(temp_root.directory.iterdir()) == []
    victim.check_untouched()


def test_a_folder_deeper_than_any_path_may_be_is_removed(temp_root: TempRoot) -> None:
    folder = temp_root.create("job")
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("deeper", dir_fd=handle)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    temp_root.remove(folder)
    assert not folder.exists()


def test_a_file_that_is_also_elsewhere_keeps_its_mode_and_content_there(
    temp_root: TempRoot, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "file"
    elsewhere.write_text("theirs")
    elsewhere.chmod(0o440)
    folder = temp_root.create("job")
    (folder / "same").hardlink_to(elsewhere)
    temp_root.remove(folder)
    assert not folder.exists()
    assert elsewhere.read_text() == "theirs"
    assert elsewhere.stat().st_mode & 0o777 == 0o440


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from coatcheck.worker.temp_dirs import TempRoot
nobody = int(sys.argv[3])
os.setgroups([])
os.setresgid(nobody, nobody, nobody)
os.setresuid(nobody, nobody, nobody)
temp_root = TempRoot(Path(sys.argv[1]))
folder = temp_root.create("job")
(folder / "a" / "b" / "c").mkdir(parents=True)
(folder / "a" / "link").symlink_to(sys.argv[2])
(folder / "a" / "b" / "c").chmod(0)
(folder / "a" / "b").chmod(0o100)
(folder / "a").chmod(0o500)
folder.chmod(0)
temp_root.remove(folder)
print(os.listdir(temp_root.directory))
temp_root.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_user_without_special_rights_removes_what_it_has_closed_to_itself() -> None:
    """What root is never refused: a folder that its own user may not read or change."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        own, theirs = Path(name, "own"), Path(name, "theirs")
        for folder, mode in ((own, 0o700), (theirs, 0o500)):
            folder.mkdir()
            os.chown(folder, NOBODY, NOBODY)
            folder.chmod(mode)
        ended = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, str(own), str(theirs), str(NOBODY)],
            env={"PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.stdout == "[]\n", ended.stderr
        assert list(own.iterdir()) == []
        assert theirs.stat().st_mode & 0o777 == 0o500


def test_removing_a_folder_twice_is_no_error(temp_root: TempRoot) -> None:
    folder = temp_root.create("job")
    temp_root.remove(folder)
    temp_root.remove(folder)
    assert list(temp_root.directory.iterdir()) == []


def test_processes_that_live_in_a_folder_are_ended_with_it_and_others_are_not(
    temp_root: TempRoot,
) -> None:
    mine, other = temp_root.create("mine"), temp_root.create("other")
    inside = subprocess.Popen(SLEEPER, env={"TMPDIR": str(mine)}, start_new_session=True)
    deeper = subprocess.Popen(SLEEPER, env={"TMPDIR": str(mine / "deeper")})
    beside = subprocess.Popen(SLEEPER, env={"TMPDIR": f"{mine}-not"})
    elsewhere = subprocess.Popen(SLEEPER, env={"TMPDIR": str(other)})
    try:
        temp_root.remove(mine)
        assert not is_alive(inside.pid)
        assert not is_alive(deeper.pid)
        assert is_alive(beside.pid)
        assert is_alive(elsewhere.pid)
        assert kill_strays(other) == 1
        assert not is_alive(elsewhere.pid)
    finally:
        for process in (inside, deeper, beside, elsewhere):
            process.kill()
            process.wait()


def test_closing_removes_the_folder_and_the_lock(root: Path) -> None:
    temp_root = TempRoot(root)
    (temp_root.create("job") / "secret").write_text("customer data")
    temp_root.close()
    temp_root.close()
    assert list(root.iterdir()) == []


def test_a_sweep_leaves_the_folders_of_live_workers_alone(root: Path, temp_root: TempRoot) -> None:
    holder = Holder(root, "two")
    own = temp_root.create("job")
    try:
        assert temp_root.sweep() == []
        assert (holder.folder / "secret").exists()
        assert own.exists()
    finally:
        holder.kill()


@pytest.mark.crash
def test_a_sweep_removes_the_folders_of_a_killed_worker(root: Path, temp_root: TempRoot) -> None:
    holder = Holder(root, "two")
    holder.kill()
    assert (holder.folder / "secret").exists()
    assert temp_root.sweep() == ["coatcheck-two"]
    assert sorted(path.name for path in root.iterdir()) == ["coatcheck-one", "coatcheck-one.lock"]
    assert temp_root.sweep() == []


@pytest.mark.crash
def test_a_new_worker_of_a_dead_ones_name_begins_with_an_empty_folder(root: Path) -> None:
    holder = Holder(root, "one")
    holder.kill()
    with TempRoot(root, "one") as temp_root:
        assert list(temp_root.directory.iterdir()) == []


def test_the_name_of_a_live_worker_cannot_be_taken(root: Path, temp_root: TempRoot) -> None:
    folder = temp_root.create("job")
    with pytest.raises(RuntimeError, match="belongs to a worker that is still alive"):
        TempRoot(root, "one")
    assert folder.exists()


def test_a_folder_whose_lock_file_is_lost_is_swept(root: Path, temp_root: TempRoot) -> None:
    (root / "coatcheck-lost" / "job").mkdir(parents=True)
    assert temp_root.sweep() == ["coatcheck-lost"]
    assert not (root / "coatcheck-lost").exists()


def test_what_is_not_a_workers_is_never_touched(root: Path, temp_root: TempRoot) -> None:
    (root / "somebody").mkdir()
    (root / "somebody.lock").touch()
    (root / "coatcheck-file").touch()
    (root / "coatcheck-link").symlink_to(root / "somebody")
    assert temp_root.sweep() == []
    assert {path.name for path in root.iterdir()} >= {
        "somebody",
        "somebody.lock",
        "coatcheck-file",
        "coatcheck-link",
    }


@pytest.mark.crash
def test_the_lock_is_not_inherited_by_what_the_worker_starts(
    root: Path, temp_root: TempRoot
) -> None:
    holder = Holder(root, "two", *SLEEPER)
    holder.kill()
    assert holder.child is not None
    try:
        # Popen returns a moment before the kernel has closed what is not to be inherited.
        swept = eventually(temp_root.sweep, "the lock is free while the child lives")
        assert swept == ["coatcheck-two"]
        assert is_alive(holder.child)
    finally:
        os.kill(holder.child, signal.SIGKILL)


def test_a_lock_that_was_swept_between_its_opening_and_its_locking_is_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweeper unlinks the file just before it is locked: the lock would guard nothing."""
    flock = fcntl.flock
    swept: list[Path] = []

    def sweep_first(descriptor: int, operation: int) -> None:
        path = root / "coatcheck-one.lock"
        if not swept:
            path.unlink()
            swept.append(path)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    temp_root = TempRoot(root, "one")
    assert swept
    with pytest.raises(RuntimeError, match="still alive"):
        TempRoot(root, "one")
    temp_root.close()


def test_a_sweep_that_a_close_interrupts_removes_everything_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep runs in a thread, which nobody waits for when its worker ends."""
    temp_root = TempRoot(root, "one")
    names = [f"coatcheck-dead-{number}" for number in range(3)]
    for name in names:
        (root / name / "job").mkdir(parents=True)
    flock = fcntl.flock

    def close_first(descriptor: int, operation: int) -> None:
        temp_root.close()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", close_first)
    assert temp_root.sweep() == names
    assert list(root.iterdir()) == []


def test_sweepers_at_the_same_time_remove_everything_once(root: Path) -> None:
    names = [f"coatcheck-dead-{number}" for number in range(20)]
    sweepers = [TempRoot(root, f"live-{number}") for number in range(4)]
    for name in names:
        (root / name / "job").mkdir(parents=True)
        (root / f"{name}.lock").touch()
    begin = threading.Barrier(len(sweepers))
    swept: list[str] = []

    def sweep(temp_root: TempRoot) -> None:
        begin.wait()
        swept.extend(temp_root.sweep())

    threads = [threading.Thread(target=sweep, args=(sweeper,)) for sweeper in sweepers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(swept) == set(names)
    assert not [path for path in root.iterdir() if "dead" in path.name]
    assert all(sweeper.directory.exists() for sweeper in sweepers)
    for sweeper in sweepers:
        sweeper.close()
    assert list(root.iterdir()) == []


def test_a_temp_folder_has_an_id_of_its_own_that_all_who_share_it_read(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as readers:
        ids = set(readers.map(disk_id, [tmp_path / "one"] * 32))
    assert len(ids) == 1
    assert disk_id(tmp_path / "two") not in ids
    assert len(list((tmp_path / "one").iterdir())) == 1
    with TempRoot(tmp_path / "one") as root:
        root.sweep()
    assert {disk_id(tmp_path / "one")} == ids


def test_a_new_worker_whose_lock_a_sweeper_took_first_gets_a_folder_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    taken: list[tuple[str, int]] = []

    def sweeper_first(descriptor: int, operation: int) -> None:
        if not taken:
            (lock,) = root.glob("*.lock")
            taken.append((lock.stem, os.open(lock, os.O_RDWR)))
            flock(taken[0][1], operation)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweeper_first)
    with TempRoot(root) as late:
        ((name, held),) = taken
        assert late.directory.is_dir()
        assert late.directory.name != name
    os.close(held)
