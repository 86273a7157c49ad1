"""Keeps what a remote made: short JSON and text in the job's result, all else as its artifact."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.disposition import with_extension
from coatcheck.blobs.keys import artifact_key
from coatcheck.core.remote.payloads import RETRY_FAILED
from coatcheck.core.remote.result_store import Kept, KeptArtifact, KeptFor
from coatcheck.core.upstream_calls import ANSWER_INLINE_BYTES_MAX, UpstreamAnswer, encode_answer
from coatcheck.products.gateway.upstream_body import inline_answer, is_text, storable_type
from coatcheck.remotes.protocol import RemoteResult

ARTIFACT_NAME: Final = "remote-result"
_OK: Final = 200


class GatewayKeeper:
    """The keeper of the gateway's remote targets.

    What it keeps is read as an upstream's answer is, so that all who show or repeat those know it.
    """

    def fails_for_good(self, of: KeptFor) -> bool:
        """Unless somebody asked for retries: trying again is new work, which may be paid for."""
        return not of.note.get(RETRY_FAILED)

    def blob_key(self, of: KeptFor) -> str | None:  # noqa: ARG002 - each upload has its own
        return None

    async def keep(self, of: KeptFor, result: RemoteResult, blobs: BlobContainer) -> Kept:
        media_type = storable_type(result.media_type)
        headers = [("content-type", media_type)]
        pieces = aiter(result)
        begun: list[bytes] = []
        if is_text(headers):
            begun, is_whole = await _beginning(pieces)
            if is_whole:
                answer = inline_answer(_OK, headers, b"".join(begun))
                return Kept(encode_answer(answer))
        key = artifact_key(of.deployment, of.job)
        # Of a stream that breaks off nothing becomes visible.
        stored = await blobs.put(
            key,
            _chained(begun, pieces),
            media_type=media_type,
            file_name=with_extension(ARTIFACT_NAME, media_type),
        )
        answer = UpstreamAnswer(_OK, headers, artifact=ARTIFACT_NAME, size=stored.size)
        artifact = KeptArtifact(ARTIFACT_NAME, key, media_type, stored.size, stored.sha256)
        return Kept(encode_answer(answer), artifact)


async def _beginning(pieces: AsyncIterator[bytes]) -> tuple[list[bytes], bool]:
    """What a result may hold, and whether that is all."""
    begun: list[bytes] = []
    size = 0
    async for piece in pieces:
        begun.append(piece)
        size += len(piece)
        if size > ANSWER_INLINE_BYTES_MAX:
            return begun, False
    return begun, True


async def _chained(begun: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while begun:
        yield begun.pop(0)
    async for piece in rest:
        yield piece
