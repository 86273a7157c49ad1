"""A job's files: the images of its answer, and an answer that is too long for a row."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.blobs.disposition import attachment
from coatcheck.control.call import Call
from coatcheck.control.operations import ULID, Answer, Operation, Parameter
from coatcheck.control.problems import MEDIA_TYPE, Problem, problem
from coatcheck.control.ranges import (
    Span,
    Unsatisfiable,
    names_etag,
    requested_span,
    still_the_same,
)
from coatcheck.control.reply import Reply, StreamReply, raw_header
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.identity import Scope
from coatcheck.domain.job import Artifact
from coatcheck.surfaces.llm.scene import Scene
from coatcheck.surfaces.llm.voice import JOBS

_HARMLESS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"cache-control", b"private, no-store"),
    (b"accept-ranges", b"bytes"),
)
"""What a model made is never run as a page of ours."""


class Artifacts:
    """The route of a job's files."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def fetch(self, call: Call) -> Reply | StreamReply:
        view = await self._scene.job(call)
        for artifact in await self._scene.voice.artifacts(view):
            if artifact.name == call.params["name"]:
                return await self._answer(call, artifact)
        raise JobNotFound("it has no such file")

    async def _answer(self, call: Call, artifact: Artifact) -> Reply | StreamReply:
        etag = artifact.sha256.hex()
        tag = raw_header("etag", f'"{etag}"')
        if names_etag(call.header(b"if-none-match"), etag):
            return Reply(HTTPStatus.NOT_MODIFIED, headers=[tag])
        span, status = None, HTTPStatus.OK
        if call.method == "GET" and still_the_same(call.header(b"if-range"), etag):
            try:
                span = requested_span(call.header(b"range"), artifact.size)
            except Unsatisfiable:
                return problem(
                    call,
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                    "range_not_satisfiable",
                    f"There are {artifact.size} bytes.",
                    headers=[raw_header("content-range", f"bytes */{artifact.size}")],
                )
        headers = [
            tag,
            raw_header("content-type", artifact.media_type),
            raw_header("content-disposition", attachment(artifact.name)),
            *_HARMLESS,
        ]
        if span is not None:
            status = HTTPStatus.PARTIAL_CONTENT
            headers.append(raw_header("content-range", span.content_range))
        else:
            span = Span(0, artifact.size, artifact.size)
        headers.append(raw_header("content-length", str(span.length)))
        blobs = self._scene.engine.blobs
        try:
            # Before the answer begins: after its head there is no way to say that it is not there.
            blob = await blobs.head(artifact.blob_key)
        except FileNotFoundError:
            raise JobNotFound("its retention has just ended") from None
        pieces = blobs.stream(artifact.blob_key, span.start, stop=span.stop, etag=blob.etag)
        return StreamReply(status, pieces, headers)


def operations(scene: Scene) -> list[Operation]:
    artifacts = Artifacts(scene)
    return [
        Operation(
            methods=("GET",),
            path=f"{JOBS}/{{id}}/artifacts/{{name}}",
            name="chat_artifact",
            summary="A file that a job made.",
            handler=artifacts.fetch,
            access=Scope.READ,
            tag="llm",
            parameters=(
                Parameter("id", "path", "The job's id.", ULID),
                Parameter("name", "path", "The file's name, as the job shows it."),
                Parameter("Range", "header", "Only these bytes of it."),
                Parameter("If-Range", "header", "An ETag: the range only if it is still so."),
                Parameter("If-None-Match", "header", "An ETag: only if it is another."),
            ),
            answers=(
                Answer(HTTPStatus.OK, "The file.", media_type="*/*", schema={}, headers=_HEADERS),
                Answer(
                    HTTPStatus.PARTIAL_CONTENT,
                    "The part of it.",
                    media_type="*/*",
                    schema={},
                    headers=_HEADERS | {"Content-Range": "Which part of it."},
                ),
                Answer(HTTPStatus.NOT_MODIFIED, "It is as it was.", empty=True),
                Answer(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                    "The range begins after its end.",
                    Problem,
                    MEDIA_TYPE,
                ),
            ),
        )
    ]


_HEADERS: Final = {
    "ETag": "The SHA-256 of the file.",
    "Accept-Ranges": "`bytes`.",
    "Content-Disposition": "`attachment`, with the file's name.",
}
