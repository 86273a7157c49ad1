"""Durations as Go writes them, and times as Ollama does."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from examples.ollama_upstream.failures import Refused

FOREVER_SECONDS = 292 * 365.25 * 86_400
"""The longest duration of Go: what a negative ``keep_alive`` means."""

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def keep_alive_seconds(value: object) -> float | None:
    """``keep_alive`` of a request in seconds; None if it has none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Refused(400, f"Unsupported type: {type(value).__name__!r}")
    seconds = _go_duration(value) if isinstance(value, str) else float(value)
    return FOREVER_SECONDS if seconds < 0 else min(seconds, FOREVER_SECONDS)


def _go_duration(text: str) -> float:
    number = text.lstrip("+-")
    parts = _PART.findall(number)
    if number == "0":
        return 0.0
    if not parts or "".join(a + unit for a, unit in parts) != number:
        problem = "missing unit in" if re.fullmatch(r"[\d.]+", number) else "invalid"
        raise Refused(400, f'time: {problem} duration "{text}"')
    seconds = sum(float(amount) * _UNITS[unit] for amount, unit in parts)
    return -seconds if text.startswith("-") else seconds


def timestamp(seconds: float) -> str:
    """RFC 3339 with nanoseconds, in UTC."""
    whole = datetime.fromtimestamp(seconds, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{int(seconds % 1 * 1e9):09d}Z"
