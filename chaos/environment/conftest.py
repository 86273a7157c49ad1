"""Fixtures that these tests share with the project's other tests."""

from __future__ import annotations

from tests.conftest import (  # noqa: F401 - fixtures, and the hooks that they need
    data_root,
    databases,
    dsn,
    pg_server,
    pytest_configure,
    pytest_unconfigure,
)
