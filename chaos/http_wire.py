"""A partial parser of HTTP traffic, enough to see when a request is answered."""

from __future__ import annotations

from typing import Final

_CHANGING: Final = (b"POST ", b"PUT ", b"PATCH ", b"DELETE ")


class HttpTalk:
    """The traffic of one connection, seen from the proxy. Requests follow each other."""

    def __init__(self) -> None:
        self._request: str | None = None

    def asked(self, piece: bytes) -> None:
        """Parse data from the client."""
        if piece.startswith(_CHANGING):
            self._request = piece.partition(b"\r\n")[0].decode("latin-1").rpartition(" ")[0]
        elif piece.startswith((b"GET ", b"HEAD ", b"OPTIONS ")):
            self._request = None

    def answered(self, piece: bytes) -> str | None:
        """Parse data from the server. Returns the answered request if it changes something."""
        request, self._request = self._request, None
        return request
