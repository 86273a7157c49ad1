"""The generated parts of the reference pages are what the declarations say."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import pytest

from scripts.reference.parts import Outdated, described_names, regenerated, table
from tests.markdown import REPOSITORY


def test_the_reference_is_up_to_date() -> None:
    # A process of its own: other tests import modules that declare more.
    ran = subprocess.run(
        [sys.executable, "-m", "scripts.reference", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, f"run `make reference`, and commit what it writes: {ran.stderr}"


PART = "<!-- generated: all -->\n{}<!-- end of generated -->\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page of a reference that has only this one."""
    return tmp_path / "colours.md"


def test_only_what_stands_between_the_markers_is_replaced(page: Path) -> None:
    page.write_text("# Colours\n\n" + PART.format("old\n") + "\nMore.\n")
    assert regenerated({"colours": {"all": lambda: "new"}}, page.parent) == {
        page: "# Colours\n\n" + PART.format("\nnew\n\n") + "\nMore.\n"
    }


def test_a_page_without_a_declared_part_is_told_what_it_lacks(page: Path) -> None:
    page.write_text("# Colours\n")
    with pytest.raises(Outdated, match=r"colours.md must have(.|\n)*<!-- generated: all -->"):
        regenerated({"colours": {"all": lambda: ""}}, page.parent)


def test_a_part_that_nothing_declares_any_more_is_refused(page: Path) -> None:
    page.write_text(PART.format(""))
    with pytest.raises(Outdated, match="declares nothing"):
        regenerated({"colours": {}}, page.parent)


def test_a_cell_of_a_table_stays_in_its_cell() -> None:
    assert table(["a"], [["one | two\nthree"]]) == "| a |\n| --- |\n| one \\| two three |\n"


class Described(StrEnum):
    RED = "red"
    """Like a rose."""


class Undescribed(StrEnum):
    BLUE = "blue"


def test_a_name_without_a_description_is_refused() -> None:
    assert described_names(Described) == {"RED": "Like a rose."}
    with pytest.raises(Outdated, match="BLUE"):
        described_names(Undescribed)
