"""The error of an embedded server, with a hint that the reader can act on."""

from __future__ import annotations

from coatcheck.domain.errors import CoatcheckError


class EmbeddedPostgresError(CoatcheckError):
    """The embedded server cannot run; `hint` says how to fix it."""

    code = "embedded_postgres"

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(f"{problem}\n{hint}" if hint else problem)
        self.problem = problem
        self.hint = hint
