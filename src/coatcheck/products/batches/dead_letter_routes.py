"""The dead-letter queue: lists whose ingest failed, and how to retry it."""

from __future__ import annotations

from http import HTTPStatus

from coatcheck.domain.tenants import Scope
from coatcheck.http.job_resource import PLAN_INACTIVE
from coatcheck.http.pages import PAGE_PARAMETERS, read_page
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import ULID, Parameter, ResponseSpec, Route
from coatcheck.products.batches import presenter, schemas
from coatcheck.products.batches.jobs import BatchJobs
from coatcheck.products.batches.presenter import DLQ


class DeadLetterRoutes:
    """The routes under /v1/dlq."""

    def __init__(self, jobs: BatchJobs) -> None:
        self._jobs = jobs

    async def page(self, request: Request) -> Response:
        """List dead letters: of all the organisation's jobs for an admin, else of the caller's."""
        principal, asked = request.principal, read_page(request)
        found = await self._jobs.batches.dead_letters.page(
            principal.org,
            owner=principal.lists_jobs_of,
            after=asked.after_id,
            limit=asked.limit,
        )
        items = [presenter.dead_letter(letter) for letter in found]
        following = asked.following(items, lambda item: item.id)
        return json_response(schemas.DeadLetterPage(items, following))

    async def redrive(self, request: Request) -> Response:
        """Retry the ingest of a list, from where it stopped."""
        jobs, principal = self._jobs, request.principal
        await jobs.gate.check_new_work(principal, jobs=0)
        letter = await jobs.batches.dead_letters.redrive(
            principal.org,
            request.params["id"],
            principal.lists_jobs_of,
            request_id=request.request_id,
        )
        shown = presenter.dead_letter(letter)
        location = (b"location", shown.urls.job.encode("ascii"))
        return json_response(shown, HTTPStatus.ACCEPTED, [location])


def routes(jobs: BatchJobs) -> list[Route]:
    letters = DeadLetterRoutes(jobs)
    return [
        Route(
            methods=("GET",),
            path=DLQ,
            name="dead_letters",
            summary="Lists whose ingest failed, newest first.",
            description="An admin sees those of all jobs of the organisation; others see those of "
            "their own.",
            handler=letters.page,
            access=Scope.READ,
            tag="batches",
            parameters=PAGE_PARAMETERS,
            responses=(ResponseSpec(HTTPStatus.OK, "A page of lists.", schemas.DeadLetterPage),),
        ),
        Route(
            methods=("POST",),
            path=f"{DLQ}/{{id}}/redrive",
            name="redrive",
            summary="Retry the ingest of a list, from where it stopped.",
            handler=letters.redrive,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(Parameter("id", "path", "The dead letter's id.", ULID),),
            responses=(
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "A worker ingests it.",
                    schemas.DeadLetterItem,
                    headers={"Location": "The URL of its job."},
                ),
                PLAN_INACTIVE,
            ),
        ),
    ]
