"""What goes wrong with an embedded server, said so that the reader can act on it."""

from __future__ import annotations

from coatcheck.domain.errors import CoatcheckError


class EmbeddedPostgresError(CoatcheckError):
    """The embedded server cannot run; `hint` says what to do about it."""

    code = "embedded_postgres"

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(f"{problem}\n{hint}" if hint else problem)
        self.problem = problem
        self.hint = hint
