"""Errors that end a request or a job."""

from __future__ import annotations


class Refused(Exception):
    """Ends a request with a status and ``{"error": message}``."""

    def __init__(
        self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers


class Stopped(Exception):
    """Ends the response by cutting its connection."""


class SpeechFailed(Exception):
    """Ends a job as failed, with this message as its error."""
