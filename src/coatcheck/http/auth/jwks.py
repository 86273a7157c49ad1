"""The keys that an issuer publishes (JWKS): fetched, remembered, and fetched again as they change.

An issuer that cannot be reached is no reason to refuse its users: the keys it published last are
kept until it publishes others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

_log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 300.0
"""How long a key set is used before it is fetched again."""
REFETCH_SECONDS: Final = 30.0
"""An unknown key's id makes us fetch again, but no more often: anybody can make ids up."""
RETRY_SECONDS: Final = 5.0
"""When a fetch that failed is worth another."""
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
"""The kind of key, and the curves, that each algorithm takes."""

Jwk = dict[str, Any]


class _KeySet(msgspec.Struct):
    keys: list[Jwk]


class FetchFailed(Exception):
    """The key set could not be had; the text says why."""


class PublishedKeys:
    """The keys at one URL."""

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
        """The public key for a token with this header, or None if there is none such."""
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
            return None  # a token that names no key is only clear if there is one alone
        number, jwk = fitting[0]
        made = self._made.get((number, algorithm))
        if made is None:
            made = self._made[number, algorithm] = _public_key(jwk, algorithm)
        return made

    async def _refresh(self) -> None:
        """Fetch the keys, unless that was tried lately; whoever comes meanwhile waits along."""
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
            _log.warning("the key set of an issuer could not be fetched: %s", error)
        else:
            self._keys, self._made = keys, {}
            self._fetched_at = self._clock()
            self._next_fetch_at = self._fetched_at + REFETCH_SECONDS
        finally:
            self._fetching = None

    async def _fetch(self) -> list[Jwk]:
        if self._client is None:
            nearby = urlsplit(self._url).hostname in _LOOPBACK
            self._client = httpx2.AsyncClient(trust_env=not nearby, follow_redirects=False)
        try:
            async with (
                asyncio.timeout(FETCH_SECONDS_MAX),
                self._client.stream("GET", self._url, timeout=FETCH_SECONDS_MAX) as answer,
            ):
                if answer.status_code != httpx2.codes.OK:
                    raise FetchFailed(f"{self._url} answered {answer.status_code}")
                body = b""
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > BYTES_MAX:
                        raise FetchFailed(f"{self._url} answered more than {BYTES_MAX} bytes")
        except (httpx2.HTTPError, TimeoutError, OSError) as error:
            raise FetchFailed(f"{self._url}: {type(error).__name__}") from error
        try:
            keys = msgspec.json.decode(body, type=_KeySet).keys
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise FetchFailed(f"{self._url} answered no key set") from error
        return [jwk for jwk in keys[:KEYS_MAX] if _is_published(jwk)]


def _is_published(jwk: Jwk) -> bool:
    """Whether it is a public key for signatures. A private one that was published is nobody's."""
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
        _log.warning("a published key cannot be used: %s", type(error).__name__)
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < _RSA_BITS_MIN:
        _log.warning("a published key is too short: %d bits", key.key_size)
        return None
    return key
