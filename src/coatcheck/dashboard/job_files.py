"""Files of a job: artifacts, input and receipts, shown inline or as downloads.

Tenants choose the media types of their files, so a file that claims to be a picture may be a page.
Only types that cannot contain scripts are shown inline, under the type that we name. Everything
else is a download.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from coatcheck.dashboard import paths, rendering
from coatcheck.dashboard.downloads import HARMLESS, download
from coatcheck.dashboard.site import Site
from coatcheck.dashboard.visit import Visit
from coatcheck.domain.errors import NotFound
from coatcheck.http.response import Response, StreamResponse, raw_header
from coatcheck.http.routing import Route

API: Final = "/api/v1/orgs/{org}/jobs/{id}"
_PATH: Final = "/ui/jobs/{id}"

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


def routes(site: Site) -> list[Route]:
    return [
        site.page(f"{_PATH}/files/{{name}}", "ui_job_file", _file),
        site.page(f"{_PATH}/files/{{name}}/receipt", "ui_job_file_receipt", _file_receipt),
        site.page(f"{_PATH}/receipt", "ui_job_receipt", _receipt),
        site.page(f"{_PATH}/input", "ui_job_input", _input),
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
