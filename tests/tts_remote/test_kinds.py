"""Previews of voices that are described, and clones of voices that are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from examples.tts_remote.characters import Character, described, median_pitch
from tests.products.speech.speech_deployment import a_hum, a_wav
from tests.tts_remote.asking import SENTENCE, Asking, seconds_of


@asynccontextmanager
async def served(body: bytes, status: str = "200 OK") -> AsyncIterator[str]:
    """A URL that answers so."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/voice"


async def a_clone(asking: Asking, recording: bytes) -> bytes:
    async with served(recording) as url:
        job_id = await asking.submit("", type="clone", reference_url=url)
        ended = await asking.ended(job_id)
    assert ended == {"job_id": job_id, "status": "completed"}
    answer = await asking.result(job_id)
    assert answer.headers["content-type"] == "application/octet-stream"
    return answer.content


async def test_a_clone_speaks_at_the_pitch_of_the_recording(asking: Asking) -> None:
    pitches = []
    for hertz in (90.0, 130.0, 250.0):
        clone = await a_clone(asking, a_hum(hertz))
        assert msgspec.json.decode(clone)["median_pitch_hertz"] == pytest.approx(hertz, rel=0.05)
        async with served(clone) as url:
            job_id = await asking.submit(prompt_url=url)
            assert (await asking.ended(job_id))["status"] == "completed"
        pitches.append(median_pitch((await asking.result(job_id)).content) or 0)
    assert pitches == sorted(pitches)
    assert pitches[2] > 1.5 * pitches[0]


async def test_a_description_changes_how_it_sounds(asking: Asking) -> None:
    spoken = {}
    for description in ("slow", "fast"):
        job_id = await asking.submit(type="design_preview", description=description)
        assert (await asking.ended(job_id))["status"] == "completed"
        spoken[description] = (await asking.result(job_id)).content
    assert seconds_of(spoken["slow"]) > 1.3 * seconds_of(spoken["fast"])


def test_words_that_nobody_knows_are_passed_over() -> None:
    assert described("A voice like velvet.") == Character()
    assert described("An OLD woman, whispering.") == Character("whisper", 35, None, 140, None)


@pytest.mark.parametrize(
    ("recording", "status", "reason"),
    [
        (a_wav(), "200 OK", "there is no voice in the recording"),
        (b"RIFF nothing", "200 OK", "the recording cannot be read"),
        (b"", "404 Not Found", "the recording could not be fetched: 404"),
    ],
)
async def test_what_cannot_be_cloned_fails(
    asking: Asking, recording: bytes, status: str, reason: str
) -> None:
    async with served(recording, status) as url:
        ended = await asking.ended(await asking.submit("", type="clone", reference_url=url))
    assert ended["status"] == "failed"
    assert reason in ended["error"]


async def test_what_is_no_clone_speaks_nothing(asking: Asking) -> None:
    async with served(b"\xff\x00") as url:
        ended = await asking.ended(await asking.submit(prompt_url=url))
    assert ended["status"] == "failed"
    assert "not a clone of this remote" in ended["error"]


@pytest.mark.parametrize(
    "order",
    [
        {"type": "clone", "language": "en"},
        {"type": "design_preview", "language": "en", "text": SENTENCE},
        {"type": "sing", "language": "en", "text": SENTENCE},
    ],
)
async def test_an_order_without_what_it_needs_is_refused(
    asking: Asking, order: dict[str, str]
) -> None:
    assert (await asking.http.post("/submit-job", json=order)).status_code == 400
