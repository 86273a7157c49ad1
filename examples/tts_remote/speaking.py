"""Speaks a text in a subprocess that does not outlive its use."""

from __future__ import annotations

import asyncio
import sys
from importlib import util
from pathlib import Path

import msgspec

from examples.tts_remote.characters import Character
from examples.tts_remote.failures import SpeechFailed
from examples.tts_remote.tuning import Tuning

_PROGRAM = Path(__file__).with_name("espeak.py")
_COMPLAINT_CHARS_MAX = 300


class NotInstalled(Exception):
    """espeak-ng is not installed."""


class _Said(msgspec.Struct):
    duration_seconds: float = 0.0
    error: str | None = None


class Speaker:
    def __init__(self, tuning: Tuning) -> None:
        if util.find_spec("espeakng_loader") is None:
            raise NotInstalled(
                "speaking needs espeak-ng: run `make tts-remote`, or pip install espeakng-loader"
            )
        import espeakng_loader  # type: ignore[import-untyped]

        self._library = espeakng_loader.get_library_path()
        self._data = espeakng_loader.get_data_path()
        self._tuning = tuning

    async def speak(
        self, text: str, language: str, speech: Path, character: Character | None = None
    ) -> float:
        """Write the speech to a file; returns its seconds. Raises ``SpeechFailed``."""
        speech.unlink(missing_ok=True)  # an orphaned process may still write to it
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", _PROGRAM),
            *(self._library, self._data, language, speech.absolute()),
            str(self._tuning.speech_bytes_max),
            msgspec.json.encode(character or Character()).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(self._tuning.speak_seconds_max):
                output, complaint = await process.communicate(text.encode())
        except TimeoutError:
            seconds = self._tuning.speak_seconds_max
            raise SpeechFailed(f"not spoken within {seconds:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            raise SpeechFailed(
                f"the speaking process ended with {process.returncode}: "
                f"{last[:_COMPLAINT_CHARS_MAX]}"
            )
        try:
            said = msgspec.json.decode(output, type=_Said)
        except msgspec.DecodeError as error:
            raise SpeechFailed(f"the speaking process printed no valid result: {error}") from None
        if said.error is not None:
            raise SpeechFailed(said.error)
        return said.duration_seconds
