"""Verifies JWTs of trusted issuers: tokens of users, and tokens of services.

The content of a token only selects its issuer. The issuer's settings fix the algorithms and the
location of the keys. A token whose header brings a key, or points to one, is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.tenants import USER_SCOPES, Principal, Scope, is_org_id, is_user_id
from coatcheck.settings.parsers import TokenIssuer
from coatcheck.tls import trusted_authorities

_log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 300.0
"""How long a key set is used before it is fetched again."""
REFETCH_SECONDS: Final = 30.0
"""An unknown key id causes a fetch, but no more often than this: anybody can invent ids."""
RETRY_SECONDS: Final = 5.0
"""The delay after a failed fetch."""
FETCH_SECONDS_MAX: Final = 5.0
BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100

_RSA_BITS_MIN: Final = 2048
_NEVER: Final = float("-inf")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_KINDS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    **{f"{kind}{bits}": ("RSA", frozenset()) for kind in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", frozenset({"P-256"})),
    "ES384": ("EC", frozenset({"P-384"})),
    "ES512": ("EC", frozenset({"P-521"})),
    "EdDSA": ("OKP", frozenset({"Ed25519", "Ed448"})),
}
"""The key type and the curves of each algorithm."""

Jwk = dict[str, Any]


class _KeySet(msgspec.Struct):
    keys: list[Jwk]


class FetchFailed(Exception):
    """The key set could not be fetched; the text says why."""


class PublishedKeys:
    """The key set (JWKS) at one URL."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._keys: list[Jwk] = []
        self._made: dict[tuple[int, str], Any] = {}
        self._fetched_at = _NEVER
        self._next_fetch_at = _NEVER
        self._fetching: asyncio.Task[None] | None = None
        self._client: httpx2.AsyncClient | None = None

    async def find(self, key_id: str | None, algorithm: str) -> Any | None:
        """The public key for a token with this header, or None if there is none."""
        if self._clock() - self._fetched_at > FRESH_SECONDS:
            await self._refresh()
        found = self._chosen(key_id, algorithm)
        if found is None:
            await self._refresh()
            found = self._chosen(key_id, algorithm)
        return found

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def _chosen(self, key_id: str | None, algorithm: str) -> Any | None:
        fitting = [
            (number, jwk)
            for number, jwk in enumerate(self._keys)
            if _fits(jwk, algorithm) and (key_id is None or jwk.get("kid") == key_id)
        ]
        if len(fitting) != 1:
            return None  # a token without a key id is only unambiguous if one key fits
        number, jwk = fitting[0]
        made = self._made.get((number, algorithm))
        if made is None:
            made = self._made[number, algorithm] = _public_key(jwk, algorithm)
        return made

    async def _refresh(self) -> None:
        """Fetch the keys, unless that was tried lately. Concurrent callers share one fetch."""
        if self._fetching is None:
            if self._clock() < self._next_fetch_at:
                return
            self._fetching = asyncio.create_task(self._fetch_and_keep())
        await asyncio.shield(self._fetching)

    async def _fetch_and_keep(self) -> None:
        try:
            keys = await self._fetch()
        except FetchFailed as error:
            self._next_fetch_at = self._clock() + RETRY_SECONDS
            _log.warning("cannot fetch the key set of an issuer: %s", error)
        else:
            self._keys, self._made = keys, {}
            self._fetched_at = self._clock()
            self._next_fetch_at = self._fetched_at + REFETCH_SECONDS
        finally:
            self._fetching = None

    async def _fetch(self) -> list[Jwk]:
        if self._client is None:
            nearby = urlsplit(self._url).hostname in _LOOPBACK
            self._client = httpx2.AsyncClient(
                verify=trusted_authorities(trust_env=not nearby),
                trust_env=not nearby,
                follow_redirects=False,
            )
        try:
            async with (
                asyncio.timeout(FETCH_SECONDS_MAX),
                self._client.stream("GET", self._url, timeout=FETCH_SECONDS_MAX) as response,
            ):
                if response.status_code != httpx2.codes.OK:
                    raise FetchFailed(f"{self._url} answered {response.status_code}")
                body = b""
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > BYTES_MAX:
                        raise FetchFailed(f"{self._url} answered more than {BYTES_MAX} bytes")
        except (httpx2.HTTPError, TimeoutError, OSError) as error:
            raise FetchFailed(f"{self._url}: {type(error).__name__}") from error
        try:
            keys = msgspec.json.decode(body, type=_KeySet).keys
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise FetchFailed(f"{self._url} did not answer with a key set") from error
        return [jwk for jwk in keys[:KEYS_MAX] if _is_published(jwk)]


def _is_published(jwk: Jwk) -> bool:
    """Whether it is a public key for signatures. A private key that was published is not used."""
    return "d" not in jwk and "k" not in jwk and jwk.get("use", "sig") == "sig"


def _fits(jwk: Jwk, algorithm: str) -> bool:
    kind, curves = _KINDS[algorithm]
    return (
        jwk.get("kty") == kind
        and jwk.get("alg", algorithm) == algorithm
        and (not curves or jwk.get("crv") in curves)
    )


def _public_key(jwk: Jwk, algorithm: str) -> Any | None:
    try:
        key = jwt.PyJWK(jwk, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
        _log.warning("an issuer published an invalid key: %s", type(error).__name__)
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < _RSA_BITS_MIN:
        _log.warning("an issuer published a key that is too short: %d bits", key.key_size)
        return None
    return key


LEEWAY_SECONDS: Final = 30.0
"""The tolerated difference between an issuer's clock and this server's."""

_FORBIDDEN_HEADERS: Final = frozenset({"crit", "jku", "x5u", "jwk", "x5c", "b64"})
"""They bring a key, point to one, or change which bytes are signed."""

_STANDARD_CLAIMS: Final = frozenset(
    {"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "scope", "scopes"}
)

# PyJWT raises its own errors for most faults of a token, and these for the rest.
_BAD_TOKEN: Final = (
    *(jwt.PyJWTError, ValueError, TypeError),
    *(KeyError, OverflowError, RecursionError),
)

Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckedToken:
    """The principal of a token, and the seconds until it expires."""

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
        """The token's principal. Raises Unauthenticated; only the log says why."""
        try:
            return await self._check(token)
        except _BAD_TOKEN as error:
            _log.debug("a token was refused: %s", type(error).__name__)
            raise Unauthenticated from None

    def seconds_left(self, token: bytes) -> float:
        """For how long a token that was checked stays valid. Raises Unauthenticated once it has
        expired."""
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
        """The issuer that a token names. This is not trusted before its signature is checked."""
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
    """The known scopes of the claim. An issuer may name scopes of other applications."""
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
