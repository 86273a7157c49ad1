"""The certificate authorities that servers are checked against, read once for a whole process.

Reading them takes longer than all else that a client does when it is made, and a worker makes many.
"""

from __future__ import annotations

import os
from functools import cache
from ssl import SSLContext

import httpx2


def trusted_authorities(*, trust_env: bool = True) -> SSLContext:
    """The system's, or those that SSL_CERT_FILE or SSL_CERT_DIR names if ``trust_env``.

    Everybody gets the same context: it may be used, and not be changed.
    """
    named = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return _read(trust_env, named if trust_env else None)


@cache
def _read(trust_env: bool, _named: tuple[str | None, str | None] | None) -> SSLContext:
    return httpx2.create_ssl_context(trust_env=trust_env)
