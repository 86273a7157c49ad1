"""Messages shown once on the page that follows a form, such as "Cancelled 3 jobs"."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from coatcheck.dashboard.cookies import Cookie
from coatcheck.dashboard.sealing import Seal
from coatcheck.http.request import Call

_COOKIE: Final = Cookie("coatcheck_notice", "/ui", 60)
_TEXT_LENGTH_MAX: Final = 500


class Notice(msgspec.Struct, frozen=True):
    """A message for the visitor who sent the form."""

    text: str
    kind: Literal["done", "warning", "error"] = "done"


class Notices:
    """Carries a notice across a redirect, in an encrypted cookie that nobody else can make."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def read(self, call: Call) -> Notice | None:
        sealed = _COOKIE.read(call)
        opened = None if not sealed else self._seal.open(_COOKIE.name, sealed)
        try:
            return None if opened is None else msgspec.msgpack.decode(opened, type=Notice)
        except msgspec.DecodeError:
            return None

    def cookie(self, notice: Notice, *, secure: bool) -> tuple[bytes, bytes]:
        short = msgspec.structs.replace(notice, text=notice.text[:_TEXT_LENGTH_MAX])
        return _COOKIE.set(
            self._seal.close(_COOKIE.name, msgspec.msgpack.encode(short)), secure=secure
        )

    @staticmethod
    def gone(*, secure: bool) -> tuple[bytes, bytes]:
        return _COOKIE.clear(secure=secure)
