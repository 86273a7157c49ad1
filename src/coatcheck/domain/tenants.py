"""Organisations and the API keys of their users."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Final, Literal, TypeGuard

from coatcheck.domain import ids


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

    def may_see(self, owner: str, *, admins_see_all: bool = False) -> bool:
        """Whether they may read and cancel a job of this owner.

        ``admins_see_all``: the jobs are managed by their organisation, not by their owners alone.
        """
        if owner == NOBODY or admins_see_all:
            return Scope.ADMIN in self.scopes or owner in (ANYONE, self.owner)
        return owner in (ANYONE, self.owner)

    @property
    def lists_jobs_of(self) -> str | None:
        """The owner to whose jobs their lists are restricted; None for an admin, who lists the jobs
        of all owners."""
        return None if Scope.ADMIN in self.scopes else self.owner


PREFIX: Final = b"cck_"
PEPPER_CHARACTERS_MIN: Final = 32
FORMAT: Final = (
    "cck_ID_SECRET: ID is a ULID of 26 characters, SECRET has 32 to 128 letters and digits"
)

_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECRET_BITS: Final = 256
_SECRET_CHARACTERS: Final = 43  # 256 bits at 62 letters
_KEY: Final = re.compile(rb"cck_([0-7][0-9A-HJKMNP-TV-Z]{25})_([0-9A-Za-z]{32,128})")


@dataclass(frozen=True, slots=True)
class KeyText:
    """The two halves of a key. ``secret`` never appears in a log or an error."""

    key_id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"KeyText({self.key_id})"

    @property
    def text(self) -> str:
        """The key as its user sees it."""
        return f"cck_{self.key_id}_{self.secret.decode()}"

    def digest(self, pepper: bytes) -> bytes:
        """The hash of the secret, for storage."""
        return hmac.digest(pepper, self.secret, hashlib.sha256)


def mint() -> KeyText:
    """Create a new key."""
    number = secrets.randbits(_SECRET_BITS)
    letters = []
    for _ in range(_SECRET_CHARACTERS):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return KeyText(ids.to_text(ids.new_id()), "".join(letters).encode())


def parse(text: bytes) -> KeyText | None:
    """Split a key into its halves; None if it does not look like one."""
    found = _KEY.fullmatch(text)
    return None if found is None else KeyText(found[1].decode(), found[2])


ACTIVE: Final = frozenset({"active", "trialing", "past_due"})
"""Stripe's statuses of a working subscription. While a payment is ``past_due`` Stripe still tries
to collect it; the status becomes ``unpaid`` or ``canceled`` when it has given up."""


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One event of an organisation's subscription."""

    event_id: str
    at: datetime
    rank: int
    """Orders events of the same second. 0: a beginning, which any other event overrides."""
    customer: str | None
    subscription: str | None
    status: str | None
    """None: the event only links a customer to an organisation."""
    org: str | None
    """The organisation that the event names, if any."""
    relinks: bool
    """Whether it may link an organisation to another customer: only data set by our servers may,
    not what a buyer could put into a link."""


class PlanChange(Enum):
    """What became of an event."""

    APPLIED = "applied"
    REPEATED = "repeated"
    UNKNOWN = "unknown"
    """No organisation has that customer."""


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
class StoredApiKey:
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
