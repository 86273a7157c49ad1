"""What commands say of errors, in one line and with a hint."""

from __future__ import annotations

from coatcheck.cli.errors import DATABASE_HINT, EXIT_FAILED, describe
from coatcheck.domain.errors import DatabaseUnavailable


def test_what_failed_beside_other_tasks_is_told_as_if_it_had_failed_alone() -> None:
    away = DatabaseUnavailable("PostgreSQL cannot be reached")
    beside = ExceptionGroup("unhandled errors in a TaskGroup", [away])
    assert describe(ExceptionGroup("of a TaskGroup around it", [beside])) == describe(away)
    assert describe(away) == ("PostgreSQL cannot be reached", DATABASE_HINT, EXIT_FAILED)
