"""Uploads: lists of tasks that callers stage before they submit a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from coatcheck.blobs import SignedUrl
from coatcheck.blobs.keys import upload_key
from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.core.queries import uploads
from coatcheck.domain.errors import BodyTooLarge, UploadAlreadyUsed, UploadMissing
from coatcheck.domain.ids import InvalidId, from_text, new_id
from coatcheck.domain.limits import LIST_BYTES_MAX

UPLOAD_SECONDS: Final = 86_400
"""How long an upload accepts its list, and how long the list waits to be used."""
MEDIA_TYPE: Final = "application/x-ndjson"
_MISSING: Final = (
    "This upload has no list. PUT the list to the upload's URL first, within a day. "
    "An upload can be used once."
)


@dataclass(frozen=True, slots=True)
class StagedList:
    """A list that was uploaded and not used yet."""

    upload: UUID
    blob_key: str
    size: int
    etag: str | None


class UploadRepository(EngineExtension):
    """Creates uploads and finds the lists that were put there."""

    def __init__(self, context: EngineContext) -> None:
        self._db = context.background_db
        self._deployment = context.deployment
        self._signer = context.signer
        self._blobs = context.blobs

    async def create(self, *, org: str, owner: str) -> tuple[UUID, SignedUrl]:
        """Create an upload. Returns its id and the URL to PUT the list to."""
        upload = new_id()
        key = upload_key(await self._deployment(), upload)
        url = await self._signer().signed_put(key, UPLOAD_SECONDS, MEDIA_TYPE)
        await uploads.create(
            self._db,
            org=org,
            upload_id=upload,
            owner=owner,
            blob_key=key,
            life_seconds=UPLOAD_SECONDS,
        )
        return upload, url

    async def staged(self, upload_id: str, *, org: str, owner: str) -> StagedList:
        """The list in an upload of the owner.

        Raises UploadMissing if there is no such upload of this owner, or no list in it;
        UploadAlreadyUsed; BodyTooLarge.
        """
        try:
            upload = from_text(upload_id)
        except InvalidId as error:
            raise UploadMissing(_MISSING) from error
        found = await uploads.get(self._db, org, upload)
        if found is None or found.owner != owner or found.is_expired:
            raise UploadMissing(_MISSING)
        if found.is_used:
            raise UploadAlreadyUsed("This upload was already used; stage the list again.")
        try:
            head = await self._blobs().head(found.blob_key)
        except FileNotFoundError as error:
            raise UploadMissing(_MISSING) from error
        if head.size > LIST_BYTES_MAX:
            raise BodyTooLarge(LIST_BYTES_MAX)
        return StagedList(upload, found.blob_key, head.size, head.etag)
