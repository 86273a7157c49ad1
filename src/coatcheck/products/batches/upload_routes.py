"""Places to stage a list at, before its job is handed in."""

from __future__ import annotations

from http import HTTPStatus

from coatcheck.core.uploads import Uploads
from coatcheck.domain.identity import Scope
from coatcheck.domain.ids import to_text
from coatcheck.http.request import Call
from coatcheck.http.response import Reply, json_reply
from coatcheck.http.routing import Answer, Operation
from coatcheck.products.batches import schemas as words
from coatcheck.products.batches.context import Scene
from coatcheck.products.batches.task_routes import PAYMENT


class Staging:
    """POST /v1/uploads."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def create(self, call: Call) -> Reply:
        """A URL to put a list to. Whoever has it may."""
        scene, principal = self._scene, call.principal
        await scene.gate.check_new_work(principal, jobs=0)
        upload, signed = await scene.engine.extension(Uploads).create(
            org=principal.org, owner=principal.owner
        )
        shown = words.Upload(
            upload_id=to_text(upload),
            url=signed.url,
            method=signed.method,
            headers=dict(signed.headers),
            expires_at=signed.expires_at,
        )
        return json_reply(shown, HTTPStatus.CREATED)


def operations(scene: Scene) -> list[Operation]:
    staging = Staging(scene)
    return [
        Operation(
            methods=("POST",),
            path="/v1/uploads",
            name="create_upload",
            summary="A signed URL to put a list of tasks to, of up to 10 GB.",
            description="Then hand a job in whose `source` names the upload. It is used once, "
            "within a day. A `url` that begins with a slash is on this server.",
            handler=staging.create,
            access=Scope.SUBMIT,
            tag="batches",
            answers=(
                Answer(HTTPStatus.CREATED, "Where to put the list.", words.Upload),
                PAYMENT,
            ),
        )
    ]
