"""What tests of batches' maintenance begin with."""

from __future__ import annotations

from tests.batch_repository import batches

__all__ = ["batches"]
