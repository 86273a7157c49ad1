"""Encodes a handler's values as JSON: results, output chunks, log fields."""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec


def _plain(value: Any) -> Any:
    """Convert what msgspec does not support by itself: pydantic models."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__qualname__} cannot be encoded as JSON")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)

encode: Final = _ENCODER.encode
"""Encode a value as JSON.

Accepts JSON types, dataclasses, msgspec Structs, pydantic models, datetimes, UUIDs, Decimals,
enums, sets, and bytes (as base64). NaN and the infinities, which JSON lacks, become null. Anything
else raises TypeError, ValueError or RecursionError.
"""
