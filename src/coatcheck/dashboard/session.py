"""Sessions: an encrypted cookie that holds the visitor's credential, and no state on the server.

The API refuses a revoked credential at the next call, as it does for any client, so the server has
no session to end. Signing out deletes the cookie.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import time
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from coatcheck.dashboard.fields import Fields
from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.request import Request
from coatcheck.sealing import Sealer, SealError, derived

_SEALING_LABEL: Final = "coatcheck/dashboard/cookies/aes-256-gcm/v1"
_TOKEN_LABEL: Final = "coatcheck/dashboard/forms/hmac-sha256/v1"  # noqa: S105 - no secret
_TOKEN_KEY_BYTES: Final = 32


class Seal:
    """Encrypts and decrypts cookie values, and makes CSRF tokens."""

    def __init__(self, pepper: str) -> None:
        self._sealer = Sealer([pepper], _SEALING_LABEL)
        self._token_key = derived(pepper, _TOKEN_LABEL, _TOKEN_KEY_BYTES)

    def close(self, purpose: str, plain: bytes) -> str:
        """Encrypt ``plain``; only ``open`` with the same ``purpose`` decrypts it."""
        return self._sealer.seal([purpose], plain)

    def open(self, purpose: str, sealed: str) -> bytes | None:
        """Decrypt a value; None if it is forged or was sealed for another purpose."""
        try:
            return self._sealer.open([purpose], sealed)
        except SealError:
            return None

    def token(self, of: bytes) -> str:
        """The CSRF token of forms in the session that ``of`` identifies."""
        digest = hmac.digest(self._token_key, of, hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def is_token(self, of: bytes, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(
            self.token(of).encode(), given.encode("utf-8", "replace")
        )


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie that scripts cannot read (HttpOnly) and other sites' forms do not send (Lax)."""

    name: str
    path: str
    seconds: int

    def read(self, request: Request) -> str | None:
        """The value of the first cookie with this name."""
        for part in (request.header(b"cookie") or "").split(";"):
            name, has_value, value = part.strip().partition("=")
            if has_value and name == self.name:
                return value
        return None

    def set(self, value: str, *, secure: bool) -> tuple[bytes, bytes]:
        return self._header(value, self.seconds, secure=secure)

    def clear(self, *, secure: bool) -> tuple[bytes, bytes]:
        return self._header("", 0, secure=secure)

    def _header(self, value: str, seconds: int, *, secure: bool) -> tuple[bytes, bytes]:
        text = f"{self.name}={value}; Path={self.path}; Max-Age={seconds}; HttpOnly; SameSite=Lax"
        return b"set-cookie", (text + "; Secure" if secure else text).encode("latin-1")


FIELD: Final = "csrf"
HEADER: Final = b"x-csrf-token"
_OWN_SITE: Final = "same-origin"


class ForgedForm(CoatcheckError):
    """A form from another site, or from a page of an earlier session."""

    code = "csrf_refused"


def check(request: Request, form: Fields, seal: Seal, session_id: bytes, public_url: str) -> None:
    """Check where a form comes from. Raises ForgedForm."""
    if not _is_from_here(request, public_url):
        raise ForgedForm("The form was sent from another site. Nothing was changed.")
    given = request.header(HEADER) or form.get(FIELD)
    if not seal.is_token(session_id, given):
        raise ForgedForm("This page has expired. Nothing was changed; reload it and try again.")


def is_of_other_pages(request: Request, seal: Seal, session_id: bytes) -> bool:
    """Whether an htmx request comes from a page of another session or organisation."""
    given = request.header(HEADER)
    return given is not None and not seal.is_token(session_id, given)


def _is_from_here(request: Request, public_url: str) -> bool:
    site = request.header(b"sec-fetch-site")
    if site is not None:
        return site == _OWN_SITE
    origin = request.header(b"origin")
    if origin is None:
        return True  # no current browser; the token decides
    hosts = {request.header(b"host"), urlsplit(public_url).netloc or None}
    return urlsplit(origin).netloc in hosts


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

    def read(self, request: Request) -> Session | None:
        """The session of a request; None if it has no valid one."""
        sealed = _COOKIE.read(request)
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
    def expired(*, secure: bool) -> tuple[bytes, bytes]:
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
