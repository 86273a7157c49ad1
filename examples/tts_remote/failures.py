"""Errors that end a request or a job."""

from __future__ import annotations


class Refused(Exception):
    """A request that is answered with a status and ``{"error": message}``."""

    def __init__(
        self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers


class Stopped(Exception):
    """The answer goes no further: its connection is to be cut."""


class SpeechFailed(Exception):
    """A job that ends as failed, with this message as its error."""
