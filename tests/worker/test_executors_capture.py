"""What an isolated job prints, as lines of its log."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.domain.limits import LOG_LINE_CHARACTERS_MAX
from coatcheck.job import LogLine
from coatcheck.worker.executors.isolated import PRINTED_LINES_MAX, capture
from tests.worker.attempts import Recorder


async def captured(*pieces: bytes) -> list[LogLine]:
    """What is reported of a stream that arrives in these pieces."""
    reader = asyncio.StreamReader()
    recorder = Recorder()
    task = asyncio.create_task(capture(reader, "stdout", recorder.report))
    for piece in pieces:
        reader.feed_data(piece)
        await asyncio.sleep(0)
    reader.feed_eof()
    await task
    return recorder.of(LogLine)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"one\r\ntwo"], ["one", "two"]),
        ([b"o", b"ne", b"\nt", b"wo"], ["one", "two"]),
        (["é".encode()[:1], "é".encode()[1:] + b"\n"], ["é"]),
        ([b"\xff\n"], ["\ufffd"]),
        ([b"a\x00b\n"], ["a\ufffdb"]),
        ([b"\n\n"], []),
        ([], []),
    ],
)
async def test_bytes_become_lines(pieces: list[bytes], lines: list[str]) -> None:
    assert [line.message for line in await captured(*pieces)] == lines


async def test_a_line_too_long_for_the_log_is_cut_into_several() -> None:
    text = "x" * (2 * LOG_LINE_CHARACTERS_MAX + 5)
    for ending in (b"", b"\n"):
        lines = await captured(text.encode() + ending)
        assert "".join(line.message for line in lines) == text
        assert [len(line.message) for line in lines] == [
            LOG_LINE_CHARACTERS_MAX,
            LOG_LINE_CHARACTERS_MAX,
            5,
        ]


async def test_a_flood_of_lines_is_cut_with_one_notice() -> None:
    lines = await captured(b"x\n" * (PRINTED_LINES_MAX + 500))
    assert len(lines) == PRINTED_LINES_MAX + 1
    assert lines[-1].message == "stdout has more than 10000 lines; the rest is dropped"


async def test_the_stream_shows_in_the_fields_and_the_level() -> None:
    recorder = Recorder()
    for stream in ("stdout", "stderr"):
        reader = asyncio.StreamReader()
        reader.feed_data(b"text\n")
        reader.feed_eof()
        await capture(reader, stream, recorder.report)
    assert recorder.reports == [
        LogLine("text", "info", {"stream": "stdout"}),
        LogLine("text", "warning", {"stream": "stderr"}),
    ]


@settings(deadline=None)
@given(st.text(alphabet="ab é\n", max_size=50), st.lists(st.integers(0, 60), max_size=6))
def test_where_a_stream_is_cut_makes_no_difference(text: str, cuts: list[int]) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    lines = asyncio.run(captured(*pieces))
    assert [line.message for line in lines] == [line for line in text.split("\n") if line]
