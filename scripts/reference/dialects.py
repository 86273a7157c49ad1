"""The parts of "One job, five dialects": the products' paths and fields side by side.

What a product calls its things is written here once. It is checked against the declared routes and
the schemas of their bodies, so that a path or a field that is no more fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from coatcheck.http.routing import Route
from scripts.reference.http import declared_routes, shown_path
from scripts.reference.parts import Outdated, code, table
from scripts.reference.states import batch_words, words

_NONE: Final = "none"


@dataclass(frozen=True)
class Dialect:
    """One product's API for jobs: its paths, and its names of what every job has."""

    name: str
    submit: str | None
    read: str
    list: str | None
    id: str
    state: str
    result: str | None
    error: str
    webhook: str
    required_key: bool = False
    keys_of: str = "the caller"


_BELOW: Final = (
    ("GET", "events"),
    ("GET", "explain"),
    ("POST", "cancel"),
    ("GET", "artifacts"),
)
_ORG: Final = "/api/v1/orgs/{org}"

DIALECTS: Final = (
    Dialect(
        name="gateway",
        submit=f"{_ORG}/services/{{service}}/async/{{path}}",
        read=f"{_ORG}/services/{{service}}/jobs/{{id}}",
        list=f"{_ORG}/workspaces/{{ws}}/hosted-services/{{service}}/jobs",
        id="id",
        state="status",
        result="result_summary",
        error="last_error",
        webhook="the header `X-Webhook-Url`",
        keys_of="the organisation",
    ),
    Dialect(
        name="any job (console)",
        submit=None,
        read=f"{_ORG}/jobs/{{id}}",
        list=f"{_ORG}/jobs",
        id="id",
        state="state",
        result="result",
        error="error",
        webhook="",
        keys_of="",
    ),
    Dialect(
        name="batches",
        submit="/v1/jobs",
        read="/v1/jobs/{id}",
        list="/v1/jobs",
        id="id",
        state="status",
        result=None,
        error="ingest",
        webhook="the field `webhook_url`",
    ),
    Dialect(
        name="batches: a task",
        submit=None,
        read="/v1/jobs/{id}/tasks/{task_id}",
        list="/v1/jobs/{id}/tasks",
        id="id",
        state="status",
        result="result",
        error="error",
        webhook="that of its batch",
        keys_of="",
    ),
    Dialect(
        name="llm",
        submit="/jobs",
        read="/jobs/{id}",
        list="/jobs",
        id="job_id",
        state="state",
        result="result",
        error="error",
        webhook="the field `webhook_url`",
    ),
    Dialect(
        name="speech",
        submit="/generate",
        read="/tasks/{id}",
        list="/tasks",
        id="id",
        state="status",
        result="result",
        error="error",
        webhook="the field `webhook_url`",
    ),
    Dialect(
        name="graphs",
        submit="/v1/graphs/call",
        read="/v1/graphs/jobs/{id}",
        list=None,
        id="jobId",
        state="status",
        result="result",
        error="error",
        webhook="the header `X-Webhook-Url`",
        required_key=True,
    ),
)


def _paths() -> str:
    rows = []
    for each in DIALECTS:
        submit = _existing(f"POST {each.submit}") if each.submit else _NONE
        below = [
            code(f".../{name}")
            for method, name in _BELOW
            if _declared(f"{method} {each.read}/{name}") is not None
        ]
        listed = _existing(f"GET {each.list}") if each.list else _NONE
        rows.append([each.name, submit, _existing(f"GET {each.read}"), ", ".join(below), listed])
    return table(["", "submit", "read", "below it", "list"], rows)


def _names() -> str:
    rows = []
    for each in DIALECTS:
        has = _fields(f"GET {each.read}", status=200)
        for field in (each.id, each.state, each.result, each.error, "terminal"):
            if field is not None and field not in has:
                raise Outdated(f"scripts/reference/dialects.py: {each.read} has no field {field}")
        submitted = _NONE
        if each.submit:
            ticket = _fields(f"POST {each.submit}", status=202)
            submitted = code(next(field for field in ticket if field.lower().endswith("id")))
        error = code(each.error)
        error_code = next((field for field in has if field in ("error_code", "errorCode")), None)
        error += f" (text), {code(error_code)}" if error_code else " (`code`, `message`, `cause`)"
        if each.error == "ingest":
            error = "`ingest.error`; each task has its own"
        result = (
            code(each.result) if each.result else "in its tasks and [exports](batch-exports.md)"
        )
        rows.append([each.name, submitted, code(each.id), code(each.state), result, error])
    head = ["", "id when submitted", "id when read", "state", "result", "error"]
    return table(head, rows)


def _keys() -> str:
    return table(
        ["", "idempotency key", "keys belong to", "webhook for one job"],
        (
            [each.name, "required" if each.required_key else "optional", each.keys_of, each.webhook]
            for each in DIALECTS
            if each.submit
        ),
    )


def _existing(call: str) -> str:
    _fields(call)
    return code(call)


def _fields(call: str, *, status: int | None = None) -> list[str]:
    """The fields of the body that a route answers with: with one status, or with the first."""
    route = _declared(call)
    if route is None:
        raise Outdated(f"scripts/reference/dialects.py: there is no route {call}")
    bodies = [each.body for each in route.responses if status in (None, each.status) and each.body]
    return [field.encode_name for field in msgspec.structs.fields(bodies[0])]


def _declared(call: str) -> Route | None:
    method, _, path = call.partition(" ")
    found = [each for each in declared_routes() if method in each.methods]
    return next((each for each in found if shown_path(each) == path), None)


PARTS = {
    "the paths": _paths,
    "the names": _names,
    "the keys and webhooks": _keys,
    "the words": words,
    "the words of batches": batch_words,
}
