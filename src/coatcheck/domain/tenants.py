"""Organisations and the API keys of their users."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeGuard

from coatcheck.domain.identity import RateLimit, Scope

DEFAULT_ORG: Final = "default"
DEFAULT_WORKSPACE: Final = "default"

_ORG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_USER: Final = re.compile(r"[!-~]{1,255}")

ORG_ID_ALLOWED: Final = (
    "1 to 128 of the letters A to Z and a to z, digits, '_', '.' and '-', beginning with a letter "
    "or a digit"
)
USER_ID_ALLOWED: Final = "1 to 255 printable ASCII characters without spaces"


def is_org_id(text: object) -> TypeGuard[str]:
    """Whether this is a valid organisation id; it appears in paths and in notifications."""
    return isinstance(text, str) and _ORG.fullmatch(text) is not None


def is_user_id(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and _USER.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class OrgLimits:
    """The limits of an organisation; None: unlimited.

    ``timeout_max`` is how many seconds the calls of its registered services may take; None: the
    deployment's limit.
    """

    rate: RateLimit | None = None
    backlog_max: int | None = None
    timeout_max: int | None = None


@dataclass(frozen=True, slots=True)
class Org:
    """An organisation. ``subscription`` is Stripe's status of its plan."""

    org_id: str
    name: str
    subscription: str
    limits: OrgLimits
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret, which was shown when the key was created and is not stored."""

    org: str
    key_id: str
    user: str
    name: str
    scopes: frozenset[Scope]
    rate: RateLimit | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
