"""Signs receipts and verifies them, as standard JWS (RFC 7515, 8037)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt.api_jws import PyJWS

from coatcheck.receipts.document import (
    KIND,
    VERSION,
    ArtifactReceipt,
    Receipt,
    SignedArtifactReceipt,
    SignedReceipt,
    canonical,
)
from coatcheck.sealing import derived

_LABEL: Final = "coatcheck/receipts/ed25519/v1"
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
    return Ed25519PrivateKey.from_private_bytes(derived(pepper, _LABEL, _KEY_BYTES))


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


_ALGORITHM: Final = "EdDSA"
_HEADERS: Final = frozenset({"alg", "kid", "typ"})
_BYTES_MAX: Final = 1024 * 1024
_jws: Final = PyJWS(algorithms=[_ALGORITHM])


class ReceiptRefused(Exception):
    """The text is not a receipt signed with the key; the message says why."""


class Signer:
    """Signs receipts with the deployment's key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = PublicKey(key.public_key())

    @classmethod
    def from_pepper(cls, pepper: str) -> Signer:
        """The signer of the deployment that has this pepper."""
        return cls(derive(pepper))

    def sign(self, receipt: Receipt) -> SignedReceipt:
        return SignedReceipt(receipt, self._signature(receipt))

    def sign_artifact(self, receipt: ArtifactReceipt) -> SignedArtifactReceipt:
        return SignedArtifactReceipt(receipt, self._signature(receipt))

    def _signature(self, receipt: Receipt | ArtifactReceipt) -> str:
        return _jws.encode(
            canonical(receipt),
            self._key,
            algorithm=_ALGORITHM,
            headers={"kid": self.public_key.kid, "typ": "JOSE"},
        )


def verify(text: bytes, keys: Sequence[PublicKey]) -> Receipt | ArtifactReceipt:
    """The receipt in ``text``, of an input or an artifact, if one of ``keys`` signed exactly it.

    Raises ReceiptRefused otherwise. Needs nothing but its arguments.
    """
    document = _read(text)
    shown, signature = document["receipt"], document["signature"]
    payload = _signed_payload(signature, keys)
    if _canonical(shown) != payload:
        raise ReceiptRefused("its content differs from what was signed: it was changed")
    try:
        receipt = _receipt(shown)
    except msgspec.ValidationError as error:
        raise ReceiptRefused(f"it is signed, but not a receipt of this kind: {error}") from error
    if receipt.version != VERSION:
        raise ReceiptRefused(f"it has version {receipt.version}; this program knows {VERSION}")
    return receipt


def _receipt(shown: dict[str, Any]) -> Receipt | ArtifactReceipt:
    if shown.get("kind") == KIND:
        return msgspec.convert(shown, ArtifactReceipt)
    return msgspec.convert(shown, Receipt)


def _read(text: bytes) -> dict[str, Any]:
    if len(text) > _BYTES_MAX:
        raise ReceiptRefused(f"it is longer than {_BYTES_MAX} bytes")
    try:
        document = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ReceiptRefused(f"it is not JSON: {error}") from error
    if (
        not isinstance(document, dict)
        or document.keys() != {"receipt", "signature"}
        or not isinstance(document["receipt"], dict)
        or not isinstance(document["signature"], str)
    ):
        raise ReceiptRefused("it must be an object with exactly a receipt and a signature")
    return document


def _canonical(shown: dict[str, Any]) -> bytes | None:
    """Its canonical JSON; None if it has none (half a surrogate pair, a number out of range)."""
    try:
        return canonical(shown)
    except (ValueError, OverflowError, RecursionError):
        return None


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys: a reader might see one value while a program checks the other."""
    read = dict(pairs)
    if len(read) < len(pairs):
        raise ValueError("duplicate key")
    return read


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _signed_payload(signature: str, keys: Sequence[PublicKey]) -> bytes:
    try:
        header = _jws.get_unverified_header(signature)
    except jwt.InvalidTokenError as error:
        raise ReceiptRefused(f"its signature is not a JWS: {error}") from error
    if header.get("alg") != _ALGORITHM or not header.keys() <= _HEADERS:
        raise ReceiptRefused("its signature is not of the kind used for receipts")
    for key in keys:
        if key.kid == header.get("kid"):
            break
    else:
        raise ReceiptRefused("it was signed with a different key than the one given")
    try:
        payload: bytes = _jws.decode(signature, key.key, algorithms=[_ALGORITHM])
    except jwt.InvalidTokenError as error:
        raise ReceiptRefused("its signature does not match: it was changed or forged") from error
    return payload
