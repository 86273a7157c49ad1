"""What a visitor sends and a browser keeps: form fields, sessions, messages shown once.

A session is an encrypted cookie that holds the visitor's credential, and no state on the server.

The API refuses a revoked credential at the next call, as it does for any client, so the server has
no session to end. Signing out deletes the cookie.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec

from coatcheck.domain.errors import CoatcheckError, InvalidBody, InvalidParameter, WrongMediaType
from coatcheck.http.request import Request
from coatcheck.sealing import Sealer, SealError, derived

FORM_BYTES_MAX: Final = 256 * 1024
_FIELDS_MAX: Final = 1_000
_MEDIA_TYPE: Final = "application/x-www-form-urlencoded"


class Fields:
    """The non-empty fields, with surrounding white space removed."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        stripped = [(name, value.strip()) for name, value in pairs]
        self.pairs = [(name, value) for name, value in stripped if value]

    def get(self, name: str, default: str = "") -> str:
        """The last value with this name."""
        return next((value for each, value in reversed(self.pairs) if each == name), default)

    def all(self, name: str) -> list[str]:
        """All values with this name, for example of checkboxes."""
        return [value for each, value in self.pairs if each == name]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)


def read_query(request: Request) -> Fields:
    """Parse the query string. Raises InvalidParameter."""
    try:
        return Fields(_parse(request.scope["query_string"]))
    except ValueError:
        raise InvalidParameter("query", "must be UTF-8 text") from None


async def read_form(request: Request, bytes_max: int = FORM_BYTES_MAX) -> Fields:
    """Parse a submitted form. Raises WrongMediaType, InvalidBody, BodyTooLarge."""
    media_type = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    body = await request.body(bytes_max)
    if body and media_type != _MEDIA_TYPE:
        raise WrongMediaType(f"Send forms as {_MEDIA_TYPE}.")
    try:
        return Fields(_parse(body))
    except ValueError:
        raise InvalidBody("The form is not valid UTF-8 text.") from None


def _parse(raw: bytes) -> list[tuple[str, str]]:
    return parse_qsl(
        raw.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict"
    )


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


_NOTICE_COOKIE: Final = Cookie("coatcheck_notice", "/ui", 60)
_TEXT_LENGTH_MAX: Final = 500


class FlashMessage(msgspec.Struct, frozen=True):
    """A message for the visitor who sent the form."""

    text: str
    kind: Literal["done", "warning", "error"] = "done"


class FlashMessages:
    """Carries a notice across a redirect, in an encrypted cookie that nobody else can make."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def read(self, request: Request) -> FlashMessage | None:
        sealed = _NOTICE_COOKIE.read(request)
        opened = None if not sealed else self._seal.open(_NOTICE_COOKIE.name, sealed)
        try:
            return None if opened is None else msgspec.msgpack.decode(opened, type=FlashMessage)
        except msgspec.DecodeError:
            return None

    def cookie(self, notice: FlashMessage, *, secure: bool) -> tuple[bytes, bytes]:
        short = msgspec.structs.replace(notice, text=notice.text[:_TEXT_LENGTH_MAX])
        return _NOTICE_COOKIE.set(
            self._seal.close(_NOTICE_COOKIE.name, msgspec.msgpack.encode(short)), secure=secure
        )

    @staticmethod
    def expired(*, secure: bool) -> tuple[bytes, bytes]:
        return _NOTICE_COOKIE.clear(secure=secure)
