"""All of an organisation's jobs, a page at a time; or those that a word names."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.core.org_jobs import Console
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import InvalidParameter, JobNotFound
from coatcheck.domain.identity import Scope
from coatcheck.domain.ids import InvalidId, from_text, to_text
from coatcheck.domain.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX
from coatcheck.domain.org_jobs import ConsoleJob, Wanted
from coatcheck.http.change_stream import CHANGES_PAGE, CHANGES_WALKED_MAX
from coatcheck.http.job_responses import CHANGES_PARAMETERS, changes_answer
from coatcheck.http.queries import read_whole_number
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, StreamReply, json_reply
from coatcheck.http.routing import ULID, Answer, Operation, Parameter
from coatcheck.products.console import schemas as words
from coatcheck.products.console.context import (
    JOBS,
    TAG,
    Scene,
    may_see,
    reader_of_lists,
    stored_key,
)
from coatcheck.products.console.filters import filter_parameters, wanted_by_query

PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200


class Listing:
    """The route that lists jobs."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def page(self, call: Call) -> Reply:
        """Jobs, newest first: all of them for an admin, else the caller's own and anyone's."""
        scene, query = self._scene, call.query
        limit = read_whole_number(query, "limit", 1, PAGE_ROWS_MAX, default=PAGE_ROWS)
        after = _cursor(query.get("cursor"))
        wanted = wanted_by_query(call, scene.desks)
        said = query.get("q")
        if said is not None:
            found = await self._named(call, said)
            return json_reply(
                words.OrgJobPage([await scene.voice.item(job) for job in found], None)
            )
        page = await scene.engine.extension(Console).page(wanted, after=after, limit=limit)
        items = [await scene.voice.item(job) for job in page.items]
        following = None if page.following is None else to_text(page.following)
        return json_reply(words.OrgJobPage(items, following))

    async def events(self, call: Call) -> StreamReply:
        """The jobs of ``page``, as they change."""
        scene, principal = self._scene, call.principal

        async def look(cursor: ChangeCursor) -> Changes[ConsoleJob]:
            return await scene.engine.extension(Console).changes(
                principal.org,
                reader_of_lists(principal),
                cursor,
                rows_max=CHANGES_WALKED_MAX,
                limit=CHANGES_PAGE,
            )

        return scene.answers.changes(call, "job", look, scene.voice.item)

    async def _named(self, call: Call, said: str) -> list[ConsoleJob]:
        """The jobs that a word names: by their id, their idempotency key, or the id of the request
        that handed them in, if that was lately."""
        if not 1 <= len(said) <= IDEMPOTENCY_KEY_CHARACTERS_MAX or not said.isprintable():
            most = IDEMPOTENCY_KEY_CHARACTERS_MAX
            raise InvalidParameter("q", f"must have 1 to {most} printable characters")
        scene, principal = self._scene, call.principal
        console = scene.engine.extension(Console)
        found: dict[UUID, ConsoleJob] = {}
        try:
            job = await scene.find(principal, said)
            found[job.uuid] = job
        except JobNotFound:
            keys = {
                stored_key(principal, said),
                *(
                    key
                    for desk in scene.desks.all.values()
                    for key in desk.stored_keys(principal, said)
                ),
            }
            for job in await console.find(principal.org, sorted(keys)):
                if may_see(principal, job.view.owner):
                    found[job.uuid] = job
            of_request = Wanted(
                org=principal.org, reader=reader_of_lists(principal), request_id=said
            )
            for job in (await console.page(of_request, after=None, limit=PAGE_ROWS)).items:
                found[job.uuid] = job
        return list(found.values())


def _cursor(given: str | None) -> UUID | None:
    if given is None:
        return None
    try:
        return from_text(given)
    except InvalidId as error:
        raise InvalidParameter("cursor", "must be the `next` of a page") from error


def operations(scene: Scene) -> list[Operation]:
    listing = Listing(scene)
    return [
        Operation(
            methods=("GET",),
            path=JOBS,
            name="org_jobs",
            summary="An organisation's jobs, newest first, whichever surface they came by.",
            description="An admin sees all of them, others their own and those that are anyone's. "
            "Tasks of batches are not listed. A page looks at 10,000 jobs at most: one that is "
            "narrowed much may be short, or empty, and still have a `next`.",
            handler=listing.page,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(
                *filter_parameters(scene.desks),
                Parameter(
                    "q",
                    "query",
                    "Only the job of this id, of this idempotency key, or those of this request id "
                    "among the newest 10,000. The other fields do not matter then.",
                    {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": IDEMPOTENCY_KEY_CHARACTERS_MAX,
                    },
                ),
                Parameter("cursor", "query", "The `next` of the page before.", ULID),
                Parameter(
                    "limit",
                    "query",
                    "How many to show.",
                    {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": PAGE_ROWS_MAX,
                        "default": PAGE_ROWS,
                    },
                ),
            ),
            answers=(Answer(HTTPStatus.OK, "A page of jobs.", words.OrgJobPage),),
        ),
        Operation(
            methods=("GET",),
            path=f"{JOBS}/events",
            name="org_jobs_events",
            summary="An organisation's jobs, as they change.",
            description="An admin sees all of them, others their own and those that are anyone's; "
            "nobody tasks of batches. Begins with jobs that have not ended, unless it goes on "
            "behind an event. Follows the newest 10,000 jobs.",
            handler=listing.events,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=CHANGES_PARAMETERS,
            answers=(changes_answer("job", "a job"),),
        ),
    ]
