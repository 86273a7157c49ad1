"""The route ``GET {job}/explain``, the same for every product: why a job waits, or what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.domain.explanation import Blocker, BlockerKind, Explanation, Holder
from coatcheck.domain.ids import to_text
from coatcheck.domain.tenants import Scope
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Access, Handler, Parameter, ResponseSpec, Route

HOLDERS_SHOWN_MAX: Final = 10
_DIGITS: Final = 3


class ExplainedBlocker(msgspec.Struct, frozen=True):
    """One thing that a job waits for, or what it does.

    ``key`` names a limit, ``limit`` is its value and ``held`` how much of it is in use. ``holders``
    are ids of jobs that use it, as far as the caller may see them. ``limit`` and ``held`` are null
    where they would reveal something about other organisations.
    """

    kind: BlockerKind
    message: str
    key: str | None
    limit: float | None
    held: int | None
    holders: list[str]
    since: datetime | None
    until: datetime | None


class ExplainedEta(msgspec.Struct, frozen=True):
    """Seconds from now until 50 % and 90 % of such jobs have started or ended."""

    start_p50: float
    start_p90: float
    end_p50: float
    end_p90: float


class ExplainedJob(msgspec.Struct, frozen=True):
    """Why a job waits, or what it does. ``summary`` is for people. ``position`` counts from 1, in
    the queue of the job's key and lane. The blockers are in order: the decisive one comes first."""

    job_id: str
    state: str
    terminal: bool
    summary: str
    blockers: list[ExplainedBlocker]
    position: int | None
    eta: ExplainedEta | None
    retry_after: int


def shown(
    explanation: Explanation, may_see: Callable[[Holder], bool], *, for_operator: bool
) -> ExplainedJob:
    """An explanation with what its reader may see."""
    eta = explanation.eta
    return ExplainedJob(
        explanation.job_id,
        explanation.state,
        explanation.terminal,
        explanation.summary,
        [_blocker(each, may_see, for_operator=for_operator) for each in explanation.blockers],
        explanation.position,
        None
        if eta is None
        else ExplainedEta(
            round(eta.start_p50, _DIGITS),
            round(eta.start_p90, _DIGITS),
            round(eta.end_p50, _DIGITS),
            round(eta.end_p90, _DIGITS),
        ),
        explanation.retry_after,
    )


def _blocker(
    blocker: Blocker, may_see: Callable[[Holder], bool], *, for_operator: bool
) -> ExplainedBlocker:
    hidden = blocker.is_shared and not for_operator
    visible = [to_text(each.uuid) for each in blocker.holders if may_see(each)]
    return ExplainedBlocker(
        blocker.kind,
        blocker.message,
        blocker.key,
        None if hidden else blocker.limit,
        None if hidden else blocker.held,
        visible[:HOLDERS_SHOWN_MAX],
        blocker.since,
        blocker.until,
    )


def explanation_response(
    request: Request, org: str, explanation: Explanation, *, unknown: int
) -> Response:
    """A response with an explanation, as far as the caller may see it. ``unknown`` is the
    Retry-After if the explanation has none."""
    if not explanation.retry_after and not explanation.terminal:
        explanation = replace(explanation, retry_after=unknown)
    caller = request.caller

    def is_seen(holder: Holder) -> bool:
        if caller is None or caller.org != org:
            # A job of anonymous callers is opened by its id alone, so its id must not leak.
            return False
        return caller.may_see(holder.owner, admins_see_all=True)

    for_operator = caller is not None and caller.is_operator
    body = shown(explanation, is_seen, for_operator=for_operator)
    headers = [(b"cache-control", b"no-store")]
    if not explanation.terminal:
        headers.append((b"retry-after", b"%d" % explanation.retry_after))
    return json_response(body, headers=headers)


def explain_route(
    path: str,
    name: str,
    handler: Handler,
    *,
    tag: str,
    access: Access | Scope = Scope.READ,
    parameters: Sequence[Parameter] = (),
    responses: Sequence[ResponseSpec] = (),
    operable: bool = False,
) -> Route:
    """``GET {job}/explain`` for jobs at ``path``."""
    return Route(
        methods=("GET",),
        path=f"{path}/explain",
        name=name,
        summary="Explain a job: why it waits or what it does, its position, and its forecast.",
        handler=handler,
        access=access,
        tag=tag,
        parameters=parameters,
        responses=(ResponseSpec(HTTPStatus.OK, "The explanation.", ExplainedJob), *responses),
        operable=operable,
    )
