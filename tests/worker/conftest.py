"""Fixtures for the tests of the worker's parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.isolation import Isolation


@pytest.fixture
def isolation(tmp_path: Path) -> Iterator[Isolation]:
    """An isolated executor; at the end its temp root is empty."""
    isolation = Isolation(tmp_path / "temp")
    yield isolation
    isolation.temp_root.close()
    assert list(isolation.root.iterdir()) == []
