"""Downloads the files whose URLs a job contains."""

from __future__ import annotations

import httpx2

from examples.tts_remote.failures import SpeechFailed

_TIMEOUT_SECONDS = 30.0


async def fetched(url: str | None, bytes_max: int) -> bytes:
    """Download a file. Raises ``SpeechFailed``, without the URL, which is a secret."""
    if url is None:
        raise SpeechFailed("the job has no URL of a recording")
    pieces, size = [], 0
    try:
        async with (
            httpx2.AsyncClient(trust_env=False, timeout=_TIMEOUT_SECONDS) as http,
            http.stream("GET", url) as answer,
        ):
            if not answer.is_success:
                raise SpeechFailed(f"the recording could not be fetched: {answer.status_code}")
            async for piece in answer.aiter_bytes():
                size += len(piece)
                if size > bytes_max:
                    raise SpeechFailed(f"the recording has more than {bytes_max} bytes")
                pieces.append(piece)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise SpeechFailed(f"the recording could not be fetched: {type(error).__name__}") from None
    return b"".join(pieces)
