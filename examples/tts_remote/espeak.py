"""Speaks one text into a WAV file: a program that runs as one process per job.

    python -I -S espeak.py LIBRARY DATA LANGUAGE SPEECH BYTES_MAX CHARACTER <text

CHARACTER is the JSON of ``characters.Character``: the parameters of the voice.

espeak-ng keeps its state in globals and a text can keep it busy for minutes, so it does not run in
the server. The output is one line of JSON: {"duration_seconds": n} or {"error": "..."}. This file
imports only the standard library, because it is started often.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# From espeak-ng's speak_lib.h.
_SYNCHRONOUS = 2
_DONT_EXIT = 0x8000
_POSITION_CHARACTER = 1
_UTF8 = 1
_END_PAUSE = 0x1000
_GO_ON, _ABORT = 0, 1
_PARAMETERS = {"words_per_minute": 1, "volume": 2, "pitch": 3, "pitch_range": 4}

_BUFFER_MILLISECONDS = 500
_BYTES_PER_SAMPLE = 2


class CannotSpeak(Exception):
    pass


class _Voice(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


_Samples = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


class Espeak:
    """The library, ready to speak. ``data`` is the folder ``espeak-ng-data``."""

    def __init__(self, library: str, data: str) -> None:
        # The library has room for 160 bytes of the path, and falls back silently to the folder it
        # was compiled in. A relative path always fits.
        os.chdir(Path(data).parent)
        self._library = ctypes.CDLL(library)
        self._library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
        self._library.espeak_Synth.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        self.rate: int = self._library.espeak_Initialize(
            _SYNCHRONOUS, _BUFFER_MILLISECONDS, b".", _DONT_EXIT
        )
        if self.rate <= 0:
            raise CannotSpeak(f"espeak-ng found no data in {data}")

    def voices(self) -> dict[str, str]:
        """For each language, in lower case, the voice that speaks it best."""
        best: dict[str, tuple[int, str]] = {}
        listed = self._library.espeak_ListVoices(None)
        at = 0
        while listed[at]:
            voice = listed[at].contents
            for rank, language in _languages(voice.languages):
                found = (rank, voice.identifier.decode())
                best[language] = min(best.get(language, found), found)
            at += 1
        return {language: voice for language, (_, voice) in best.items()}

    def use(self, language: str, character: dict[str, Any]) -> None:
        voice = voice_for(language, self.voices())
        if voice is None:
            raise CannotSpeak(f"there is no voice for the language {language[:40]!r}")
        if character.get("variant"):
            voice += f"+{character['variant']}"
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise CannotSpeak(f"the voice {voice!r} could not be loaded")
        for name, number in _PARAMETERS.items():
            value = character.get(name)
            if value is not None and self._library.espeak_SetParameter(number, value, 0) != 0:
                raise CannotSpeak(f"the voice does not accept the {name} {value}")

    def speak(self, text: str, speech: Path, bytes_max: int) -> float:
        """Write ``text`` as a WAV, piece by piece; returns its seconds."""
        parent, frames = os.getppid(), 0
        trouble: list[Exception] = []

        def take(samples: int | None, count: int, _events: int | None) -> int:
            nonlocal frames
            if not samples or count <= 0:
                return _GO_ON
            try:
                frames += count
                if frames * _BYTES_PER_SAMPLE > bytes_max:
                    raise CannotSpeak(f"the speech is larger than {bytes_max} bytes")
                if os.getppid() != parent:
                    raise CannotSpeak("the remote is gone")
                wav.writeframesraw(ctypes.string_at(samples, count * _BYTES_PER_SAMPLE))
            except (OSError, CannotSpeak) as error:  # an exception cannot cross the library
                trouble.append(error)
                return _ABORT
            return _GO_ON

        callback = _Samples(take)
        self._library.espeak_SetSynthCallback(callback)
        encoded = text.encode()
        with speech.open("xb") as file:
            with wave.open(file, "wb") as wav:
                wav.setnchannels(1)
                wav.setsampwidth(_BYTES_PER_SAMPLE)
                wav.setframerate(self.rate)
                status = self._library.espeak_Synth(
                    encoded,
                    len(encoded) + 1,
                    0,
                    _POSITION_CHARACTER,
                    0,
                    _UTF8 | _END_PAUSE,
                    None,
                    None,
                )
                if trouble:
                    raise trouble[0]
                if status != 0:
                    raise CannotSpeak(f"espeak-ng answered {status}")
                if frames == 0:
                    raise CannotSpeak("there is nothing in the text to say")
            file.flush()
            os.fsync(file.fileno())
        return frames / self.rate


def voice_for(language: str, voices: dict[str, str]) -> str | None:
    """The voice for ``language``, or for its base language: de-CH is spoken as de."""
    asked = language.strip().lower().replace("_", "-")
    while asked:
        if asked in voices:
            return voices[asked]
        asked = asked.rpartition("-")[0]
    return None


def _languages(address: int) -> Iterator[tuple[int, str]]:
    """A voice's languages: each a byte with its rank, the best lowest, and a string."""
    while (rank := ctypes.string_at(address, 1)[0]) != 0:
        language = ctypes.string_at(address + 1)
        yield rank, language.decode().lower()
        address += 1 + len(language) + 1


def main(
    library: str, data: str, language: str, speech: str, bytes_max: str, character: str
) -> None:
    text = sys.stdin.buffer.read().decode()
    said: dict[str, object]
    try:
        espeak = Espeak(library, data)
        espeak.use(language, json.loads(character))
        said = {"duration_seconds": espeak.speak(text, Path(speech), int(bytes_max))}
    except CannotSpeak as error:
        said = {"error": str(error)}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
