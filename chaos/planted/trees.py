"""Copies of the source tree to plant bugs in. The tree itself is never changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_INSTALLED: Final = ("tests/azurite/node_modules",)
"""Folders that tests need and git ignores: linked, not copied."""


class DoesNotApply(Exception):
    """A patch does not apply to the current code."""


class Tree:
    """A copy of the tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_the_repository(cls, folder: Path) -> Tree:
        """Tracked files, and new files that are not ignored, in their current state."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=REPOSITORY,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (REPOSITORY / name).is_file():  # and not deleted meanwhile
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, folder / name, follow_symlinks=False)
        for name in _INSTALLED:
            if (REPOSITORY / name).is_dir():
                (folder / name).symlink_to(REPOSITORY / name)
        return cls(folder)

    def copy(self, folder: Path) -> Tree:
        """Another copy, with the compiled files of this one."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Tree(folder)

    def plant(self, patch: Path) -> None:
        """Apply a patch. Raises DoesNotApply without any change."""
        applied = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", patch],
            cwd=self.folder,
            # A copy inside a repository must not count as its files.
            env=os.environ | {"GIT_CEILING_DIRECTORIES": str(self.folder.parent)},
            check=False,
            capture_output=True,
            text=True,
        )
        if applied.returncode:
            raise DoesNotApply(f"{patch.name}: {applied.stderr.strip()}")

    def environment(self) -> dict[str, str]:
        """The environment of processes that import this copy, not the installed Coatcheck."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("COATCHECK_")}
        return inherited | {
            "PYTHONPATH": os.pathsep.join(
                [
                    str(self.folder / "src"),
                    str(self.folder / "packages/codegraph/src"),
                    str(self.folder),
                ]
            )
        }

    def check(self) -> None:
        """Check that the copy is imported: otherwise no bug can be found."""
        asked = subprocess.run(
            [sys.executable, "-c", "import coatcheck; print(coatcheck.__file__)"],
            cwd="/",
            env=self.environment(),
            check=True,
            capture_output=True,
            text=True,
        )
        imported = Path(asked.stdout.strip())
        if not imported.is_relative_to(self.folder / "src"):
            raise RuntimeError(f"Coatcheck would be imported from {imported}, not from the copy")
