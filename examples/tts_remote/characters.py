"""The parameters of a voice for espeak-ng, from a description or from a recording.

A description is searched for words such as *deep*, *woman* or *fast*. Of a recording the pitch is
measured; the result is the file of a clone, and texts spoken with it have that pitch.
"""

from __future__ import annotations

import array
import io
import math
import re
import sys
import wave

import msgspec

from examples.tts_remote.failures import SpeechFailed

_PITCH_HERTZ = (60.0, 400.0)
_ANALYSED_RATE = 8_000
_FRAME_SECONDS = 0.05
_FRAMES_MAX = 40
_LOUD_ENOUGH = 0.01
"""The minimum level of a frame with a voice, of 1."""
_VOICED = 0.5
"""How similar a frame with a voice is to itself one period later."""
_MALE_HERTZ, _FEMALE_HERTZ, _FEMALE_FROM_HERTZ = 100.0, 175.0, 160.0
"""The hertz of espeak-ng at its pitch 50: by default, and in the variant for women."""
_FEMALE = "f2"


class Character(msgspec.Struct, frozen=True, omit_defaults=True):
    """Parameters of espeak-ng, without its defaults."""

    variant: str | None = None
    pitch: int | None = None
    pitch_range: int | None = None
    words_per_minute: int | None = None
    volume: int | None = None


class Clone(msgspec.Struct, frozen=True, tag="tts-remote-clone", tag_field="format"):
    """A clone's file."""

    median_pitch_hertz: float
    character: Character


_WORDS: tuple[tuple[str, dict[str, str | int]], ...] = (
    ("man|male|boy|father|he", {"variant": "m3"}),
    ("woman|female|girl|mother|lady|she", {"variant": _FEMALE}),
    ("whisper|whispers|whispering|whispered", {"variant": "whisper"}),
    ("child|childlike|boy|girl|young", {"pitch": 75}),
    ("old|elderly|aged", {"pitch": 35, "words_per_minute": 140}),
    ("deep|low|dark|bass", {"pitch": 20}),
    ("high|bright|light|squeaky", {"pitch": 80}),
    ("slow|slowly|calm|relaxed", {"words_per_minute": 120}),
    ("fast|quick|quickly|hurried|energetic", {"words_per_minute": 240}),
    ("quiet|soft|gentle", {"volume": 50}),
    ("loud|strong|shouting", {"volume": 180}),
    ("monotone|flat|robotic", {"pitch_range": 0}),
    ("lively|expressive|excited|cheerful", {"pitch_range": 90}),
)


def described(description: str) -> Character:
    """The voice for a description: if words contradict, the later one in the list above counts;
    unknown words are ignored."""
    said = set(re.findall(r"[a-z]+", description.lower()))
    found: dict[str, str | int] = {}
    for words, parameters in _WORDS:
        if said & set(words.split("|")):
            found |= parameters
    return msgspec.convert(found, Character)


def cloned(recording: bytes) -> bytes:
    """The clone of a WAV, as a file. Raises ``SpeechFailed``."""
    pitch = median_pitch(recording)
    if pitch is None:
        raise SpeechFailed("there is no voice in the recording")
    is_female = pitch >= _FEMALE_FROM_HERTZ
    base = _FEMALE_HERTZ if is_female else _MALE_HERTZ
    # Its pitch of 0 is an octave below that of 50, and 99 one above.
    steps = round(50 + 50 * math.log2(pitch / base))
    character = Character(variant=_FEMALE if is_female else None, pitch=min(max(steps, 0), 99))
    return msgspec.json.encode(Clone(round(pitch, 1), character))


def read_clone(file: bytes) -> Character:
    """The content of a clone's file. Raises ``SpeechFailed``."""
    try:
        return msgspec.json.decode(file, type=Clone).character
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SpeechFailed(f"not a clone of this remote: {error}") from None


def median_pitch(recording: bytes) -> float | None:
    """The pitch of the voice in a WAV, in hertz; None if there is none. Raises ``SpeechFailed``."""
    samples, rate = _samples(recording)
    step = max(1, rate // _ANALYSED_RATE)
    # The mean of each few samples: a plain low-pass, good enough for a pitch.
    samples = [sum(samples[at : at + step]) / step for at in range(0, len(samples), step)]
    rate //= step
    size = int(_FRAME_SECONDS * rate)
    starts = range(0, max(0, len(samples) - size), size)
    frames = sorted((samples[start : start + size] for start in starts), key=_level, reverse=True)[
        :_FRAMES_MAX
    ]
    pitches = sorted(
        pitch
        for frame in frames
        if _level(frame) >= _LOUD_ENOUGH and (pitch := _pitch(frame, rate)) is not None
    )
    return pitches[len(pitches) // 2] if pitches else None


def _pitch(frame: list[float], rate: int) -> float | None:
    """The first lag at which the autocorrelation is near its maximum."""
    low, high = _PITCH_HERTZ
    lags = range(int(rate / high), min(int(rate / low), len(frame) // 2) + 1)
    window = len(frame) - lags[-1] if lags else 0
    if window <= 0:
        return None
    head = frame[:window]
    energy = sum(each * each for each in head)
    likeness = []
    for lag in lags:
        later = frame[lag : lag + window]
        both = math.sqrt(energy * sum(each * each for each in later))
        likeness.append(
            sum(a * b for a, b in zip(head, later, strict=True)) / both if both else 0.0
        )
    best = max(likeness)
    if best < _VOICED:
        return None
    at = next(
        index
        for index, value in enumerate(likeness)
        if value >= 0.9 * best and value == max(likeness[max(0, index - 2) : index + 3])
    )
    return rate / lags[at]


def _level(frame: list[float]) -> float:
    return math.sqrt(sum(each * each for each in frame) / len(frame))


def _samples(recording: bytes) -> tuple[list[float], int]:
    """One channel, with samples from -1 to 1, and the sample rate."""
    try:
        with wave.open(io.BytesIO(recording), "rb") as file:
            width, channels, rate = (
                file.getsampwidth(),
                file.getnchannels(),
                file.getframerate(),
            )
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise SpeechFailed(f"the recording cannot be read: {error}") from None
    if width != 2:
        raise SpeechFailed("only recordings with 16 bits per sample can be cloned")
    whole = array.array("h", data[: len(data) // 2 * 2])
    if sys.byteorder == "big":
        whole.byteswap()
    return [each / 32_768 for each in whole[::channels]], rate
