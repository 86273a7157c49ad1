"""The product of the page "Add an API of your own". The page is its only source."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.distributions import write_distribution
from tests.markdown import Page, pages

PROJECT = "# pyproject.toml\n"


def echo_page() -> Page:
    (page,) = pages("docs/how-to/add-an-api.md")
    return page


def write_sources(folder: Path) -> None:
    """Write the files of the page, as its reader does."""
    (folder / "coatcheck_echo").mkdir(parents=True)
    for block in echo_page().blocks("python"):
        assert block.file_name is not None
        (folder / block.file_name).write_text(block.text)
    (project,) = echo_page().blocks("toml")
    assert project.text.startswith(PROJECT)
    (folder / "pyproject.toml").write_text(project.text)


def write_echo(folder: Path) -> Path:
    """Write the files of the page, and the metadata that an installer would add to them."""
    write_sources(folder)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return write_distribution(folder, project["name"], entry_points=project["entry-points"])
