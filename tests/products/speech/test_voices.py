"""Voices: what is taken in, what is refused, and what is left of a voice that is gone."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from coatcheck.db.connection import Connection
from coatcheck.domain.ids import to_text
from coatcheck.products.speech.maintenance import VoiceCleanup
from coatcheck.products.speech.model import VOICE_BYTES_MAX, SpeechReader, VoiceNotFound
from coatcheck.products.speech.repository import SpeechRepository
from tests.contract import raw
from tests.products.speech.speech_deployment import SpeechDeployment, a_wav

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE = SpeechReader("default", "alice")


async def test_a_recording_becomes_a_voice(speech: SpeechDeployment) -> None:
    audio = a_wav(2.0)
    answer = await speech.upload(audio)
    assert answer.status_code == 201, answer.text
    voice = answer.json()
    assert answer.headers["location"] == f"/voices/{voice['voice_id']}"
    assert voice["duration_seconds"] == 2.0
    assert voice["sha256"] == hashlib.sha256(audio).hexdigest()
    key = f"references/alice/{voice['voice_id']}/reference.wav"
    assert voice["audio_object_key"] == key
    assert await speech.deployment.engine.blobs.get(key) == audio
    read = (await speech.http.get(answer.headers["location"], headers=speech.user())).json()
    assert read["voice_id"] == voice["voice_id"]
    fetched = await speech.http.get(read["audio_url"], headers={"Authorization": ""})
    assert fetched.content == audio


async def test_voices_are_listed_newest_first(speech: SpeechDeployment) -> None:
    gil = speech.user("gil")
    made = [await speech.voice(gil) for _ in range(3)]
    first = (await speech.http.get("/voices", headers=gil, params={"limit": 2})).json()
    rest = await speech.http.get("/voices", headers=gil, params={"cursor": first["next"]})
    listed = [each["voice_id"] for each in first["items"] + rest.json()["items"]]
    assert listed == sorted(made, reverse=True)
    assert rest.json()["next"] is None


@pytest.mark.parametrize(
    ("audio", "status", "code"),
    [
        (b"", 415, "unsupported_media_type"),
        (b"ID3\x04 and so on, as an MP3 begins", 415, "unsupported_media_type"),
        (b"RIFF\x00\x00\x00\x00AVI LIST", 415, "unsupported_media_type"),
        (a_wav()[:30], 422, "audio_rejected"),
        (a_wav().replace(b"fmt \x10\0\0\0\x01\0", b"fmt \x10\0\0\0\x06\0"), 422, "audio_rejected"),
        (a_wav(0.5), 422, "audio_rejected"),
        (a_wav(601.0, rate=100), 422, "audio_rejected"),
    ],
    ids=["empty", "mp3", "avi", "cut", "a-law", "short", "long"],
)
async def test_what_is_no_use_as_a_voice_is_refused_and_not_kept(
    speech: SpeechDeployment, audio: bytes, status: int, code: str
) -> None:
    hal = speech.user("hal")
    answer = await speech.upload(audio, hal)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert (await speech.http.get("/voices", headers=hal)).json()["items"] == []
    pages = [page async for page in speech.deployment.engine.blobs.keys_under("references/hal")]
    assert pages == []


async def test_a_recording_that_is_too_large_is_refused_before_it_is_read(
    speech: SpeechDeployment,
) -> None:
    answer = await raw.send(
        speech.deployment,
        "POST",
        "/voices",
        b"Content-Type: multipart/form-data; boundary=x",
        b"Content-Length: %d" % (VOICE_BYTES_MAX * 2),
    )
    assert (answer.status, answer.problem()["code"]) == (413, "body_too_large")


async def test_only_a_form_is_taken(speech: SpeechDeployment) -> None:
    answer = await speech.http.post(
        "/voices", content=a_wav(), headers=speech.user() | {"Content-Type": "audio/wav"}
    )
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


async def test_a_voice_that_is_deleted_is_gone_at_once_and_its_audio_soon(
    speech: SpeechDeployment,
) -> None:
    voice = await speech.voice()
    stays = await speech.voice()
    path = f"/voices/{voice}"
    assert (await speech.http.delete(path, headers=speech.user())).status_code == 204
    assert (await speech.http.get(path, headers=speech.user())).status_code == 404
    assert (await speech.http.delete(path, headers=speech.user())).status_code == 404
    assert (await speech.generate(voice)).status_code == 404
    await _tick(speech)
    blobs = speech.deployment.engine.blobs
    with pytest.raises(FileNotFoundError):
        await blobs.get(f"references/alice/{voice}/reference.wav")
    assert await blobs.get(f"references/alice/{stays}/reference.wav")


async def test_an_upload_that_never_ended_is_removed_and_told_if_it_ends_after_all(
    speech: SpeechDeployment,
) -> None:
    repository, blobs = (
        speech.deployment.engine.extension(SpeechRepository),
        speech.deployment.engine.blobs,
    )
    uuid, key = await repository.create_voice(ALICE)
    await blobs.put(key, a_wav())
    with pytest.raises(VoiceNotFound):
        await repository.voice(ALICE, to_text(uuid))
    await _tick(speech)
    assert await blobs.get(key), "it may still be on its way"
    line = Connection(speech.deployment.settings.database_url, name="tests")
    await line.fetch(
        "UPDATE voices SET created_at = now() - interval '61 minutes' WHERE id = $1", uuid
    )
    await _tick(speech)
    with pytest.raises(FileNotFoundError):
        await blobs.get(key)
    assert await line.fetch("SELECT FROM voices WHERE id = $1", uuid) == []
    await line.close()
    assert await repository.complete_voice(ALICE, uuid, size=1, sha256=b"", seconds=1.0) is None


async def test_what_a_killed_upload_left_in_the_folder_is_removed_by_its_age(
    speech: SpeechDeployment,
) -> None:
    root = Path(speech.deployment.settings.blob_url.removeprefix("file://"))
    left = root / "generations" / "ivo" / "x.wav#1"
    fresh = root / "generations" / "ivo" / "y.wav#1"
    left.parent.mkdir(parents=True)
    for path in (left, fresh):
        path.write_bytes(b"half of it")
    long_ago = 1_000_000_000
    os.utime(left, (long_ago, long_ago))
    line = Connection(speech.deployment.settings.database_url, name="tests")
    await VoiceCleanup(line, speech.deployment.engine.blobs).drop_unfinished()
    await line.close()
    assert (left.exists(), fresh.exists()) == (False, True)


async def test_users_whose_names_no_path_can_hold_have_voices_of_their_own(
    speech: SpeechDeployment,
) -> None:
    names = ["..", "a/b", "a%2Fb", "x@y.example", "#1", "*", "~" + "f" * 64, "%" * 250]
    seen = set()
    for name in names:
        user = speech.user(name)
        task = await speech.ended(await speech.submitted(user, text="Yes."), user)
        assert task["status"] == "completed", (name, task)
        key = task["result"]["audio_object_key"]
        assert len(key.split("/")) == 3, key
        seen.add(key.split("/")[1])
        assert (await speech.http.get(task["result"]["audio_url"])).is_success
    assert len(seen) == len(names)


async def _tick(speech: SpeechDeployment) -> None:
    line = Connection(speech.deployment.settings.database_url, name="tests")
    keeper = VoiceCleanup(line, speech.deployment.engine.blobs)
    assert await keeper.tick() > 0
    await line.close()
