"""Messages shown once on the page that follows a form, such as "Cancelled 3 jobs"."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from coatcheck.dashboard.session import Cookie, Seal
from coatcheck.http.request import Request

_COOKIE: Final = Cookie("coatcheck_notice", "/ui", 60)
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
        sealed = _COOKIE.read(request)
        opened = None if not sealed else self._seal.open(_COOKIE.name, sealed)
        try:
            return None if opened is None else msgspec.msgpack.decode(opened, type=FlashMessage)
        except msgspec.DecodeError:
            return None

    def cookie(self, notice: FlashMessage, *, secure: bool) -> tuple[bytes, bytes]:
        short = msgspec.structs.replace(notice, text=notice.text[:_TEXT_LENGTH_MAX])
        return _COOKIE.set(
            self._seal.close(_COOKIE.name, msgspec.msgpack.encode(short)), secure=secure
        )

    @staticmethod
    def expired(*, secure: bool) -> tuple[bytes, bytes]:
        return _COOKIE.clear(secure=secure)
