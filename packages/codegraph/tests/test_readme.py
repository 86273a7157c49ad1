"""The README's own example, run as it stands, and its command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.markdown import REPOSITORY, Page

README = Page(REPOSITORY / "packages/codegraph/README.md")


def test_the_first_graph_prints_what_the_page_says(tmp_path: Path) -> None:
    *files, program = README.blocks("python")
    (printed,) = README.blocks("text")
    for block in files:
        assert block.file_name is not None
        target = tmp_path / block.file_name
        target.parent.mkdir(exist_ok=True)
        target.write_text(block.text)
    assert program.file_name is None
    ran = subprocess.run(
        [sys.executable, "-c", program.text],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY / "packages/codegraph/src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == printed.text


def test_the_command_that_installs_it_makes_a_whole_distribution(tmp_path: Path) -> None:
    """As the page says it, but into a folder, and with what is already here: no network."""
    (command,) = README.blocks("sh")
    pip, install, source = command.text.split()
    assert (pip, install) == ("pip", "install")
    subprocess.run(
        [
            *(sys.executable, "-m", pip, install, "--quiet", "--no-deps", "--no-build-isolation"),
            *("--disable-pip-version-check", "--target", str(tmp_path / "site"), source),
        ],
        cwd=REPOSITORY,
        check=True,
    )
    installed = tmp_path / "site" / "coatcheck_codegraph"
    assert (installed / "py.typed").exists()
    here = REPOSITORY / "packages/codegraph/src/coatcheck_codegraph"
    modules = {path.relative_to(here) for path in here.rglob("*.py")}
    assert {path.relative_to(installed) for path in installed.rglob("*.py")} == modules
