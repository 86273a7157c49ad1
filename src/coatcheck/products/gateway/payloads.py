"""Turns a caller's request into a job's payload, and an upstream's stored answer into a response.

A Python function or a remote gets one JSON value, made of the body, path and query fields. An http
upstream gets the request repeated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from coatcheck.core import Engine
from coatcheck.core.upstream_calls import (
    RawHeader,
    UpstreamAnswer,
    decode_answer,
    encode_call,
    kept_headers,
    upstream_call,
)
from coatcheck.domain.catalogue import EndpointSpec
from coatcheck.domain.errors import InvalidBody, InvalidParameter, NotFound
from coatcheck.domain.job import JobView
from coatcheck.encoding import encode
from coatcheck.http.bodies import read_json
from coatcheck.http.request import Request
from coatcheck.http.response import SANDBOXED, RawHeaders, Response, StreamResponse

_TYPES: Final[Mapping[str, type]] = {"integer": int, "number": float, "boolean": bool}


def python_payload(
    spec: EndpointSpec, body: bytes, params: Mapping[str, str], query: Mapping[str, str]
) -> bytes:
    """The payload of a Python function's job. Raises InvalidBody or InvalidParameter."""
    value = read_json(body) if body else {}
    if not params and not query:
        return body or b"{}"
    if not isinstance(value, dict):
        raise InvalidBody(
            "The body must be an object, because the path or the query adds fields to it."
        )
    for place, fields in (("path", params), ("query", query)):
        for name, text in fields.items():
            if name in value:
                raise InvalidParameter(
                    name, "was given twice: in the body, the path or the query", place
                )
            value[name] = _typed(spec, name, text, place)
    return encode(value)


def remote_input(
    spec: EndpointSpec, body: bytes, params: Mapping[str, str], query: Mapping[str, str]
) -> bytes:
    """The input that a remote gets: JSON, made as for a Python function.

    Raises InvalidBody or InvalidParameter.
    """
    given = python_payload(spec, body, params, query)
    if _takes_objects_only(spec) and not given.lstrip().startswith(b"{"):
        raise InvalidBody("The body must be an object, because the remote gets additional fields.")
    return given


def _takes_objects_only(spec: EndpointSpec) -> bool:
    """Whether the adapter adds fields to the input: see ``remotes/payloads.py``."""
    assert spec.remote is not None
    definition = spec.remote.definition
    return definition["adapter"] == "http" or bool(definition.get("marks"))


def _typed(spec: EndpointSpec, name: str, text: str, place: str) -> Any:
    """A field of the path or the query, converted to the type of the endpoint's argument."""
    kind = spec.parameters.get(name, "string")
    target_type = _TYPES.get(kind)
    if "\0" in text:
        raise InvalidParameter(name, "contains NUL", place)
    if target_type is None:
        return text
    try:
        value: Any = msgspec.convert(text, target_type, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParameter(name, f"must be {kind}", place) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidParameter(name, "must be a finite number", place)
    return value


_SLASHES: Final = re.compile(r"[/\\]")
_NOT_CACHED: Final = (b"cache-control", b"no-store")
"""Every call is a job, so no cache may answer in our place."""
_NO_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


def upstream_payload(
    spec: EndpointSpec, method: str, path: str, request: Request, body: bytes, *, own_wait: bool
) -> bytes:
    """The payload of the job that repeats the request to the upstream.

    ``own_wait``: ``?wait`` is a parameter of ours and is not forwarded.
    """
    assert spec.target is not None
    _check_path(path)
    url = spec.target.url.rstrip("/") + path
    query = _query(request, own_wait=own_wait)
    return encode_call(
        upstream_call(
            url=f"{url}?{query}" if query else url,
            method=method,
            headers=request.scope["headers"],
            body=body,
            target=spec.target,
        )
    )


def upstream_fingerprint(
    spec: EndpointSpec, method: str, path: str, request: Request, body: bytes
) -> bytes:
    """Identifies a request for idempotency. Headers are left out: trace headers always differ."""
    query = _query(request, own_wait=True)
    return "\0".join([spec.queue_key, method, path, query, ""]).encode() + body


async def reproduced(
    engine: Engine, view: JobView, headers: RawHeaders
) -> Response | StreamResponse:
    """The upstream's answer, repeated byte for byte."""
    assert view.result is not None
    answer = decode_answer(view.result)
    headers = [*response_headers(answer), *headers]
    body = answer.body()
    if body is not None:
        return Response(answer.status, b"" if answer.status in _NO_BODY else body, headers)
    for artifact in await engine.artifacts(view.id, org=view.org):
        if artifact.name == answer.artifact:
            length = (b"content-length", b"%d" % artifact.size)
            return StreamResponse(answer.status, engine.read_artifact(artifact), [*headers, length])
    raise NotFound


def response_headers(answer: UpstreamAnswer) -> list[RawHeader]:
    """The headers to repeat to a synchronous caller, names in lower case, without a length.

    The answer of a tenant's upstream appears under our host name, so these headers forbid a browser
    to run anything in it. The stored headers are filtered again: they may have been stored before
    the filter left one of them out.
    """
    stored = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    own = [(name.encode(), value.encode("latin-1")) for name, value in kept_headers(stored)]
    return [*own, _NOT_CACHED, *SANDBOXED]


def _check_path(path: str) -> None:
    """Refuse paths that lead out of the upstream's base path, however the upstream parses them.

    Some servers decode an escaped slash before they split the path, treat a backslash as a slash,
    or cut off everything after a semicolon.
    """
    for segment in _SLASHES.split(unquote(path)):
        if segment.partition(";")[0] in (".", ".."):
            raise InvalidParameter("path", "must not contain . or .. as a segment", "path")


def _query(request: Request, *, own_wait: bool) -> str:
    query = str(request.scope["query_string"], "latin-1")
    if not own_wait or "wait" not in query:
        return query
    return "&".join(field for field in query.split("&") if not field.startswith("wait="))
