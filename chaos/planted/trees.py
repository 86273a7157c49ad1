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
"""What tests need and nobody keeps in the repository: linked to, and not copied."""


class DoesNotApply(Exception):
    """A patch is older than the code that it is to break."""


class Tree:
    """A copy of the tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_the_repository(cls, folder: Path) -> Tree:
        """What git knows of, and what is new and not ignored, as it is now."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=REPOSITORY,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (REPOSITORY / name).is_file():  # and was not deleted meanwhile
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, folder / name, follow_symlinks=False)
        for name in _INSTALLED:
            if (REPOSITORY / name).is_dir():
                (folder / name).symlink_to(REPOSITORY / name)
        return cls(folder)

    def copy(self, folder: Path) -> Tree:
        """Another one, with what Python has compiled in this one."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Tree(folder)

    def plant(self, patch: Path) -> None:
        """Break it. Raises DoesNotApply, and has changed nothing then."""
        applied = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", patch],
            cwd=self.folder,
            # A copy somewhere below a repository is none of its files.
            env=os.environ | {"GIT_CEILING_DIRECTORIES": str(self.folder.parent)},
            check=False,
            capture_output=True,
            text=True,
        )
        if applied.returncode:
            raise DoesNotApply(f"{patch.name}: {applied.stderr.strip()}")

    def environment(self) -> dict[str, str]:
        """For processes whose Coatcheck is to be this one, and not the one that is installed."""
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
        """Make sure that it is: a bug that nobody runs is found by nobody."""
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
