"""Reads WAV headers: validates a file and computes its duration.

It reads piece by piece: a header may be split anywhere, and no file is held in memory.
"""

from __future__ import annotations

from typing import Final

RIFF: Final = (b"RIFF", b"RF64")
_RIFF_BYTES: Final = 12
_CHUNK_BYTES: Final = 8
_FORMAT_BYTES_MIN: Final = 16
_FORMAT_BYTES_MAX: Final = 4_096
_EXTENSIBLE: Final = 0xFFFE
_EXTENSIBLE_BYTES_MIN: Final = 40
_SUBFORMAT: Final = slice(24, 26)
_PCM, _FLOAT = 1, 3
_TO_THE_END: Final = frozenset({0, 0xFFFF_FFFF})
"""The length field of audio that was written before its length was known."""
_ENDLESS: Final = 1 << 62


class NotWav(ValueError):
    """The file is not a WAV file."""


class WavRejected(ValueError):
    """The WAV file cannot be used. ``reason`` is short and stable."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WavReader:
    """Reads a file as it arrives. ``feed`` each piece; then ``duration`` returns its length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._is_riff = False
        self._skip = 0
        self._bytes_a_second = 0
        self._frame_bytes = 0
        self._has_begun = False
        """Whether only audio follows now."""
        self._sound_left = 0
        self._sound_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Raises NotWav or WavRejected as early as possible."""
        self._head += piece
        while not self._has_begun and self._step():
            pass
        if self._has_begun:
            received = min(len(self._head), self._sound_left)
            self._sound_left -= received
            self._sound_bytes += received
            self._head.clear()

    def duration(self) -> float:
        """The duration in seconds, after all pieces. Raises like ``feed``."""
        if not self._is_riff:
            raise NotWav("it is not a WAV file: it does not begin with RIFF and WAVE")
        if not self._has_begun:
            raise WavRejected("no_sound", "it has no sound: its `data` chunk is missing")
        frames = self._sound_bytes // self._frame_bytes
        return frames * self._frame_bytes / self._bytes_a_second

    def _step(self) -> bool:
        """Consume the next element of the header, if it is complete."""
        head = self._head
        if self._skip:
            skipped = min(self._skip, len(head))
            del head[:skipped]
            self._skip -= skipped
            return not self._skip and bool(head)
        if not self._is_riff:
            return self._begin()
        if len(head) < _CHUNK_BYTES:
            return False
        name, size = bytes(head[:4]), int.from_bytes(head[4:8], "little")
        if name == b"fmt ":
            return self._read_format(size)
        del head[:_CHUNK_BYTES]
        if name == b"data":
            if not self._frame_bytes:
                raise WavRejected("broken", "its sound begins before its `fmt ` chunk")
            # A length that does not fit the field is stored in another chunk; use the file's end.
            self._sound_left = _ENDLESS if size in _TO_THE_END else size
            self._has_begun = True
            return False
        self._skip = size + size % 2
        return True

    def _begin(self) -> bool:
        head = self._head
        if bytes(head[:4]) not in (*RIFF, b"RIFF"[: len(head)], b"RF64"[: len(head)]) or (
            not b"WAVE".startswith(bytes(head[8:_RIFF_BYTES]))
        ):
            raise NotWav("it is not a WAV file: it does not begin with RIFF and WAVE")
        if len(head) < _RIFF_BYTES:
            return False
        del head[:_RIFF_BYTES]
        self._is_riff = True
        return True

    def _read_format(self, size: int) -> bool:
        if not _FORMAT_BYTES_MIN <= size <= _FORMAT_BYTES_MAX:
            raise WavRejected("broken", "its `fmt ` chunk has an invalid size")
        whole = _CHUNK_BYTES + size + size % 2
        if len(self._head) < whole:
            return False
        form = bytes(self._head[_CHUNK_BYTES : _CHUNK_BYTES + size])
        del self._head[:whole]
        coding = int.from_bytes(form[0:2], "little")
        if coding == _EXTENSIBLE and size >= _EXTENSIBLE_BYTES_MIN:
            coding = int.from_bytes(form[_SUBFORMAT], "little")
        if coding not in (_PCM, _FLOAT):
            raise WavRejected("coding", "its sound is neither PCM nor float: it is compressed")
        self._bytes_a_second = int.from_bytes(form[8:12], "little")
        self._frame_bytes = int.from_bytes(form[12:14], "little")
        if not self._bytes_a_second or not self._frame_bytes:
            raise WavRejected("broken", "its `fmt ` chunk has a rate or frame size of zero")
        return True
