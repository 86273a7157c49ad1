"""Cookies: reading them from requests and setting them in responses."""

from __future__ import annotations

from dataclasses import dataclass

from coatcheck.http.request import Call


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie that scripts cannot read (HttpOnly) and other sites' forms do not send (Lax)."""

    name: str
    path: str
    seconds: int

    def read(self, call: Call) -> str | None:
        """The value of the first cookie with this name."""
        for part in (call.header(b"cookie") or "").split(";"):
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
