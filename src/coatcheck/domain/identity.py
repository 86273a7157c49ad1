"""The caller's identity and permissions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal


class Scope(StrEnum):
    """A permission of a credential. None implies another."""

    SUBMIT = "submit"
    READ = "read"
    ADMIN = "admin"


ALL_SCOPES: Final = frozenset(Scope)
USER_SCOPES: Final = frozenset({Scope.SUBMIT, Scope.READ})
"""The scopes of a token that names none."""

ANYONE: Final = "*"
"""The owner of a job that anyone may read and cancel, even without a credential."""

NOBODY: Final = ""
"""The owner of a job that was submitted past all APIs: only its organisation's admins see it."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A number of requests per window of seconds."""

    requests: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    ``owner`` is stored with the caller's jobs: a user, whichever of their credentials they use, or
    the custom claims of a service token.
    """

    org: str
    kind: Literal["key", "user", "service", "anonymous"]
    owner: str
    scopes: frozenset[Scope]
    user: str | None = None
    key_id: str | None = None
    key_rate: RateLimit | None = None
    org_rate: RateLimit | None = None
    org_backlog_max: int | None = None
    org_timeout_max: int | None = None
    is_operator: bool = False
    """Whether they operate the deployment and act as operators: ``org`` is then the organisation
    that they are managing."""

    def may_see(self, owner: str) -> bool:
        """Whether they may read and cancel a job of this owner."""
        if owner == NOBODY:
            return Scope.ADMIN in self.scopes
        return owner in (ANYONE, self.owner)
