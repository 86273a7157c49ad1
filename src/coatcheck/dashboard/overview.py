"""The overview page: throughput, backlog, latencies, failures and workers.

A stream keeps it current: it renders the page's parts every few seconds and sends those that have
changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from coatcheck.dashboard import paths, responses
from coatcheck.dashboard.api import ApiProblem
from coatcheck.dashboard.rendering import read_time
from coatcheck.dashboard.site import Site, Visit
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.routing import Route

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


SPANS: Final = {"60": "1 h", "360": "6 h", "1440": "24 h", "10080": "7 d"}
LIVE_SECONDS: Final = 3.0
_SILENCE_SECONDS_MAX: Final = 15.0
_EVERYWHERE: Final = "all"

_PARTS: Final = ("tiles", "series", "panels")
"""The parts of the page, each named as the event that replaces it."""


def routes(site: Site) -> list[Route]:
    return [site.page("/ui/", "ui_overview", _show), site.live("/ui/live", "ui_live", _follow)]


async def _show(visit: Visit) -> Response | StreamResponse:
    minutes, everywhere = _span(visit), _is_everywhere(visit)
    scope = _EVERYWHERE if everywhere else None
    return visit.page(
        "overview.html",
        **await _figures(visit),
        spans=[(name, with_span(span, scope), span == minutes) for span, name in SPANS.items()],
        here_href=with_span(minutes, None),
        everywhere_href=with_span(minutes, _EVERYWHERE),
        live_href=paths.with_query(
            "/ui/live", {"minutes": minutes, "scope": scope, "org": visit.org}
        ),
    )


async def _follow(visit: Visit) -> Response | StreamResponse:
    return visit.events(_parts(visit))


async def _parts(visit: Visit) -> AsyncIterator[bytes]:
    if visit.query.get("org", visit.org) != visit.org:
        yield responses.RELOAD  # another window switched the organisation
        return
    sent: dict[str, str] = {}
    silent, seconds = 0.0, LIVE_SECONDS
    while await visit.pause(seconds):
        silent, seconds = silent + seconds, LIVE_SECONDS
        try:
            figures = await _figures(visit)
        except ApiProblem as problem:
            if problem.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                yield responses.RELOAD
                return
            # Over a rate limit, or the database is down: the page keeps its figures for now.
            seconds = max(LIVE_SECONDS, float(problem.retry_after or 0))
            yield responses.KEEP_ALIVE
            continue
        made = {name: visit.text("overview.html", name, **figures) for name in _PARTS}
        changed = [
            responses.event(name, text) for name, text in made.items() if sent.get(name) != text
        ]
        sent = made
        if changed:
            yield b"".join(changed)
            silent = 0.0
        elif silent >= _SILENCE_SECONDS_MAX:
            yield responses.KEEP_ALIVE
            silent = 0.0


async def _figures(visit: Visit) -> dict[str, Any]:
    minutes, everywhere = _span(visit), _is_everywhere(visit)
    path = "/api/v1/operator/overview" if everywhere else "/api/v1/orgs/{org}/overview"
    overview = await visit.api.get(paths.to(path, org=visit.org), {"minutes": minutes})
    return {
        "overview": overview,
        "everywhere": everywhere,
        "span": SPANS[minutes],
        "totals": totals(overview),
        "chart": chart(overview),
    }


def with_span(minutes: str, scope: str | None) -> str:
    """The address of this page for another time range or scope."""
    return paths.with_query(
        paths.HOME, {"minutes": None if minutes == "60" else minutes, "scope": scope}
    )


def _span(visit: Visit) -> str:
    given = visit.query.get("minutes", "60")
    return given if given in SPANS else "60"


def _is_everywhere(visit: Visit) -> bool:
    return visit.session.operator and visit.query.get("scope") == _EVERYWHERE
