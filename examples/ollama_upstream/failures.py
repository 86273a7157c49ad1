"""Error responses in Ollama's wording."""

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


def model_not_found(name: str) -> Refused:
    return Refused(404, f"model '{name}' not found")


def model_not_pulled(name: str) -> Refused:
    """The same, in the words of routes that notice when they load the model."""
    return Refused(404, f'model "{name}" not found, try pulling it first')


def lacks(name: str, ability: str) -> Refused:
    return Refused(400, f'"{name}" does not support {ability}')


def too_many_waiting() -> Refused:
    # The two spaces are Ollama's.
    return Refused(503, "server busy, please try again.  maximum pending requests exceeded")
