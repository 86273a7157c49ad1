"""Lists that callers stage before they hand a batch in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from coatcheck.blobs import SignedUrl
from coatcheck.blobs.keys import upload_key
from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.core.queries import uploads
from coatcheck.db.errors import retried
from coatcheck.domain.errors import BodyTooLarge, UploadAlreadyUsed, UploadMissing
from coatcheck.domain.ids import InvalidId, from_text, new_id
from coatcheck.domain.limits import LIST_BYTES_MAX

UPLOAD_SECONDS: Final = 86_400
"""How long a list may be put, and how long it waits to be used."""
MEDIA_TYPE: Final = "application/x-ndjson"
_MISSING: Final = (
    "There is no list in this upload: PUT it to the upload's URL first, within a day. "
    "An upload is used once."
)


@dataclass(frozen=True, slots=True)
class StagedList:
    """A list that was put, and that nothing has used yet."""

    upload: UUID
    blob_key: str
    size: int
    etag: str | None


class UploadRepository(EngineExtension):
    """Gives places for lists away, and finds what was put there."""

    def __init__(self, context: EngineContext) -> None:
        self._line = context.background_db
        self._deployment = context.deployment
        self._signer = context.signer
        self._blobs = context.blobs

    async def create(self, *, org: str, owner: str) -> tuple[UUID, SignedUrl]:
        """A place for a list, and the URL to put it to."""
        upload = new_id()
        key = upload_key(await self._deployment(), upload)
        url = await self._signer().signed_put(key, UPLOAD_SECONDS, MEDIA_TYPE)
        await retried(
            lambda: uploads.create(
                self._line,
                org=org,
                upload_id=upload,
                owner=owner,
                blob_key=key,
                life_seconds=UPLOAD_SECONDS,
            )
        )
        return upload, url

    async def staged(self, upload_id: str, *, org: str, owner: str) -> StagedList:
        """The list that was put to an upload of the owner's.

        Raises UploadMissing, the same for a foreign id as for one that never was or whose list is
        not there; UploadAlreadyUsed; BodyTooLarge.
        """
        try:
            upload = from_text(upload_id)
        except InvalidId as error:
            raise UploadMissing(_MISSING) from error
        found = await retried(lambda: uploads.get(self._line, org, upload))
        if found is None or found.owner != owner or found.is_expired:
            raise UploadMissing(_MISSING)
        if found.is_used:
            raise UploadAlreadyUsed("This upload was used already; stage the list once more.")
        try:
            head = await self._blobs().head(found.blob_key)
        except FileNotFoundError as error:
            raise UploadMissing(_MISSING) from error
        if head.size > LIST_BYTES_MAX:
            raise BodyTooLarge(LIST_BYTES_MAX)
        return StagedList(upload, found.blob_key, head.size, head.etag)
