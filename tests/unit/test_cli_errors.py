"""What commands say of errors, in one line and with a hint."""

from __future__ import annotations

import io
import sys

import pytest
import typer

from coatcheck.cli import console
from coatcheck.cli.command_errors import EXIT_FAILED, EXIT_MISCONFIGURED, reporting_errors
from coatcheck.cli.error_texts import (
    DATABASE_HINT,
    FORBIDDEN_URL_HINT,
    MISSING_SCOPE_HINT,
    NOT_FOUND_HINT,
    REFUSED_KEY_HINT,
    WRONG_SERVER_HINT,
    describe,
)
from coatcheck.client.errors import ApiError, AuthenticationError
from coatcheck.domain.errors import DatabaseUnavailable


def test_what_failed_beside_other_tasks_is_told_as_if_it_had_failed_alone() -> None:
    away = DatabaseUnavailable("PostgreSQL cannot be reached")
    beside = ExceptionGroup("unhandled errors in a TaskGroup", [away])
    assert describe(ExceptionGroup("of a TaskGroup around it", [beside])) == describe(away)
    assert describe(away) == ("PostgreSQL cannot be reached", DATABASE_HINT, EXIT_FAILED)


@pytest.mark.parametrize(
    ("error", "hint", "exit_code"),
    [
        (AuthenticationError(401, "unauthenticated", "No."), REFUSED_KEY_HINT, EXIT_MISCONFIGURED),
        (ApiError(404, "http_404", "Not Found"), WRONG_SERVER_HINT, EXIT_MISCONFIGURED),
        (
            ApiError(404, "not_found", "Nothing is served at this path."),
            WRONG_SERVER_HINT,
            EXIT_MISCONFIGURED,
        ),
        (
            ApiError(404, "not_found", "There is nothing of that name.", request_id="r"),
            NOT_FOUND_HINT,
            EXIT_MISCONFIGURED,
        ),
        (ApiError(403, "missing_scope", "No."), MISSING_SCOPE_HINT, EXIT_MISCONFIGURED),
        (ApiError(422, "url_forbidden", "No.", request_id="r"), "", EXIT_MISCONFIGURED),
        (
            ApiError(422, "url_forbidden", "The URL leads to an address that is not public."),
            FORBIDDEN_URL_HINT,
            EXIT_MISCONFIGURED,
        ),
        (
            ApiError(500, "internal_error", "No.", request_id="r"),
            "See the server's log for request r.",
            EXIT_FAILED,
        ),
    ],
)
def test_a_refusal_comes_with_what_to_look_at(error: ApiError, hint: str, exit_code: int) -> None:
    assert describe(error) == (f"{error.message} ({error.code})", hint, exit_code)


class _Closed(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_has_gone_ends_what_is_shown_and_not_what_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", _Closed())
    console.say("the work goes on")
    with pytest.raises(typer.Exit) as ended:
        reporting_errors(lambda: console.out.print("a line"))()
    assert ended.value.exit_code == EXIT_FAILED
    assert capsys.readouterr() == ("", "")
