"""Totals and chart data of the overview, computed from the API's response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from coatcheck.dashboard.shown import read_time

_COUNTS: Final = ("submitted", "completed", "failed", "cancelled", "retried", "rescued")
_TIMES: Final = ("start_p50", "start_p99", "run_p50", "run_p99")
_SHARE_MIN: Final = 2 / 3
"""A bucket of which less has passed gives no rate yet, because its counts are incomplete."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals over the whole time range, and the current backlog."""

    submitted: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    rescued: int
    waiting: int
    scheduled: int
    running: int
    is_exact: bool
    """Whether every waiting job was counted."""
    start_p50: float | None
    start_p99: float | None
    minutes: float

    @property
    def completed_a_minute(self) -> float:
        return self.completed / self.minutes

    @property
    def failed_share(self) -> float | None:
        ended = self.completed + self.failed
        return self.failed / ended if ended else None


def totals(overview: dict[str, Any]) -> Totals:
    series, lanes = overview["series"], overview["lanes"]
    latest: dict[str, Any] = next(
        (point for point in reversed(series) if point["start_p50"] is not None), {}
    )
    return Totals(
        **{name: sum(point[name] for point in series) for name in _COUNTS},
        waiting=sum(lane["queued"] + lane["retrying"] for lane in lanes),
        scheduled=sum(lane["staged"] for lane in lanes),
        running=sum(lane["held"] for lane in lanes),
        is_exact=all(lane["exact"] for lane in lanes),
        start_p50=latest.get("start_p50"),
        start_p99=latest.get("start_p99"),
        minutes=max(1.0, len(series) * overview["bucket_seconds"] / 60),
    )


def chart(overview: dict[str, Any]) -> dict[str, Any]:
    """The lines that overview.js draws: rates per minute, times in seconds."""
    bucket = float(overview["bucket_seconds"])
    now = read_time(overview["generated_at"]).timestamp()
    lines: dict[str, list[float | None]] = {
        name: [] for name in ("at", "submitted", "completed", "failed", *_TIMES)
    }
    for point in overview["series"]:
        at = read_time(point["at"]).timestamp()
        passed = min(bucket, now - at)  # the last bucket is not over
        lines["at"].append(at)
        for name in ("submitted", "completed", "failed"):
            rate = round(point[name] * 60 / passed, 3) if passed >= bucket * _SHARE_MIN else None
            lines[name].append(rate)
        for name in _TIMES:
            lines[name].append(point[name])
    return lines
