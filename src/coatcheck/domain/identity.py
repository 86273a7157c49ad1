"""Who calls, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal


class Scope(StrEnum):
    """What a credential allows. None implies another."""

    SUBMIT = "submit"
    READ = "read"
    ADMIN = "admin"


ALL_SCOPES: Final = frozenset(Scope)
USER_SCOPES: Final = frozenset({Scope.SUBMIT, Scope.READ})
"""What a token that names no scope allows."""

ANYONE: Final = "*"
"""The owner of a job that anyone may read and cancel, without a credential, too."""

NOBODY: Final = ""
"""The owner of a job that was handed in past all surfaces: for its organisation's admins to see."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many requests in each window of so many seconds."""

    requests: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller whose credential was checked.

    ``owner`` is what the caller's jobs carry: a user, whichever of their credentials they use, or
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
    """Whether they operate the deployment, and asked for what operators may look after: ``org`` is
    then the organisation that they look after just now."""

    def may_see(self, owner: str) -> bool:
        """Whether a job of this owner is theirs to read and cancel."""
        if owner == NOBODY:
            return Scope.ADMIN in self.scopes
        return owner in (ANYONE, self.owner)
