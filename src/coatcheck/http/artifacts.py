"""The routes of artifacts: list, fetch, delete and receipt, the same for every product's jobs.

A product resolves a path to a job and decides who may see it (``ArtifactFinder``). This module
decides how files are listed, served and deleted, and what their receipts contain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote
from uuid import UUID

import msgspec

from coatcheck import receipts
from coatcheck.blobs.disposition import with_extension
from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.errors import JobNotEnded, JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import Artifact, JobView
from coatcheck.domain.tenants import Scope
from coatcheck.http.context import ServerContext
from coatcheck.http.files import FILE_PARAMETERS, StoredFile, file_response, file_responses
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import Access, Parameter, ResponseSpec, Route

if TYPE_CHECKING:
    from coatcheck.receipts.signature import Signer

SIGNED_SECONDS: Final = 3_600
"""The longest that a signed URL is valid, unless its owner says otherwise."""


class ArtifactItem(msgspec.Struct, frozen=True):
    """A file that a job made. ``url`` needs the caller's credential. ``signed_url`` needs none and
    is valid until ``signed_url_expires_at``. ``expires_at`` is when the file is deleted with its
    job; null if that is not known yet."""

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
    """The job that artifacts belong to. The caller may see it; ``url`` is its path."""

    org: str
    job: UUID
    url: str
    terminal: bool
    expires_at: datetime | None
    shows: bool = True
    """Whether its files are shown in its present state: a job that has not ended may still lose
    them."""
    url_seconds: int = SIGNED_SECONDS
    """How long the signed URLs of its files are valid."""

    @classmethod
    def of(cls, view: JobView, url: str, *, shows: bool = True) -> ArtifactOwner:
        return cls(view.org, view.uuid, url, view.terminal, view.expires_at, shows)


class ArtifactFinder(Protocol):
    """Finds the job that a request's path names, if the caller may see it."""

    async def job(self, request: Request, scope: Scope) -> ArtifactOwner:
        """The job. Raises JobNotFound, for another tenant's job as for one that does not exist."""
        ...

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        """The record of the job's artifact ``name``, which may outlive the job. None if there is no
        record, or the caller may not see it."""
        ...


class ArtifactResponses:
    """The handlers of the artifact routes of one product."""

    def __init__(
        self, server: ServerContext, finder: ArtifactFinder, shown_id: Callable[[UUID], str]
    ) -> None:
        self._engine = server.engine
        self._finder = finder
        self._shown_id = shown_id
        self._pepper = server.settings.require("key_pepper")

    @cached_property
    def _signer(self) -> Signer:
        from coatcheck.receipts.signature import Signer  # slow to import

        return Signer.from_pepper(self._pepper)

    async def list(self, request: Request) -> Response:
        owner = await self._finder.job(request, Scope.READ)
        items = [await self._item(owner, artifact) for artifact in await self._of(owner)]
        return json_response(ArtifactList(items))

    async def fetch(self, request: Request) -> Response | StreamResponse:
        owner = await self._finder.job(request, Scope.READ)
        for artifact in await self._of(owner):
            if artifact.name == request.params["name"]:
                return await self._file(request, artifact)
        raise JobNotFound("the job has no such file")

    async def delete(self, request: Request) -> Response:
        owner = await self._finder.job(request, Scope.SUBMIT)
        if not owner.terminal:
            raise JobNotEnded("The job has not ended yet; delete its files after it has.")
        name = request.params["name"]
        return self._receipt(
            await self._engine.artifact_repository.delete(owner.org, owner.job, name)
        )

    async def receipt(self, request: Request) -> Response:
        """The receipt, signed at each request because its content changes over time."""
        return self._receipt(await self._finder.record(request, request.params["name"]))

    async def _of(self, owner: ArtifactOwner) -> Sequence[Artifact]:
        if not owner.shows:
            return ()
        return await self._engine.artifacts(to_text(owner.job), org=owner.org)

    async def _item(self, owner: ArtifactOwner, artifact: Artifact) -> ArtifactItem:
        seconds = signed_seconds(owner.expires_at, owner.url_seconds)
        signed = await self._engine.sign_artifact(artifact, seconds)
        return ArtifactItem(
            name=artifact.name,
            media_type=artifact.media_type,
            bytes=artifact.size,
            sha256=artifact.sha256.hex(),
            created_at=artifact.created_at,
            expires_at=owner.expires_at,
            url=artifact_url(owner.url, artifact.name),
            signed_url=signed.url,
            signed_url_expires_at=signed.expires_at,
        )

    async def _file(self, request: Request, artifact: Artifact) -> Response | StreamResponse:
        blobs = self._engine.blobs
        try:
            # Before the response begins: once its headers are sent, it cannot become a 404.
            blob = await blobs.head(artifact.blob_key)
        except FileNotFoundError:
            raise JobNotFound("the file's retention has just ended") from None
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
            raise JobNotFound("the job never had such a file")
        receipt = receipts.describe_artifact(record, self._shown_id(record.job))
        return json_response(self._signer.sign_artifact(receipt))


def artifact_url(job_url: str, name: str) -> str:
    """The path of an artifact, given the path of its job."""
    return f"{job_url}/artifacts/{quote(name, safe='')}"


def signed_seconds(expires_at: datetime | None, seconds_max: int = SIGNED_SECONDS) -> int:
    """How long a signed URL is valid: ``seconds_max``, but no longer than the file is kept."""
    if expires_at is None:
        return seconds_max
    left = int((expires_at - datetime.now(UTC)).total_seconds())
    return max(1, min(left, seconds_max))


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
    handler_authorizes: bool = False,
) -> list[Route]:
    """The routes of artifacts below ``path``, the path of a job.

    ``name`` stands for a job in the names of the routes. ``parameters`` are those of the path.
    ``also`` lists the responses that the finder may cause. ``handler_authorizes``: the finder
    checks the caller's credential and scope, not the gate.
    """
    responses = ArtifactResponses(server, finder, shown_id)
    reading = Access.HANDLER if handler_authorizes else Scope.READ
    writing = Access.HANDLER if handler_authorizes else Scope.SUBMIT
    one = f"{path}/artifacts/{{name}}"
    of_one = (*parameters, _NAME)
    return [
        Route(
            methods=("GET",),
            path=f"{path}/artifacts",
            name=f"{name}_artifacts",
            summary="List the files that a job made, each with a signed URL.",
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
            summary="Fetch a file that a job made.",
            description="Also answers HEAD. Supports one `Range`, `If-Range` and `If-None-Match`.",
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
            description="Answers with the receipt. If the blob store is unavailable, the receipt "
            "is not complete yet: the file can no longer be read, and its bytes are deleted once "
            "the store is back. Deleting a deleted file answers with the receipt again.",
            handler=responses.delete,
            access=writing,
            tag=tag,
            parameters=of_one,
            responses=(
                ResponseSpec(HTTPStatus.OK, "The file is deleted.", receipts.SignedArtifactReceipt),
                ResponseSpec.problem(
                    HTTPStatus.CONFLICT, "The job has not ended (`job_not_ended`)."
                ),
                *also,
            ),
        ),
        Route(
            methods=("GET",),
            path=f"{one}/receipt",
            name=f"{name}_artifact_receipt",
            summary="The signed receipt of a file: when it was stored, when and why deleted.",
            description="Available until 90 days after the deletion, even if the job is deleted.",
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
