"""Reads a batch's options from the query, for a request whose body is the list of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from coatcheck.domain.errors import InvalidBody, InvalidParameter
from coatcheck.domain.lanes import Lane
from coatcheck.http.bodies import read_json
from coatcheck.http.routing import Parameter
from coatcheck.products.batches import schemas
from coatcheck.products.batches.schemas import NewBatchBody

_PLAIN: Final = (
    "service",
    "endpoint",
    "version",
    "type",
    "async",
    "lane",
    "concurrency",
    "webhook_url",
    "keep_seconds",
    "retries",
)
_RATE: Final = {
    "rate_per_second": "per_second",
    "rate_key": "key",
    "rate_key_per_second": "key_per_second",
}
_REQUIRED: Final = ("service", "endpoint")
NAMES: Final = (*_PLAIN, *_RATE, "webhook_events", "metadata")


def read_options(query: Mapping[str, str]) -> NewBatchBody:
    """Read the options. Raises InvalidParameter, which names the field."""
    for name in _REQUIRED:
        if name not in query:
            raise InvalidParameter(name, "is required")
    fields: dict[str, Any] = {}
    rate: dict[str, Any] = {}
    for name, text in query.items():
        if name in _PLAIN:
            fields[name] = text
        elif name in _RATE:
            rate[_RATE[name]] = text
        elif name == "webhook_events":
            fields[name] = text.split(",")
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
        if name in NAMES:
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


def _integer(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


_PER_SECOND: Final = {"type": "number", "minimum": schemas.RATE_MIN, "maximum": schemas.RATE_MAX}

PARAMETERS: Final = (
    Parameter("service", "query", "For a list: the service that runs the tasks."),
    Parameter("endpoint", "query", "For a list: the endpoint's path or key."),
    Parameter("version", "query", "For a list: the service's version.", _integer(1, 9_999)),
    Parameter(
        "type",
        "query",
        "For a list: whether more tasks may be added.",
        {"type": "string", "enum": list(get_args(schemas.Type))},
    ),
    Parameter(
        "async",
        "query",
        "For a list: a worker ingests it, even if it is short.",
        {"type": "boolean"},
    ),
    Parameter(
        "lane",
        "query",
        "For a list: the tasks' lane.",
        {"type": "string", "enum": [lane.value for lane in Lane]},
    ),
    Parameter(
        "concurrency",
        "query",
        "For a list: how many of its tasks run at the same time, at most.",
        _integer(1, schemas.CONCURRENCY_MAX),
    ),
    Parameter(
        "rate_per_second", "query", "For a list: how many tasks start per second.", _PER_SECOND
    ),
    Parameter("rate_key", "query", "For a list: the field of a task that is its rate key."),
    Parameter(
        "rate_key_per_second",
        "query",
        "For a list: how many tasks with the same rate key start per second.",
        _PER_SECOND,
    ),
    Parameter("webhook_url", "query", "For a list: the URL that receives its webhooks."),
    Parameter(
        "webhook_events",
        "query",
        "For a list: the events to send, separated by commas: "
        + ", ".join(f"`{event}`" for event in get_args(schemas.WebhookEvent)),
    ),
    Parameter("metadata", "query", "For a list: any JSON object, returned with the job."),
    Parameter(
        "keep_seconds",
        "query",
        "For a list: how long the job is kept after its end.",
        _integer(0, schemas.KEEP_SECONDS_MAX),
    ),
    Parameter(
        "retries", "query", "For a list: how often a failed task is retried.", _integer(0, 1_000)
    ),
)
