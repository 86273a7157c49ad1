"""The duration of jobs, and the server's capacity. They may change while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tuning:
    job_seconds: float = 0.0
    """The duration of every job besides speaking. Any number of jobs wait at once."""
    voices: int = 2
    """Processes that speak at once; more jobs wait. Not changed while it runs."""
    speak_seconds_max: float = 120.0
    """A text that takes longer to speak fails its job."""
    speech_bytes_max: int = 1 << 30
    """A text whose speech would be larger fails its job."""
    text_chars_max: int = 100_000
    """A longer text is refused."""
