"""The Ed25519 key that signs receipts, and its public key as PEM and JWK.

It is derived from the pepper that all servers of a deployment share, so that all of them sign with
the same key without another setting (docs/adr/0017).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_LABEL: Final = b"coatcheck/receipts/ed25519/v1"
_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The key that verifies receipts."""

    key: Ed25519PublicKey

    @property
    def pem(self) -> str:
        return self.key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ).decode()

    @property
    def jwk(self) -> dict[str, str]:
        """The key as a JWK (RFC 8037) with its use."""
        return {**self._required(), "kid": self.kid, "alg": "EdDSA", "use": "sig"}

    @property
    def kid(self) -> str:
        """The key's thumbprint (RFC 7638), by which a signature names it."""
        text = msgspec.json.encode(self._required(), order="sorted")
        return _base64url(hashlib.sha256(text).digest())

    def _required(self) -> dict[str, str]:
        return {"crv": "Ed25519", "kty": "OKP", "x": _base64url(self.key.public_bytes_raw())}


def derive(pepper: str) -> Ed25519PrivateKey:
    """The signing key of the deployment that has this pepper."""
    hkdf = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=_LABEL)
    return Ed25519PrivateKey.from_private_bytes(hkdf.derive(pepper.encode()))


def read_public_keys(text: bytes) -> list[PublicKey]:
    """The Ed25519 keys in a PEM file, a JWK or a JWK set. Raises ValueError with the reason."""
    if text.lstrip().startswith(b"-----BEGIN"):
        return [_from_pem(text)]
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError("it is neither PEM nor a JSON Web Key") from error
    listed = document.get("keys", [document])
    if not isinstance(listed, list) or not listed:
        raise ValueError("it has no key")
    return [_from_jwk(jwk) for jwk in listed]


def _from_pem(text: bytes) -> PublicKey:
    try:
        key = serialization.load_pem_public_key(text)
    except Exception as error:  # the library raises several kinds of parser errors
        raise ValueError("it is not a PEM public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("it is not an Ed25519 key")
    return PublicKey(key)


def _from_jwk(jwk: Any) -> PublicKey:
    if not isinstance(jwk, dict) or (jwk.get("kty"), jwk.get("crv")) != ("OKP", "Ed25519"):
        raise ValueError("it is not an Ed25519 key (kty OKP, crv Ed25519)")
    try:
        x = str(jwk.get("x", ""))
        raw = base64.b64decode(x + "=" * (-len(x) % 4), altchars=b"-_", validate=True)
        return PublicKey(Ed25519PublicKey.from_public_bytes(raw))
    except ValueError as error:
        raise ValueError("its x is not 32 bytes in base64url") from error


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
