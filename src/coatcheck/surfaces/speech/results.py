"""Keeps what a remote has spoken: a WAV file, in the one place that is its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import generation_key
from coatcheck.domain.ids import to_text
from coatcheck.domain.speech import AUDIO_BYTES_MAX, AUDIO_TYPE, generation_of, user_of
from coatcheck.domain.wave import NotWave, WaveReader, WaveRejected
from coatcheck.engine.remote_keeping import Kept, KeptArtifact, KeptFor
from coatcheck.remotes import RemoteFaulty, RemoteRefused
from coatcheck.remotes.protocol import RemoteResult
from coatcheck.surfaces.speech.words import StoredResult

_DURATION: Final = "duration_seconds"
_encode: Final = msgspec.json.Encoder().encode


class SpeechKeeper:
    """The keeper of the surface's endpoint (``engine/remote_keeping.py``)."""

    def fails_for_good(self, of: KeptFor) -> bool:  # noqa: ARG002 - whichever it is
        """A text that could not be spoken cannot be spoken: its user is told at once."""
        return True

    def blob_key(self, of: KeptFor) -> str | None:
        """None, if the job is gone and its user with it."""
        user = user_of(of.owner)
        return None if user is None else generation_key(user, generation_of(of.job))

    async def keep(self, of: KeptFor, result: RemoteResult, blobs: BlobContainer) -> Kept:
        """Store the file as it comes. Nothing of it is to be seen before all of it is there."""
        key = self.blob_key(of)
        assert key is not None, "every task is a user's"
        name = f"{to_text(generation_of(of.job))}.wav"
        if result.length is not None and result.length > AUDIO_BYTES_MAX:
            raise _too_large()
        heard = WaveReader()
        stored = await blobs.put(
            key, _checked(result, heard), media_type=AUDIO_TYPE, file_name=name
        )
        seconds = round(result.metadata.get(_DURATION, heard.duration()), 3)
        spoken = StoredResult(key, seconds, stored.size, stored.sha256.hex())
        return Kept(
            _encode(spoken), KeptArtifact(name, key, AUDIO_TYPE, stored.size, stored.sha256)
        )


async def _checked(result: RemoteResult, heard: WaveReader) -> AsyncIterator[bytes]:
    """The bytes of the file. Raises as soon as it shows that it is none, or too long."""
    size = 0
    try:
        async for piece in result:
            size += len(piece)
            if size > AUDIO_BYTES_MAX:
                raise _too_large()
            heard.feed(piece)
            yield piece
        heard.duration()
    except (NotWave, WaveRejected) as error:
        raise RemoteFaulty(
            f"What the remote has spoken cannot be used: {error}.", code="remote_result_invalid"
        ) from error


def _too_large() -> RemoteRefused:
    return RemoteRefused(
        f"What the remote has spoken has more than {AUDIO_BYTES_MAX} bytes.",
        code="result_too_large",
    )
