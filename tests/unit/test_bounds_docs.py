"""Every bound that is counted is on the page that lists them, and the other way round."""

from __future__ import annotations

import re

from tests.markdown import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "bounds.md"
SOURCE = REPOSITORY / "src" / "coatcheck"
_ROW = re.compile(r"^\| `([a-z_]+)` \|.*\| (.*) \|$", re.MULTILINE)
_COUNTED = re.compile(r"record_bound_met\(\s*f?\"([a-z_{}]+)\"")
_QUOTED = re.compile(r"\"([a-z_]+)\"")


def listed() -> dict[str, str]:
    """What the page says is answered, by the name of the bound."""
    return dict(_ROW.findall(PAGE.read_text()))


def test_every_counted_bound_is_listed() -> None:
    counted = {
        name
        for path in SOURCE.rglob("*.py")
        for name in _COUNTED.findall(path.read_text())
        if path.name != "metrics.py"
    }
    assert "backlog" in counted, "the tests look in the wrong place"
    for name in counted:
        pattern = re.compile(re.sub(r"\\{[a-z_]+\\}", "[a-z_]+", re.escape(name)))
        assert any(map(pattern.fullmatch, listed())), f"{name} is not in {PAGE.name}"


def test_every_listed_bound_is_named_where_it_is_counted() -> None:
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    named = set(_QUOTED.findall(text))
    for name, answer in listed().items():
        family = name.rpartition("_of_")[0]
        counted = name in named or f'f"{family}_of_{{' in text
        assert counted or "ot counted" in answer, f"nothing counts {name}"
