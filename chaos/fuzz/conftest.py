from __future__ import annotations

from tests.contract.conftest import resources

__all__ = ["resources"]
