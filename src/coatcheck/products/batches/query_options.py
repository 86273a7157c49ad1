"""Reads a batch's options from the query, for a request whose body is the list of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

import msgspec

from coatcheck.domain.errors import InvalidBody, InvalidParameter
from coatcheck.domain.lanes import Lane
from coatcheck.http.bodies import read_json
from coatcheck.http.routing import Parameter
from coatcheck.products.batches import schemas
from coatcheck.products.batches.schemas import NewBatchBody


def _choice(values: Iterable[str]) -> dict[str, Any]:
    return {"type": "string", "enum": [*values]}


def _integer(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


_TEXT: Final = {"type": "string"}
_PER_SECOND: Final = {"type": "number", "minimum": schemas.RATE_MIN, "maximum": schemas.RATE_MAX}
_EVENTS: Final = ", ".join(f"`{event}`" for event in get_args(schemas.WebhookEvent))
_REQUIRED: Final = ("service", "endpoint")
_RATE: Final = {
    "rate_per_second": "per_second",
    "rate_key": "key",
    "rate_key_per_second": "key_per_second",
}
_OPTIONS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "service": ("the service that runs the tasks", _TEXT),
    "endpoint": ("the endpoint's path or key", _TEXT),
    "version": ("the service's version", _integer(1, 9_999)),
    "type": ("whether more tasks may be added", _choice(get_args(schemas.Type))),
    "async": ("a worker ingests it, even if it is short", {"type": "boolean"}),
    "lane": ("the tasks' lane", _choice(lane.value for lane in Lane)),
    "concurrency": (
        "how many of its tasks run at the same time, at most",
        _integer(1, schemas.CONCURRENCY_MAX),
    ),
    "rate_per_second": ("how many tasks start per second", _PER_SECOND),
    "rate_key": ("the field of a task that is its rate key", _TEXT),
    "rate_key_per_second": (
        "how many tasks with the same rate key start per second",
        _PER_SECOND,
    ),
    "webhook_url": ("the URL that receives its webhooks", _TEXT),
    "webhook_events": (f"the events to send, separated by commas: {_EVENTS}", _TEXT),
    "metadata": ("any JSON object, returned with the job", _TEXT),
    "keep_seconds": (
        "how long the job is kept after its end",
        _integer(0, schemas.KEEP_SECONDS_MAX),
    ),
    "retries": ("how often a failed task is retried", _integer(0, 1_000)),
}
PARAMETERS: Final = [
    Parameter(name, "query", f"For a list: {text}" + ("" if text.endswith("`") else "."), schema)
    for name, (text, schema) in _OPTIONS.items()
]


def read_options(query: Mapping[str, str]) -> NewBatchBody:
    """Read the options. Raises InvalidParameter, which names the field."""
    for name in _REQUIRED:
        if name not in query:
            raise InvalidParameter(name, "is required")
    fields: dict[str, Any] = {}
    rate: dict[str, Any] = {}
    for name, text in query.items():
        if name in _RATE:
            rate[_RATE[name]] = text
        elif name == "webhook_events":
            fields[name] = text.split(",")
        elif name in _OPTIONS and name != "metadata":
            fields[name] = text
    if rate:
        fields["rate"] = rate
    try:
        job = msgspec.convert(fields, NewBatchBody, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid_option(str(error)) from None
    return msgspec.structs.replace(job, metadata=_metadata(query))


def refuse_options(query: Mapping[str, str]) -> None:
    """Refuse options in the query of a JSON body, where they would have no effect."""
    for name in query:
        if name in _OPTIONS:
            raise InvalidParameter(name, "belongs in the body, unless that is a list of tasks")


def _metadata(query: Mapping[str, str]) -> msgspec.Raw:
    text = query.get("metadata", "")
    if not text:
        return msgspec.Raw(b"null")
    written = text.strip().encode()
    try:
        read_json(written)
    except InvalidBody:
        raise InvalidParameter("metadata", "must be a JSON object") from None
    return msgspec.Raw(written)


def _invalid_option(message: str) -> InvalidParameter:
    """The error that msgspec raised, with the field's name in the query."""
    issue, _, place = message.partition(" - at `$.")
    place = place.rstrip("`")
    query_names = {f"rate.{inner}": outer for outer, inner in _RATE.items()}
    field = query_names.get(place, place.partition("[")[0] or "query")
    return InvalidParameter(field, issue[:1].lower() + issue[1:])
