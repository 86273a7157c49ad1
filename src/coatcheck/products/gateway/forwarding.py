"""Between a caller's request and an http upstream's: the call to store, the answer to repeat."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

from coatcheck.core import Engine
from coatcheck.core.upstream_calls import UpstreamAnswer, decode_answer, encode_call, upstream_call
from coatcheck.core.upstream_headers import RawHeader, kept_headers
from coatcheck.domain.catalogue import EndpointSpec
from coatcheck.domain.errors import InvalidParameter, NotFound
from coatcheck.domain.job import JobView
from coatcheck.http.request import Call
from coatcheck.http.response import SANDBOXED, RawHeaders, Reply, StreamReply

_SLASHES: Final = re.compile(r"[/\\]")
_NOT_CACHED: Final = (b"cache-control", b"no-store")
"""Every call is a job: no answer is to be taken from a cache, whoever keeps one."""
_NO_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


def upstream_payload(
    spec: EndpointSpec, method: str, path: str, call: Call, body: bytes, *, own_wait: bool
) -> bytes:
    """The payload of the job that repeats the request. ``own_wait``: ``?wait`` is meant for us."""
    assert spec.target is not None
    _check_path(path)
    url = spec.target.url.rstrip("/") + path
    query = _query(call, own_wait=own_wait)
    return encode_call(
        upstream_call(
            url=f"{url}?{query}" if query else url,
            method=method,
            headers=call.scope["headers"],
            body=body,
            target=spec.target,
        )
    )


def upstream_fingerprint(
    spec: EndpointSpec, method: str, path: str, call: Call, body: bytes
) -> bytes:
    """What makes two requests the same: not the headers, which differ with every trace."""
    query = _query(call, own_wait=True)
    return "\0".join([spec.flow, method, path, query, ""]).encode() + body


async def reproduced(engine: Engine, view: JobView, headers: RawHeaders) -> Reply | StreamReply:
    """The upstream's answer, as it gave it."""
    assert view.result is not None
    answer = decode_answer(view.result)
    headers = [*reply_headers(answer), *headers]
    body = answer.body()
    if body is not None:
        return Reply(answer.status, b"" if answer.status in _NO_BODY else body, headers)
    for artifact in await engine.artifacts(view.id, org=view.org):
        if artifact.name == answer.artifact:
            length = (b"content-length", b"%d" % artifact.size)
            return StreamReply(answer.status, engine.read_artifact(artifact), [*headers, length])
    raise NotFound


def reply_headers(answer: UpstreamAnswer) -> list[RawHeader]:
    """The headers to repeat to a synchronous caller, names in lower case, without a length.

    A tenant's upstream speaks under our host name then, so a browser is told to run nothing. What
    is stored is looked through once more: it may be from before a header was left out.
    """
    stored = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    own = [(name.encode(), value.encode("latin-1")) for name, value in kept_headers(stored)]
    return [*own, _NOT_CACHED, *SANDBOXED]


def _check_path(path: str) -> None:
    """A path must stay below the upstream's own, however the upstream reads it.

    Some decode a slash before they part the path, take a backslash for one, or cut off what
    follows a semicolon.
    """
    for segment in _SLASHES.split(unquote(path)):
        if segment.partition(";")[0] in (".", ".."):
            raise InvalidParameter("path", "must not contain . or .. as a segment", "path")


def _query(call: Call, *, own_wait: bool) -> str:
    query = str(call.scope["query_string"], "latin-1")
    if not own_wait or "wait" not in query:
        return query
    return "&".join(field for field in query.split("&") if not field.startswith("wait="))
