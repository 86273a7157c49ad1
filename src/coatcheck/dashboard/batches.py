"""The list of the organisation's batches, and the page of one: progress, tasks, runs, actions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from coatcheck.dashboard import paths, responses
from coatcheck.dashboard.api import ApiEvent, Events, read_events
from coatcheck.dashboard.rendering import between
from coatcheck.dashboard.session import FlashMessage
from coatcheck.dashboard.site import Site, Visit
from coatcheck.http.response import Response, StreamResponse
from coatcheck.http.routing import Route

LIST_PATH: Final = "/ui/batches"
LIST_API: Final = "/v1/jobs"
PATH: Final = "/ui/batches/{id}"
API: Final = "/v1/jobs/{id}"
ALL_RUNS: Final = "all"
_PAGE_ROWS: Final = 50
_BAD_LINES_MAX: Final = 20
STATUSES: Final = ("pending", "running", "succeeded", "failed", "cancelled")
"""Of tasks, as the batches API names them."""


def routes(site: Site) -> list[Route]:
    return [
        site.page(LIST_PATH, "ui_batches", _show_list),
        site.page(PATH, "ui_batch", _show),
        site.live(f"{PATH}/live", "ui_batch_live", _follow),
        site.page(f"{PATH}/tasks/{{task_id}}", "ui_batch_task", _show_task),
        site.action(f"{PATH}/cancel", "ui_cancel_batch", _cancel, asks="Cancel this batch?"),
        site.action(f"{PATH}/close", "ui_close_batch", _close, asks="Close this batch?"),
        site.action(f"{PATH}/rerun", "ui_rerun_batch", _rerun, asks="Rerun these tasks?"),
        site.action(f"{PATH}/exports", "ui_export_batch", _export),
    ]


async def _show_list(visit: Visit) -> Response | StreamResponse:
    if is_other_org(visit):
        return visit.page("batches_other_org.html")
    cursor = visit.query.get("cursor")
    page = await visit.api.get(LIST_API, {"cursor": cursor or None, "limit": _PAGE_ROWS})
    shown = {
        "batches": page["items"],
        "this_page": paths.with_query(LIST_PATH, {"cursor": cursor}),
        "next_page": page["next"] and paths.with_query(LIST_PATH, {"cursor": page["next"]}),
        "first_page": LIST_PATH if cursor else None,
    }
    if visit.by_htmx:
        return visit.fragment("batches.html", "rows", **shown)
    return visit.page("batches.html", **shown)


def is_other_org(visit: Visit) -> bool:
    """Whether the page shows another organisation. The batch API serves only the caller's own."""
    return visit.org != visit.session.home_org


async def _show(visit: Visit) -> Response | StreamResponse:
    """The page, or for htmx the part that changes with the batch."""
    if is_other_org(visit):
        return visit.page("batches_other_org.html")
    base = paths.to(API, id=visit.params["id"])
    batch = await visit.api.get(base)
    chosen = {name: visit.query.get(name) for name in ("run", "status")}
    cursor = visit.query.get("cursor")
    query = {name: value or None for name, value in chosen.items()}
    run = _run(batch, chosen["run"])
    tasks = await visit.api.get(
        f"{base}/tasks", {**query, "cursor": cursor or None, "limit": _PAGE_ROWS}
    )
    here = paths.to(PATH, id=batch["id"])
    bad_lines = None
    if run["ingest"]["bad_lines"]:
        bad_lines = await visit.api.get(
            f"{base}/bad-lines",
            {"run": None if run["id"] == ALL_RUNS else run["id"], "limit": _BAD_LINES_MAX},
        )
    shown = {
        "batch": batch,
        "run": run,
        "is_whole": run["id"] == ALL_RUNS,
        "is_current_run": run["id"] == batch["runs"][-1]["id"],
        "tasks": tasks["items"],
        "failures": await visit.api.get(f"{base}/failures", {"run": query["run"]}),
        "exports": (await visit.api.get(f"{base}/exports"))["items"],
        "bad_lines": bad_lines,
        "statuses": STATUSES,
        "chosen": chosen,
        "between": between,
        "here_url": here,
        "this_page": paths.with_query(here, {**chosen, "cursor": cursor}),
        "next_page": tasks["next"]
        and paths.with_query(here, {**chosen, "cursor": tasks["next"]}) + "#tasks",
        "first_page": paths.with_query(here, chosen) + "#tasks" if cursor else None,
        "may_act": visit.session.may("submit"),
    }
    if visit.by_htmx:
        return visit.fragment("batch.html", "whole", **shown)
    return visit.page("batch.html", **shown)


async def _show_task(visit: Visit) -> Response | StreamResponse:
    base = paths.to(API, id=visit.params["id"])
    task = await visit.api.get(f"{base}/tasks/{paths.to('{id}', id=visit.params['task_id'])}")
    return visit.page("batch_task.html", batch_id=visit.params["id"], task=task, between=between)


async def _cancel(visit: Visit) -> Response | StreamResponse:
    await visit.api.post(f"{paths.to(API, id=visit.params['id'])}/cancel")
    return _back(visit, "Cancellation requested. Running tasks are asked to stop.")


async def _close(visit: Visit) -> Response | StreamResponse:
    await visit.api.post(f"{paths.to(API, id=visit.params['id'])}/close")
    return _back(visit, "Batch closed. It accepts no more tasks.")


async def _rerun(visit: Visit) -> Response | StreamResponse:
    """Rerun all tasks, or those with a status or error code, of the current or a given run."""
    wanted: dict[str, Any] = {
        name: value for name in ("status", "error_code") if (value := visit.form.get(name))
    }
    body: dict[str, Any] = {"filter": wanted} if wanted else {}
    if run := visit.form.get("run"):
        body["run"] = run
    await visit.api.post(f"{paths.to(API, id=visit.params['id'])}/rerun", body or None)
    return _back(visit, "New run started.")


async def _export(visit: Visit) -> Response | StreamResponse:
    run = visit.form.get("run")
    await visit.api.post(
        f"{paths.to(API, id=visit.params['id'])}/exports", {"run": run} if run else None
    )
    return _back(visit, "Export started. The download appears here when it is ready.")


def _back(visit: Visit, message: str) -> Response:
    return visit.redirect(paths.to(PATH, id=visit.params["id"]), FlashMessage(message))


def _run(batch: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    """The run to show: the current one unless the visitor chose another."""
    runs: list[dict[str, Any]] = batch["runs"]
    if wanted == ALL_RUNS:  # the whole batch, with the latest result of each task
        return {**runs[-1], "id": ALL_RUNS, "counts": batch["job_counts"]}
    return next((run for run in runs if run["id"] == wanted), runs[-1])


async def _follow(visit: Visit) -> Response | StreamResponse:
    """Stream the batch's progress as parts of its page."""
    base = paths.to(API, id=visit.params["id"])
    stream = await visit.api.open(f"{base}/events")
    return visit.events(_parts(visit, read_events(stream.pieces)))


async def _parts(visit: Visit, events: Events) -> AsyncIterator[bytes]:
    seen: str | None = visit.query.get("seen")
    async with aclosing(events) as received:
        async for event in received:
            match event:
                case None:
                    yield responses.KEEP_ALIVE
                case ApiEvent(name="progress"):
                    yield responses.event(
                        "progress", visit.text("batch.html", "progress", run=event.json())
                    )
                case ApiEvent(name="state"):
                    if event.json()["status"] != seen:
                        yield responses.event("changed", "")
                    seen = None
                case ApiEvent(name="end"):
                    yield responses.event("changed", "") + responses.event("end", "")
                case _:
                    continue
