"""Timeouts for calls to remotes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Independent limits, in seconds."""

    connect_seconds: float = 5.0
    call_seconds: float = 30.0
    """For a request and its whole response; for a result, until its headers."""
    silence_seconds: float = 60.0
    """Between two pieces of a result."""
    trickle_seconds: float = 60.0
    """After this time a result must arrive at a minimum rate, however steadily it trickles."""
    bytes_per_second_min: int = 32_768
