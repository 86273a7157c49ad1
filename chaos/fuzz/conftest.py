from __future__ import annotations

from tests.contract.conftest import estate

__all__ = ["estate"]
