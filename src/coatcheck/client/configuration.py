"""Defaults for the client from environment variables."""

from __future__ import annotations

import os
from typing import Final

URL_VARIABLE: Final = "COATCHECK_URL"
TOKEN_VARIABLE: Final = "COATCHECK_API_KEY"  # noqa: S105 - a variable's name
DEFAULT_URL: Final = "http://127.0.0.1:8080"


def base_url_or_default(given: str | None) -> str:
    return given or os.environ.get(URL_VARIABLE) or DEFAULT_URL


def token_or_default(given: str | None) -> str | None:
    """The given token, else the environment's; an empty one counts as none."""
    return (os.environ.get(TOKEN_VARIABLE) if given is None else given) or None
