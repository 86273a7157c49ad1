"""Sessions: an encrypted cookie that holds the visitor's credential, and no state on the server.

The API refuses a revoked credential at the next call, as it does for any client, so the server has
no session to end. Signing out deletes the cookie.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final, Literal

import msgspec

from coatcheck.dashboard.cookies import Cookie
from coatcheck.dashboard.sealing import Seal
from coatcheck.http.request import Call

SESSION_SECONDS: Final = 12 * 3600
CREDENTIAL_BYTES_MAX: Final = 2_700
"""A longer credential, encrypted and with the other fields, would not fit into a cookie."""
_ID_BYTES: Final = 16
_COOKIE: Final = Cookie("coatcheck_session", "/ui", SESSION_SECONDS)


class Session(msgspec.Struct, frozen=True):
    """A credential, and what the API said about it at sign-in.

    Its scopes decide what a page offers. The API decides what is allowed.
    """

    id: bytes
    credential: bytes
    until: int
    home_org: str
    org: str
    """The organisation that the pages show; only operators can leave ``home_org``."""
    user: str | None
    kind: Literal["key", "user", "service"]
    scopes: list[str]
    operator: bool

    @property
    def pages(self) -> bytes:
        """Identifies the session's pages of its current organisation. CSRF tokens derive from it,
        so a page of another organisation in another window cannot change anything here."""
        return self.id + self.org.encode()

    def may(self, scope: str) -> bool:
        return scope in self.scopes


class Sessions:
    """Reads and writes session cookies."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def read(self, call: Call) -> Session | None:
        """The session of a request; None if it has no valid one."""
        sealed = _COOKIE.read(call)
        opened = None if not sealed else self._seal.open(_COOKIE.name, sealed)
        if opened is None:
            return None
        try:
            session = msgspec.msgpack.decode(opened, type=Session)
        except msgspec.DecodeError:
            return None  # written by another version
        return session if session.until > time.time() else None

    def cookie(self, session: Session, *, secure: bool) -> tuple[bytes, bytes]:
        sealed = self._seal.close(_COOKIE.name, msgspec.msgpack.encode(session))
        return _COOKIE.set(sealed, secure=secure)

    @staticmethod
    def gone(*, secure: bool) -> tuple[bytes, bytes]:
        return _COOKIE.clear(secure=secure)


def begin(credential: bytes, me: dict[str, Any]) -> Session:
    """A new session; ``me`` is the API's description of the credential."""
    return Session(
        id=os.urandom(_ID_BYTES),
        credential=credential,
        until=int(time.time()) + SESSION_SECONDS,
        home_org=me["org_id"],
        org=me["org_id"],
        user=me["user"],
        kind=me["kind"],
        scopes=list(me["scopes"]),
        operator=bool(me["operator"]),
    )
