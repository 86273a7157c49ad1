"""The usage page: jobs, run time and bytes by day or hour and endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from coatcheck.dashboard import paths
from coatcheck.dashboard.responses import download
from coatcheck.dashboard.site import Site, Visit
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.routing import Route

PATH: Final = "/ui/usage"
_API: Final = "/api/v1/orgs/{org}/usage"
_SUMS: Final = (
    "jobs",
    "completed",
    "failed",
    "cancelled",
    "attempts",
    "run_seconds",
    "payload_bytes",
    "result_bytes",
)


def routes(site: Site) -> list[Route]:
    return [site.page(PATH, "ui_usage", _show), site.page(f"{PATH}.csv", "ui_usage_csv", _download)]


async def _show(visit: Visit) -> Response | StreamResponse:
    query = _query(visit)
    usage = await visit.api.get(paths.to(_API, org=visit.org), query)
    rows = usage["items"]
    hourly = query["granularity"] == "hour"
    span = {"from": usage["first_day"], "to": usage["last_day"]}
    steps = (_by_hour if hourly else _by_day)(rows, usage["first_day"], usage["last_day"])
    return visit.page(
        "usage.html",
        span=span,
        total=_sum(rows),
        endpoints=_by_endpoint(rows),
        steps=steps,
        hourly=hourly,
        rows=list(reversed(rows)),
        csv=paths.with_query(f"{PATH}.csv", {**span, "granularity": query["granularity"]}),
    )


async def _download(visit: Visit) -> Response | StreamResponse:
    query = {**_query(visit), "format": "csv"}
    answered = await visit.api.call("GET", paths.to(_API, org=visit.org), query=query)
    return download(answered.body, f"usage-{visit.org}.csv", "text/csv; charset=utf-8")


def _query(visit: Visit) -> dict[str, str | int | None]:
    return {name: visit.query.get(name) or None for name in ("from", "to", "granularity")}


def _sum(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {name: sum(row[name] for row in rows) for name in _SUMS}


def _by_endpoint(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The totals of each endpoint, busiest first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["flow"] or row["endpoint"], []).append(row)
    sums = [{"name": name, **_sum(each)} for name, each in found.items()]
    return sorted(sums, key=lambda each: (-each["jobs"], each["name"]))


def _by_day(rows: Sequence[Mapping[str, Any]], first: str, last: str) -> list[dict[str, Any]]:
    """The totals of every day, including empty days, so that the chart has no gaps."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["day"], []).append(row)
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    days = [(begin + timedelta(days=n)).isoformat() for n in range((end - begin).days + 1)]
    return [{"when": day, **_sum(found.get(day, ()))} for day in days]


def _by_hour(rows: Sequence[Mapping[str, Any]], first: str, last: str) -> list[dict[str, Any]]:
    """The totals of every hour, including empty hours."""
    found: dict[datetime, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(datetime.fromisoformat(row["hour"]), []).append(row)
    begin = datetime.combine(date.fromisoformat(first), time(), UTC)
    end = datetime.combine(date.fromisoformat(last), time(), UTC) + timedelta(days=1)
    hours = [begin + timedelta(hours=n) for n in range((end - begin) // timedelta(hours=1))]
    return [{"when": f"{hour:%Y-%m-%d %H:%M}", **_sum(found.get(hour, ()))} for hour in hours]
