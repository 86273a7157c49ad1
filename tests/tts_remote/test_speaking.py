"""It really speaks."""

from __future__ import annotations

import array
from importlib import util
from pathlib import Path

import espeakng_loader  # type: ignore[import-untyped]
import pytest

from examples.tts_remote import NotInstalled, TtsRemote
from tests.tts_remote.asking import LONG, SENTENCE, Asking, opened, seconds_of, voices


async def test_a_sentence_becomes_a_wav_that_says_something(asking: Asking) -> None:
    job_id = await asking.submit(SENTENCE)
    ended = await asking.ended(job_id)
    answer = await asking.result(job_id)
    assert answer.headers["content-type"] == "audio/wav"
    assert int(answer.headers["content-length"]) == len(answer.content)
    with opened(answer.content) as speech:
        assert (speech.getnchannels(), speech.getsampwidth()) == (1, 2)
        assert speech.getframerate() == 22_050
        samples = array.array("h", speech.readframes(speech.getnframes()))
    assert max(samples) > 1_000, "it is not silence"
    seconds = len(samples) / 22_050
    assert 0.5 < seconds < 10
    assert ended["status"] == "completed"
    assert ended["duration_seconds"] == pytest.approx(seconds, abs=0.001)
    assert float(answer.headers["x-duration-seconds"]) == pytest.approx(seconds, abs=0.001)


async def test_more_text_takes_longer_to_say(asking: Asking) -> None:
    once, twice = await asking.speech(SENTENCE), await asking.speech(f"{SENTENCE} {SENTENCE}")
    assert seconds_of(twice) > 1.5 * seconds_of(once)


async def test_each_language_has_its_own_voice(asking: Asking) -> None:
    languages = ["en", "en-US", "de", "fr", "es", "it", "pt-BR", "nl", "pl", "ru", "zh"]
    spoken = {await asking.speech("Maria 1234", language) for language in languages}
    assert len(spoken) == len(languages)


async def test_a_kind_of_a_language_is_spoken_as_the_language(asking: Asking) -> None:
    assert await asking.speech(language="de_CH") == await asking.speech(language="de")


@pytest.mark.parametrize("language", ["xx", "", "../en", "gmw/de", "variant", "!v/f1", "-h"])
async def test_a_language_that_nobody_speaks_fails_the_job(asking: Asking, language: str) -> None:
    ended = await asking.ended(await asking.submit(language=language))
    assert ended["status"] == "failed"
    assert ended["error"] == f"there is no voice for the language {language!r}"


async def test_a_text_that_takes_too_long_fails_and_leaves_no_process(
    remote: TtsRemote, asking: Asking
) -> None:
    remote.tuning.speak_seconds_max = 0.05
    ended = await asking.ended(await asking.submit(LONG))
    assert (ended["status"], ended["error"]) == ("failed", "not spoken within 0.05 s")
    assert voices() == []


async def test_a_speech_that_would_be_too_large_fails(remote: TtsRemote, asking: Asking) -> None:
    remote.tuning.speech_bytes_max = 10_000
    job_id = await asking.submit()
    ended = await asking.ended(job_id)
    assert (ended["status"], ended["error"]) == ("failed", "the speech is larger than 10000 bytes")
    assert not remote.jobs.draft(job_id).exists()


async def test_its_data_is_found_however_deep_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 30) / ("deeper" * 30)
    deep.mkdir(parents=True)
    data = deep / "espeak-ng-data"
    data.symlink_to(espeakng_loader.get_data_path())
    monkeypatch.setattr(espeakng_loader, "get_data_path", lambda: str(data))
    async with TtsRemote(tmp_path / "jobs") as remote, Asking(remote.url) as asking:
        assert seconds_of(await asking.speech()) > 0.5


def test_without_espeak_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="pip install espeakng-loader"):
        TtsRemote(tmp_path)
