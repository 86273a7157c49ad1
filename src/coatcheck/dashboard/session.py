"""Who is signed in: a sealed cookie that holds the credential itself, and no row anywhere.

A credential that is revoked is refused by the API at the next call, as anywhere else, so there is
nothing to end on the server's side; signing out removes the cookie.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final, Literal

import msgspec

from coatcheck.control.call import Call
from coatcheck.dashboard.cookies import Cookie
from coatcheck.dashboard.sealing import Seal

SESSION_SECONDS: Final = 12 * 3600
CREDENTIAL_BYTES_MAX: Final = 2_700
"""Sealed, and with what stands beside it, a longer one would not fit into a browser's cookie."""
_ID_BYTES: Final = 16
_COOKIE: Final = Cookie("coatcheck_session", "/ui", SESSION_SECONDS)


class Session(msgspec.Struct, frozen=True):
    """A credential, and what was known of it when it was presented.

    What it says of scopes decides what a page offers; what is allowed, the API decides.
    """

    id: bytes
    credential: bytes
    until: int
    home_org: str
    org: str
    """The organisation that is looked at; another than ``home_org`` only for operators."""
    user: str | None
    kind: Literal["key", "user", "service"]
    scopes: list[str]
    operator: bool

    @property
    def pages(self) -> bytes:
        """Names the pages of this session that look at its organisation; their tokens are made of
        it, so that a page of another, in another window, changes nothing in this one."""
        return self.id + self.org.encode()

    def may(self, scope: str) -> bool:
        return scope in self.scopes


class Sessions:
    """Reads sessions from cookies, and writes them."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def read(self, call: Call) -> Session | None:
        """The session of a call; None if there is none that counts."""
        sealed = _COOKIE.read(call)
        opened = None if not sealed else self._seal.open(_COOKIE.name, sealed)
        if opened is None:
            return None
        try:
            session = msgspec.msgpack.decode(opened, type=Session)
        except msgspec.DecodeError:
            return None  # of another version
        return session if session.until > time.time() else None

    def cookie(self, session: Session, *, secure: bool) -> tuple[bytes, bytes]:
        sealed = self._seal.close(_COOKIE.name, msgspec.msgpack.encode(session))
        return _COOKIE.set(sealed, secure=secure)

    @staticmethod
    def gone(*, secure: bool) -> tuple[bytes, bytes]:
        return _COOKIE.clear(secure=secure)


def begin(credential: bytes, me: dict[str, Any]) -> Session:
    """A session of the credential that the API says is ``me``'s."""
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
