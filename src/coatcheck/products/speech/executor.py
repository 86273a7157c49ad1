"""The built-in service of speech, whose jobs hand their work over to a remote, and the stores of
what the remote makes: spoken WAV files, and prompts of cloned voices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.core.remote.result_store import ResultOf, StoredArtifact, StoredOutput
from coatcheck.domain.failures import FailureCode
from coatcheck.domain.ids import to_text
from coatcheck.domain.remote_work import RemoteWork
from coatcheck.domain.service_definition import TIMEOUT_SECONDS_MAX
from coatcheck.job import Job
from coatcheck.products.speech.model import (
    AUDIO_BYTES_MAX,
    AUDIO_TYPE,
    PROMPT_BYTES_MAX,
    PROMPT_TYPE,
    SPEECH_PATHS,
    SPEECH_SERVICE,
    clone_key,
    generation_key,
    generation_of,
    user_of,
)
from coatcheck.products.speech.schemas import StoredClone, StoredResult
from coatcheck.products.speech.wav import NotWav, WavReader, WavRejected
from coatcheck.remotes import RemoteFaulty, RemoteRefused
from coatcheck.remotes.protocol import RemoteResult
from coatcheck.service import Service

_DURATION: Final = "duration_seconds"
_encode: Final = msgspec.json.Encoder().encode


def speech_service() -> Service:
    """Make the service, for the worker that makes remote calls."""
    speech = Service(SPEECH_SERVICE, product="speech")
    for path in SPEECH_PATHS.values():

        @speech.post(path, timeout=TIMEOUT_SECONDS_MAX)
        async def hand_over(job: Job, work: RemoteWork) -> None:
            await job.hand_over(work)

    return speech


class SpeechFailure(FailureCode):
    """Speech, besides those of its remote"""

    REMOTE_RESULT_INVALID = "remote_result_invalid"
    """The remote's audio cannot be used, or its clone of the voice is empty. Retried."""
    RESULT_TOO_LARGE = "result_too_large"
    """The remote's audio, or its clone of the voice, is too large."""


class SpeechResultStore:
    """Stores spoken audio (see ``core/remote/result_store.py``)."""

    def fails_for_good(self, of: ResultOf) -> bool:  # noqa: ARG002 - the same for every task
        """A text that the remote could not speak fails at once, without retries."""
        return True

    def blob_key(self, of: ResultOf) -> str | None:
        """None if the job was deleted, because its user is then unknown."""
        user = user_of(of.owner)
        return None if user is None else generation_key(user, generation_of(of.job))

    async def keep(self, of: ResultOf, result: RemoteResult, blobs: BlobContainer) -> StoredOutput:
        """Store the file as it arrives. It becomes visible only when it is complete."""
        key = self.blob_key(of)
        assert key is not None, "every task belongs to a user"
        name = f"{to_text(generation_of(of.job))}.wav"
        if result.length is not None and result.length > AUDIO_BYTES_MAX:
            raise _too_large()
        wav = WavReader()
        stored = await blobs.put(key, _checked(result, wav), media_type=AUDIO_TYPE, file_name=name)
        seconds = round(result.metadata.get(_DURATION, wav.duration()), 3)
        spoken = StoredResult(key, seconds, stored.size, stored.sha256.hex())
        return StoredOutput(
            _encode(spoken), StoredArtifact(name, key, AUDIO_TYPE, stored.size, stored.sha256)
        )


class CloneResultStore(SpeechResultStore):
    """Stores the prompt that a remote makes of a voice: bytes that only the remote can read."""

    def blob_key(self, of: ResultOf) -> str | None:
        user = user_of(of.owner)
        return None if user is None else clone_key(user, of.job)

    async def keep(self, of: ResultOf, result: RemoteResult, blobs: BlobContainer) -> StoredOutput:
        key = self.blob_key(of)
        assert key is not None, "every task belongs to a user"
        name = f"{to_text(of.job)}.prompt"
        stored = await blobs.put(key, _bounded(result), media_type=PROMPT_TYPE, file_name=name)
        return StoredOutput(
            _encode(StoredClone(key, stored.size, stored.sha256.hex())),
            StoredArtifact(name, key, PROMPT_TYPE, stored.size, stored.sha256),
        )


async def _bounded(result: RemoteResult) -> AsyncIterator[bytes]:
    size = 0
    async for piece in result:
        size += len(piece)
        if size > PROMPT_BYTES_MAX:
            raise RemoteRefused(
                f"The remote's clone of the voice has more than {PROMPT_BYTES_MAX} bytes.",
                code=SpeechFailure.RESULT_TOO_LARGE,
            )
        yield piece
    if not size:
        raise RemoteFaulty(
            "The remote's clone of the voice is empty.", code=SpeechFailure.REMOTE_RESULT_INVALID
        )


async def _checked(result: RemoteResult, wav: WavReader) -> AsyncIterator[bytes]:
    """The bytes of the file. Raises as soon as they are not a WAV file, or too many."""
    size = 0
    try:
        async for piece in result:
            size += len(piece)
            if size > AUDIO_BYTES_MAX:
                raise _too_large()
            wav.feed(piece)
            yield piece
        wav.duration()
    except (NotWav, WavRejected) as error:
        raise RemoteFaulty(
            f"The remote's audio cannot be used: {error}.", code=SpeechFailure.REMOTE_RESULT_INVALID
        ) from error


def _too_large() -> RemoteRefused:
    return RemoteRefused(
        f"The remote's audio has more than {AUDIO_BYTES_MAX} bytes.",
        code=SpeechFailure.RESULT_TOO_LARGE,
    )
