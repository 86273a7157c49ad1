"""Tokens (JWT) of trusted issuers: users' own, and those of services.

What a token says of itself chooses nothing but whom to ask: its issuer's settings fix the
algorithms and where the keys are, and a header that would have us look elsewhere is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.identity import USER_SCOPES, Principal, Scope
from coatcheck.domain.tenants import is_org_id, is_user_id
from coatcheck.http.auth.jwks import PublishedKeys
from coatcheck.settings.issuers import TokenIssuer

_log = logging.getLogger(__name__)

LEEWAY_SECONDS: Final = 30.0
"""How far an issuer's clock may be off."""

_FORBIDDEN_HEADERS: Final = frozenset({"crit", "jku", "x5u", "jwk", "x5c", "b64"})
"""They bring a key along, say where one is, or change what is signed."""

_STANDARD_CLAIMS: Final = frozenset(
    {"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "scope", "scopes"}
)

# The library raises its own errors for most of what can be wrong, and these for the rest.
_BAD_TOKEN: Final = (
    *(jwt.PyJWTError, ValueError, TypeError),
    *(KeyError, OverflowError, RecursionError),
)

Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckedToken:
    """Whose token it is, and for how many seconds still."""

    principal: Principal
    seconds_left: float


class TokenCheck:
    """Finds the principal of a token."""

    def __init__(
        self, issuers: Iterable[TokenIssuer], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._issuers: dict[str, list[TokenIssuer]] = {}
        self._published: dict[str, PublishedKeys] = {}
        for issuer in issuers:
            self._issuers.setdefault(issuer.issuer, []).append(issuer)
            if issuer.jwks_url is not None and issuer.jwks_url not in self._published:
                self._published[issuer.jwks_url] = PublishedKeys(issuer.jwks_url)

    async def check(self, token: bytes) -> CheckedToken:
        """Whose token it is. Raises Unauthenticated; only the log says why."""
        if not self._issuers:
            raise Unauthenticated
        try:
            return await self._check(token)
        except _BAD_TOKEN as error:
            _log.debug("a token was refused: %s", type(error).__name__)
            raise Unauthenticated from None

    def seconds_left(self, token: bytes) -> float:
        """For how long a token that was checked still counts. Raises Unauthenticated once it does
        not."""
        claims: Claims = jwt.decode(token, options={"verify_signature": False})
        seconds = float(claims["exp"]) + LEEWAY_SECONDS - self._clock()
        if seconds <= 0:
            raise Unauthenticated
        return seconds

    async def close(self) -> None:
        for published in self._published.values():
            await published.close()

    async def _check(self, token: bytes) -> CheckedToken:
        header = jwt.get_unverified_header(token)
        if _FORBIDDEN_HEADERS & header.keys():
            raise jwt.InvalidTokenError
        issuer = self._issuer_of(token)
        algorithm = header.get("alg")
        if algorithm not in issuer.algorithms:
            raise jwt.InvalidAlgorithmError
        claims = jwt.decode(
            token,
            await self._key(issuer, header.get("kid"), algorithm),
            algorithms=[algorithm],
            issuer=issuer.issuer,
            audience=issuer.audience,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud"]},
        )
        return CheckedToken(_principal(issuer, claims), claims["exp"] - self._clock())

    def _issuer_of(self, token: bytes) -> TokenIssuer:
        """Whom a token says it is from. It is believed once the signature has been checked."""
        claims: Claims = jwt.decode(token, options={"verify_signature": False})
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        for issuer in self._issuers.get(claims["iss"], ()):
            if issuer.audience in audiences:
                return issuer
        raise jwt.InvalidIssuerError

    async def _key(self, issuer: TokenIssuer, key_id: str | None, algorithm: str) -> Any:
        if issuer.secret is not None:
            return issuer.secret
        assert issuer.jwks_url is not None
        key = await self._published[issuer.jwks_url].find(key_id, algorithm)
        if key is None:
            raise jwt.InvalidKeyError
        return key


def _principal(issuer: TokenIssuer, claims: Claims) -> Principal:
    org = claims.get(issuer.org_claim)
    if not is_org_id(org):
        raise jwt.InvalidTokenError
    scopes = _scopes(claims)
    if issuer.kind == "service":
        return Principal(org, "service", _claims_owner(issuer, claims), scopes)
    user = claims.get("sub")
    if not is_user_id(user):
        raise jwt.InvalidTokenError
    return Principal(org, "user", f"user:{user}", scopes, user=user)


def _scopes(claims: Claims) -> frozenset[Scope]:
    """Those of the claim that we know; an issuer may name others for others."""
    named = claims.get("scope", claims.get("scopes"))
    if named is None:
        return USER_SCOPES
    words = named.split() if isinstance(named, str) else named
    if not isinstance(words, list):
        raise jwt.InvalidTokenError
    return frozenset(scope for scope in Scope if scope.value in words)


def _claims_owner(issuer: TokenIssuer, claims: Claims) -> str:
    custom = {
        name: value
        for name, value in claims.items()
        if name not in _STANDARD_CLAIMS and name != issuer.org_claim
    }
    canonical = json.dumps(custom, sort_keys=True, separators=(",", ":"))
    return f"claims:{hashlib.sha256(canonical.encode()).hexdigest()}"
