"""Tokens of issuers that a test's deployment trusts."""

from __future__ import annotations

import time
from typing import Any

import jwt

from coatcheck.settings.parsers import TokenIssuer

SECRET = "a secret that is shared with the issuer of tests"
USERS = TokenIssuer(issuer="users", audience="coatcheck", secret=SECRET)
MACHINES = TokenIssuer(issuer="machines", audience="coatcheck", secret=SECRET, kind="service")


def token(issuer: TokenIssuer, **claims: Any) -> dict[str, str]:
    """The credential of whoever these claims are of, as a header."""
    whole = {
        "iss": issuer.issuer,
        "aud": issuer.audience,
        "org": "default",
        "exp": time.time() + 3_600,
        **claims,
    }
    return {"Authorization": f"Bearer {jwt.encode(whole, SECRET, 'HS256')}"}
