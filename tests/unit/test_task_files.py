"""How ``coatcheck batch`` reads its FILE."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path

import pytest

from coatcheck.cli import batch
from coatcheck.cli.batch import task_file
from coatcheck.cli.command_errors import Misconfigured


def written(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tasks.ndjson", '{"n": 1}\n{"n": 2}\n'),
        ("tasks.ndjson", "[1, 2]\n"),
        ("tasks.JSONL", "[1]"),
        ("tasks", '{"n": 1}\nnot json\n'),
        ("tasks.json", '\n  {"n": 1}'),
        ("tasks.json", "[1]\n[2]\n"),
        ("tasks.txt", ""),
    ],
)
def test_lines_are_sent_as_they_are(tmp_path: Path, name: str, text: str) -> None:
    with task_file(written(tmp_path, name, text)) as found:
        assert found.tasks is None
        assert found.lines == tmp_path / name


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("[1, 2]", [b"1", b"2"]),
        ("[]", []),
        (
            '  [\n  {"n": 123456789012345678901},\n  [2]\n]\n',
            [b'{"n": 123456789012345678901}', b"[2]"],
        ),
        ("[[1],\n[2]]", [b"[1]", b"[2]"]),
    ],
)
def test_an_array_is_its_elements(tmp_path: Path, text: str, tasks: list[bytes]) -> None:
    with task_file(written(tmp_path, "tasks.json", text)) as found:
        assert found.lines is None
        assert found.tasks is not None
        assert [bytes(task) for task in found.tasks] == tasks


def test_standard_input_is_kept_in_a_file_for_as_long_as_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1\n2\n")))
    with task_file("-") as found:
        assert found.lines is not None
        assert found.lines.read_bytes() == b"1\n2\n"
    assert not found.lines.exists()


@pytest.mark.parametrize("name", ["urls.csv", "urls.TSV", "urls.xlsx"])
def test_a_table_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    with (
        pytest.raises(Misconfigured, match="tables are not supported\nConvert each row"),
        task_file(written(tmp_path, name, "url\nhttps://example.org/\n")),
    ):
        pass


def test_a_compressed_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    name = written(tmp_path, "tasks.ndjson.gz", gzip.compress(b"1\n"))
    with pytest.raises(Misconfigured, match=r"is compressed\n.*gunzip"), task_file(name):
        pass


def test_an_array_that_breaks_off_is_refused(tmp_path: Path) -> None:
    name = written(tmp_path, "tasks.json", "[1,\n2")
    with (
        pytest.raises(Misconfigured, match="is not a valid JSON array"),
        task_file(name),
    ):
        pass


def test_an_array_that_is_too_long_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "ARRAY_BYTES_MAX", 8)
    name = written(tmp_path, "tasks.json", "[1,\n2,\n3]")
    with pytest.raises(Misconfigured, match=r"more than 0 MiB\n.*jq -c"), task_file(name):
        pass


@pytest.mark.parametrize("name", ["absent.ndjson", "."])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(Misconfigured, match=f"^{re.escape(path)}: "), task_file(path):
        pass
