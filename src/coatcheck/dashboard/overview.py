"""The overview page: throughput, backlog, latencies, failures and workers.

A stream keeps it current: it renders the page's parts every few seconds and sends those that have
changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Final

from coatcheck.dashboard import live, overview_figures, paths
from coatcheck.dashboard.api import ApiProblem
from coatcheck.dashboard.site import Site
from coatcheck.dashboard.visit import Visit
from coatcheck.http.response import Reply, StreamReply
from coatcheck.http.routing import Operation

SPANS: Final = {"60": "1 h", "360": "6 h", "1440": "24 h", "10080": "7 d"}
LIVE_SECONDS: Final = 3.0
_SILENCE_SECONDS_MAX: Final = 15.0
_EVERYWHERE: Final = "all"

# The templates of the page's parts, by the name of the event that replaces them.
_PARTS: Final = {
    "tiles": "overview_tiles.html",
    "series": "overview_series.html",
    "panels": "overview_panels.html",
}


def operations(site: Site) -> list[Operation]:
    return [
        site.page("/ui/", "ui_overview", _show),
        site.live("/ui/live", "ui_live", _follow),
    ]


async def _show(visit: Visit) -> Reply | StreamReply:
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


async def _follow(visit: Visit) -> Reply | StreamReply:
    return visit.events(_parts(visit))


async def _parts(visit: Visit) -> AsyncIterator[bytes]:
    if visit.query.get("org", visit.org) != visit.org:
        yield live.GONE  # another window switched the organisation
        return
    sent: dict[str, str] = {}
    silent, seconds = 0.0, LIVE_SECONDS
    while await visit.pause(seconds):
        silent, seconds = silent + seconds, LIVE_SECONDS
        try:
            figures = await _figures(visit)
        except ApiProblem as problem:
            if problem.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                yield live.GONE
                return
            # Over a rate limit, or the database is down: the page keeps its figures for now.
            seconds = max(LIVE_SECONDS, float(problem.retry_after or 0))
            yield live.KEEP_ALIVE
            continue
        made = {name: visit.text(template, **figures) for name, template in _PARTS.items()}
        changed = [live.event(name, text) for name, text in made.items() if sent.get(name) != text]
        sent = made
        if changed:
            yield b"".join(changed)
            silent = 0.0
        elif silent >= _SILENCE_SECONDS_MAX:
            yield live.KEEP_ALIVE
            silent = 0.0


async def _figures(visit: Visit) -> dict[str, Any]:
    minutes, everywhere = _span(visit), _is_everywhere(visit)
    path = "/api/v1/operator/overview" if everywhere else "/api/v1/orgs/{org}/overview"
    overview = await visit.api.get(paths.to(path, org=visit.org), {"minutes": minutes})
    return {
        "overview": overview,
        "everywhere": everywhere,
        "span": SPANS[minutes],
        "totals": overview_figures.totals(overview),
        "chart": overview_figures.chart(overview),
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
