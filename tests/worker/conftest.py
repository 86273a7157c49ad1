"""Fixtures for the tests of the worker's parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.worker import lease
from tests.worker.isolation import Isolation


class LeaseClock:
    """The clock that leases are measured by; it stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> LeaseClock:
    clock = LeaseClock()
    monkeypatch.setattr(lease, "time", clock)
    return clock


@pytest.fixture
def isolation(tmp_path: Path) -> Iterator[Isolation]:
    """An isolated executor; at the end its temp root is empty."""
    isolation = Isolation(tmp_path / "temp")
    yield isolation
    isolation.temp_root.close()
    assert list(isolation.root.iterdir()) == []
