"""Patterns that a whole text has to fit."""

from __future__ import annotations

import re

import pytest

from coatcheck.domain.patterns import whole


@pytest.mark.parametrize("text", ["a\n", "\na", "ab", "", "a\n\n"])
def test_nothing_more_is_let_through(text: str) -> None:
    assert re.search(whole("a|b"), text) is None


@pytest.mark.parametrize("text", ["a", "b"])
def test_what_fits_is(text: str) -> None:
    assert re.search(whole("a|b"), text) is not None
