"""The list of the organisation's jobs, with filters, search and bulk actions, and the page of one:
state, reasons to wait, timeline, log, result, files and actions.

Tenants choose the media types of their files, so a file that claims to be a picture may be a page.
Only types that cannot contain scripts are shown inline, under the type that we name. Everything
else is a download.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from coatcheck.dashboard import paths, rendering, responses
from coatcheck.dashboard.api import ApiEvent, ApiProblem, Events, read_events
from coatcheck.dashboard.rendering import between, counted
from coatcheck.dashboard.responses import HARMLESS, download
from coatcheck.dashboard.session import Fields, FlashMessage
from coatcheck.dashboard.site import Handler, Site, Visit
from coatcheck.domain.errors import NotFound
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.http.response import Response, StreamResponse, raw_header
from coatcheck.http.routing import Route

LIST_PATH: Final = "/ui/jobs"
LIST_API: Final = "/api/v1/orgs/{org}/jobs"
_PAGE_ROWS: Final = 50
_BULK_MAX: Final = 1_000

SPANS: Final[Mapping[str, tuple[str, timedelta]]] = {
    "1h": ("Last hour", timedelta(hours=1)),
    "24h": ("Last 24 hours", timedelta(days=1)),
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
}
STATES: Final = ("live", "ended", *(state.value for state in State))
LANES: Final = tuple(lane.value for lane in Lane)

_SELECTING: Final = ("state", "lane", "surface", "service", "endpoint", "error_code")
"""The API's filters that both lists and bulk actions take."""
_LISTING: Final = (*_SELECTING, "owner", "q")
_NAMES: Final = (*_LISTING, "since")
_WORDS: Final = {"cancel": "Cancelled", "retry": "Retried"}


def list_routes(site: Site, products: Sequence[str]) -> list[Route]:
    async def show(visit: Visit) -> Response | StreamResponse:
        return await _show_list(visit, products)

    return [
        site.page(LIST_PATH, "ui_jobs", show),
        site.action(
            f"{LIST_PATH}/cancel",
            "ui_cancel_jobs",
            _bulk("cancel"),
            asks="Cancel the selected jobs?",
        ),
        site.action(
            f"{LIST_PATH}/retry", "ui_retry_jobs", _bulk("retry"), asks="Retry the selected jobs?"
        ),
    ]


async def _show_list(visit: Visit, products: Sequence[str]) -> Response | StreamResponse:
    filters = {name: visit.query.get(name) for name in _NAMES}
    cursor = visit.query.get("cursor")
    page = await visit.api.get(
        paths.to(LIST_API, org=visit.org),
        {
            **{name: filters[name] or None for name in _LISTING},
            "created_after": _created_after(filters["since"]),
            "cursor": cursor or None,
            "limit": _PAGE_ROWS,
        },
    )
    shown = {
        "jobs": page["items"],
        "between": between,
        "filters": filters,
        "is_filtered": any(filters.values()),
        "this_page": paths.with_query(LIST_PATH, {**filters, "cursor": cursor}),
        "next_page": page["next"]
        and paths.with_query(LIST_PATH, {**filters, "cursor": page["next"]}),
        "first_page": paths.with_query(LIST_PATH, filters) if cursor else None,
        "may_act": visit.session.may("submit"),
    }
    if visit.by_htmx:
        return visit.fragment("jobs.html", "rows", **shown)
    return visit.page(
        "jobs.html",
        **shown,
        states=STATES,
        lanes=LANES,
        products=products,
        spans={key: label for key, (label, _) in SPANS.items()},
        cursor=cursor,
        may_choose_all=not (filters["q"] or filters["owner"]),
        bulk_max=_BULK_MAX,
    )


def _bulk(action: str) -> Handler:
    async def act(visit: Visit) -> Response | StreamResponse:
        form = visit.form
        back = paths.with_query(LIST_PATH, {name: form.get(name) for name in (*_NAMES, "cursor")})
        order = _order(action, form)
        if order is None:
            return visit.redirect(back, FlashMessage("No jobs selected.", "warning"))
        done = await visit.api.post(f"{paths.to(LIST_API, org=visit.org)}/bulk", order)
        return visit.redirect(back, _summary(action, done["items"], more=done["more"]))

    return act


def _order(action: str, form: Fields) -> dict[str, Any] | None:
    """The body of the bulk request; None if nothing was selected."""
    if form.get("everything") == "yes":
        chosen: dict[str, Any] = {name: form.get(name) for name in _SELECTING if form.get(name)}
        after = _created_after(form.get("since"))
        if after is not None:
            chosen["created_after"] = after
        return {"action": action, "filter": chosen, "limit": _BULK_MAX}
    ids = form.all("id")
    return {"action": action, "ids": ids} if ids else None


def _summary(action: str, items: Sequence[Mapping[str, Any]], *, more: bool) -> FlashMessage:
    """The result in a sentence or two: how many jobs changed, and why the others did not."""
    done = sum(item["ok"] for item in items)
    sentences = [f"{_WORDS[action]} {counted(done, 'job')}."]
    refused = Counter(item["code"] for item in items if not item["ok"])
    if refused:
        reasons = ", ".join(f"{code} ({count})" for code, count in refused.most_common(5))
        sentences.append(f"{counted(refused.total(), 'job')} unchanged: {reasons}.")
    if more:
        sentences.append("More jobs match: repeat the action for the rest.")
    kind = "done" if not refused and not more else "warning" if done else "error"
    return FlashMessage(" ".join(sentences), kind)  # type: ignore[arg-type]  # one of the three


def _created_after(since: str) -> str | None:
    if since not in SPANS:
        return None
    return (
        (datetime.now(UTC) - SPANS[since][1]).isoformat(timespec="seconds").replace("+00:00", "Z")
    )


PATH: Final = "/ui/jobs/{id}"
API: Final = "/api/v1/orgs/{org}/jobs/{id}"
_CHANGING: Final = ("head", "outcome", "timeline", "rest")
"""The parts that change with a job's state. The first replaces the element that asked; the others
replace their own element."""
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
        *_file_routes(site),
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
        return visit.fragment("job.html", *_CHANGING, **shown)
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
                    yield responses.KEEP_ALIVE
                case ApiEvent(name="progress"):
                    text = visit.text("job.html", "progress", progress=event.json())
                    yield responses.event("progress", text)
                case ApiEvent(name="log" | "alert"):
                    if shows_lines:
                        text = visit.text("job.html", "line", line=_line(event))
                        yield f"id: {event.id}\n".encode() + responses.event("line", text)
                case ApiEvent(name="state"):
                    if _seen(event.json()) != seen:
                        yield responses.event("changed", "")
                    seen = None
                case ApiEvent(name="end"):
                    yield responses.event("changed", "") + responses.event("end", "")
                case _:
                    continue  # output, which the page does not show live


_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
_SOUNDS: Final = frozenset(
    {
        *("audio/wav", "audio/x-wav", "audio/wave", "audio/mpeg", "audio/ogg", "audio/mp4"),
        *("audio/aac", "audio/flac", "audio/webm"),
    }
)
_UNTYPED: Final = "application/octet-stream"
_PASSED_ON: Final = ("content-range", "content-length", "accept-ranges", "etag")


def is_picture(media_type: str) -> bool:
    return _plain(media_type) in _PICTURES


def is_sound(media_type: str) -> bool:
    return _plain(media_type) in _SOUNDS


def _file_routes(site: Site) -> list[Route]:
    return [
        site.page(f"{PATH}/files/{{name}}", "ui_job_file", _file),
        site.page(f"{PATH}/files/{{name}}/receipt", "ui_job_file_receipt", _file_receipt),
        site.page(f"{PATH}/receipt", "ui_job_receipt", _receipt),
        site.page(f"{PATH}/input", "ui_job_input", _input),
    ]


async def _file(visit: Visit) -> Response | StreamResponse:
    name = visit.params["name"]
    conditions = {
        each: value
        for each in ("range", "if-range", "if-none-match")
        if (value := visit.request.header(each.encode())) is not None
    }
    opened = await visit.api.open(_of_file(await _job(visit), name), headers=conditions)
    passed_on = [
        raw_header(each, opened.headers[each]) for each in _PASSED_ON if each in opened.headers
    ]
    kind = _plain(opened.headers.get("content-type", _UNTYPED))
    kept = visit.query.get("keep") == "yes" or kind not in _PICTURES | _SOUNDS
    # The API's header has the file's name in it; a response without a file has no such header.
    how = opened.headers.get("content-disposition", "attachment") if kept else "inline"
    headers = [
        raw_header("content-type", _UNTYPED if kept else kind),
        raw_header("content-disposition", how),
        *passed_on,
        *HARMLESS,
    ]
    return StreamResponse(opened.status, opened.pieces, headers)


async def _file_receipt(visit: Visit) -> Response | StreamResponse:
    url = f"{_of_file(await _job(visit), visit.params['name'])}/receipt"
    return _kept(await visit.api.get(url), f"receipt-{visit.params['id']}.json")


async def _receipt(visit: Visit) -> Response | StreamResponse:
    url = (await _job(visit))["urls"]["receipt"]
    if url is None:
        raise NotFound
    return _kept(await visit.api.get(url), f"receipt-{visit.params['id']}.json")


async def _input(visit: Visit) -> Response | StreamResponse:
    """The stored input, as it was submitted."""
    base = paths.to(API, org=visit.org, id=visit.params["id"])
    answered = await visit.api.call("GET", f"{base}/input")
    return download(answered.body, f"input-{visit.params['id']}.json", "application/json")


async def _job(visit: Visit) -> dict[str, Any]:
    job: dict[str, Any] = await visit.api.get(paths.to(API, org=visit.org, id=visit.params["id"]))
    return job


def _of_file(job: dict[str, Any], name: str) -> str:
    if job["urls"]["artifacts"] is None:
        raise NotFound
    return f"{job['urls']['artifacts']}/{quote(name, safe='')}"


def _kept(value: Any, name: str) -> Response:
    return download(rendering.pretty(value).encode(), name, "application/json")


def _plain(media_type: str) -> str:
    """The media type without its parameters."""
    return media_type.partition(";")[0].strip().lower()
