"""How long remotes are waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds, each a bound of its own."""

    connect_seconds: float = 5.0
    call_seconds: float = 30.0
    """For a whole question and its answer; of a result, until its first byte may come."""
    silence_seconds: float = 60.0
    """Between two pieces of a result."""
    trickle_seconds: float = 60.0
    """After which a result has to come at some pace, however steadily it trickles."""
    bytes_per_second_min: int = 32_768
