"""JWT issuers, as the settings configure them."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

SECRET_ALGORITHMS: Final = frozenset({"HS256", "HS384", "HS512"})
"""For an issuer that shares its secret with us."""

PUBLIC_ALGORITHMS: Final = frozenset(
    {
        *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
        *("ES256", "ES384", "ES512", "EdDSA"),
    }
)
"""For an issuer that publishes its keys."""

SECRET_CHARACTERS_MIN: Final = 32
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class TokenIssuer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An issuer of tokens, and the rules for its tokens.

    Its algorithms are fixed here: the header of a token never chooses one.
    """

    issuer: str
    audience: str
    secret: str | None = None
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = ()
    """Empty: HS256 with a secret, RS256 and ES256 with a key set."""
    kind: Literal["user", "service"] = "user"
    org_claim: str = "org"

    def __post_init__(self) -> None:
        for name in ("issuer", "audience", "org_claim"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty")
        if (self.secret is None) == (self.jwks_url is None):
            raise ValueError("needs either a secret or a jwks_url")
        if not self.algorithms:
            usual = ("HS256",) if self.secret is not None else ("RS256", "ES256")
            msgspec.structs.force_setattr(self, "algorithms", usual)
        if self.secret is not None:
            self._check_secret(self.secret)
        if self.jwks_url is not None:
            self._check_key_set(self.jwks_url)

    def __repr__(self) -> str:
        return f"TokenIssuer({self.issuer!r}, {self.audience!r})"

    def _check_secret(self, secret: str) -> None:
        if len(secret) < SECRET_CHARACTERS_MIN:
            raise ValueError(f"its secret has fewer than {SECRET_CHARACTERS_MIN} characters")
        if not SECRET_ALGORITHMS.issuperset(self.algorithms):
            raise ValueError(f"with a secret, algorithms must be from {_listed(SECRET_ALGORITHMS)}")

    def _check_key_set(self, url: str) -> None:
        if not PUBLIC_ALGORITHMS.issuperset(self.algorithms):
            raise ValueError(
                f"with a jwks_url, algorithms must be from {_listed(PUBLIC_ALGORITHMS)}"
            )
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise ValueError("its jwks_url is not https")
        if not parts.hostname or parts.username is not None:
            raise ValueError("its jwks_url has no host, or contains a user")


def read_issuers(text: str) -> tuple[TokenIssuer, ...]:
    """Parse a JSON list of issuers. Raises ValueError."""
    try:
        issuers = msgspec.json.decode(text.encode(), type=tuple[TokenIssuer, ...])
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    check_apart(issuers)
    return issuers


def check_apart(issuers: tuple[TokenIssuer, ...]) -> None:
    """Raise ValueError if a token could match two of these."""
    if len({(each.issuer, each.audience) for each in issuers}) < len(issuers):
        raise ValueError("two of them have the same issuer and audience")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
