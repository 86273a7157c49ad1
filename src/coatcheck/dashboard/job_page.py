"""The page of one job: state, reasons to wait, timeline, log, result, files and actions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final

from coatcheck.dashboard import live, paths
from coatcheck.dashboard.api import ApiEvent, ApiProblem, Events, read_events
from coatcheck.dashboard.job_files import is_picture, is_sound
from coatcheck.dashboard.notices import FlashMessage
from coatcheck.dashboard.rendering import between
from coatcheck.dashboard.site import Site
from coatcheck.dashboard.visit import Visit
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.routing import Route

PATH: Final = "/ui/jobs/{id}"
API: Final = "/api/v1/orgs/{org}/jobs/{id}"
_LOG_ROWS: Final = 200
_LOG_PAGES_MAX: Final = 5
_DELIVERIES_MAX: Final = 20
_HIDDEN: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""Statuses for details that only the job's owner may see, although others may see the job."""


def routes(site: Site) -> list[Route]:
    return [
        site.page(PATH, "ui_job", _show),
        site.live(f"{PATH}/live", "ui_job_live", _follow),
        site.action(f"{PATH}/cancel", "ui_cancel_job", _cancel, asks="Cancel this job?"),
        site.action(f"{PATH}/retry", "ui_retry_job", _retry, asks="Retry this job?"),
    ]


async def _show(visit: Visit) -> Response | StreamResponse:
    """The page, or for htmx the parts that change with the job's state."""
    base = paths.to(API, org=visit.org, id=visit.params["id"])
    job = await visit.api.get(base)
    shown = {
        "job": job,
        "timeline": (await visit.api.get(f"{base}/timeline"))["items"],
        "explanation": None if job["terminal"] else await _unless_hidden(visit, f"{base}/explain"),
        "files": await _files(visit, job),
        "deliveries": await _deliveries(visit, job),
        "receipt": await _unless_hidden(visit, job["urls"]["receipt"]),
        "may_act": visit.session.may("submit"),
        "is_part": visit.by_htmx,
        "between": between,
        "is_picture": is_picture,
        "is_sound": is_sound,
    }
    if visit.by_htmx:
        return visit.fragment("job_parts.html", **shown)
    lines, more = await _log(visit, base)
    last = lines[-1]["seq"] if lines else 0
    return visit.page(
        "job.html",
        **shown,
        lines=lines,
        more_lines=more,
        # Says what the page already shows, so that its stream begins with what is new.
        stream=paths.with_query(
            paths.to(f"{PATH}/live", id=job["id"]),
            {"after": last, "seen": _seen(job), "lines": "no" if more else None},
        ),
    )


async def _cancel(visit: Visit) -> Response | StreamResponse:
    job_id = visit.params["id"]
    base = paths.to(API, org=visit.org, id=job_id)
    job = await visit.api.post(f"{base}/cancel")
    message = "Job cancelled." if job["terminal"] else "Cancellation requested."
    return visit.redirect(paths.to(PATH, id=job_id), FlashMessage(message))


async def _retry(visit: Visit) -> Response | StreamResponse:
    """Retry as a new job, and go to its page."""
    job_id = visit.params["id"]
    new = await visit.api.post(f"{paths.to(API, org=visit.org, id=job_id)}/retry")
    return visit.redirect(
        paths.to(PATH, id=new["id"]), FlashMessage(f"This new job retries {job_id}.")
    )


# The parts of the page


async def _unless_hidden(visit: Visit, url: str | None) -> Any:
    if url is None:
        return None
    try:
        return await visit.api.get(url)
    except ApiProblem as problem:
        if problem.status not in _HIDDEN:
            raise
        return None


async def _files(visit: Visit, job: dict[str, Any]) -> list[dict[str, Any]]:
    found = await _unless_hidden(visit, job["urls"]["artifacts"])
    return [] if found is None else list(found["items"])


async def _deliveries(visit: Visit, job: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The job's webhook deliveries; None for visitors who may not see them."""
    if not visit.session.may("admin"):
        return None
    page = await visit.api.get(
        paths.to("/api/v1/orgs/{org}/webhooks/deliveries", org=visit.org),
        {"job_id": job["task_id"] or job["id"], "limit": _DELIVERIES_MAX},
    )
    return list(page["items"])


async def _log(visit: Visit, base: str) -> tuple[list[dict[str, Any]], bool]:
    """The first lines of the log, and whether there are more than a page should show."""
    lines: list[dict[str, Any]] = []
    after: int | None = None
    for _ in range(_LOG_PAGES_MAX):
        page = await visit.api.get(f"{base}/log", {"after": after, "limit": _LOG_ROWS})
        lines += page["items"]
        after = page["next"]
        if after is None:
            return lines, False
    return lines, True


def _seen(job: dict[str, Any]) -> str:
    return f"{job['state']}-{job['attempts']}"


def _line(event: ApiEvent) -> dict[str, Any]:
    """A log event of the stream, in the shape of a line from the log's pages."""
    rest = event.json()
    return {
        "seq": event.id,
        "kind": event.name,
        "at": rest.pop("at"),
        "level": rest.pop("level", None) if event.name == "log" else None,
        "message": rest.pop("message", ""),
        "data": rest or None,
    }


# Live updates


async def _follow(visit: Visit) -> Response | StreamResponse:
    """Stream the job's events as parts of its page."""
    base = paths.to(API, org=visit.org, id=visit.params["id"])
    after = visit.request.header(b"last-event-id") or visit.query.get("after", "0")
    stream = await visit.api.open(f"{base}/events", query={"after": after})
    return visit.events(_parts(visit, read_events(stream.pieces)))


async def _parts(visit: Visit, events: Events) -> AsyncIterator[bytes]:
    seen: str | None = visit.query.get("seen")
    shows_lines = visit.query.get("lines") != "no"
    async with aclosing(events) as received:
        async for event in received:
            match event:
                case None:
                    yield live.KEEP_ALIVE
                case ApiEvent(name="progress"):
                    text = visit.text("job_progress.html", progress=event.json())
                    yield live.event("progress", text)
                case ApiEvent(name="log" | "alert"):
                    if shows_lines:
                        text = visit.text("job_line.html", line=_line(event))
                        yield f"id: {event.id}\n".encode() + live.event("line", text)
                case ApiEvent(name="state"):
                    if _seen(event.json()) != seen:
                        yield live.event("changed", "")
                    seen = None
                case ApiEvent(name="end"):
                    yield live.event("changed", "") + live.event("end", "")
                case _:
                    continue  # output, which the page does not show live
