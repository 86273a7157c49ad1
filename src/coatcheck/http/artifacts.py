"""Artifacts over HTTP, with the same routes below the jobs of every surface.

A surface says which job a path names, and who may see it (``ArtifactFinder``). What is shown of its
files, how they are served and deleted, and what receipts say, is decided here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import quote
from uuid import UUID

import msgspec

from coatcheck import receipts
from coatcheck.blobs.disposition import with_extension
from coatcheck.core import Engine
from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.errors import JobNotEnded, JobNotFound
from coatcheck.domain.ids import InvalidId, from_text, to_text
from coatcheck.domain.job import Artifact, JobView
from coatcheck.domain.tenants import Scope
from coatcheck.http.context import ServerContext
from coatcheck.http.files import FILE_PARAMETERS, StoredFile, file_response, file_responses
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import Access, Parameter, ResponseSpec, Route

SIGNED_SECONDS: Final = 3_600


class ArtifactItem(msgspec.Struct, frozen=True):
    """A file that a job made. ``url`` takes the caller's credential; ``signed_url`` needs none, and
    is good until ``signed_url_expires_at``. ``expires_at`` is when the file goes with its job; null
    if that is not known yet."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    created_at: datetime
    expires_at: datetime | None
    url: str
    signed_url: str
    signed_url_expires_at: datetime


class ArtifactList(msgspec.Struct, frozen=True):
    """The files of a job, by name."""

    items: list[ArtifactItem]


@dataclass(frozen=True, slots=True)
class ArtifactOwner:
    """A job whose caller may see it. ``url`` is where it is read."""

    org: str
    job: UUID
    url: str
    terminal: bool
    expires_at: datetime | None
    shows: bool = True
    """Whether its files are shown as it is now: before its end it may yet lose them."""
    url_seconds: int = SIGNED_SECONDS
    """How long the signed URLs of its files live."""

    @classmethod
    def of(cls, view: JobView, url: str, *, shows: bool = True) -> ArtifactOwner:
        return cls(view.org, view.uuid, url, view.terminal, view.expires_at, shows)


class ArtifactFinder(Protocol):
    """Which job the path of a call names, and whether the caller may see it."""

    async def job(self, request: Request, scope: Scope) -> ArtifactOwner:
        """The job. Raises JobNotFound, the same for a foreign one as for an absent."""
        ...

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        """What is known of the job's artifact ``name``, whether or not the job is still there; None
        if that is nothing, or nothing that the caller may see."""
        ...


class OwnedJobs:
    """The finder of a surface whose routes are let in by scope, and whose path has the job's id.

    ``job`` finds the job of a call, ``url`` says where the job of an id is read, ``endpoints`` are
    the engine's that the surface's jobs are of. ``shows`` says whether the files of a job are shown
    yet, if not always.
    """

    def __init__(
        self,
        engine: Engine,
        job: Callable[[Request], Awaitable[JobView]],
        url: Callable[[str], str],
        endpoints: Collection[str],
        *,
        shows: Callable[[JobView], bool] | None = None,
    ) -> None:
        self._engine = engine
        self._job = job
        self._url = url
        self._endpoints = endpoints
        self._shows = shows

    async def job(self, request: Request, _: Scope) -> ArtifactOwner:
        view = await self._job(request)
        shows = self._shows is None or self._shows(view)
        return ArtifactOwner.of(view, self._url(view.id), shows=shows)

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        try:
            job = from_text(request.params["id"])
        except InvalidId:
            return None
        principal = request.principal
        record = await self._engine.artifact_repository.record(principal.org, job, name)
        if record is None or record.endpoint not in self._endpoints:
            return None
        return record if principal.may_see(record.owner) else None


class ArtifactResponses:
    """Answers about the artifacts of one surface's jobs."""

    def __init__(
        self, server: ServerContext, finder: ArtifactFinder, shown_id: Callable[[UUID], str]
    ) -> None:
        self._engine = server.engine
        self._finder = finder
        self._shown_id = shown_id
        self._signer = receipts.Signer.from_pepper(server.settings.require("key_pepper"))

    async def list(self, request: Request) -> Response:
        holder = await self._finder.job(request, Scope.READ)
        items = [await self._item(holder, artifact) for artifact in await self._of(holder)]
        return json_response(ArtifactList(items))

    async def fetch(self, request: Request) -> Response | StreamResponse:
        holder = await self._finder.job(request, Scope.READ)
        for artifact in await self._of(holder):
            if artifact.name == request.params["name"]:
                return await self._file(request, artifact)
        raise JobNotFound("it has no such file")

    async def delete(self, request: Request) -> Response:
        holder = await self._finder.job(request, Scope.SUBMIT)
        if not holder.terminal:
            raise JobNotEnded("The job goes on; its files can be deleted once it has ended.")
        name = request.params["name"]
        return self._receipt(
            await self._engine.artifact_repository.delete(holder.org, holder.job, name)
        )

    async def receipt(self, request: Request) -> Response:
        """Signed anew each time: what it says is what is known now."""
        return self._receipt(await self._finder.record(request, request.params["name"]))

    async def _of(self, holder: ArtifactOwner) -> Sequence[Artifact]:
        if not holder.shows:
            return ()
        return await self._engine.artifacts(to_text(holder.job), org=holder.org)

    async def _item(self, holder: ArtifactOwner, artifact: Artifact) -> ArtifactItem:
        seconds = signed_seconds(holder.expires_at, holder.url_seconds)
        signed = await self._engine.sign_artifact(artifact, seconds)
        return ArtifactItem(
            name=artifact.name,
            media_type=artifact.media_type,
            bytes=artifact.size,
            sha256=artifact.sha256.hex(),
            created_at=artifact.created_at,
            expires_at=holder.expires_at,
            url=artifact_url(holder.url, artifact.name),
            signed_url=signed.url,
            signed_url_expires_at=signed.expires_at,
        )

    async def _file(self, request: Request, artifact: Artifact) -> Response | StreamResponse:
        blobs = self._engine.blobs
        try:
            # Before the answer begins: after its head there is no way to say that it is not there.
            blob = await blobs.head(artifact.blob_key)
        except FileNotFoundError:
            raise JobNotFound("its retention has just ended") from None
        file = StoredFile(
            artifact.blob_key,
            artifact.size,
            artifact.sha256.hex(),
            blob.etag,
            with_extension(artifact.name, artifact.media_type),
            artifact.media_type,
        )
        return file_response(request, blobs, file)

    def _receipt(self, record: ArtifactRecord | None) -> Response:
        if record is None:
            raise JobNotFound("it never had such a file")
        receipt = receipts.describe_artifact(record, self._shown_id(record.job))
        return json_response(self._signer.sign_artifact(receipt))


def artifact_url(job_url: str, name: str) -> str:
    """Where an artifact of the job that is read at ``job_url`` is fetched."""
    return f"{job_url}/artifacts/{quote(name, safe='')}"


def signed_seconds(expires_at: datetime | None, most: int = SIGNED_SECONDS) -> int:
    """How long a URL is signed for: ``most`` seconds, but no longer than the file is kept."""
    if expires_at is None:
        return most
    left = int((expires_at - datetime.now(UTC)).total_seconds())
    return max(1, min(left, most))


def artifact_routes(
    server: ServerContext,
    finder: ArtifactFinder,
    *,
    path: str,
    name: str,
    tag: str,
    parameters: Sequence[Parameter] = (),
    also: Sequence[ResponseSpec] = (),
    shown_id: Callable[[UUID], str] = to_text,
    handler_lets_in: bool = False,
) -> list[Route]:
    """The routes of artifacts below ``path``, the one of a job.

    ``name`` is what a job is called in the names of operations, ``parameters`` are those of the
    path, ``also`` the answers that the finder may cause. ``handler_lets_in``: the finder checks the
    caller's credential and scope itself.
    """
    responses = ArtifactResponses(server, finder, shown_id)
    reading = Access.HANDLER if handler_lets_in else Scope.READ
    steering = Access.HANDLER if handler_lets_in else Scope.SUBMIT
    one = f"{path}/artifacts/{{name}}"
    of_one = (*parameters, _NAME)
    return [
        Route(
            methods=("GET",),
            path=f"{path}/artifacts",
            name=f"{name}_artifacts",
            summary="The files that a job made, each with a signed URL.",
            handler=responses.list,
            access=reading,
            tag=tag,
            parameters=parameters,
            responses=(ResponseSpec(HTTPStatus.OK, "The files.", ArtifactList), *also),
        ),
        Route(
            methods=("GET",),
            path=one,
            name=f"{name}_artifact",
            summary="A file that a job made.",
            description="Also answers HEAD. Takes one `Range`, `If-Range` and `If-None-Match`.",
            handler=responses.fetch,
            access=reading,
            tag=tag,
            parameters=(*of_one, *FILE_PARAMETERS),
            responses=(*file_responses("The SHA-256 of the file."), *also),
        ),
        Route(
            methods=("DELETE",),
            path=one,
            name=f"delete_{name}_artifact",
            summary="Delete a file of a job that has ended.",
            description="Answers the receipt. If the blob store is away, that is not complete yet: "
            "the file cannot be read any more, and its bytes are deleted once the store is back. "
            "Deleting what is deleted answers the receipt again.",
            handler=responses.delete,
            access=steering,
            tag=tag,
            parameters=of_one,
            responses=(
                ResponseSpec(HTTPStatus.OK, "It is deleted.", receipts.SignedArtifactReceipt),
                ResponseSpec(
                    HTTPStatus.CONFLICT, "The job goes on (`job_not_ended`).", Problem, MEDIA_TYPE
                ),
                *also,
            ),
        ),
        Route(
            methods=("GET",),
            path=f"{one}/receipt",
            name=f"{name}_artifact_receipt",
            summary="When a file was stored, and when and by what it was deleted; signed.",
            description="There until 90 days after the deletion, whether or not the job still is.",
            handler=responses.receipt,
            access=reading,
            tag=tag,
            parameters=of_one,
            responses=(
                ResponseSpec(HTTPStatus.OK, "The receipt.", receipts.SignedArtifactReceipt),
                *also,
            ),
        ),
    ]


_NAME: Final = Parameter("name", "path", "The file's name, as the job shows it.")
