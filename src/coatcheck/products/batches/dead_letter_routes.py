"""Lists that could not be taken in: shown, and taken in after all."""

from __future__ import annotations

from http import HTTPStatus

from coatcheck.domain.identity import Scope
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, json_reply
from coatcheck.http.routing import ULID, Answer, Operation, Parameter
from coatcheck.products.batches import presenter as showing
from coatcheck.products.batches import schemas as words
from coatcheck.products.batches.context import Scene, owner_of_list
from coatcheck.products.batches.presenter import DLQ
from coatcheck.products.batches.read_routes import CURSOR_OF_IDS, LIMIT, read_id_cursor, read_limit
from coatcheck.products.batches.task_routes import PAYMENT


class DeadLetterRoutes:
    """The routes under /v1/dlq."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def page(self, call: Call) -> Reply:
        """Those of all the organisation's jobs for an admin, else of the caller's own."""
        principal, limit = call.principal, read_limit(call)
        found = await self._scene.batches.dead_letters.page(
            principal.org,
            owner=owner_of_list(principal),
            after=read_id_cursor(call),
            limit=limit,
        )
        items = [showing.dead_letter(letter) for letter in found]
        following = items[-1].id if len(items) == limit else None
        return json_reply(words.DeadLetterPage(items, following))

    async def redrive(self, call: Call) -> Reply:
        """Take a list in after all, from where it stopped."""
        scene, principal = self._scene, call.principal
        await scene.gate.check_new_work(principal, jobs=0)
        letter = await scene.batches.dead_letters.redrive(
            principal.org,
            call.params["id"],
            owner_of_list(principal),
            request_id=call.request_id,
        )
        shown = showing.dead_letter(letter)
        location = (b"location", shown.urls.job.encode("ascii"))
        return json_reply(shown, HTTPStatus.ACCEPTED, [location])


def operations(scene: Scene) -> list[Operation]:
    letters = DeadLetterRoutes(scene)
    return [
        Operation(
            methods=("GET",),
            path=DLQ,
            name="dead_letters",
            summary="Lists that could not be taken in, newest first.",
            description="An admin sees those of all the organisation's jobs; others of their own.",
            handler=letters.page,
            access=Scope.READ,
            tag="batches",
            parameters=(CURSOR_OF_IDS, LIMIT),
            answers=(Answer(HTTPStatus.OK, "A page of lists.", words.DeadLetterPage),),
        ),
        Operation(
            methods=("POST",),
            path=f"{DLQ}/{{id}}/redrive",
            name="redrive",
            summary="Have a list taken in after all, from where it stopped.",
            handler=letters.redrive,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(Parameter("id", "path", "The dead letter's id.", ULID),),
            answers=(
                Answer(
                    HTTPStatus.ACCEPTED,
                    "A worker takes it in.",
                    words.DeadLetterItem,
                    headers={"Location": "Where to ask for its job."},
                ),
                PAYMENT,
            ),
        ),
    ]
