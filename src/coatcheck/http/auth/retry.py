"""A look-up changes nothing, so one whose connection broke has simply not been made."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown

Found = TypeVar("Found")


async def looked_up(look_up: Awaitable[Found]) -> Found:
    """What a look-up found. Raises DatabaseUnavailable where a write would be in doubt."""
    try:
        return await look_up
    except OutcomeUnknown as error:
        raise DatabaseUnavailable(str(error)) from error
