"""The uploaded list: one no-op task of 100 bytes per line."""

from pathlib import Path

from bench.payload import payload_bytes

_LINES_AT_ONCE = 10_000


def write_list(path: Path, lines: int) -> None:
    with path.open("wb") as file:
        for first in range(0, lines, _LINES_AT_ONCE):
            numbers = range(first, min(first + _LINES_AT_ONCE, lines))
            file.write(b"".join(payload_bytes(number) + b"\n" for number in numbers))
