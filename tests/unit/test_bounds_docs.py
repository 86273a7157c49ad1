"""Every bound that is counted is on the page that lists them, and the other way round."""

from __future__ import annotations

from typing import get_args

from coatcheck.telemetry.metrics import Bound
from tests.markdown import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "bounds.md"


def test_the_page_lists_every_counted_bound_and_no_other_as_counted() -> None:
    rows = PAGE.read_text().partition("| --- |")[2].partition("\n\n")[0].splitlines()[1:]
    cells = [row.strip("| ").split(" | ") for row in rows]
    counted = [cell[0].strip("`") for cell in cells if "ot counted" not in cell[-1]]
    assert sorted(counted) == sorted(get_args(Bound))
