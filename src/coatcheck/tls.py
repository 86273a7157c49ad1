"""Which certificate authorities HTTP clients trust."""

from __future__ import annotations

import os
from functools import cache
from ssl import SSLContext

import httpx2


def trusted_authorities(*, trust_env: bool = True) -> SSLContext:
    """The system's authorities, or with ``trust_env`` those of SSL_CERT_FILE or SSL_CERT_DIR.

    Reading them takes 20 ms, so all callers share one context: use it, do not change it.
    """
    named = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return _read(trust_env, named if trust_env else None)


@cache
def _read(trust_env: bool, _named: tuple[str | None, str | None] | None) -> SSLContext:
    return httpx2.create_ssl_context(trust_env=trust_env)
