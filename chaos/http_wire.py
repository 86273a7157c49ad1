"""A partial parser of HTTP traffic, enough to see when a request is answered."""

from __future__ import annotations

from typing import Final

_CHANGING: Final = (b"POST ", b"PUT ", b"PATCH ", b"DELETE ")


class HttpTalk:
    """One connection's talk, seen from the proxy. Requests on it follow each other."""

    def __init__(self) -> None:
        self._request: str | None = None

    def asked(self, piece: bytes) -> None:
        """Read what the client sends."""
        if piece.startswith(_CHANGING):
            self._request = piece.partition(b"\r\n")[0].decode("latin-1").rpartition(" ")[0]
        elif piece.startswith((b"GET ", b"HEAD ", b"OPTIONS ")):
            self._request = None

    def answered(self, piece: bytes) -> str | None:
        """Read what the server sends. The request that it answers, if that one changes things."""
        request, self._request = self._request, None
        return request
