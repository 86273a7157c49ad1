"""Looking at what a deployment has on disk, which it removes meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

from chaos.files import entries_two_below, files_below


def test_folders_that_are_removed_meanwhile_are_passed_over(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "blob").touch()
    found = files_below(tmp_path)
    first = next(found)
    for folder in {tmp_path / name for name in ("a", "b", "c")} - {first.parent.parent}:
        shutil.rmtree(folder)
    assert list(found) == []
    assert first.name == "blob"


def test_what_folders_hold_is_found_and_what_lies_beside_or_below_is_not(tmp_path: Path) -> None:
    (tmp_path / "worker" / "job" / "deep").mkdir(parents=True)
    (tmp_path / "worker" / "file").touch()
    (tmp_path / "beside").touch()
    found = {path.name for path in entries_two_below(tmp_path)}
    assert found == {"job", "file"}
    assert entries_two_below(tmp_path / "absent") == []
