"""A receipt proves what it says to anyone who has the public key; a changed one proves nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.api_jws import PyJWS

from coatcheck.receipts.document import canonical
from coatcheck.receipts.signature import (
    PublicKey,
    ReceiptRefused,
    Signer,
    derive,
    read_public_keys,
    verify,
)
from tests.unit.receipt_samples import PEPPER, signed

SIGNER = Signer.from_pepper(PEPPER)
KEY = SIGNER.public_key


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


# What it says


def test_a_receipt_says_what_became_of_each_copy_and_no_place_of_ours() -> None:
    receipt = json.loads(signed())["receipt"]
    assert receipt == {
        "version": 1,
        "jobId": "01JX0RECE1PT0RECE1PT0RECE1",
        "orgId": "ac\u00e7me \u2028",
        "operation": "call",
        "contentHash": f"sha256:{bytes(range(32)).hex()}",
        "bytes": 2**40 + 1,
        "receivedAt": "2026-05-04T12:00:01.120000Z",
        "layers": [
            {
                "layer": "blob",
                "place": "blob store",
                "storedAt": "2026-05-04T12:00:00.120000Z",
                "expiresAt": "2026-05-04T13:00:00.120000Z",
                "deletedAt": "2026-05-04T12:00:09.120000Z",
                "mechanism": "worker",
            },
            {
                "layer": "database",
                "place": "job row",
                "storedAt": "2026-05-04T12:00:01.120000Z",
                "deletedAt": "2026-05-04T12:00:08.120000Z",
                "mechanism": "end_of_job",
            },
            {
                "layer": "disk",
                "place": "host-1",
                "storedAt": "2026-05-04T12:00:02.120000Z",
                "deletedAt": "2026-05-04T12:00:07.120000Z",
                "mechanism": "worker",
            },
        ],
        "complete": True,
        "issuedAt": "2026-05-04T12:00:10.120000Z",
    }


def test_a_copy_that_is_left_makes_a_receipt_incomplete() -> None:
    receipt = json.loads(signed(complete=False))["receipt"]
    assert receipt["complete"] is False
    blob = receipt["layers"][0]
    assert (blob["deletedAt"], blob["mechanism"]) == (None, None)


# Whoever has the key can verify it


def test_a_receipt_is_verified() -> None:
    receipt = verify(signed(), [KEY])
    assert (receipt.job_id, receipt.complete, len(receipt.layers)) == (
        "01JX0RECE1PT0RECE1PT0RECE1",
        True,
        3,
    )


def test_the_order_and_spacing_of_its_json_do_not_matter() -> None:
    document = json.loads(signed())
    document["receipt"] = dict(reversed(document["receipt"].items()))
    assert verify(json.dumps(document, indent=2, ensure_ascii=True).encode(), [KEY])


def test_any_jose_library_verifies_the_signature() -> None:
    document = json.loads(signed())
    jws = PyJWS()
    key = jwt.PyJWK(KEY.jwk).key
    payload = jws.decode(document["signature"], key, algorithms=["EdDSA"])
    assert json.loads(payload) == document["receipt"]
    assert jws.get_unverified_header(document["signature"])["kid"] == KEY.kid


def test_bare_cryptography_verifies_the_signature() -> None:
    document = json.loads(signed())
    head, payload, signature = document["signature"].split(".")
    jwk = KEY.jwk
    key = Ed25519PublicKey.from_public_bytes(decoded(jwk["x"]))
    key.verify(decoded(signature), f"{head}.{payload}".encode())
    canonical_json = json.dumps(
        document["receipt"], sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    assert decoded(payload) == canonical_json.encode()
    with pytest.raises(InvalidSignature):
        key.verify(decoded(signature), f"{head}.{payload}x".encode())


# What is refused


Tampering = Callable[[dict[str, Any]], object]


def change(*path: str | int, to: object) -> Tampering:
    def tamper(document: dict[str, Any]) -> None:
        *inner, last = path
        place: Any = document
        for step in inner:
            place = place[step]
        place[last] = to

    return tamper


@pytest.mark.parametrize(
    "tamper",
    [
        change("receipt", "complete", to=False),
        change("receipt", "bytes", to=1),
        change("receipt", "bytes", to=float(2**40 + 1)),
        change("receipt", "bytes", to=2**70),
        change("receipt", "contentHash", to="sha256:" + "0" * 64),
        change("receipt", "layers", 0, "deletedAt", to="2026-05-04T12:00:01.120000Z"),
        change("receipt", "layers", to=[]),
        change("receipt", "note", to="added"),
        change("receipt", "orgId", to="\ud800"),
        lambda document: document["receipt"].pop("operation"),
        lambda document: document["receipt"]["layers"].pop(),
        lambda document: document["receipt"]["layers"].reverse(),
    ],
)
def test_a_receipt_that_was_changed_is_refused(tamper: Tampering) -> None:
    document = json.loads(signed())
    tamper(document)
    with pytest.raises(ReceiptRefused, match="changed"):
        verify(json.dumps(document).encode(), [KEY])


def resigned(
    header: dict[str, Any], payload: bytes | None = None, key: Ed25519PrivateKey | None = None
) -> bytes:
    """The receipt with a signature made by hand."""
    document = json.loads(signed())
    body = canonical(document["receipt"]) if payload is None else payload
    said = f"{encoded(json.dumps(header).encode())}.{encoded(body)}"
    signature = b"" if key is None else key.sign(said.encode())
    return json.dumps(
        {"receipt": document["receipt"], "signature": f"{said}.{encoded(signature)}"}
    ).encode()


def test_a_signature_over_something_else_is_refused() -> None:
    document = json.loads(signed())
    document["signature"] = json.loads(signed(complete=False))["signature"]
    with pytest.raises(ReceiptRefused, match="differs from what was signed"):
        verify(json.dumps(document).encode(), [KEY])


def test_a_receipt_of_another_key_is_refused() -> None:
    other = "another pepper, of another deployment"
    with pytest.raises(ReceiptRefused, match="a different key"):
        verify(signed(pepper=other), [KEY])


def test_a_receipt_that_only_claims_to_be_of_the_key_is_refused() -> None:
    forger = Ed25519PrivateKey.generate()
    with pytest.raises(ReceiptRefused, match="does not match"):
        verify(resigned({"alg": "EdDSA", "kid": KEY.kid}, key=forger), [KEY])


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": "EdDSA", "crit": ["b64"], "b64": False},
        {"alg": "EdDSA", "jwk": KEY.jwk},
        {"alg": "EdDSA", "x5u": "https://example.com"},
    ],
    ids=lambda header: " ".join(map(str, header.values()))[:20],
)
def test_a_signature_of_another_kind_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(ReceiptRefused, match=r"its signature is not (a JWS|of the kind)"):
        verify(resigned(header | {"kid": KEY.kid}, key=Ed25519PrivateKey.generate()), [KEY])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"receipt": {}}',
        b'{"receipt": {}, "signature": ""}',
        b'{"receipt": {}, "signature": "a.b"}',
        b'{"receipt": {}, "signature": "a.b.c"}',
        b'{"receipt": NaN, "signature": "a.b.c"}',
        b'{"receipt": 1, "signature": "a.b.c"}',
        b"[" * 100_000,
        b" " * (1024 * 1024 + 1),
    ],
    ids=lambda text: text[:24].decode(errors="replace"),
)
def test_what_is_no_receipt_is_refused_and_never_an_error_of_ours(text: bytes) -> None:
    with pytest.raises(ReceiptRefused):
        verify(text, [KEY])


def test_a_receipt_with_a_key_there_twice_is_refused() -> None:
    # A reader would see the first, and a program check the second.
    twice = signed().replace(b'"complete":true', b'"complete":false,"complete":true')
    with pytest.raises(ReceiptRefused, match="duplicate key"):
        verify(twice, [KEY])


def test_something_else_that_the_key_signed_is_no_receipt() -> None:
    other = {"version": 2}
    signature = PyJWS().encode(canonical(other), derive(PEPPER), "EdDSA", {"kid": KEY.kid})
    text = json.dumps({"receipt": other, "signature": signature}).encode()
    with pytest.raises(ReceiptRefused, match="not a receipt of this kind"):
        verify(text, [KEY])


# The key


def test_every_server_with_the_pepper_has_the_key_and_no_other() -> None:
    assert Signer.from_pepper(PEPPER).public_key.pem == KEY.pem
    assert Signer.from_pepper(PEPPER + "!").public_key.pem != KEY.pem


def test_the_key_stays_the_same_from_version_to_version() -> None:
    # Receipts are kept for years: a change of the derivation would orphan them all.
    assert KEY.kid == "sfbSMYfbxVxrU6lB_h79gVTeD25c2iL70TPbXbW78qc"


def test_the_kid_is_the_keys_thumbprint() -> None:
    # RFC 8037, appendix A.3.
    x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    key = PublicKey(Ed25519PublicKey.from_public_bytes(decoded(x)))
    assert key.kid == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    text = b'{"crv":"Ed25519","kty":"OKP","x":"' + x.encode() + b'"}'
    assert decoded(key.kid) == hashlib.sha256(text).digest()


@pytest.mark.parametrize(
    "text",
    [KEY.pem, json.dumps(KEY.jwk), json.dumps({"keys": [KEY.jwk]})],
    ids=["pem", "jwk", "jwk set"],
)
def test_the_public_key_is_read_in_every_form_it_is_given_out_in(text: str) -> None:
    (key,) = read_public_keys(text.encode())
    assert key.kid == KEY.kid
    assert verify(signed(), [key])


def test_of_a_set_the_key_that_signed_is_used() -> None:
    other = Signer.from_pepper("another pepper, of another deployment").public_key
    assert verify(signed(), [other, KEY])


ELLIPTIC = generate_private_key(SECP256R1()).public_key()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [1]}',
        b'{"kty": "OKP", "crv": "Ed25519", "x": "AA"}',
        b'{"kty": "OKP", "crv": "Ed25519", "x": "\xc3\xa9"}',
        b'{"kty": "oct", "k": "AA"}',
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        ELLIPTIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    ],
    ids=range(10),
)
def test_what_is_no_ed25519_key_is_refused_with_its_reason(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it"):
        read_public_keys(text)
