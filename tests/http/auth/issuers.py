"""Issuers of tokens for tests: one that shares a secret, and one that really serves a key set."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from coatcheck.settings.parsers import TokenIssuer

ISSUER = "https://issuer.example"
AUDIENCE = "coatcheck"
SECRET = "a shared secret of 32 characters or more"


def claims(**changed: Any) -> dict[str, Any]:
    """Those of a good token; None takes one away."""
    usual = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "org": "acme",
        "exp": int(time.time()) + 600,
    }
    return {name: value for name, value in (usual | changed).items() if value is not None}


def token(key: Any = SECRET, algorithm: str = "HS256", **options: Any) -> bytes:
    """A signed token; ``headers`` and ``claims`` may be given."""
    payload = options.get("claims", claims())
    return jwt.encode(payload, key, algorithm, headers=options.get("headers")).encode()


def hand_made(header: dict[str, Any], payload: Any, signature: bytes = b"") -> bytes:
    """A token that no library would make."""
    parts = (json.dumps(header).encode(), json.dumps(payload).encode(), signature)
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)


def hand_signed(header: dict[str, Any], payload: Any, secret: bytes) -> bytes:
    """The same, signed by HS256."""
    signed = hand_made(header, payload).rpartition(b".")[0]
    signature = base64.urlsafe_b64encode(hmac.digest(secret, signed, hashlib.sha256))
    return signed + b"." + signature.rstrip(b"=")


def secret_issuer(**changed: Any) -> TokenIssuer:
    given = {"issuer": ISSUER, "audience": AUDIENCE, "secret": SECRET}
    return TokenIssuer(**(given | changed))


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ANOTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK_RSA = rsa.generate_private_key(public_exponent=65537, key_size=1024)
"""Too short to be trusted."""
P256 = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())
ED25519 = ed25519.Ed25519PrivateKey.generate()


def published(key: Any, algorithm: str, kid: str | None, **extra: Any) -> dict[str, Any]:
    """The public half of a key, as an issuer publishes it."""
    described: dict[str, Any] = json.loads(
        get_default_algorithms()[algorithm].to_jwk(key.public_key())
    )
    return described | ({} if kid is None else {"kid": kid}) | extra


@dataclass
class KeySetServer:
    """Serves a key set over HTTP, as it is at the moment, and counts how often it was asked."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    body: bytes | None = None
    asked: int = 0
    slow: asyncio.Event | None = None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            if self.slow is not None:
                await self.slow.wait()
            body = self.body if self.body is not None else json.dumps({"keys": self.keys}).encode()
            head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(body)}\r\n"
            writer.write(head.encode() + b"location: /\r\nconnection: close\r\n\r\n" + body)
            await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def key_set_server() -> AsyncIterator[KeySetServer]:
    serving = KeySetServer()
    server = await asyncio.start_server(serving.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    serving.url = f"http://127.0.0.1:{port}/keys"
    async with server:
        yield serving
